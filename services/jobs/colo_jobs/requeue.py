"""The rules of retries: which ends count, how long a replica waits, and which nodes it avoids."""

from typing import Final

from msgspec import Struct

from colo_common.model.reasons import EndCause

__all__ = ["RetryPolicy", "Strike", "avoiding", "failure_wait_ms", "free_wait_ms", "is_counted", "struck"]

# Ends that are not the replica's fault, so they use no retry.
_UNCOUNTED: Final = frozenset({EndCause.EVICTED, EndCause.STOPPED, EndCause.LOST})
_DOUBLINGS_MAX: Final = 32
_AVOIDED_MAX: Final = 16


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """A failure waits `backoff_ms`, doubled for each further one, at most `backoff_max_ms`.

    A node that refused, evicted or could not start a replica, or was lost before it started, is left out for `avoid_ms`, doubled
    for each further time at most up to `avoid_max_ms`; each `avoid_max_ms` without such an end takes one of these times back. A
    replica whose node is lost while it runs waits `lost_after_ms` before it is requeued.
    """

    backoff_ms: int = 1_000
    backoff_max_ms: int = 60_000
    avoid_ms: int = 60_000
    avoid_max_ms: int = 900_000
    lost_after_ms: int = 60_000


class Strike(Struct, frozen=True, array_like=True, gc=False):
    """How often a node refused, evicted, could not start or lost a replica, and when it did so last (Unix ms)."""

    node: str
    times: int
    at_ms: int


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


def struck(strikes: tuple[Strike, ...], policy: RetryPolicy, node: str, now_ms: int) -> tuple[tuple[Strike, ...], int]:
    """The strikes with one more of this node, and how long (ms) the replica avoids it: avoid_ms x 2^(times - 1), capped.

    A node loses one of its times for each whole `avoid_max_ms` since the last one. Above 16 nodes the oldest strike is dropped.
    """
    times = {strike.node: (_left(strike, policy, now_ms), strike.at_ms) for strike in strikes}
    again = times.pop(node, (0, 0))[0] + 1
    kept = sorted((Strike(node=name, times=n, at_ms=at) for name, (n, at) in times.items() if n), key=lambda s: s.at_ms)
    wait_ms = min(policy.avoid_ms << min(again - 1, _DOUBLINGS_MAX), policy.avoid_max_ms)
    return (*kept[-(_AVOIDED_MAX - 1) :], Strike(node=node, times=again, at_ms=now_ms)), wait_ms


def _left(strike: Strike, policy: RetryPolicy, now_ms: int) -> int:
    return max(strike.times - max(now_ms - strike.at_ms, 0) // policy.avoid_max_ms, 0)
