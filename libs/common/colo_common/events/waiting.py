"""The request that asks how a job waits: its place in the order, and what past waits say."""

from msgspec import Struct

from colo_common.model.units import Number

__all__ = ["ExplainWait", "JobWait", "Turn"]

Turn = tuple[int, int, str, int]
"""The sort key of a waiting replica: its negated priority, since when it waits (Unix ms), its job, its number."""


class ExplainWait(Struct, frozen=True, kw_only=True):
    """Ask how the replicas of a job wait. The reply is JobWait, or a Refusal (404) for an unknown job.

    Where several instances serve a part of the jobs each, the one that has the job counts only its own jobs. With `partition` and
    `turn` another one is asked how many of its own come before that turn, of all queues and of `queue`.
    """

    job: str
    partition: Number | None = None
    turn: Turn | None = None
    queue: str = ""


class JobWait(Struct, frozen=True, kw_only=True):
    """How a job waits, by its replica that is next. Without a waiting replica `replica` is "" and `waiting` 0.

    `ahead` replicas of all queues come first (by priority, then by the time since which they wait), `ahead_in_queue` of them are of
    the same queue. `rest_ms` estimates how much longer it waits; None: no estimate, because of `why_none`. It is the median of the
    longer ones of the last `placed` waits of its queue and class; `error_ms` is the median error of past estimates, None before the
    first. `retry_in_ms`: no replica needs a place before that time, because it waits for its next try. `avoid` are nodes that are
    left out, with the rest of the time (ms). `turn` is that of the replica that is next; `ahead` counts one partition of
    `partitions`.
    """

    job: str
    replica: str = ""
    waiting: int = 0
    waited_ms: int = 0
    queue: str = ""
    qos: str = ""
    ahead: int = 0
    ahead_in_queue: int = 0
    rest_ms: int | None = None
    why_none: str = ""
    placed: int = 0
    error_ms: int | None = None
    retry_in_ms: int | None = None
    avoid: tuple[tuple[str, int], ...] = ()
    turn: Turn | None = None
    partitions: Number = 1
