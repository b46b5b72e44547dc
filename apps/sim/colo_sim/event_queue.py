"""Virtual time: a queue of callbacks by time. The clock jumps to the next callback; no real clock is read."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from colo_common.model.invalid import InvariantBroken

__all__ = ["EventQueue", "LocalClock", "at_once"]

_T = TypeVar("_T")
_Act = tuple[Callable[..., None], tuple[Any, ...]]


class EventQueue:
    """Callbacks by time. Callbacks of one moment run in the order in which they were added.

    Time is counted in whole microseconds from the start. A callback that must not raise puts its error into `failure`; `step`
    raises it.
    """

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.elapsed_us = 0
        self.done = 0
        self.failure: BaseException | None = None
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._now: deque[_Act] = deque()
        self._seq = 0

    @property
    def now_ms(self) -> int:
        """Unix milliseconds of the virtual clock."""
        return self.start_ms + self.elapsed_us // 1_000

    def after(self, delay_ms: int, act: Callable[..., None], *args: Any) -> None:
        """Call `act` after `delay_ms`; 0 means later in this moment."""
        if delay_ms < 0:
            raise InvariantBroken("nothing happens in the past", delay_ms=delay_ms)
        self.at_us(self.elapsed_us + delay_ms * 1_000, act, *args)

    def at_us(self, due_us: int, act: Callable[..., None], *args: Any) -> None:
        """Call `act` at this microsecond, or later in this moment when that has passed."""
        if due_us <= self.elapsed_us:
            self._now.append((act, args))
            return
        self._seq += 1
        heapq.heappush(self._heap, (due_us, self._seq, act, args))

    def soon(self, act: Callable[..., None], *args: Any) -> None:
        """Call `act` later in this moment."""
        self._now.append((act, args))

    def step(self, until_ms: int) -> bool:
        """Run the next callback. Without one up to the Unix millisecond `until_ms`, set the time to it and return False."""
        if not self._now and not self._advance((until_ms - self.start_ms) * 1_000):
            return False
        act, args = self._now.popleft()
        self.done += 1
        act(*args)
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        return True

    def _advance(self, until_us: int) -> bool:
        """Move time to the next callback; False when there is none until `until_us`."""
        heap = self._heap
        if not heap or heap[0][0] > until_us:
            self.elapsed_us = max(self.elapsed_us, until_us)
            return False
        self.elapsed_us = heap[0][0]
        while heap and heap[0][0] == self.elapsed_us:
            _, _, act, args = heapq.heappop(heap)
            self._now.append((act, args))
        return True


class LocalClock:
    """The clock of one machine: virtual time plus `skew_ms`.

    It runs steadily. A step of the machine's wall clock (`ahead_ms`) shows in the processes that start afterwards, as a process
    reads the wall clock once and counts on from there.
    """

    def __init__(self, event_queue: EventQueue, skew_ms: int = 0) -> None:
        self._event_queue = event_queue
        self._zero_us = (event_queue.start_ms + skew_ms) * 1_000
        self.ahead_ms = 0

    def of_process(self) -> LocalClock:
        """The clock of a process that starts now; its `ahead_ms` is how far it differs from this clock."""
        clock = LocalClock(self._event_queue)
        clock.ahead_ms = self.ahead_ms
        clock._zero_us = self._zero_us + self.ahead_ms * 1_000
        return clock

    def now_ms(self) -> int:
        """Unix milliseconds on this machine."""
        return self.wall_us() // 1_000

    def wall_us(self) -> int:
        """Unix microseconds on this machine."""
        return self._zero_us + self._event_queue.elapsed_us

    def real_s(self, span_ms: int) -> float:
        """`span_ms` in seconds: virtual time is the only time."""
        return max(span_ms, 0) / 1_000


def at_once(work: Coroutine[Any, Any, _T]) -> _T:
    """The result of a coroutine that never suspends, as those of memory twins. Raises InvariantBroken if it does."""
    try:
        work.send(None)
    except StopIteration as end:
        result: _T = end.value
        return result
    work.close()
    raise InvariantBroken("a coroutine of the simulated world waits for something")
