"""Bodies that only the HTTP API knows; the others are the services' own replies."""

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
    """The job is recorded; `job` is its id from now on."""

    job: str
    state: str
    version: int


class ReplicaExplained(Struct, frozen=True, kw_only=True):
    """A replica's newest decision and one sentence that says the same."""

    replica: str
    state: str
    sentence: str
    decision: DecisionRecord | None = None


class JobExplained(Struct, frozen=True, kw_only=True):
    """The job and, for each replica, why it is where it is."""

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
