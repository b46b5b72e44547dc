"""Virtual time: one heap of things to do, and fibers that wait in it. Nothing here reads a clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from msgspec import Struct

from colo_common.model.invalid import InvariantBroken

__all__ = ["EventQueue", "Fiber", "Wakeup", "Until", "Work", "at_once"]

_T = TypeVar("_T")


class Until(Struct, frozen=True):
    """What a fiber yields to wait for a signal, `most_ms` at most (None: for ever). It goes on with the value, or with None."""

    signal: Wakeup
    most_ms: int | None = None


#: What a fiber runs. It yields milliseconds to sleep, or an Until.
Work = Generator["int | Until", Any, None]


class EventQueue:
    """What happens when. Things of one moment happen in the order in which they were put down."""

    def __init__(self, start_ms: int) -> None:
        self.now_ms = start_ms
        self.done = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._seq = 0

    def after(self, delay_ms: int, act: Callable[..., None], *args: Any) -> None:
        """Do it so many milliseconds from now; 0 is later in this moment."""
        if delay_ms < 0:
            raise InvariantBroken("nothing happens in the past", delay_ms=delay_ms)
        self._seq += 1
        heapq.heappush(self._heap, (self.now_ms + delay_ms, self._seq, act, args))

    def step(self, until_ms: int) -> bool:
        """Do the next thing; False when there is none up to `until_ms`, which is now then."""
        if not self._heap or self._heap[0][0] > until_ms:
            self.now_ms = max(self.now_ms, until_ms)
            return False
        self.now_ms, _, act, args = heapq.heappop(self._heap)
        self.done += 1
        act(*args)
        return True


class Wakeup:
    """Wakes the fibers that wait for it now; nobody is woken later by a signal that was given before."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Fiber, int]] = []

    def give(self, value: Any = None) -> None:
        """Wake every waiting fiber with this value."""
        waiting, self._waiting = self._waiting, []
        for fiber, turn in waiting:
            fiber.wake(turn, value)

    def add(self, fiber: Fiber, turn: int) -> None:
        """Wake the fiber by the next signal, if it still waits in that turn."""
        self._waiting.append((fiber, turn))


class Fiber:
    """Work that goes on by itself until it returns, is cancelled, or raises: then `failed` is told, and decides."""

    def __init__(self, event_queue: EventQueue, work: Work, failed: Callable[[Exception], None] | None = None) -> None:
        self._event_queue = event_queue
        self._work = work
        self._failed = failed
        self._turn = 0
        self._is_over = False
        event_queue.after(0, self._go_on, 0, None)

    def cancel(self) -> None:
        """Never go on. A fiber that runs right now must leave by itself."""
        self._is_over = True

    def wake(self, turn: int, value: Any) -> None:
        """Go on in this moment, if it still waits in that turn."""
        if not self._is_over and turn == self._turn:
            self._event_queue.after(0, self._go_on, turn, value)

    def _go_on(self, turn: int, value: Any) -> None:
        if self._is_over or turn != self._turn:
            return
        self._turn += 1
        try:
            wanted = self._work.send(value)
        except StopIteration:
            self._is_over = True
            return
        except Exception as error:
            self._is_over = True
            if self._failed is None:
                raise
            self._failed(error)
            return
        if isinstance(wanted, Until):
            wanted.signal.add(self, self._turn)
            if wanted.most_ms is not None:
                self._event_queue.after(wanted.most_ms, self._go_on, self._turn, None)
        else:
            self._event_queue.after(wanted, self._go_on, self._turn, None)


def at_once(work: Coroutine[Any, Any, _T]) -> _T:
    """The result of a coroutine that never really waits: the memory twins of ports have such ones."""
    try:
        work.send(None)
    except StopIteration as end:
        result: _T = end.value
        return result
    work.close()
    raise InvariantBroken("a coroutine of the simulated world waits for something")
