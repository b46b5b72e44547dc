"""Times of stored rows where the wall clock was set between two starts: nothing is shortened, nor longer than it was at first."""

import pytest

from colo_evictor.stored_times import by_this_clock
from colo_evictor.watched import EvictorRow, TerminatingReplica

HOUR_MS = 3_600_000
WRITTEN_MS = 10 * HOUR_MS
VICTIM = TerminatingReplica(
    eviction="e",
    replica="j/t/0",
    attempt=1,
    cpu_mcpu=1,
    memory_bytes=1,
    requested_at_ms=WRITTEN_MS,
    due_ms=WRITTEN_MS + 40_000,
)
ROW = EvictorRow(terminating=(VICTIM,), cool_until_ms=WRITTEN_MS + 20_000, evicted_ms=(WRITTEN_MS - 9_000, WRITTEN_MS))


@pytest.mark.parametrize(
    ("step_ms", "victim_left_ms"),
    [(0, 39_000), (-HOUR_MS, 40_000), (HOUR_MS - 30_000, 30_000)],
    ids=["not set", "set back", "set forward"],
)
def test_a_second_after_an_eviction_its_times_are_whole(step_ms: int, victim_left_ms: int) -> None:
    now_ms = WRITTEN_MS + 1_000 + step_ms
    row = by_this_clock(ROW, now_ms, overdue_ms=30_000)
    assert row.cool_until_ms - now_ms == 20_000
    assert row.terminating[0].due_ms - now_ms == victim_left_ms
    # The budget of the next minute is not used up by evictions of the future.
    assert max(row.evicted_ms) <= now_ms


def test_a_cool_down_of_hours_ago_is_over() -> None:
    now_ms = WRITTEN_MS + 2 * HOUR_MS
    assert by_this_clock(ROW, now_ms, overdue_ms=30_000).cool_until_ms < now_ms
