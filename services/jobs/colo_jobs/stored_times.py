"""Times of stored replicas by the clock of their reader: their writer may have had another one, or it was set since."""

from colo_jobs.job import Job
from colo_jobs.requeue import RetryPolicy, Strike

__all__ = ["by_this_clock"]


def by_this_clock(job: Job, policy: RetryPolicy, now_ms: int) -> None:
    """Make the timers of a loaded job such that a wall clock that was set neither loses a replica early nor keeps it waiting.

    No timer is due later than after its longest wait from now on, and no node is left out for longer. The lost time of a replica
    that seems to be over begins again: while nobody watched, or by another clock, its node was not silent for long enough.
    """
    for _, replica in job.replicas():
        if replica.due_ms:
            is_retry = replica.state == "Backoff"
            most_ms = now_ms + (policy.backoff_max_ms if is_retry else policy.lost_after_ms)
            is_over = replica.due_ms <= now_ms and not is_retry
            replica.due_ms = most_ms if is_over else min(replica.due_ms, most_ms)
        if replica.avoid:
            until_ms = now_ms + policy.avoid_max_ms
            replica.avoid = tuple([(node, min(at_ms, until_ms)) for node, at_ms in replica.avoid])
        if replica.strikes:
            replica.strikes = tuple(
                [Strike(node=one.node, times=one.times, at_ms=min(one.at_ms, now_ms)) for one in replica.strikes]
            )
