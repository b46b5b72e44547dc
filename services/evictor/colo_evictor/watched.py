"""What the evictor knows of one node."""

from msgspec import Struct, field

from colo_common.model.placement import Placement
from colo_common.model.reasons import Reason
from colo_common.model.topology import NodeTopology
from colo_evictor.signals import Signal

__all__ = ["TerminatingReplica", "EvictorRow", "WatchedNode"]


class TerminatingReplica(Struct, frozen=True, kw_only=True):
    """A victim on its way out. What it used at the request is credited until it is gone."""

    eviction: str
    replica: str
    attempt: int
    cpu_mcpu: int
    memory_bytes: int
    requested_at_ms: int
    due_ms: int


class EvictorRow(Struct, frozen=True, kw_only=True):
    """What is stored of a node, so that a restart neither forgets a victim nor a cool-down."""

    leaving: tuple[TerminatingReplica, ...] = ()
    cool_until_ms: int = 0


class WatchedNode(Struct, kw_only=True):
    """Mutable, owned by the core. `placed` and `leaving` are keyed by attempt; `version` is that of the stored row."""

    topology: NodeTopology | None = None
    placed: dict[str, Placement] = field(default_factory=dict)
    leaving: dict[str, TerminatingReplica] = field(default_factory=dict)
    signals: dict[Reason, Signal] = field(default_factory=dict)
    cool_until_ms: int = 0
    version: int = 0
    sample_seq: int = 0
    boot_id: str = ""

    @property
    def requested_mcpu(self) -> int:
        """CPU requested by the placements that are not leaving."""
        return sum(p.cpu_mcpu for key, p in self.placed.items() if key not in self.leaving)

    def row(self) -> EvictorRow:
        """What to store now."""
        return EvictorRow(
            leaving=tuple(self.leaving[key] for key in sorted(self.leaving)), cool_until_ms=self.cool_until_ms
        )
