"""What online work felt in the last ten minutes, from the samples of the collectors: per node, and in spells."""

from collections import deque
from collections.abc import Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from colo_common.events.enforcement import EnforcementChanged, ZoneCeiling
from colo_common.events.node import NodeUsageSampled
from colo_common.model.online_harm import is_harmed
from colo_common.model.slo import OnlineViolation, worst_online_violation

__all__ = ["WINDOW_MS", "Harm", "NodeHarm", "NodeLatency", "Spell", "ZoneFall"]

WINDOW_MS: Final = 600_000
_BUCKET_MS: Final = 30_000
_NODES_MAX: Final = 20_000
_SPELLS_MAX: Final = 500
_LATENCY_AGE_MS: Final = 60_000
#: The reflex may act on its own readings before the sample that shows the harm was made.
_EARLIER_MS: Final = 2_000


class _Bucket(Struct, gc=False):
    begins_ms: int
    lived_ms: int = 0
    harmed_ms: int = 0
    unmeasured_ms: int = 0


class ZoneFall(Struct, frozen=True, kw_only=True, gc=False):
    """How far the ceiling of batch work fell in one NUMA zone."""

    zone: int
    ceiling_before_mcpu: int
    ceiling_mcpu: int


class _Fall(Struct, frozen=True, kw_only=True):
    """A fall of the ceiling of batch work: that of the node, those of zones, which may leave the node's as it is, or both."""

    at_ms: int
    ceiling_before_mcpu: int
    ceiling_mcpu: int
    zones: tuple[ZoneFall, ...]


class Spell(Struct, kw_only=True):
    """An uninterrupted time in which online work of a node was harmed; `worst_pct` is the worst share of a sample that it waited.

    `shrunk_at_ms` is when batch work was first shrunk because of it, on the node from `ceiling_before_mcpu` to `ceiling_mcpu`, the
    lowest ceiling within the spell, which is no lower where its CPUs in `zones` alone became fewer; None: it was not shrunk.
    """

    node: str
    from_ms: int
    to_ms: int
    worst_pct: int = 0
    shrunk_at_ms: int | None = None
    ceiling_before_mcpu: int = 0
    ceiling_mcpu: int = 0
    zones: tuple[ZoneFall, ...] = ()

    @property
    def length_ms(self) -> int:
        """How long it lasted, to the end of its last sample."""
        return self.to_ms - self.from_ms


class NodeHarm(Struct, kw_only=True):
    """The sums of one node over the window: time in samples, harmed time in them, and time in samples without the measurement."""

    node: str
    lived_ms: int = 0
    harmed_ms: int = 0
    unmeasured_ms: int = 0
    longest_ms: int = 0


class NodeLatency(Struct, frozen=True, kw_only=True, gc=False):
    """The online workload of a node that breaks the SLO of its latency most often, by a sample made at `at_ms`."""

    node: str
    at_ms: int
    worst: OnlineViolation


