"""The event loop of a simulated process: order, virtual time, standing still, and an end that lets no code go on."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from colo_sim.event_queue import EventQueue, LocalClock, at_once
from colo_sim.process_loop import ProcessLoop

START_MS = 1_000_000


class Bench:
    """Some processes on one event queue, and the lines that they wrote."""

    def __init__(self) -> None:
        self.event_queue = EventQueue(START_MS)
        self.lines: list[str] = []

    def process(self, *works: Coroutine[Any, Any, None]) -> ProcessLoop:
        loop = ProcessLoop(self.event_queue)  # type: ignore[abstract]
        for work in works:
            loop.create_task(work)
        return loop

    def live(self, until_ms: int) -> None:
        while self.event_queue.step(START_MS + until_ms):
            pass

    async def write(self, what: str, *after_s: float) -> None:
        for each_s in after_s:
            await asyncio.sleep(each_s)
            self.lines.append(f"{self.event_queue.now_ms - START_MS} {what}")


def test_timers_come_in_order_and_equal_ones_as_they_were_set() -> None:
    bench = Bench()
    bench.process(bench.write("a", 0.2, 0.1), bench.write("b", 0.1, 0.2))
    bench.process(bench.write("c", 0.3))
    bench.live(1_000)
    assert bench.lines == ["100 b", "200 a", "300 c", "300 b", "300 a"]
    assert bench.event_queue.now_ms == START_MS + 1_000


def test_a_timer_never_comes_before_its_second() -> None:
    bench = Bench()
    late: list[bool] = []

    async def wait() -> None:
        loop = asyncio.get_running_loop()
        for tenths in range(1, 500):
            when = tenths * 0.1 + 0.1 + 0.2
            future = loop.create_future()
            loop.call_at(when, future.set_result, None)
            await future
            late.append(loop.time() >= when)

    bench.process(wait())
    bench.live(60_000)
    assert len(late) == 499
    assert all(late)


def test_what_a_process_waits_for_may_be_given_by_another() -> None:
    bench = Bench()
    event = asyncio.Event()

    async def wait() -> None:
        async with asyncio.timeout(1.0):
            await event.wait()
        await bench.write("woken", 0.0)

    async def give() -> None:
        await asyncio.sleep(0.5)
        event.set()

    bench.process(wait())
    bench.process(give())
    bench.live(2_000)
    assert bench.lines == ["500 woken"]


def test_a_process_that_is_held_goes_on_later_where_it_was_while_others_live() -> None:
    bench = Bench()
    held = bench.process(bench.write("held", *[0.1] * 4))
    bench.process(bench.write("other", *[0.1] * 4))
    bench.live(150)
    held.hold()
    bench.live(350)
    assert bench.lines == ["100 held", "100 other", "200 other", "300 other"]
    held.release()
    bench.live(1_000)
    assert bench.lines[4:] == ["350 held", "400 other", "450 held", "550 held"]


def test_a_process_that_is_killed_does_nothing_more_but_leave() -> None:
    bench = Bench()
    left: list[str] = []

    async def work() -> None:
        try:
            await bench.write("work", *[0.1] * 9)
        finally:
            left.append("left")
            await asyncio.sleep(0)
            left.append("wholly")

    loop = bench.process(work(), bench.write("more", *[0.1] * 9))
    bench.live(100)
    # What is due now, and what was held before, is not done either.
    loop.hold()
    bench.live(200)
    loop.kill()
    assert loop.is_dead
    assert loop.has_tasks
    bench.live(5_000)
    assert bench.lines == ["100 work", "100 more"]
    assert left == ["left", "wholly"]
    assert not loop.has_tasks


def test_a_task_that_a_dead_process_begins_on_its_way_out_ends_at_once() -> None:
    bench = Bench()

    async def work() -> None:
        try:
            await asyncio.sleep(9)
        finally:
            await asyncio.gather(asyncio.create_task(bench.write("late", 0.1)), return_exceptions=True)

    loop = bench.process(work())
    bench.live(100)
    loop.kill()
    bench.live(5_000)
    assert bench.lines == []
    assert not loop.has_tasks


def test_an_error_that_nobody_handles_ends_the_step() -> None:
    bench = Bench()

    def fail() -> None:
        raise ValueError("nobody handles this")

    bench.process().call_later(0.1, fail)
    with pytest.raises(ValueError, match="nobody handles this"):
        bench.live(1_000)
    bench.live(1_000)


def test_threads_are_done_at_once() -> None:
    bench = Bench()

    async def work() -> None:
        bench.lines.append(await asyncio.to_thread(str.upper, "done"))
        with pytest.raises(ValueError, match="invalid literal"):
            await asyncio.to_thread(int, "x")

    loop = bench.process(work())
    bench.live(0)
    assert bench.lines == ["DONE"]
    assert not loop.has_tasks


def test_clocks_of_machines_are_off_and_run_alike() -> None:
    event_queue = EventQueue(START_MS)
    early, late = LocalClock(event_queue, -700), LocalClock(event_queue, 300)
    event_queue.after(1_250, lambda: None)
    assert event_queue.step(START_MS + 9_000)
    assert (early.now_ms(), late.now_ms()) == (START_MS + 550, START_MS + 1_550)
    assert late.wall_us() == (START_MS + 1_550) * 1_000
    assert late.real_s(1_500) == 1.5


def test_what_waits_is_not_at_once() -> None:
    async def answer() -> int:
        return 7

    assert at_once(answer()) == 7
