"""An asyncio loop whose clock jumps to the next timer: hours of a shell's life run in milliseconds, always alike.

`run_virtual(main())` runs a coroutine on it. Work given to threads runs at once on the loop's own thread, because a
clock that jumps cannot wait for a thread. Real sockets and subprocesses do not belong here.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

__all__ = ["Deadlock", "Spinning", "Stopwatch", "VirtualClock", "VirtualTimeLoop", "run_virtual"]

T = TypeVar("T")

#: So many turns of the loop at one instant of virtual time are a busy loop, not work.
TURNS_LIMIT: Final = 200_000


class Deadlock(RuntimeError):
    """Every task waits, and no timer is set that could wake one."""


class Spinning(RuntimeError):
    """Tasks wake one another for ever while virtual time stands still."""


class _JumpingSelector(selectors.DefaultSelector):
    """Where a real selector would wait, moves the clock instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        self.turns += 1
        if self.turns > TURNS_LIMIT:
            self.turns = 0
            raise Spinning(f"{TURNS_LIMIT} turns at virtual second {self.now_s:.3f}")
        if ready:
            return ready
        if timeout is None:
            raise Deadlock(f"at virtual second {self.now_s:.3f} every task waits and no timer is set")
        if timeout > 0:
            self.now_s += timeout
            self.turns = 0
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A selector loop on virtual seconds, beginning at zero."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)
        # Adding and subtracting floats must never leave a timer just short of due.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._jumping.now_s

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run the function now; its result or exception is in the future that is returned."""
        future: asyncio.Future[Any] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


class VirtualClock:
    """The Clock port on the running virtual loop; `start_ms` is the Unix millisecond of its zero."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = start_ms

    def now_ms(self) -> int:
        return self.wall_us() // 1000

    def wall_us(self) -> int:
        return self._start_ms * 1000 + round(asyncio.get_running_loop().time() * 1_000_000)

    def real_s(self, span_ms: int) -> float:
        return max(0, span_ms) / 1000


class Stopwatch:
    """Stands for time.perf_counter: work takes exactly as long as it says, and nothing else takes any time.

    A test puts it in place with monkeypatch: `monkeypatch.setattr(time, "perf_counter", Stopwatch())`.
    """

    def __init__(self) -> None:
        self._now_s = 0.0

    def __call__(self) -> float:
        return self._now_s

    def work(self, span_s: float) -> None:
        """Spend so many seconds."""
        self._now_s += span_s


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine to its end in virtual time and return its result; raise Deadlock or Spinning if it has none."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