class _Node(Struct, kw_only=True):
    buckets: deque[_Bucket] = field(default_factory=lambda: deque(maxlen=WINDOW_MS // _BUCKET_MS + 1))
    spell: Spell | None = None
    # The newest fall of a ceiling, which may come before the sample that shows the harm.
    fall: _Fall | None = None
    latency: NodeLatency | None = None
    boot_id: str = ""
    sample_seq: int = 0


class Harm:
    """A rolling window of ten minutes in buckets of 30 s, for at most 20,000 nodes, and at most 500 spells."""

    def __init__(self) -> None:
        #: When the first sample was made; what was felt before is not known. None before one was heard.
        self.known_since_ms: int | None = None
        self._nodes: dict[str, _Node] = {}
        self._spells: deque[Spell] = deque(maxlen=_SPELLS_MAX)
        #: Sums over all nodes since the start: time in samples that could be measured, and harmed time in them.
        self.measured_ms = 0
        self.harmed_ms = 0

    def sampled(self, sample: NodeUsageSampled) -> None:
        """Take a sample; one that was taken already, or is older than the newest of its boot, changes nothing."""
        if self.known_since_ms is None:
            self.known_since_ms = sample.at_ms
        node = self._nodes.get(sample.node)
        if node is None:
            if len(self._nodes) >= _NODES_MAX:
                return
            node = self._nodes[sample.node] = _Node()
        if sample.boot_id == node.boot_id and sample.sample_seq <= node.sample_seq:
            return
        node.boot_id, node.sample_seq = sample.boot_id, sample.sample_seq
        worst = worst_online_violation(sample.workloads)
        node.latency = None if worst is None else NodeLatency(node=sample.node, at_ms=sample.at_ms, worst=worst)
        begins_ms = sample.at_ms // _BUCKET_MS * _BUCKET_MS
        if not node.buckets or node.buckets[-1].begins_ms < begins_ms:
            node.buckets.append(_Bucket(begins_ms))
        bucket = node.buckets[-1]
        bucket.lived_ms += sample.interval_ms
        if sample.online_stall_us is None:
            bucket.unmeasured_ms += sample.interval_ms
            node.spell = None
            return
        self.measured_ms += sample.interval_ms
        if is_harmed(sample.online_stall_us, sample.interval_ms):
            bucket.harmed_ms += sample.interval_ms
            self.harmed_ms += sample.interval_ms
            self._prolong(node, sample, sample.online_stall_us)
            return
        node.spell = None

    def shrunk(self, fact: EnforcementChanged, before: EnforcementChanged | None) -> None:
        """Take a change of a node's batch ceiling, or of its zones; only a fall belongs to a spell.

        `before` is the fact before it, which says what the zones had; without one they had all of their CPUs.
        """
        node = self._nodes.get(fact.node)
        if node is None or fact.observed:
            return
        zones = _fallen(fact.zones, () if before is None else before.zones)
        if fact.ceiling_mcpu >= fact.ceiling_before_mcpu and not zones:
            return
        node.fall = _Fall(
            at_ms=fact.at_ms,
            ceiling_before_mcpu=fact.ceiling_before_mcpu,
            ceiling_mcpu=fact.ceiling_mcpu,
            zones=zones,
        )
        if node.spell is not None:
            _note_fall(node.spell, node.fall)

    def of_nodes(self, now_ms: int, node: str = "") -> list[NodeHarm]:
        """The nodes with samples in the window (or one of them), the most harmed first."""
        longest_ms: dict[str, int] = {}
        for spell in self.spells(now_ms, node):
            # The longest comes first.
            longest_ms.setdefault(spell.node, spell.length_ms)
        found = []
        one = self._nodes.get(node)
        for name, state in self._nodes.items() if not node else () if one is None else ((node, one),):
            sums = NodeHarm(node=name, longest_ms=longest_ms.get(name, 0))
            has_samples = False
            for bucket in state.buckets:
                if bucket.begins_ms + _BUCKET_MS > now_ms - WINDOW_MS:
                    has_samples = True
                    sums.lived_ms += bucket.lived_ms
                    sums.harmed_ms += bucket.harmed_ms
                    sums.unmeasured_ms += bucket.unmeasured_ms
            if has_samples:
                found.append(sums)
        return sorted(found, key=lambda each: (-each.harmed_ms, each.node))

    def latencies(self, now_ms: int, node: str = "") -> list[NodeLatency]:
        """The nodes (or one of them) whose newest sample, at most a minute old, says how often online latency broke its SLO: the
        worst first.
        """
        found = [
            state.latency
            for name, state in self._nodes.items()
            if state.latency is not None and node in ("", name) and state.latency.at_ms > now_ms - _LATENCY_AGE_MS
        ]
        return sorted(found, key=lambda each: (-each.worst.violation_ratio, each.node))

    def spells(self, now_ms: int, node: str = "") -> list[Spell]:
        """The spells that reach into the window, the longest first."""
        kept = [each for each in self._spells if each.to_ms > now_ms - WINDOW_MS and node in ("", each.node)]
        return sorted(kept, key=lambda each: (-each.length_ms, -each.to_ms, each.node))

    def _prolong(self, node: _Node, sample: NodeUsageSampled, stall_us: int) -> None:
        begins_ms = sample.at_ms - sample.interval_ms
        if node.spell is None:
            node.spell = Spell(node=sample.node, from_ms=begins_ms, to_ms=sample.at_ms)
            self._spells.append(node.spell)
            if node.fall is not None and node.fall.at_ms >= begins_ms - _EARLIER_MS:
                _note_fall(node.spell, node.fall)
        node.spell.to_ms = sample.at_ms
        node.spell.worst_pct = max(node.spell.worst_pct, stall_us // (sample.interval_ms * 10))


def _fallen(now: Sequence[ZoneCeiling], before: Sequence[ZoneCeiling]) -> tuple[ZoneFall, ...]:
    """The zones with a lower ceiling than before; one that was not named then had all of its CPUs."""
    was = {each.zone: each.ceiling_mcpu for each in before}
    return tuple(
        ZoneFall(zone=each.zone, ceiling_before_mcpu=before_mcpu, ceiling_mcpu=each.ceiling_mcpu)
        for each in now
        if each.ceiling_mcpu < (before_mcpu := was.get(each.zone, each.capacity_mcpu))
    )


def _note_fall(spell: Spell, fall: _Fall) -> None:
    """Let the spell begin its fall with the first one, and reach as low as the lowest."""
    if spell.shrunk_at_ms is None:
        spell.shrunk_at_ms, spell.ceiling_before_mcpu = fall.at_ms, fall.ceiling_before_mcpu
        spell.ceiling_mcpu = fall.ceiling_mcpu
    spell.ceiling_mcpu = min(spell.ceiling_mcpu, fall.ceiling_mcpu)
    zones = {each.zone: each for each in spell.zones}
    for each in fall.zones:
        first = zones.setdefault(each.zone, each)
        zones[each.zone] = replace(first, ceiling_mcpu=min(first.ceiling_mcpu, each.ceiling_mcpu))
    spell.zones = tuple(zones[zone] for zone in sorted(zones))
