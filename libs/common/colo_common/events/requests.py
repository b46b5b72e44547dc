"""Questions that services answer: one request type and one reply type each. A question that cannot be answered gets a Refusal."""

from msgspec import Struct

from colo_common.events.job import PlacementRequest
from colo_common.events.node import AllocatableChanged, Explanation
from colo_common.events.placement import NearestMiss, NodeScore, ProposedPreemption, ReasonCount
from colo_common.model.freshness import Freshness
from colo_common.model.placement import DeviceShare, Placement, ZoneHugePages, ZoneShare
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reservation import ReservationSpec
from colo_common.model.workload import JobSpec

__all__ = [
    "CancelJob",
    "CreateReservation",
    "DecisionRecord",
    "DeleteReservation",
    "ExplainAllocatable",
    "ExplainPlacement",
    "GetJob",
    "GetReservation",
    "Hold",
    "HoldsReply",
    "JobPlanned",
    "JobAccepted",
    "JobDetail",
    "JobList",
    "JobSummary",
    "ListHolds",
    "ListJobs",
    "ListNodes",
    "ListQueues",
    "ListReservations",
    "NodeExplained",
    "NodeList",
    "NodeSummary",
    "PendingReplicas",
    "PendingReply",
    "PlanJob",
    "PlannedReplica",
    "PlannedTask",
    "PlannedVictim",
    "PlacementsExplained",
    "QueueList",
    "QueueSummary",
    "Refusal",
    "ReplicaDetail",
    "ReservationDetail",
    "ReservationHolds",
    "ReservationList",
    "ReservationUse",
    "StoryLine",
    "SubmitJob",
]


class Refusal(Struct, frozen=True, kw_only=True):
    """Why a request was not done: an HTTP-like `code` (400, 404, 409, 429, 503), the field and the rule it broke."""

    code: int
    field: str
    rule: str
    got: str = ""

    def __str__(self) -> str:
        return f"{self.field}: {self.rule}" + (f" (got {self.got})" if self.got else "")


class SubmitJob(Struct, frozen=True, kw_only=True):
    """Accept a job under this id. The same id with the same spec again is answered alike; with another spec it is refused (409)."""

    job: str
    spec: JobSpec


class JobAccepted(Struct, frozen=True, kw_only=True):
    """The job is recorded in this `state` and will be worked on; asking the same again answers alike.

    `version` counts the changes of the job's record: a later read never shows a lower one.
    """

    job: str
    state: str
    version: int


class CancelJob(Struct, frozen=True, kw_only=True):
    """Stop a job for good: waiting replicas are withdrawn, running ones get SIGTERM, their grace, SIGKILL.

    Answered with JobAccepted. Refused when there is no such job (404) or it has ended (409); while it ends it may be asked again.
    """

    job: str


class GetJob(Struct, frozen=True, kw_only=True):
    """One job by its exact id; JobDetail, or a Refusal (404) when there is none or it ended so long ago that it was forgotten."""

    job: str


class ListJobs(Struct, frozen=True, kw_only=True):
    """Newest first, at most `limit` (1..1000) in the given states (empty: all, in any case) and queue (empty: all).

    `name`: only jobs whose file names them so (empty: all); `prefix`: only those whose id begins with it. Another limit, and a
    state that there is not, is refused (400).
    """

    states: tuple[str, ...] = ()
    queue: str = ""
    limit: int = 100
    name: str = ""
    prefix: str = ""


class StoryLine(Struct, frozen=True, kw_only=True):
    """One line of what happened, in order."""

    at_ms: int
    what: str


class ReplicaDetail(Struct, frozen=True, kw_only=True):
    """A replica ("job/task/index") as it is now.

    `attempt` counts from 1, one more for every place; `node` and `zones` are those of this attempt, empty before it has a place.
    `retries` and `evictions` count over all attempts. `exit_code` is the process's, 128 + signal when a signal ended it, None
    while it has none. `reason`: why it is not where it should be, empty when nothing is wrong. `trace_id` names the trace of this
    attempt's placement.
    """

    replica: str
    attempt: int
    state: str
    node: str = ""
    zones: tuple[int, ...] = ()
    retries: int = 0
    evictions: int = 0
    exit_code: int | None = None
    reason: str = ""
    trace_id: str = ""


class JobSummary(Struct, frozen=True, kw_only=True):
    """A job and how many of its `replicas` are where: the five counts sum to `replicas`.

    `waiting` want a place or will after a pause; `running` hold one, whether their process runs already, runs or stops.
    Times are Unix ms; `ended_at_ms` is None until the job is over.
    """

    job: str
    name: str
    queue: str
    state: str
    replicas: int
    waiting: int
    running: int
    succeeded: int
    failed: int
    stopped: int
    submitted_at_ms: int
    ended_at_ms: int | None = None


class JobDetail(Struct, frozen=True, kw_only=True):
    """All of one job. `replicas`: at most 2,000, in order; of a larger job the failed and the placed ones go before the others."""

    summary: JobSummary
    spec: JobSpec
    version: int
    replicas: tuple[ReplicaDetail, ...]
    story: tuple[StoryLine, ...]


