"""Response bodies that only the HTTP API has. All other bodies are the replies of the services."""

from msgspec import Struct

from colo_common.events.requests import DecisionRecord, JobDetail
from colo_gateway.traces import SpanNode

__all__ = ["JobExplained", "JobTrace", "Problem", "ReplicaExplained", "Submitted", "VersionReply"]


class Problem(Struct, frozen=True, kw_only=True):
    """Why a request was refused: the field and the rule it broke."""

    status: int
    field: str
    rule: str
    got: str = ""


class Submitted(Struct, frozen=True, kw_only=True):
    """The job is stored. `job` is its id."""

    job: str
    state: str
    version: int


class ReplicaExplained(Struct, frozen=True, kw_only=True):
    """A replica's newest decision, and the same as one sentence."""

    replica: str
    state: str
    sentence: str
    decision: DecisionRecord | None = None


class JobExplained(Struct, frozen=True, kw_only=True):
    """The job and an explanation of each replica. `partial` is the scheduler's refusal, "" when the decisions are complete."""

    job: JobDetail
    replicas: tuple[ReplicaExplained, ...]
    partial: str = ""


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
