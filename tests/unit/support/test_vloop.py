"""The virtual loop: timers jump, threads do not interleave, and a hang is an error at once."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.support.vloop import Deadlock, Spinning, VirtualClock, run_virtual


def test_an_hour_of_timers_passes_in_less_than_a_real_second() -> None:
    async def main() -> tuple[int, list[int]]:
        clock = VirtualClock(start_ms=0)
        ticks: list[int] = []
        while clock.now_ms() < 3_600_000:
            await asyncio.wait_for(asyncio.shield(_after(clock.real_s(60_000))), timeout=61)
            ticks.append(clock.now_ms())
        return clock.now_ms(), ticks

    began_s = time.process_time()
    now_ms, ticks = run_virtual(main())
    assert now_ms == 3_600_000
    assert ticks == [60_000 * n for n in range(1, 61)]
    assert time.process_time() - began_s < 1


def test_two_timers_fire_in_order_of_their_time() -> None:
    fired: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(2, fired.append, "late")
        loop.call_later(1, fired.append, "early")
        await _after(3)

    run_virtual(main())
    assert fired == ["early", "late"]


def test_a_timeout_is_met_to_the_millisecond() -> None:
    async def main() -> int:
        clock = VirtualClock(start_ms=5_000)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.25):
                await asyncio.Event().wait()
        return clock.now_ms()

    assert run_virtual(main()) == 5_250


def test_work_for_a_thread_runs_on_the_loop_and_gives_its_result_or_error() -> None:
    async def main() -> int:
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        return await asyncio.to_thread(lambda: 41 + 1)

    assert run_virtual(main()) == 42


def test_waiting_for_what_never_comes_is_a_deadlock() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="virtual second 0.000"):
        run_virtual(main())


def test_tasks_that_never_let_time_pass_are_spinning() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        while True:
            turn = loop.create_future()
            loop.call_soon(turn.set_result, None)
            await turn

    with pytest.raises(Spinning):
        run_virtual(main())


async def _after(seconds: float) -> None:
    done = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, done.set)
    await done.wait()