class JobList(Struct, frozen=True, kw_only=True):
    """The newest jobs first; `total` counts all that were asked for, also those beyond the limit."""

    jobs: tuple[JobSummary, ...]
    total: int


class ListQueues(Struct, frozen=True, kw_only=True):
    """All queues."""


class QueueSummary(Struct, frozen=True, kw_only=True):
    """A queue now: replicas that wait and run, and how many may wait at most (`capacity`); a job beyond that is refused (429).

    `oldest_wait_ms`: how long the longest waiting replica has waited, 0 when none waits.
    """

    queue: str
    waiting: int
    running: int
    capacity: int
    oldest_wait_ms: int = 0


class QueueList(Struct, frozen=True, kw_only=True):
    """Every queue that jobs may name, by name in ascending order."""

    queues: tuple[QueueSummary, ...]


class PendingReplicas(Struct, frozen=True, kw_only=True):
    """Every replica that wants a place now, from `offset` in stable order: how a starting scheduler catches up."""

    offset: int = 0
    limit: int = 500


class PendingReply(Struct, frozen=True, kw_only=True):
    """One page: the wants from the offset on. It may be shorter than the limit; an empty one is the end, not a short one.

    `total` counts the waiting replicas as the first page found them. What found a place since then is left out.
    """

    placement_requests: tuple[PlacementRequest, ...]
    total: int


class ListNodes(Struct, frozen=True, kw_only=True):
    """All nodes that the overcommit service knows."""


class NodeSummary(Struct, frozen=True, kw_only=True):
    """A node: what it has, what is used of it by everybody, and what batch work may have of it and holds.

    `batch_cpu_mcpu` and `batch_memory_bytes` are what is promised, 0 while nothing is; `held_*` is what placements hold of that;
    `batch_cpu_used_mcpu` what batch work was measured to use. Use is that of the newest sample, 0 before there is one;
    `sample_age_ms`: how long ago that was heard, None when never.
    """

    node: str
    freshness: Freshness
    sample_age_ms: int | None
    cpu_capacity_mcpu: int
    cpu_used_mcpu: int
    memory_capacity_bytes: int
    memory_used_bytes: int
    batch_cpu_mcpu: int
    batch_memory_bytes: int
    held_cpu_mcpu: int
    held_memory_bytes: int
    batch_cpu_used_mcpu: int = 0
    simulated: bool = False


class NodeList(Struct, frozen=True, kw_only=True):
    """Every node that has said what it is, by name in ascending order."""

    nodes: tuple[NodeSummary, ...]


class ExplainAllocatable(Struct, frozen=True, kw_only=True):
    """Why a node may promise what it does; NodeExplained, or a Refusal (404) while it is not known or promises nothing yet."""

    node: str


class NodeExplained(Struct, frozen=True, kw_only=True):
    """The published number with its explanation, and the newest computed one where that was too close to publish."""

    published: AllocatableChanged
    newest: Explanation
    age_ms: int


class ExplainPlacement(Struct, frozen=True, kw_only=True):
    """The newest decisions about the replicas of a job (or one replica, when `replica` is set)."""

    job: str
    replica: str = ""


class DecisionRecord(Struct, frozen=True, kw_only=True, gc=False):
    """Why a replica is where it is, or why it is nowhere: counts per reason, nearest miss, and the score matrix (best rows).

    All of it is as it was at the moment of this replica, after what was chosen before it: it was the `number`th of those that were
    decided `together` (0: not told). The first row of `scores` is its own node's then, if scores decided; the others follow in
    order, as far as they were compared. `fitting`: so many nodes could take it; None where only some were looked at closely, and
    the other rows are nodes that pass the filters.
    `never`: no node could hold it even when it is empty; the nearest miss is then by what machines have. `broken_rule`: see
    PlacementRejected. `preemption`: where it would fit if others left.
    """

    replica: str
    attempt: int
    at_ms: int
    nodes: int
    placement: Placement | None = None
    counts: tuple[ReasonCount, ...] = ()
    nearest: NearestMiss | None = None
    scores: tuple[NodeScore, ...] = ()
    retry_at_ms: int = 0
    never: bool = False
    broken_rule: str = ""
    preemption: ProposedPreemption | None = None
    fitting: int | None = None
    number: int = 0
    together: int = 0


class PlacementsExplained(Struct, frozen=True, kw_only=True):
    """The newest decision about each replica asked for, by replica.

    None about a replica that was not decided yet or is forgotten: an unknown job has no decisions and is no error.
    """

    decisions: tuple[DecisionRecord, ...]


class ListHolds(Struct, frozen=True, kw_only=True):
    """Everything that the ledger holds, from `offset` in stable order: how a starting overcommit service catches up."""

    offset: int = 0
    limit: int = 500


class Hold(Struct, frozen=True, kw_only=True):
    """One attempt that holds shares of a node's zones. Only bands below prod hold them of what batch work may have."""

    node: str
    replica: str
    attempt: int
    zones: tuple[ZoneShare, ...]
    qos: QosClass = QosClass.BE
    band: PriorityBand = PriorityBand.BATCH


