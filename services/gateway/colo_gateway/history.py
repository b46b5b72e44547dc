"""The history: what happened in a span of time, as a finite list from the event log."""

from collections import Counter
from typing import Final

from msgspec import Struct

from colo_gateway.event_filter import EventFilter
from colo_gateway.event_line import EventLine, line_of
from colo_gateway.event_log import EventLog, EventLogEntry

__all__ = ["REPEATED", "History", "history_of"]

#: Types that repeat what is known or what another fact tells, left out unless types or kinds are asked for.
REPEATED: Final = frozenset(
    {
        "AllocatableChanged",
        "MidPlacementsRequested",
        "NodeTopologyReported",
        "PlacementsReleased",
        "PlacementsRequested",
        "QueueChanged",
        "ReplicaStarted",
    }
)


class History(Struct, frozen=True, kw_only=True):
    """What happened from `from_ms` to `to_ms`: the newest lines, oldest first; `earlier` is the number of lines before them.

    `counts` has all facts of the span that pass the filter, by type; those in `left_out` are in no line, because they repeat what
    others tell. Before `known_since_ms` facts may be missing: the gateway keeps a bounded number, and reads a bounded number of
    earlier ones at its start.
    `clock_speed` above 1: times are simulated, and run so many times as fast as the clock on the wall.
    """

    lines: tuple[EventLine, ...]
    earlier: int
    counts: dict[str, int]
    left_out: tuple[str, ...]
    from_ms: int
    to_ms: int
    known_since_ms: int | None
    clock_speed: float


def history_of(
    log: EventLog, filter_: EventFilter, *, from_ms: int | None, position: int, limit: int, now_ms: int, speed: float
) -> History:
    """The facts after the position that happened at or after `from_ms` (None: all after the position), at most `limit` lines."""
    found: list[EventLogEntry] = []
    # Of a position of another process nothing here is known to be older.
    for entry in log.after(0 if log.has_gap_after(position) else position):
        passed = filter_.passed(entry)
        if passed is not None and (from_ms is None or entry.fact.at_ms >= from_ms):
            found.append(passed)
    counts = Counter(entry.type for entry in found)
    left_out = REPEATED & counts.keys() if not filter_.types and not filter_.kinds else set()
    listed = [entry for entry in found if entry.type not in left_out]
    # Facts of several services arrive in nearly the order in which they happened; a reader wants exactly that order.
    listed.sort(key=lambda entry: (entry.fact.at_ms, entry.position))
    shown = listed[-limit:]
    first_ms = from_ms if from_ms is not None else (shown[0].fact.at_ms if shown else now_ms)
    return History(
        lines=tuple(map(line_of, shown)),
        earlier=len(listed) - len(shown),
        counts=dict(sorted(counts.items())),
        left_out=tuple(sorted(left_out)),
        from_ms=first_ms,
        to_ms=now_ms,
        known_since_ms=log.known_since_ms(),
        clock_speed=speed,
    )
