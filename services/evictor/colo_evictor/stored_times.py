"""Times of a stored row by the clock of its reader: its writer may have had another wall clock, or the clock was set since."""

from typing import Final

from msgspec import structs

from colo_evictor.watched import EvictorRow

__all__ = ["by_this_clock"]

# A cool-down that seems to be over for less than this may not be: the clock may have been set forward meanwhile.
_STEP_MS: Final = 3_600_000


def by_this_clock(row: EvictorRow, now_ms: int, overdue_ms: int) -> EvictorRow:
    """The row with times that a wall clock which was set by up to an hour, in either direction, neither shortens nor prolongs.

    A cool-down that may not be over begins again: it ends after its whole length, and so late at most. A victim has from now on at
    least `overdue_ms` and at most its whole time until it counts as lost. No eviction was ordered later than now.
    """
    since_ms = max(row.evicted_ms, default=row.cool_until_ms)
    is_over = row.cool_until_ms <= now_ms - _STEP_MS
    return structs.replace(
        row,
        cool_until_ms=row.cool_until_ms if is_over else now_ms + max(row.cool_until_ms - since_ms, 0),
        evicted_ms=tuple([min(at_ms, now_ms) for at_ms in row.evicted_ms]),
        terminating=tuple(
            [
                structs.replace(
                    victim,
                    due_ms=now_ms
                    + min(
                        max(victim.due_ms - now_ms, overdue_ms), max(victim.due_ms - victim.requested_at_ms, overdue_ms)
                    ),
                )
                for victim in row.terminating
            ]
        ),
    )