class HoldsReply(Struct, frozen=True, kw_only=True):
    """One page of committed holds by node, replica and attempt, `total` of all. Refused (503) while the ledger is not read."""

    holds: tuple[Hold, ...]
    total: int


class PlanJob(Struct, frozen=True, kw_only=True):
    """Where would the replicas of this job go now? Nothing changes by asking. At most `most` (0..1000) replicas are told singly."""

    spec: JobSpec
    most: int = 100


class PlannedReplica(Struct, frozen=True, kw_only=True):
    """One replica ("task/index") and the place it would get, out of a `reservation` where one is named."""

    replica: str
    node: str
    zones: tuple[ZoneShare, ...]
    cpus: str = ""
    devices: tuple[DeviceShare, ...] = ()
    reservation: str = ""


class PlannedTask(Struct, frozen=True, kw_only=True):
    """What would become of a task's replicas. `nodes`: how many on which node, most first, at most 100 nodes.

    Where not all are `placed`: `counts`, how many nodes each reason refuses then, and the node that comes `nearest`; `never`: no
    node could hold one even when it is empty, `nearest` is then by what machines have. `scores` are the best rows of the score
    matrix before the first of them is placed.
    """

    task: str
    replicas: int
    placed: int
    nodes: tuple[tuple[str, int], ...] = ()
    counts: tuple[ReasonCount, ...] = ()
    nearest: NearestMiss | None = None
    scores: tuple[NodeScore, ...] = ()
    never: bool = False


class PlannedVictim(Struct, frozen=True, kw_only=True):
    """A running replica of less importance that would have to leave for a replica that does not fit."""

    replica: str
    attempt: int
    node: str
    band: PriorityBand
    priority: int
    cpu_mcpu: int
    memory_bytes: int


class JobPlanned(Struct, frozen=True, kw_only=True):
    """The answer from the `nodes` known at `at_ms`. `fits`: every replica has a place; a submission then does the same.

    `waiting` replicas of other jobs want a place now and may come first. Where replicas do not fit: `victims` would have to leave
    so that the first `by_preempting` of those missing do (at most 20 are tried). Nobody leaves by this.
    """

    fits: bool
    at_ms: int
    nodes: int
    replicas: int
    placed: int
    waiting: int
    tasks: tuple[PlannedTask, ...]
    places: tuple[PlannedReplica, ...]
    victims: tuple[PlannedVictim, ...] = ()
    by_preempting: int = 0


class CreateReservation(Struct, frozen=True, kw_only=True):
    """Hold a place. The same again is answered alike; another one under a name that is in use is refused (409)."""

    spec: ReservationSpec


class DeleteReservation(Struct, frozen=True, kw_only=True):
    """Forget a reservation at once, whatever its phase; its owners keep what they hold. Answered as it was before."""

    name: str


class GetReservation(Struct, frozen=True, kw_only=True):
    """One reservation by its exact name; ReservationDetail, or a Refusal (404) when there is none.

    All questions about reservations are refused (503) where no store keeps them, and while the ledger is not read.
    """

    name: str


class ListReservations(Struct, frozen=True, kw_only=True):
    """From `offset` by name, at most `limit` (1..1000), in the given phases (empty: all)."""

    phases: tuple[str, ...] = ()
    offset: int = 0
    limit: int = 100


class ReservationUse(Struct, frozen=True, kw_only=True):
    """An attempt that uses a reservation, and all that it holds."""

    replica: str
    attempt: int
    cpu_mcpu: int
    memory_bytes: int


class ReservationHolds(Struct, frozen=True, kw_only=True):
    """Parts of a node. `cpus` is a kernel CPU list."""

    cpu_mcpu: int = 0
    memory_bytes: int = 0
    zones: tuple[ZoneShare, ...] = ()
    cpus: str = ""
    devices: tuple[DeviceShare, ...] = ()
    huge_pages: tuple[ZoneHugePages, ...] = ()


class ReservationDetail(Struct, frozen=True, kw_only=True):
    """A reservation: its `phase` (Pending, Available, Succeeded, Failed), and why it ended.

    `node` and `place`: where it is held or was held last. `left`: what of it no owner uses now. `expires_at_ms`: its last moment,
    None for ever; `now_ms`: when this was said, by the same clock. While it waits: how many of `nodes` each reason refuses
    (`counts`), and the node that comes `nearest`; `never`: no node could hold it even when empty, `nearest` is then by what
    machines have.
    """

    spec: ReservationSpec
    phase: str
    created_at_ms: int
    reason: str = ""
    ended_at_ms: int | None = None
    expires_at_ms: int | None = None
    node: str = ""
    place: ReservationHolds = ReservationHolds()
    left: ReservationHolds = ReservationHolds()
    owners: tuple[ReservationUse, ...] = ()
    nodes: int = 0
    counts: tuple[ReasonCount, ...] = ()
    nearest: NearestMiss | None = None
    retry_at_ms: int = 0
    now_ms: int = 0
    never: bool = False


class ReservationList(Struct, frozen=True, kw_only=True):
    """One page. `total` counts all in the phases asked for."""

    reservations: tuple[ReservationDetail, ...]
    total: int
