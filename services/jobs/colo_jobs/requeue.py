"""The rules of retries: which ends count, how long a replica waits, and which nodes it avoids."""

from typing import Final

from msgspec import Struct

from colo_common.model.reasons import EndCause

__all__ = ["RetryPolicy", "avoiding", "failure_wait_ms", "free_wait_ms", "is_counted"]

# Ends that are not the replica's fault, so they use no retry.
_UNCOUNTED: Final = frozenset({EndCause.EVICTED, EndCause.STOPPED, EndCause.LOST})
_DOUBLINGS_MAX: Final = 32
_AVOIDED_MAX: Final = 16


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """A failure waits `backoff_ms`, doubled for each further one, at most `backoff_max_ms`.

    A node that refused, evicted or could not start a replica is left out for `avoid_ms`. A replica whose node is lost waits
    `lost_after_ms` before it is requeued.
    """

    backoff_ms: int = 1_000
    backoff_max_ms: int = 60_000
    avoid_ms: int = 60_000
    lost_after_ms: int = 60_000


def is_counted(cause: EndCause) -> bool:
    """Whether an end by this cause uses one of the replica's retries."""
    return cause not in _UNCOUNTED


def failure_wait_ms(policy: RetryPolicy, failures: int) -> int:
    """The wait after the given number of failures (from 1): backoff x 2^(failures - 1), capped."""
    return min(policy.backoff_ms << min(max(failures, 1) - 1, _DOUBLINGS_MAX), policy.backoff_max_ms)


def free_wait_ms(policy: RetryPolicy, times: int) -> int:
    """The wait after the given number of evictions or losses: 0 for the first, then as after a failure.

    The growing wait bounds the churn of a replica that every node evicts.
    """
    return 0 if times <= 1 else failure_wait_ms(policy, times - 1)


def avoiding(avoid: tuple[tuple[str, int], ...], node: str, until_ms: int, now_ms: int) -> tuple[tuple[str, int], ...]:
    """The avoided nodes with this node added and expired ones removed, by name; above 16 the one that expires first is dropped."""
    kept = {name: until for name, until in avoid if until > now_ms}
    kept[node] = max(until_ms, kept.get(node, 0))
    if len(kept) > _AVOIDED_MAX:
        shortest = min(sorted(kept), key=lambda name: (name == node, kept[name]))
        del kept[shortest]
    return tuple(sorted(kept.items()))
