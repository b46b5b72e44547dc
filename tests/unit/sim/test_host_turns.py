"""The machines of a process are advanced in turns, however many they are."""

import asyncio

from colo_sim.host_turns import take_turns
from tests.support.manual_clock import ManualClock

STEP_S = 0.001
"""How long one sub-step takes here."""


class Machine:
    """Counts its sub-steps of 100 ms; each takes 1 ms of `Fleet`'s time."""

    def __init__(self, fleet: "Fleet", at_ms: int) -> None:
        self._fleet = fleet
        self.at_ms = at_ms

    def due_ms(self) -> int:
        self._fleet.asked += 1
        return self.at_ms + 100

    def step(self) -> None:
        self.at_ms += 100
        self._fleet.at_s += STEP_S
        self._fleet.steps += 1


class Fleet:
    def __init__(self, machines: int) -> None:
        self.at_s = 0.0
        self.steps = self.asked = 0
        self.machines = [Machine(self, at_ms=index % 3) for index in range(machines)]


async def _cancelled(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_messages_get_their_turn_after_a_few_sub_steps_of_a_thousand_machines() -> None:
    fleet = Fleet(1_000)
    clock = ManualClock(10_000)
    task = asyncio.create_task(take_turns(fleet.machines, clock, lambda: fleet.at_s))
    for _ in range(200):
        before = fleet.steps
        await asyncio.sleep(0)
        assert fleet.steps - before <= 6
    assert fleet.steps >= 900
    await _cancelled(task)


async def test_the_machine_that_is_furthest_behind_is_next_and_none_runs_ahead() -> None:
    fleet = Fleet(5)
    clock = ManualClock(450)
    task = asyncio.create_task(take_turns(fleet.machines, clock, lambda: fleet.at_s))
    while fleet.steps < 20:
        await asyncio.sleep(0)
        moments = [machine.at_ms for machine in fleet.machines]
        assert max(moments) - min(moments) <= 102
    asked = fleet.asked
    for _ in range(50):
        await asyncio.sleep(0)
    assert [machine.at_ms // 100 for machine in fleet.machines] == [4] * 5
    assert fleet.asked == asked, "a machine was asked although none was due"
    await _cancelled(task)
