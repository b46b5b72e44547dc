"""The service's own effects and what comes of them."""

from msgspec import Struct

from colo_common.events.job import PlacementRequest
from colo_common.ports import Row

__all__ = ["JobReloaded", "LogRefused", "LogUnreadable", "ReloadJob", "JobRowsLoaded", "RequestsPublished"]


class JobRowsLoaded(Struct, frozen=True, kw_only=True):
    """Event: every row that the store holds, at the start."""

    specs: tuple[Row, ...] = ()
    jobs: tuple[Row, ...] = ()
    pages: tuple[Row, ...] = ()


class ReloadJob(Struct, frozen=True, kw_only=True):
    """Effect: another writer changed the job's rows; read them again."""

    job: str


class JobReloaded(Struct, frozen=True, kw_only=True):
    """Event: the rows of one job as the store holds them now; without a job row it is gone."""

    job: str
    specs: tuple[Row, ...] = ()
    jobs: tuple[Row, ...] = ()
    pages: tuple[Row, ...] = ()


class LogRefused(Struct, frozen=True, kw_only=True):
    """Effect: log an event that a table refused, with what led to it."""

    machine: str
    state: str
    event: str
    story: str


class LogUnreadable(Struct, frozen=True, kw_only=True):
    """Effect: log a job whose rows cannot be read. It is left alone in the store."""

    why: str


class RequestsPublished(Struct, frozen=True, kw_only=True):
    """Effect: these wants are said now; `submit_traces` are the trace ids of the requests that brought their jobs."""

    placement_requests: tuple[PlacementRequest, ...]
    submit_traces: tuple[str, ...]
