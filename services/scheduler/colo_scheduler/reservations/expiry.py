"""When a reservation expires.

A reservation holds up to and including its last moment and is over one millisecond later. That is true in every phase, also while
it still waits for a place: otherwise a reservation that fits nowhere would wait for ever.
"""

__all__ = ["is_over", "last_ms"]


def last_ms(created_ms: int, ttl_ms: int | None, expires_ms: int | None) -> int | None:
    """The last moment that the reservation holds, the earlier of both limits; None: no limit.

    A ttl of 0 means no limit and puts `expires_ms` out of force too.
    """
    if ttl_ms == 0:
        return None
    limits = [limit for limit in (expires_ms, None if ttl_ms is None else created_ms + ttl_ms) if limit is not None]
    return min(limits, default=None)


def is_over(now_ms: int, created_ms: int, ttl_ms: int | None, expires_ms: int | None) -> bool:
    """Whether the last moment has passed."""
    last = last_ms(created_ms, ttl_ms, expires_ms)
    return last is not None and now_ms > last
