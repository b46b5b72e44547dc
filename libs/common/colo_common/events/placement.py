"""Facts about placements: said by the scheduler."""

from msgspec import Struct

from colo_common.events.fact import Fact
from colo_common.model.placement import Placement
from colo_common.model.reasons import Reason
from colo_common.model.units import Ms, NodeName, Number, ReplicaName, Signed

__all__ = [
    "ApplyPlacements",
    "NearestMiss",
    "NodeRelease",
    "NodeScore",
    "PlacementRejected",
    "PlacementsDecided",
    "PlacementsReleased",
    "ReasonCount",
]


class NodeScore(Struct, frozen=True, kw_only=True, gc=False):
    """One row of the score matrix: scorer name -> 0..100, and the weighted total 0..100."""

    node: NodeName
    total: Signed
    scores: dict[str, int]


class PlacementsDecided(Fact, frozen=True, kw_only=True):
    """Placements that are committed to the ledger. At most 50 in one message."""

    placements: tuple[Placement, ...]


class ApplyPlacements(Fact, frozen=True, kw_only=True):
    """Order to one node: run these. An older `generation` of the same replica attempt is dropped."""

    node: NodeName
    generation: Number
    placements: tuple[Placement, ...]


class ReasonCount(Struct, frozen=True, kw_only=True, gc=False):
    """How many nodes were refused for one reason."""

    reason: Reason
    nodes: Number


class NearestMiss(Struct, frozen=True, kw_only=True):
    """The node that came closest: what was asked, what there was."""

    node: NodeName
    reason: Reason
    need: Signed
    have: Signed
    unit: str
    zone: Number | None = None


class PlacementRejected(Fact, frozen=True, kw_only=True):
    """No node could take the replica now. It stays queued and is tried again after `retry_at_ms` or when capacity appears.

    `never`: no node could hold it even when it is empty; `nearest` is then by what machines have. Only another machine, or a
    withdrawal, changes that.

    Said once for all replicas of the job that ask for the same, by the first of them; again when the reasons change.
    """

    replica: ReplicaName
    job: str
    attempt: Number
    nodes: Number
    counts: tuple[ReasonCount, ...]
    nearest: NearestMiss | None = None
    retry_at_ms: Ms = 0
    never: bool = False


class NodeRelease(Struct, frozen=True, kw_only=True):
    """Attempts that hold nothing on the node any more."""

    node: NodeName
    attempts: tuple[tuple[ReplicaName, Number], ...]


class PlacementsReleased(Fact, frozen=True, kw_only=True):
    """The ledger no longer holds anything for these attempts on these nodes. At most 200 attempts in one message."""

    nodes: tuple[NodeRelease, ...]
