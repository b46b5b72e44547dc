"""Advances the simulated machines of one process in turns, between which the messages of the process are handled."""

import asyncio
import heapq
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from colo_common.ports import Clock

__all__ = ["SteppedMachine", "take_turns"]

_TURN_S: Final = 0.005
_IDLE_S: Final = 0.02


class SteppedMachine(Protocol):
    """A machine that is advanced one sub-step at a time."""

    def due_ms(self) -> int:
        """The end of its next sub-step."""
        ...

    def step(self) -> None:
        """Advance it to `due_ms`, which is later afterwards."""
        ...


async def take_turns(
    machines: Sequence[SteppedMachine], clock: Clock, read_s: Callable[[], float] = time.perf_counter
) -> None:
    """Advance all machines to the present, many times a second, the one that is furthest behind first, until cancelled.

    A message waits for the sub-steps of 5 ms at most, however many machines there are and however far they are behind. Where
    nothing is due nothing is done for any machine.
    """
    due = [(machine.due_ms(), index) for index, machine in enumerate(machines)]
    heapq.heapify(due)
    while True:
        ends_s = read_s() + _TURN_S
        while (is_behind := due[0][0] <= clock.now_ms()) and read_s() < ends_s:
            index = due[0][1]
            machines[index].step()
            heapq.heapreplace(due, (machines[index].due_ms(), index))
        await asyncio.sleep(0 if is_behind else _IDLE_S)
