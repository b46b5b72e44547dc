"""Requests and their replies: one request type and one reply type each. A service that cannot answer replies with a Refusal."""

from typing import Final

from msgspec import Struct

from colo_common.events.job import PlacementRequest
from colo_common.events.node import AllocatableChanged, Explanation
from colo_common.events.placement import NearestMiss, NodeScore, ProposedPreemption, ReasonCount
from colo_common.model.freshness import Freshness
from colo_common.model.node_selector import Requirement
from colo_common.model.placement import DeviceShare, Placement, ZoneHugePages, ZoneShare
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reservation import ReservationSpec
from colo_common.model.units import Ms, NodeName, Number, ReplicaName
from colo_common.model.workload import JobSpec

__all__ = [
    "KEY_TAKEN",
    "CancelJob",
    "CreateReservation",
    "DecisionRecord",
    "DeleteReservation",
    "ExplainAllocatable",
    "ExplainPlacement",
    "GetJob",
    "GetReservation",
    "HoldEntry",
    "HoldsListed",
    "HoldsReply",
    "JobPlanned",
    "JobAccepted",
    "JobDetail",
    "JobList",
    "JobSummary",
    "KnownPlace",
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
    """Why a service refused a request: an HTTP-like `code` (400, 404, 409, 429, 503), the field, and the rule that it broke.

    `partitions`: it was refused by one of so many.
    """

    code: int
    field: str
    rule: str
    got: str = ""
    partitions: Number = 1

    def __str__(self) -> str:
        return f"{self.field}: {self.rule}" + (f" (got {self.got})" if self.got else "")


#: The field of the refusal of a job whose id belongs to a job of another key.
KEY_TAKEN: Final = "job id"


class SubmitJob(Struct, frozen=True, kw_only=True):
    """Accept a job under this id. Repeating it with the same spec gives the same reply; with another spec it is refused (409).

    A new job is refused (409) unless `jobs_index` is None or that of the unfinished jobs of its name (`model.submission`).

    `key` is the `key_digest` of the submission ("": not told). A job of another key keeps its id, however alike the two are: the
    submission is refused with the field `KEY_TAKEN`, and its sender tries the next id.
    """

    job: str
    spec: JobSpec
    jobs_index: str | None = None
    key: str = ""


class JobAccepted(Struct, frozen=True, kw_only=True):
    """The job is stored in this `state`. Repeating the request gives the same reply.

    `version` counts the changes of the job's record: a later read never shows a lower version.
    """

    job: str
    state: str
    version: int


class CancelJob(Struct, frozen=True, kw_only=True):
    """Stop a job for good: waiting replicas are withdrawn, running ones get SIGTERM, their grace, SIGKILL.

    The reply is JobAccepted. Refused for an unknown job (404) and a job that has ended (409); a job that is ending accepts it
    again.
    """

    job: str


class GetJob(Struct, frozen=True, kw_only=True):
    """One job by its exact id. The reply is JobDetail, or a Refusal (404) for an unknown or long ended job.

    `replica`: only this one of its replicas; none when it is not the job's. `limit`: at most so many replicas (0: 2,000).
    `cursor` is the `next` of the page before ("": the first page); a page is shorter than the limit where the job is long.
    """

    job: str
    replica: str = ""
    limit: int = 0
    cursor: str = ""


class ListJobs(Struct, frozen=True, kw_only=True):
    """Jobs, newest first: at most `limit` (1..1000), in the given states (in any case; empty: all) and queue (empty: all).

    `name`: only jobs with this name in their job file (empty: all); `prefix`: only jobs whose id begins with it; `tenant`: only
    jobs of this tenant (empty: all). A limit out of range and an unknown state are refused (400), an unknown queue or tenant (404).
    `tenants` and `queues` are those that the asker may see (empty: all); unknown ones among them are no error. `cursor` is the
    `next` of the page before ("": the first page); with many bytes to a job a page is shorter than the limit.

    Where several instances serve a part of the jobs each, one `partition` answers for its own, and the reply says how many there
    are (`partitions`): whoever wants all asks each of them.
    """

    states: tuple[str, ...] = ()
    queue: str = ""
    limit: int = 100
    name: str = ""
    prefix: str = ""
    tenant: str = ""
    tenants: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    cursor: str = ""
    partition: Number = 0


class StoryLine(Struct, frozen=True, kw_only=True):
    """One line of a job's story."""

    at_ms: int
    what: str


class ReplicaDetail(Struct, frozen=True, kw_only=True):
    """The current state of a replica ("job/task/index").

    `attempt` counts from 1, one more for every new place; `node` and `zones` are those of this attempt, empty before it has a
    place. `retries` and `evictions` count over all attempts. `exit_code` is the process's, 128 + signal when a signal ended it,
    None before the process has ended. `reason`: why the replica waits or has failed, empty when nothing is wrong. `trace_id` is
    the trace of this attempt's placement.
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
    """A job and the counts of its replicas by state: the five counts sum to `replicas`.

    `waiting` replicas need a place, now or after their retry wait; `running` replicas hold a place, whether their process starts,
    runs or stops. Times are Unix ms; `ended_at_ms` is None until the job has ended.
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
    tenant: str = "default"


class JobDetail(Struct, frozen=True, kw_only=True):
    """One job with a page of its replicas: at most 2,000, and no more than one message carries with the job itself.

    The failed and placed replicas of a larger job are on the first pages; those of one page are in order. `next` is the cursor of
    the next page, "" on the last one.
    """

    summary: JobSummary
    spec: JobSpec
    version: int
    replicas: tuple[ReplicaDetail, ...]
    story: tuple[StoryLine, ...]
    next: str = ""


class JobList(Struct, frozen=True, kw_only=True):
    """Jobs, newest first; `total` counts all matching jobs, also those beyond the page; `next` is the cursor of the next page.

    They are those of one partition of `partitions`.
    """

    jobs: tuple[JobSummary, ...]
    total: int
    next: str = ""
    partitions: Number = 1


class ListQueues(Struct, frozen=True, kw_only=True):
    """Ask for the queues by name: at most `limit` (0: as many as a page may have), fewer where they are large.

    `cursor` is the `next` of the page before ("": the first page). A value that is no cursor is refused (400). The counts are those
    of the jobs of one `partition`.
    """

    limit: int = 0
    cursor: str = ""
    partition: Number = 0


class QueueSummary(Struct, frozen=True, kw_only=True):
    """A queue's counts now. `capacity` is the most replicas that may wait; a job beyond that is refused (429).

    `oldest_wait_ms` is the wait of the replica that has waited longest, 0 when none waits. `jobs` have not ended. `held_*` is what
    placed replicas of the bands batch and free have requested, `online_*` those of prod, `mid_*` those of mid, `waiting_*` what
    waiting replicas of all bands request.
    """

    queue: str
    waiting: int
    running: int
    capacity: int
    oldest_wait_ms: int = 0
    jobs: int = 0
    held_cpu_mcpu: int = 0
    held_memory_bytes: int = 0
    waiting_cpu_mcpu: int = 0
    waiting_memory_bytes: int = 0
    online_cpu_mcpu: int = 0
    online_memory_bytes: int = 0
    mid_cpu_mcpu: int = 0
    mid_memory_bytes: int = 0


class QueueList(Struct, frozen=True, kw_only=True):
    """Queues that jobs may name, by name in ascending order; `total` counts all, `next` is the next page's cursor, or "".

    Their counts are those of one partition of `partitions`; `capacity` is the queue's.
    """

    queues: tuple[QueueSummary, ...]
    total: int = 0
    next: str = ""
    partitions: Number = 1


class PendingReplicas(Struct, frozen=True, kw_only=True):
    """One page of the replicas that need a place now, from `offset` in a stable order. A starting scheduler reads all pages.

    `has_mid_tier`: the asker places work of the band mid in the mid tier. A scheduler of before the tier does not say so, and such
    replicas are left out.

    `placed_after` asks instead for the replicas that hold a place: "" for the first page, else the last replica of the page before.

    `compare_holds`: a stream may have lost facts that a scheduler had received, and acted upon, before the jobs service did. Who
    had received less notices nothing, so it is told, and compares what it knows to hold a place with the ledger's holds.

    `partition`: of which part of the jobs; the reply says how many there are.
    """

    offset: int = 0
    limit: int = 500
    has_mid_tier: bool = False
    placed_after: ReplicaName | None = None
    compare_holds: bool = False
    partition: Number = 0


class KnownPlace(Struct, frozen=True, kw_only=True):
    """An attempt that holds a place as the jobs service knows it: the request, the node, and the numbers of the zones.

    How much it holds of each of several zones, and which CPUs and devices it has, only its node and the ledger know.
    """

    request: PlacementRequest
    node: NodeName
    zones: tuple[Number, ...]


class PendingReply(Struct, frozen=True, kw_only=True):
    """One page of placement requests from the offset on. A page may be shorter than the limit; only an empty page is the end.

    `total` counts the waiting replicas at the time of the first page. Replicas that got a place since then are left out. `at_ms` is
    when this was answered, by the clock of the times in it; 0 from older services.

    `placed` answers `placed_after` instead, and is None from older services. Here, too, only an empty page is the end.

    All of it is of one partition of `partitions`.
    """

    placement_requests: tuple[PlacementRequest, ...]
    total: int
    at_ms: Ms = 0
    placed: tuple[KnownPlace, ...] | None = None
    partitions: Number = 1


class ListNodes(Struct, frozen=True, kw_only=True):
    """Nodes whose labels meet every requirement of `selector`, in the order of `sort` (NODE_SORTS; "-" before a key reverses it).

    Of nodes that are equal by the first key the second decides, and in the end the name. At most `limit` nodes (0: as many as a
    page may have), fewer where these are large; `cursor` is the `next` of the page before ("": the first page). A value that is no
    cursor is refused (400).
    """

    sort: tuple[str, ...] = ()
    selector: tuple[Requirement, ...] = ()
    limit: int = 0
    cursor: str = ""


class NodeSummary(Struct, frozen=True, kw_only=True):
    """A node's capacity, its usage by all workloads, and the allocatable and holds of batch work.

    `batch_cpu_mcpu` and `batch_memory_bytes` are the published allocatable, 0 before the first; `held_*` is the part that
    placements hold; `batch_cpu_used_mcpu` is the measured usage of batch work. Usage is that of the newest sample, 0 before the
    first; `sample_age_ms` is the time since the sample was received, None before the first. `headroom_*` is what could be promised
    beyond what is held; negative: batch work holds more than could be promised now. `reason` says in words why the node promises
    nothing more, "" when it does. `mid_*` is what the mid tier gets, None where it
    is off, and `mid_held_*` the part that placements hold.
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
    headroom_cpu_mcpu: int = 0
    headroom_memory_bytes: int = 0
    reason: str = ""
    labels: dict[str, str] = {}
    mid_cpu_mcpu: int | None = None
    mid_memory_bytes: int | None = None
    mid_held_cpu_mcpu: int = 0
    mid_held_memory_bytes: int = 0


class NodeList(Struct, frozen=True, kw_only=True):
    """Nodes that have reported their topology, in the requested order; `total` counts all that match, also beyond the page.

    `next` is the cursor of the next page, "" at the end.
    """

    nodes: tuple[NodeSummary, ...]
    total: int = 0
    next: str = ""


class ExplainAllocatable(Struct, frozen=True, kw_only=True):
    """The explanation of a node's allocatable. The reply is NodeExplained, or a Refusal (404) before the first allocatable."""

    node: str


class NodeExplained(Struct, frozen=True, kw_only=True):
    """The `published` allocatable with its explanation, and the terms of the `newest` sample, published or not.

    `age_ms` is the age of the sample behind the published allocatable. The ages of all terms are those of the answer.
    """

    published: AllocatableChanged
    newest: Explanation
    age_ms: int


class ExplainPlacement(Struct, frozen=True, kw_only=True):
    """The newest decisions about the replicas of a job (or one replica, when `replica` is set).

    `cursor` is the `next` of the page before ("": the first page).
    """

    job: str
    replica: str = ""
    cursor: str = ""


class DecisionRecord(Struct, frozen=True, kw_only=True, gc=False):
    """The decision about one replica: its placement or the counts per reason, the nearest miss, and the best rows of the scores.

    All values are those at the replica's own turn: it was the `number`th of the replicas decided `together` in one pass (0: not
    recorded), after the choices before it. The first row of `scores` is the chosen node, if scores decided; the compared nodes
    follow in order. `fitting` is the number of nodes that fit; None when the scheduler checked only some nodes exactly, and the
    other rows are nodes that passed the filters. `never` and `broken_rule`: see PlacementRejected. `preemption`: the node where
    the replica would fit if others left. `placement` leaves out what the replica runs.
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
    """The newest decision about each requested replica, by replica.

    A replica without a decision, or with a forgotten one, is not listed: an unknown job has no decisions and is no error. `next`
    is the cursor of the next page, "" on the last one.
    """

    decisions: tuple[DecisionRecord, ...]
    next: str = ""


class ListHolds(Struct, frozen=True, kw_only=True):
    """One page of the ledger's holds, from `offset` in a stable order. Overcommit and the evictor read all pages to catch up."""

    offset: int = 0
    limit: int = 500


class HoldEntry(Struct, frozen=True, kw_only=True):
    """One attempt that holds shares of a node's zones. Only bands below prod take them from the batch allocatable."""

    node: str
    replica: str
    attempt: int
    zones: tuple[ZoneShare, ...]
    qos: QosClass = QosClass.BE
    band: PriorityBand = PriorityBand.BATCH
    priority: int = 0
    grace_ms: int = 0
    decided_at_ms: int = 0
    traceparent: str = ""
    is_reservation: bool = False
    queue: str = ""

    @classmethod
    def of(cls, placement: Placement, *, is_reservation: bool = False) -> "HoldEntry":
        """What this placement holds."""
        return cls(
            node=placement.node,
            replica=placement.replica,
            attempt=placement.attempt,
            zones=placement.zones,
            qos=placement.qos,
            band=placement.band,
            priority=placement.priority,
            grace_ms=placement.run.grace_ms,
            decided_at_ms=placement.decided_at_ms,
            traceparent=placement.traceparent,
            queue=placement.queue,
            is_reservation=is_reservation,
        )

    @property
    def job(self) -> str:
        """The job of the replica."""
        return self.replica.partition("/")[0]

    @property
    def cpu_mcpu(self) -> int:
        """CPU of all zones."""
        return sum([zone.cpu_mcpu for zone in self.zones])


class HoldsReply(Struct, frozen=True, kw_only=True):
    """One page of committed holds by node, replica and attempt; `total` counts all. Refused (503) before the ledger is read.

    With many bytes to a hold a page is shorter than the limit; the next one begins where it ends.
    """

    holds: tuple[HoldEntry, ...]
    total: int


class HoldsListed(Struct, frozen=True, kw_only=True):
    """Event of a shell: all holds of the scheduler's ledger at some time after `asked_at_ms`; 0: the list may be incomplete."""

    holds: tuple[HoldEntry, ...]
    asked_at_ms: int


class PlanJob(Struct, frozen=True, kw_only=True):
    """Ask where the replicas of this job would be placed now.

    The reply names at most `most` (0..1000) replicas, and no more than one message carries. `avoid`: nodes that are left out.
    """

    spec: JobSpec
    most: int = 100
    avoid: tuple[str, ...] = ()


class PlannedReplica(Struct, frozen=True, kw_only=True):
    """One replica ("task/index") and the place it would get; `reservation` is "" unless the place comes out of a reservation."""

    replica: str
    node: str
    zones: tuple[ZoneShare, ...]
    cpus: str = ""
    devices: tuple[DeviceShare, ...] = ()
    reservation: str = ""


class PlannedTask(Struct, frozen=True, kw_only=True):
    """The plan for a task's replicas. `nodes` are at most 100 pairs of node and number of replicas, the largest number first.

    All tasks together have at most 2,000 of these pairs. When not all replicas are `placed`, `counts` is the number of nodes by
    reason and `nearest` the node that came closest. `never`: no node could hold a replica even when the node is empty; `nearest`
    then compares with the capacity of machines. `scores` are the best rows of the scores before the task's first replica is placed.
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
    """A less important running replica that would have to leave so that a planned replica fits."""

    replica: str
    attempt: int
    node: str
    band: PriorityBand
    priority: int
    cpu_mcpu: int
    memory_bytes: int


class JobPlanned(Struct, frozen=True, kw_only=True):
    """The plan of a job on the `nodes` known at `at_ms`. `fits`: every replica has a place; a submission now does the same.

    `waiting` replicas of other jobs need a place now and may come first. When replicas do not fit, the first `by_preempting` of
    them would fit if `victims` left (at most 20 replicas are tried). No replica leaves because of a plan.
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
    """Create a reservation. Repeating the same spec gives the same reply; another spec under a used name is refused (409)."""

    spec: ReservationSpec


class DeleteReservation(Struct, frozen=True, kw_only=True):
    """Delete a reservation in any phase; its owners keep what they hold. The reply is its state before the deletion."""

    name: str


class GetReservation(Struct, frozen=True, kw_only=True):
    """One reservation by its exact name. The reply is ReservationDetail, or a Refusal (404) for an unknown name.

    All requests about reservations are refused (503) without a store for them and before the ledger is read.
    """

    name: str


class ListReservations(Struct, frozen=True, kw_only=True):
    """Reservations by name, from `offset`, at most `limit` (1..1000), in the given phases (empty: all); fewer where they are large.

    `cursor` is the `next` of the page before, and takes the place of the offset.
    """

    phases: tuple[str, ...] = ()
    offset: int = 0
    limit: int = 100
    cursor: str = ""


class ReservationUse(Struct, frozen=True, kw_only=True):
    """An attempt that uses a reservation, and the CPU and memory that it holds."""

    replica: str
    attempt: int
    cpu_mcpu: int
    memory_bytes: int


class ReservationHolds(Struct, frozen=True, kw_only=True):
    """The parts of a node that a reservation holds. `cpus` is a kernel CPU list."""

    cpu_mcpu: int = 0
    memory_bytes: int = 0
    zones: tuple[ZoneShare, ...] = ()
    cpus: str = ""
    devices: tuple[DeviceShare, ...] = ()
    huge_pages: tuple[ZoneHugePages, ...] = ()


class ReservationDetail(Struct, frozen=True, kw_only=True):
    """A reservation. `phase` is Pending, Available, Succeeded or Failed; `reason` is why it ended.

    `node` and `place` are its current or last place; `left` is the part that no owner uses now. `expires_at_ms` is its end, None:
    it has no end; `now_ms` is the time of this reply by the same clock. While it is Pending, `counts` is the number of `nodes` by
    reason and `nearest` the node that came closest; `never`: no node could hold it even when the node is empty, `nearest` then
    compares with the capacity of machines.
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
    """One page of reservations. `total` counts all in the requested phases; `next` is the next page's cursor, or ""."""

    reservations: tuple[ReservationDetail, ...]
    total: int
    next: str = ""
