"""Facts about placements: said by the scheduler."""

from msgspec import Struct

from colo_common.events.fact import Fact
from colo_common.model.placement import Placement
from colo_common.model.qos import PriorityBand
from colo_common.model.reasons import Reason
from colo_common.model.units import Bytes, Mcpu, Ms, NodeName, Number, ReplicaName, Signed

__all__ = [
    "ApplyPlacements",
    "NearestMiss",
    "NodeRelease",
    "NodeScore",
    "PlacementRejected",
    "PlacementsDecided",
    "PlacementsReleased",
    "PreemptionProposed",
    "ProposedPreemption",
    "ProposedVictim",
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

    `broken_rule`: the request itself breaks this rule, so that no node was asked and none ever will be. It waits all the same,
    until it is withdrawn or a scheduler takes it that knows better.
    """

    replica: ReplicaName
    job: str
    attempt: Number
    nodes: Number
    counts: tuple[ReasonCount, ...]
    nearest: NearestMiss | None = None
    retry_at_ms: Ms = 0
    never: bool = False
    broken_rule: str = ""


class ProposedVictim(Struct, frozen=True, kw_only=True, gc=False):
    """A placed replica of less importance than one that finds no place."""

    replica: ReplicaName
    attempt: Number
    band: PriorityBand
    priority: Signed
    cpu_mcpu: Mcpu
    memory_bytes: Bytes


class ProposedPreemption(Struct, frozen=True, kw_only=True):
    """A replica that finds no place would fit on this node if these left, the least important first.

    `revision` is that of the node's ledger row by which this was found, `at_ms` when.
    """

    node: NodeName
    victims: tuple[ProposedVictim, ...]
    revision: Number
    at_ms: Ms


class PreemptionProposed(Fact, frozen=True, kw_only=True):
    """A replica that was rejected would fit if others of less importance left: a lower band, or the same and a lower priority.

    Nobody has to leave by this. It is said after a rejection that was said, for all replicas of the job that ask for the same by
    the first of them; `reason` is why most nodes refused it.
    """

    replica: ReplicaName
    job: str
    attempt: Number
    band: PriorityBand
    priority: Signed
    reason: Reason
    proposal: ProposedPreemption


class NodeRelease(Struct, frozen=True, kw_only=True):
    """Attempts that hold nothing on the node any more."""

    node: NodeName
    attempts: tuple[tuple[ReplicaName, Number], ...]


class PlacementsReleased(Fact, frozen=True, kw_only=True):
    """The ledger no longer holds anything for these attempts on these nodes. At most 200 attempts in one message."""

    nodes: tuple[NodeRelease, ...]
