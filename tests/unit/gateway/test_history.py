"""What the gateway tells of a span of time, and from where a reader begins who names a time."""

from __future__ import annotations

import msgspec
import pytest

from colo_common.events.job import JobStateChanged, QueueChanged
from colo_common.model.invalid import InvalidInput
from colo_gateway.core import GatewayCore
from colo_gateway.event_filter import EventFilter
from colo_gateway.history import History, history_of
from colo_gateway.since import Since, since_of


def a_change(job: str, at_ms: int) -> JobStateChanged:
    return JobStateChanged(
        job=job, queue="q", state="Running", previous="Inqueue", transition="J04", version=2, at_ms=at_ms
    )


def a_core(*facts: JobStateChanged | QueueChanged, size: int = 10) -> GatewayCore:
    core = GatewayCore(event_log_size=size, trace_size=1)
    for fact in facts:
        core.handle(fact, fact.at_ms)
    return core


def history_in(
    core: GatewayCore,
    *,
    filter_: EventFilter | None = None,
    ago_ms: int | None = 5_000,
    limit: int = 10,
    position: int = 0,
) -> History:
    return history_of(
        core.event_log,
        filter_ or EventFilter(),
        from_ms=None if ago_ms is None else 10_000 - ago_ms,
        position=position,
        limit=limit,
        now_ms=10_000,
        speed=60.0,
    )


QUEUE = QueueChanged(at_ms=8_000, queue="q", waiting=1, running=2, capacity=3)


def test_a_span_is_told_oldest_first_with_counts_and_what_is_left_out() -> None:
    core = a_core(a_change("old", 4_000), a_change("b", 7_000), a_change("a", 6_000), QUEUE, a_change("c", 9_000))
    history = history_in(core)
    assert [(line.at_ms, line.position, line.text) for line in history.lines] == [
        (6_000, 3, "job a: Inqueue -> Running"),
        (7_000, 2, "job b: Inqueue -> Running"),
        (9_000, 5, "job c: Inqueue -> Running"),
    ]
    assert (history.counts, history.left_out) == ({"JobStateChanged": 3, "QueueChanged": 1}, ("QueueChanged",))
    assert (history.from_ms, history.to_ms, history.earlier, history.clock_speed) == (5_000, 10_000, 0, 60.0)
    assert msgspec.json.decode(history.lines[0].fact)["job"] == "a"


def test_a_limit_keeps_the_newest_lines_and_says_how_many_are_before_them() -> None:
    history = history_in(a_core(*[a_change(f"j{n}", 6_000 + n) for n in range(7)]), limit=2)
    assert ([line.at_ms for line in history.lines], history.earlier) == ([6_005, 6_006], 5)


def test_what_is_asked_for_by_kind_is_not_left_out() -> None:
    history = history_in(a_core(a_change("a", 6_000), QUEUE), filter_=EventFilter(kinds=("queue",)))
    assert ([line.text for line in history.lines], history.left_out) == (["queue q: 1 waiting, 2 running"], ())


def test_a_full_log_says_since_when_it_knows_everything() -> None:
    core = a_core(*[a_change(f"j{n}", n * 1_000) for n in range(10)], size=4)
    assert (history_in(core).known_since_ms, [line.at_ms for line in history_in(core).lines]) == (
        6_000,
        [6_000, 7_000, 8_000, 9_000],
    )
    assert history_in(a_core()).known_since_ms is None


def test_a_time_is_resolved_to_the_position_before_its_first_fact() -> None:
    log = a_core(*[a_change(f"j{n}", n * 1_000) for n in range(5)]).event_log
    assert [log.position_at(at_ms) for at_ms in (0, 1_500, 4_000, 9_000)] == [0, 2, 4, 5]


@pytest.mark.parametrize(
    ("text", "since"),
    [
        ("70270", Since(position=70_270)),
        ("0", Since(position=0)),
        ("1m", Since(ago_ms=60_000)),
        ("1h30m", Since(ago_ms=5_400_000)),
    ],
)
def test_since_is_a_position_or_a_time(text: str, since: Since) -> None:
    assert since_of(text) == since


@pytest.mark.parametrize("text", ["yesterday", "", "-1", "1x", "9" * 20, "100d"])
def test_since_is_refused_with_its_rule(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        since_of(text)
    assert refused.value.field == "since"


def test_after_a_position_of_another_process_all_that_is_known_is_told() -> None:
    core = a_core(a_change("a", 6_000), a_change("b", 7_000))
    assert [line.position for line in history_in(core, ago_ms=None, position=1).lines] == [2]
    assert [line.position for line in history_in(core, ago_ms=None, position=99).lines] == [1, 2]
