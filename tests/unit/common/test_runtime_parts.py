"""Small parts of the runtime: inbox, conflating queue, backoff, clocks, metrics, logs, garbage of lives that are over."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import logging
import os
import random
import time
import weakref
from collections.abc import Iterator

import pytest
import structlog
from msgspec import Struct

from colo_common.adapters.clock import SystemClock
from colo_common.adapters.conflating_queue import ConflatingQueue
from colo_common.events.enforcement import ReplicaStarted
from colo_common.events.job import StopReplicas
from colo_common.events.node import AllocatableChanged, LeaseRenewed
from colo_common.events.subjects import matches
from colo_common.model.invalid import InvalidInput, InvariantBroken
from colo_common.ports import Source
from colo_common.runtime import logs
from colo_common.runtime.backoff import Backoff
from colo_common.runtime.core import Subscription, source_of
from colo_common.runtime.inbox import Inbox, Local
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.process import _tune_gc
from tests.support.manual_clock import ManualClock
from tests.support.vloop import run_virtual


class Number(Struct, frozen=True):
    value: int


def numbers(items: list[object]) -> list[int]:
    return [item.event.value for item in items if isinstance(item, Local) and isinstance(item.event, Number)]


async def test_an_inbox_returns_batches_in_order_of_arrival() -> None:
    inbox = Inbox(10)
    for value in range(5):
        await inbox.put(Local(Number(value)))
    assert numbers(list(await inbox.take(3, 0))) == [0, 1, 2]
    assert numbers(list(await inbox.take(3, None))) == [3, 4]
    assert await inbox.take(3, 0) == []


def test_put_waits_while_the_inbox_is_full() -> None:
    async def story() -> None:
        inbox = Inbox(2)
        for value in range(2):
            await inbox.put(Local(Number(value)))
        third = asyncio.ensure_future(inbox.put(Local(Number(2))))
        await asyncio.sleep(1)
        assert inbox.full
        assert not third.done()
        await inbox.take(1, 0)
        await third
        assert numbers(list(await inbox.take(9, 0))) == [1, 2]

    run_virtual(story())


def test_an_inbox_returns_empty_handed_after_the_timeout_or_an_interrupt() -> None:
    async def story() -> None:
        inbox = Inbox(2)
        loop = asyncio.get_running_loop()
        assert await inbox.take(1, 7) == []
        assert loop.time() == pytest.approx(7)
        loop.call_later(3, inbox.interrupt)
        assert await inbox.take(1, None) == []
        assert loop.time() == pytest.approx(10)

    run_virtual(story())


def test_what_may_wait_comes_when_its_time_is_up() -> None:
    async def story() -> None:
        inbox = Inbox(10)
        loop = asyncio.get_running_loop()
        await inbox.put(Local(Number(1)), may_wait_s=5)
        await inbox.put(Local(Number(2)), may_wait_s=9)
        assert numbers(list(await inbox.take(9, None))) == [1, 2]
        assert loop.time() == pytest.approx(5)
        assert await inbox.take(9, 3) == []
        assert loop.time() == pytest.approx(8)

    run_virtual(story())


def test_a_shorter_wait_behind_a_longer_one_is_kept() -> None:
    async def story() -> None:
        inbox = Inbox(10)
        loop = asyncio.get_running_loop()
        await inbox.put(Local(Number(1)), may_wait_s=9)
        taking = asyncio.ensure_future(inbox.take(9, None))
        await asyncio.sleep(1)
        await inbox.put(Local(Number(2)), may_wait_s=2)
        assert numbers(list(await taking)) == [1, 2]
        assert loop.time() == pytest.approx(3)

    run_virtual(story())


def test_enough_of_what_may_wait_does_not_wait() -> None:
    async def story() -> None:
        inbox = Inbox(10, enough=3)
        taking = asyncio.ensure_future(inbox.take(2, None))
        for value in range(2):
            await inbox.put(Local(Number(value)), may_wait_s=60)
            await asyncio.sleep(1)
        assert not taking.done()
        await inbox.put(Local(Number(2)), may_wait_s=60)
        assert numbers(list(await taking)) == [0, 1]
        # What did not fit into the batch has waited as long, nearly; it is not alone for another minute.
        assert asyncio.get_running_loop().time() == pytest.approx(2)

    run_virtual(story())


def test_what_may_wait_stands_behind_everything_until_it_is_overdue() -> None:
    async def story() -> None:
        inbox = Inbox(10)
        await inbox.put(Local(Number(1)), may_wait_s=2)
        await asyncio.sleep(3)
        await inbox.put(Local(Number(2)))
        assert numbers(list(await inbox.take(9, None))) == [2]
        await asyncio.sleep(1)
        await inbox.put(Local(Number(3)))
        assert numbers(list(await inbox.take(9, None))) == [3, 1]
        assert len(inbox) == 0

    run_virtual(story())


def test_delayed_items_are_taken_at_once_after_stop_delaying() -> None:
    async def story() -> None:
        inbox = Inbox(3)
        await inbox.put(Local(Number(1)), may_wait_s=60)
        await inbox.put(Local(Number(2)), may_wait_s=60)
        assert len(inbox) == 2
        assert await inbox.take(9, 0) == []
        taking = asyncio.ensure_future(inbox.take(9, None))
        await asyncio.sleep(1)
        inbox.stop_delaying()
        assert numbers(list(await taking)) == [1, 2]
        await inbox.put(Local(Number(3)), may_wait_s=60)
        assert numbers(list(await inbox.take(9, 0))) == [3]
        assert asyncio.get_running_loop().time() == pytest.approx(1)

    run_virtual(story())


def test_an_interrupt_ends_a_take_although_something_lies_there_that_may_wait() -> None:
    async def story() -> None:
        inbox = Inbox(2)
        await inbox.put(Local(Number(1)), may_wait_s=60)
        asyncio.get_running_loop().call_later(3, inbox.interrupt)
        assert await inbox.take(1, None) == []
        assert asyncio.get_running_loop().time() == pytest.approx(3)

    run_virtual(story())


def test_an_interrupt_that_comes_before_a_take_is_not_lost() -> None:
    async def story() -> None:
        inbox = Inbox(2)
        inbox.interrupt()
        assert await inbox.take(1, None) == []
        # It counts for one take only, and one that had something to give has returned at once.
        inbox.interrupt()
        await inbox.put(Local(Number(1)))
        assert numbers(list(await inbox.take(1, None))) == [1]
        assert asyncio.get_running_loop().time() == pytest.approx(0)
        assert await inbox.take(1, 5) == []
        assert asyncio.get_running_loop().time() == pytest.approx(5)

    run_virtual(story())


def test_delayed_items_are_taken_when_the_inbox_is_full() -> None:
    async def story() -> None:
        inbox = Inbox(2, enough=200)
        taking = asyncio.ensure_future(inbox.take(9, None))
        await inbox.put(Local(Number(1)), may_wait_s=60)
        await asyncio.sleep(1)
        await inbox.put(Local(Number(2)), may_wait_s=60)
        assert inbox.full
        await inbox.put(Local(Number(3)))
        assert numbers(list(await taking)) == [1, 2]
        assert asyncio.get_running_loop().time() == pytest.approx(1)
        assert numbers(list(await inbox.take(9, None))) == [3]

    run_virtual(story())


def test_what_may_wait_leaves_room_for_what_may_not() -> None:
    async def story() -> None:
        inbox = Inbox(8)
        for value in range(6):
            await inbox.put(Local(Number(value)), may_wait_s=60)
        seventh = asyncio.ensure_future(inbox.put(Local(Number(6)), may_wait_s=60))
        await asyncio.sleep(1)
        assert not seventh.done()
        assert not inbox.full
        await inbox.put(Local(Number(10)))
        assert numbers(list(await inbox.take(9, None))) == [10]
        assert numbers(list(await inbox.take(9, None))) == [0, 1, 2, 3, 4, 5]
        await seventh
        assert asyncio.get_running_loop().time() == pytest.approx(1)

    run_virtual(story())


async def test_the_conflating_queue_takes_subjects_in_turn_and_drops_the_oldest_of_each() -> None:
    buffer = ConflatingQueue[int](depth=2)
    for value in range(4):
        buffer.put("a", value)
    buffer.put("b", 9)
    assert [await buffer.take() for _ in range(3)] == [2, 9, 3]
    assert buffer.dropped == 2


async def test_the_conflating_queue_drops_the_longest_waiting_subject_at_its_limit() -> None:
    buffer = ConflatingQueue[int](subjects_max=2)
    for name, value in (("a", 1), ("b", 2), ("c", 3)):
        buffer.put(name, value)
    assert [await buffer.take() for _ in range(2)] == [2, 3]
    assert buffer.dropped == 1


@pytest.mark.parametrize(
    ("pattern", "subject", "fits"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.c", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        ("*.b.>", "a.b.c", True),
        (">", "a", True),
    ],
)
def test_patterns_match_as_nats_matches_them(pattern: str, subject: str, fits: bool) -> None:
    assert matches(pattern, subject) is fits


def test_waits_double_to_the_limit_with_a_share_of_chance_and_start_again() -> None:
    backoff = Backoff(random.Random(7), first_s=1, most_s=8)
    spans = [backoff.next_s() for _ in range(6)]
    for span, most in zip(spans, (1, 2, 4, 8, 8, 8), strict=True):
        assert most / 2 <= span <= most
    backoff.reset()
    assert backoff.next_s() <= 1
    assert [Backoff(random.Random(7)).next_s() for _ in range(2)] == [
        Backoff(random.Random(7)).next_s() for _ in range(2)
    ]


def test_a_scaled_clock_runs_from_its_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = 1_000_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: now_ns)
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns - 300_000_000_000)
    wall_ms = SystemClock().now_ms()
    fast = SystemClock(60, wall_ms - 1_000)
    assert fast.now_ms() == wall_ms - 1_000 + 60_000
    now_ns += 2_000_000_000
    assert fast.now_ms() == wall_ms - 1_000 + 180_000
    assert fast.wall_us() == (wall_ms + 2_000) * 1_000
    assert fast.real_s(60_000) == 1.0
    assert fast.real_s(-5) == 0.0


def test_a_step_of_the_wall_clock_does_not_step_the_clock_of_a_running_process(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns, mono_ns = 1_000_000_000_000, 5_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: now_ns)
    monkeypatch.setattr(time, "monotonic_ns", lambda: mono_ns)
    clock = SystemClock()
    assert clock.now_ms() == 1_000_000
    mono_ns += 2_000_000_000
    now_ns -= 600_000_000_000
    assert clock.now_ms() == 1_002_000
    now_ns += 1_200_000_000_000
    assert clock.now_ms() == 1_002_000
    assert SystemClock().now_ms() == 1_600_000, "a process that starts now has the new time"


@pytest.mark.parametrize(("speed", "origin_ms"), [(0.0, 1), (-1.0, 1), (float("inf"), 1), (float("nan"), 1), (2.0, 0)])
def test_a_clock_that_cannot_run_is_refused(speed: float, origin_ms: int) -> None:
    with pytest.raises(InvalidInput, match="clock_"):
        SystemClock(speed, origin_ms)


def test_a_manual_clock_only_moves_forward() -> None:
    clock = ManualClock(10)
    clock.advance(5)
    assert (clock.now_ms(), clock.wall_us(), clock.real_s(1_500)) == (15, 15_000, 1.5)
    with pytest.raises(InvalidInput):
        clock.advance(-1)


def test_a_metric_asked_for_twice_is_the_same_and_of_one_kind() -> None:
    metrics = Metrics("1.2.3")
    metrics.counter("colo_x_things_total", "things").inc()
    metrics.counter("colo_x_things_total", "things").inc()
    assert b"colo_x_things_total 2.0" in metrics.text()
    assert b'colo_build_info{version="1.2.3"} 1.0' in metrics.text()
    with pytest.raises(InvariantBroken, match="two kinds"):
        metrics.gauge("colo_x_things_total", "things")


@pytest.mark.parametrize(
    ("subscription", "source"),
    [
        (
            Subscription(type=ReplicaStarted),
            Source(
                subject="colo.v1.evt.enforcement.*.started",
                stream="COLO_RUN",
                durable="colo-jobs-evt-enforcement-started",
                forget_s=604_800,
            ),
        ),
        (
            Subscription(type=StopReplicas, parameters={"node": "n1.example"}),
            Source(
                subject="colo.v1.cmd.node.n1_example.stop",
                stream="COLO_CMD",
                durable="colo-jobs-n1_example-cmd-node-stop",
                forget_s=259_200,
            ),
        ),
        (
            Subscription(type=AllocatableChanged, replay=True),
            Source(subject="colo.v1.evt.node.*.allocatable", stream="COLO_NODE", last_per_subject=True),
        ),
        (
            Subscription(type=ReplicaStarted, durable=False),
            Source(subject="colo.v1.evt.enforcement.*.started", stream="COLO_RUN"),
        ),
        (Subscription(type=LeaseRenewed, parameters={"node": "n1"}), Source(subject="colo.v1.tlm.node.n1.lease")),
    ],
)
def test_a_subscription_becomes_a_source(subscription: Subscription, source: Source) -> None:
    assert source_of("jobs", subscription) == source


def test_a_parameter_that_the_subject_lacks_is_refused() -> None:
    with pytest.raises(InvalidInput, match="node"):
        source_of("jobs", Subscription(type=ReplicaStarted, parameters={"zone": "1"}))


def test_a_log_on_a_full_disk_loses_its_lines_and_stops_nothing() -> None:
    kept = {type(each) for each in logging.getLogger().handlers}
    with open("/dev/full", "w", encoding="utf-8", buffering=1) as full:
        try:
            logs.configure("info", "json", full)
            logged = [structlog.get_logger().warning("journal-behind", number=number) for number in range(1_000)]
            assert logged == [None] * 1_000
        finally:
            structlog.reset_defaults()
            logging.getLogger().handlers[:] = [each for each in logging.getLogger().handlers if type(each) in kept]
            # What Python keeps for it would be refused again when it is closed.
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), full.fileno())


def test_a_log_line_is_one_json_object_with_the_bound_keys() -> None:
    out = io.StringIO()
    kept = {type(each) for each in logging.getLogger().handlers}
    try:
        logs.configure("info", "json", out, service="jobs")
        log = structlog.get_logger(source="test")
        log.debug("hidden")
        log.warning("port-away", port="bus", error=ValueError("x"))
        try:
            raise InvariantBroken("defect")
        except InvariantBroken:
            log.error("crashed", exc_info=True)
        logging.getLogger("somebody.elses").warning("away for %d s", 3)
    finally:
        structlog.reset_defaults()
        logging.getLogger().handlers[:] = [each for each in logging.getLogger().handlers if type(each) in kept]
    first, second, third = (json.loads(line) for line in out.getvalue().splitlines())
    assert first.pop("at").endswith("Z")
    assert first == {
        "event": "port-away",
        "level": "warning",
        "service": "jobs",
        "source": "test",
        "port": "bus",
        "error": "ValueError('x')",
    }
    assert "InvariantBroken: defect" in second["exception"]
    assert (third["source"], third["event"], third["text"]) == ("somebody.elses", "library-says", "away for 3 s")


@pytest.fixture
def collector_settings() -> Iterator[None]:
    """The garbage collector of the tests is as before afterwards."""
    threshold = gc.get_threshold()
    yield
    gc.set_threshold(*threshold)
    gc.freeze()


def test_what_a_life_that_is_over_held_is_collected_when_the_next_one_begins(collector_settings: None) -> None:
    """A process that lost its term begins anew in itself, and its old state may be large."""

    class State:
        def __init__(self) -> None:
            self.itself = self

    def lives() -> weakref.ref[State]:
        state = State()
        _tune_gc()
        return weakref.ref(state)

    before = lives()
    assert before() is not None
    _tune_gc()
    assert before() is None
