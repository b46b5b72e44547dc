"""The jobs service's own effects, and the events that report their results."""

from msgspec import Struct

from colo_common.events.job import PlacementRequest, ReplicaChange
from colo_common.ports import Row
from colo_jobs.rebuild import JobEnd, LostJob

__all__ = [
    "AskHolds",
    "JobReloaded",
    "JobsLost",
    "LogRefused",
    "LogUnreadable",
    "ReloadJob",
    "JobRowsLoaded",
    "RequestsPublished",
]


class JobRowsLoaded(Struct, frozen=True, kw_only=True):
    """Event: every row that the store holds, at the start.

    `missed` mark jobs that an instance could not read, and `losses` say that facts were missed and are not made good yet.
    """

    specs: tuple[Row, ...] = ()
    jobs: tuple[Row, ...] = ()
    pages: tuple[Row, ...] = ()
    missed: tuple[Row, ...] = ()
    losses: tuple[Row, ...] = ()


class JobsLost(Struct, frozen=True, kw_only=True):
    """Event, after JobRowsLoaded: the store lost its newest rows, or all of them, or is new; the stream of facts has these jobs.

    They had not ended. `mark_version` is the version of the row that marks the store, above 0 where a restoration was not finished;
    None: the store is in use, and some of its rows may be older than what was published. `moved` has the newest move of the
    replicas that moved last, by job, `older` the jobs whose own row is older, `ends` those that ended last or were cancelled,
    `unknown` the ids of unfinished jobs that nobody can accept again, since their acceptance is not in the stream any more.
    """

    jobs: tuple[LostJob, ...] = ()
    mark_version: int | None = 0
    moved: dict[str, dict[str, ReplicaChange]] = {}
    older: tuple[str, ...] = ()
    ends: tuple[JobEnd, ...] = ()
    unknown: tuple[str, ...] = ()


class AskHolds(Struct, frozen=True, kw_only=True):
    """Effect: ask the scheduler what is held; HoldsListed comes when it has answered."""


class ReloadJob(Struct, frozen=True, kw_only=True):
    """Effect: another writer changed the job's rows; read them again."""

    job: str


class JobReloaded(Struct, frozen=True, kw_only=True):
    """Event: the rows of one job as the store holds them now. `jobs` is () when the job was deleted."""

    job: str
    specs: tuple[Row, ...] = ()
    jobs: tuple[Row, ...] = ()
    pages: tuple[Row, ...] = ()


class LogRefused(Struct, frozen=True, kw_only=True):
    """Effect: log an event that a state machine refused, with the story of the object."""

    machine: str
    state: str
    event: str
    story: str


class LogUnreadable(Struct, frozen=True, kw_only=True):
    """Effect: log a job whose rows cannot be read. The rows stay in the store."""

    why: str


class RequestsPublished(Struct, frozen=True, kw_only=True):
    """Effect: these placement requests are published now. `submit_traces` are the trace ids of the submissions of their jobs."""

    placement_requests: tuple[PlacementRequest, ...]
    submit_traces: tuple[str, ...]
