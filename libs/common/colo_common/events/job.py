"""Facts and orders about jobs and replicas. The jobs service publishes them."""

from msgspec import Struct

from colo_common.events.fact import Fact
from colo_common.model.constraints import UNCONSTRAINED, Constraints
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.units import Ms, NodeName, Number, ReplicaName, Signed, Us
from colo_common.model.workload import JobSpec, ResourceRequest, RunSpec

__all__ = [
    "JobStateChanged",
    "JobSubmitted",
    "MidPlacementsRequested",
    "QueueChanged",
    "ReplicaChange",
    "ReplicaStop",
    "PlacementRequest",
    "ReplicasChanged",
    "PlacementsRequested",
    "ReplicasWithdrawn",
    "StopReplicas",
]


class JobSubmitted(Fact, frozen=True, kw_only=True):
    """A job was accepted and is recorded."""

    job: str
    spec: JobSpec


class JobStateChanged(Fact, frozen=True, kw_only=True):
    """A job moved along the job table; `transition` is the id of the row ("J04")."""

    job: str
    queue: str
    state: str
    previous: str
    transition: str
    version: Number
    reason: str = ""


class ReplicaChange(Struct, frozen=True, kw_only=True, gc=False):
    """One move of one replica along the replica table. `cause`, `exit_code` and `node` are set where they apply."""

    replica: ReplicaName
    attempt: Number
    state: str
    previous: str
    transition: str
    node: NodeName = ""
    cause: EndCause | None = None
    exit_code: Signed | None = None
    reason: Reason | None = None


class ReplicasChanged(Fact, frozen=True, kw_only=True):
    """Replicas of one job moved along the replica table, in this order; at most 100 moves in one message."""

    job: str
    changes: tuple[ReplicaChange, ...]


class PlacementRequest(Struct, frozen=True, kw_only=True, gc=False):
    """One replica that needs a place, with all fields that the scheduler needs for its decision.

    `avoid` lists nodes that refused or evicted the replica, each with the time (Unix ms) until which it is left out, by
    the clock that gives the message its `at_ms`: whoever decides counts the rest from the arrival, by its own.
    `queued_at_us` is set by older services only.
    `labels` are the job's, sorted, and `job_name` is the name in the job file: reservations match their owners by both.
    `tenant` is the job's; empty in messages of earlier versions.
    """

    replica: ReplicaName
    job: str
    queue: str
    attempt: Number
    request: ResourceRequest
    run: RunSpec
    qos: QosClass
    band: PriorityBand
    priority: Signed = 0
    queued_at_ms: Ms = 0
    queued_at_us: Us = 0
    avoid: tuple[tuple[NodeName, Ms], ...] = ()
    traceparent: str = ""
    constraints: Constraints = UNCONSTRAINED
    labels: tuple[tuple[str, str], ...] = ()
    job_name: str = ""
    tenant: str = ""


class PlacementsRequested(Fact, frozen=True, kw_only=True):
    """Replicas that need a place, oldest first; at most 100 in one message, and fewer where their commands are long."""

    placement_requests: tuple[PlacementRequest, ...]


class MidPlacementsRequested(Fact, frozen=True, kw_only=True):
    """As PlacementsRequested, of replicas of the band mid: a scheduler of before the mid tier does not hear it.

    It would place them in the capacity of batch work. Beside such a scheduler they wait until one that knows the tier decides.
    """

    placement_requests: tuple[PlacementRequest, ...]


class ReplicasWithdrawn(Fact, frozen=True, kw_only=True):
    """These attempts, as pairs of replica and attempt, no longer need a place; a place that one holds is released."""

    attempts: tuple[tuple[ReplicaName, Number], ...]
    reason: Reason


class ReplicaStop(Struct, frozen=True, kw_only=True):
    """One attempt to stop with SIGTERM, then SIGKILL after `grace_ms`."""

    replica: ReplicaName
    attempt: Number
    grace_ms: Ms
    reason: Reason


class StopReplicas(Fact, frozen=True, kw_only=True):
    """Order to one node: stop these attempts because their job or task no longer needs them.

    `generation` is the fence of the term in which the order was given (0: the instance is alone, without a lease). Once a node got
    an order of a term it refuses those of earlier ones, and always one of a term that is more than a day in the future.

    Where several instances serve a part of the jobs each, the term is that of the `partition` of `partitions` whose jobs are meant.
    """

    node: NodeName
    generation: Number = 0
    stops: tuple[ReplicaStop, ...]
    partition: Number = 0
    partitions: Number = 1


class QueueChanged(Fact, frozen=True, kw_only=True):
    """Counts of a queue after a change. `capacity` is the most waiting replicas it takes.

    Where several instances serve a part of the jobs each, the counts are those of one `partition` of `partitions`, and `jobs` says
    how many of its jobs in the queue have not ended.
    """

    queue: str
    waiting: Number
    running: Number
    capacity: Number
    jobs: Number = 0
    partition: Number = 0
    partitions: Number = 1
