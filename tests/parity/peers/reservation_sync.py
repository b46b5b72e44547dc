"""How long Koordinator's controller sleeps before it looks at a reservation again; colo sets a timer for the last moment."""

from __future__ import annotations

SYNC_LEAST_MS = 3_000
SYNC_MOST_MS = 15_000


def next_sync_ms(now_ms: int, created_ms: int, ttl_ms: int | None, expires_ms: int | None) -> int:
    """How long a loop that only polls may sleep: the time left, at least 3 s and at most 15 s; 0 when there is no time to wait for.

    `expires_ms` counts before the ttl here (koordinator-sh/koordinator:reservation/controller/controller.go, nextSyncTime).
    """
    if expires_ms is not None:
        left = expires_ms - now_ms
    elif ttl_ms:
        left = created_ms + ttl_ms - now_ms
    else:
        return 0
    return min(max(left, SYNC_LEAST_MS), SYNC_MOST_MS) if left > 0 else 0
