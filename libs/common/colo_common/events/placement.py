"""Facts and orders about placements. The scheduler publishes them."""

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
    """Placements that are committed to the ledger. At most 50 in one message, and fewer where their commands are long."""

    placements: tuple[Placement, ...]


class ApplyPlacements(Fact, frozen=True, kw_only=True):
    """Order to one node: run these. `generation` is the revision of the ledger's row that holds them.

    Several orders have one generation where its placements do not fit into one message.

    Orders of several schedulers overtake one another, so a node obeys by attempt: it keeps the highest attempt of a replica and
    drops older ones. The ledger refused already what a scheduler committed under an old fence.
    """

    node: NodeName
    generation: Number
    placements: tuple[Placement, ...]


class ReasonCount(Struct, frozen=True, kw_only=True, gc=False):
    """The number of nodes that the scheduler refused for one reason. `detail`: by whom and why, where people are the reason."""

    reason: Reason
    nodes: Number
    detail: str = ""


class NearestMiss(Struct, frozen=True, kw_only=True):
    """The node that came closest to a fit: `need` is the request, `have` is what the node has of it, both in `unit`."""

    node: NodeName
    reason: Reason
    need: Signed
    have: Signed
    unit: str
    zone: Number | None = None


class PlacementRejected(Fact, frozen=True, kw_only=True):
    """No node could take the replica now. It stays queued and is tried again after `retry_at_ms` or when capacity appears.

    `never`: no node could hold the replica even when the node is empty; `nearest` then compares with the capacity of machines. Only
    a new machine or a withdrawal changes that.

    Published once for all replicas of the job with the same request, with the name of the first; again when the reasons change.

    `broken_rule`: the request breaks this rule, so the scheduler tries no node. The replica stays queued until it is withdrawn or
    a scheduler of another version accepts the request.

    `newest_over`: this attempt and all up to that one are over (0: they are not), so only a newer one can be placed. The jobs
    service requests that.
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
    newest_over: Number = 0


class ProposedVictim(Struct, frozen=True, kw_only=True, gc=False):
    """A placed replica of less importance than the rejected replica."""

    replica: ReplicaName
    attempt: Number
    band: PriorityBand
    priority: Signed
    cpu_mcpu: Mcpu
    memory_bytes: Bytes


class ProposedPreemption(Struct, frozen=True, kw_only=True):
    """The rejected replica would fit on this node if the `victims` left; the least important is the first.

    `revision` is the revision of the node's ledger row that the search used, `at_ms` the time of the search.
    """

    node: NodeName
    victims: tuple[ProposedVictim, ...]
    revision: Number
    at_ms: Ms


class PreemptionProposed(Fact, frozen=True, kw_only=True):
    """A rejected replica would fit if less important replicas left: of a lower band, or of the same band and a lower priority.

    It is a proposal; no replica leaves because of it. Published after a PlacementRejected, once for all replicas of the job with
    the same request, with the name of the first. `reason` is the reason of most nodes.
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
