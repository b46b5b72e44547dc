"""The event log keeps the newest facts in order."""

from typing import Any

import pytest

from colo_common.events.effects import Wake
from colo_common.events.job import JobStateChanged, PlacementsRequested
from colo_common.events.placement import NodeRelease, PlacementsDecided, PlacementsReleased
from colo_common.events.restriction import RestrictionChange, RestrictionsChanged
from colo_common.events.service import SpanData, SpansFinished
from colo_common.model.restriction import Restriction, RestrictionKind, RestrictionScope
from colo_gateway.concern import concerning
from colo_gateway.core import GatewayCore, Shown
from colo_gateway.event_filter import EventFilter
from colo_gateway.event_log import EventLog
from colo_gateway.streams import Streams
from tests.support.builders import a_node, a_placement, a_sample, decided
from tests.support.scheduler_story import a_placement_request


def a_change(job: str = "j1") -> JobStateChanged:
    return JobStateChanged(job=job, queue="default", state="Running", previous="Inqueue", transition="J04", version=2)


def a_core(event_log_size: int = 3) -> GatewayCore:
    return GatewayCore(event_log_size=event_log_size, trace_size=2)


def test_positions_ascend_and_the_oldest_leaves() -> None:
    core = a_core()
    for number in range(5):
        (effect,) = core.handle(a_change(f"j{number}"), 0)
        assert isinstance(effect, Shown)
        assert effect.entry.position == number + 1
    assert [entry.position for entry in core.event_log.after(0)] == [3, 4, 5]
    assert [entry.position for entry in core.event_log.after(4)] == [5]
    assert core.event_log.first_position() == 3
    core.check()
    assert core.handle(Wake(), 0) == []
    assert core.received == {"JobStateChanged": 5}


def test_samples_are_kept_out_of_the_event_log() -> None:
    core = a_core()
    assert core.handle(a_sample("n7"), 0) == []
    assert core.event_log.position == 0
    assert [each.node for each in core.harm.of_nodes(0)] == ["n7"]


def test_spans_go_to_the_traces_and_not_to_the_event_log() -> None:
    core = a_core()
    span = SpanData(trace_id="t", span_id="s", parent_id="", name="submit", service="jobs", start_us=1, end_us=2)
    assert core.handle(SpansFinished(service="jobs", spans=(span, span)), 0) == []
    assert core.traces.spans("t") == (span,)
    assert core.event_log.position == 0


def test_the_least_recent_trace_leaves() -> None:
    core = a_core()
    for trace in ("a", "b", "a", "c"):
        span = SpanData(trace_id=trace, span_id=trace, parent_id="", name="x", service="s", start_us=0, end_us=0)
        core.handle(SpansFinished(service="s", spans=(span,)), 0)
    assert (len(core.traces.spans("a")), len(core.traces.spans("b")), len(core.traces.spans("c"))) == (1, 0, 1)


def test_a_filter_looks_at_type_node_and_job() -> None:
    core = a_core(10)
    shown = []
    requested = PlacementsRequested(placement_requests=(a_placement_request("j1/main/0"),))
    for fact in (a_change("j1"), a_change("j2"), decided(a_placement("j1/main/0")), a_node("n7"), requested):
        (effect,) = core.handle(fact, 0)
        assert isinstance(effect, Shown)
        shown.append(effect.entry)

    def passing(**given: Any) -> list[int]:
        return [entry.position for entry in shown if EventFilter(**given).passed(entry) is not None]

    assert passing(job="j1") == [1, 3, 5]
    assert passing(node="n7") == [4]
    assert passing(types=("JobStateChanged",)) == [1, 2]
    assert passing(kinds=("job", "placement")) == [1, 2, 3]
    assert passing() == [1, 2, 3, 4, 5]


def test_a_fact_about_several_is_cut_to_those_that_are_asked_for() -> None:
    fact = decided(a_placement("j1/main/0", node="n1"), a_placement("j1/main/1", node="n2"), a_placement("j2/main/0"))
    released = PlacementsReleased(
        nodes=(
            NodeRelease(node="n1", attempts=(("j1/main/0", 1), ("j2/main/0", 1))),
            NodeRelease(node="n2", attempts=(("j2/main/1", 1),)),
        )
    )
    assert concerning(fact) is fact
    assert concerning(fact, job="j9") is None

    def places(**given: str) -> list[str]:
        cut = concerning(fact, **given)
        return [placement.replica for placement in cut.placements] if isinstance(cut, PlacementsDecided) else []

    assert places(job="j1") == ["j1/main/0", "j1/main/1"]
    assert places(node="n1") == ["j1/main/0", "j2/main/0"]
    assert places(node="n1", job="j1") == ["j1/main/0"]
    assert concerning(released, job="j1") == PlacementsReleased(
        nodes=(NodeRelease(node="n1", attempts=(("j1/main/0", 1),)),)
    )
    cordon = Restriction(kind=RestrictionKind.CORDON, scope=RestrictionScope.NODE, target="n1")
    quiesce = Restriction(kind=RestrictionKind.QUIESCE, scope=RestrictionScope.FLEET)
    audit = tuple(RestrictionChange(at_ms=0, action="set", restriction=each) for each in (cordon, quiesce))
    changed = RestrictionsChanged(revision=2, audit=audit)
    assert concerning(changed, node="n1") == changed
    assert concerning(changed, node="n2") == RestrictionsChanged(revision=2, audit=audit[1:])
    assert concerning(changed, job="j1") is None


def test_a_slow_reader_is_overrun_alone() -> None:
    streams = Streams(limit=2, queue_size=2)
    slow = streams.open(EventFilter())
    picky = streams.open(EventFilter(job="other"))
    assert slow is not None
    assert picky is not None
    assert streams.open(EventFilter()) is None
    core = a_core(10)
    for _ in range(3):
        (effect,) = core.handle(a_change(), 0)
        assert isinstance(effect, Shown)
        streams.show(effect.entry)
    assert slow.overrun
    assert not picky.overrun
    streams.close(slow)
    assert len(streams) == 1


@pytest.mark.parametrize(
    ("kept", "start", "position", "is_gap"),
    [
        (5, 100, 0, False),
        (5, 100, 103, False),
        (5, 100, 105, False),
        (5, 100, 100, False),
        (5, 100, 40, True),
        (5, 100, 106, True),
        (0, 100, 100, False),
        (0, 100, 99, True),
        (0, 0, 7, True),
        (1_001, 100, 0, True),
        (1_001, 100, 100, True),
        (1_001, 100, 101, False),
    ],
)
def test_a_position_that_another_process_gave_is_a_gap(kept: int, start: int, position: int, is_gap: bool) -> None:
    log = EventLog(1_000, start)
    for _ in range(kept):
        log.append("JobStateChanged", "colo.v1.evt.job.changed", a_change(), 0)
    assert log.has_gap_after(position) is is_gap
