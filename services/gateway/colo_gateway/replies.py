"""Response bodies that only the HTTP API has. All other bodies are the replies of the services."""

from typing import Literal

from msgspec import Struct

from colo_common.events.requests import DecisionRecord, JobDetail, JobPlanned
from colo_common.events.waiting import JobWait
from colo_gateway.eviction_account import EvictionAccount
from colo_gateway.traces import SpanNode

__all__ = [
    "FieldChange",
    "PlanReply",
    "RunningJob",
    "TaskDiff",
    "Update",
    "JobExplained",
    "JobTrace",
    "Problem",
    "ReplicaExplained",
    "Submitted",
    "VersionReply",
]


class Problem(Struct, frozen=True, kw_only=True):
    """Why a request was refused: the field and the rule it broke."""

    status: int
    field: str
    rule: str
    got: str = ""


class Submitted(Struct, frozen=True, kw_only=True):
    """The job is stored. `job` is its id; `notes` say what of the file was taken otherwise than it is written, or not at all."""

    job: str
    state: str
    version: int
    notes: tuple[str, ...] = ()


Update = Literal["none", "in-place", "destructive"]


class FieldChange(Struct, frozen=True, kw_only=True):
    """A field of a job file whose value differs. `update` "destructive": processes that run have the old value for good."""

    field: str
    now: str
    planned: str
    update: Update


class TaskDiff(Struct, frozen=True, kw_only=True):
    """A task of the running job beside the planned one; `replicas_now` or `replicas_planned` is 0 when only one of them has it."""

    task: str
    replicas_now: int
    replicas_planned: int
    update: Update
    changes: tuple[FieldChange, ...] = ()


class RunningJob(Struct, frozen=True, kw_only=True):
    """The newest unfinished job of the planned job's name, and how the planned job differs. `others`: how many more there are.

    A submission adds a job beside it. `update` is what changing the one into the other would ask of its replicas.
    """

    job: str
    state: str
    others: int
    update: Update
    changes: tuple[FieldChange, ...]
    tasks: tuple[TaskDiff, ...]


class PlanReply(JobPlanned, frozen=True, kw_only=True):
    """A plan, and the running job of the same name.

    With `check_index` a submission is refused when the plan is outdated. `notes` as in Submitted.
    """

    check_index: str
    running: RunningJob | None = None
    notes: tuple[str, ...] = ()


class ReplicaExplained(Struct, frozen=True, kw_only=True):
    """A replica's newest decision, and the same as one sentence."""

    replica: str
    state: str
    sentence: str
    decision: DecisionRecord | None = None


class JobExplained(Struct, frozen=True, kw_only=True):
    """The job and an explanation of each replica. `partial` is the scheduler's refusal, "" when the decisions are complete.

    `wait` is how the job waits for places. `evictions` are those of the job that the gateway knows, oldest first; the replicas
    count all of them. Times are those of the cluster's clock, which runs `clock_speed` times as fast as the one on the wall.
    """

    job: JobDetail
    replicas: tuple[ReplicaExplained, ...]
    partial: str = ""
    wait: JobWait | None = None
    wait_sentence: str = ""
    evictions: tuple[EvictionAccount, ...] = ()
    now_ms: int = 0
    clock_speed: float = 1.0


class JobTrace(Struct, frozen=True, kw_only=True):
    """The spans of one placement, depth first."""

    replica: str
    attempt: int
    trace_id: str
    spans: tuple[SpanNode, ...]


class VersionReply(Struct, frozen=True, kw_only=True):
    """The running version and the schema line of its events."""

    version: str
    schema: str
