"""The asyncio event loop of one simulated process, on the virtual time that all processes share."""

from __future__ import annotations

import asyncio
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from math import ceil
from typing import Any, Final, TypeVar

from colo_sim.event_queue import EventQueue

__all__ = ["ProcessLoop"]

_T = TypeVar("_T")
_US: Final = 1_000_000


class ProcessLoop(asyncio.AbstractEventLoop):
    """Runs callbacks in the order of their calls and timers in the order of their times. It never waits and has no files.

    `hold` and `release` act as SIGSTOP and SIGCONT: callbacks that become due in between run afterwards, in order. `kill` acts as
    SIGKILL: every task is cancelled before any callback runs, so that only `except` and `finally` blocks run; the ports of the
    process have no effect by then. An unhandled error fails the step of the event queue in which it occurred.
    """

    def __init__(self, event_queue: EventQueue) -> None:
        self._event_queue = event_queue
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._held: deque[asyncio.Handle] = deque()
        self._is_held = False
        self.is_dead = False

    # ------------------------------------------------------------ asyncio's interface

    def time(self) -> float:
        """Virtual seconds since the start of the world."""
        return self._event_queue.elapsed_us / _US

    def get_debug(self) -> bool:
        """Never."""
        return False

    def is_running(self) -> bool:
        """Always: code on it must not start another loop."""
        return True

    def is_closed(self) -> bool:
        """Never: tasks of a dead process still finish on it."""
        return False

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Call the callback later in this moment."""
        handle = asyncio.Handle(callback, args, self, context)
        self._event_queue.soon(self._run, handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """The same as `call_soon`: there is one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call the callback after `delay` seconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call the callback at second `when` or up to two microseconds later, never earlier."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        due_us = ceil(when * _US)
        if due_us / _US < when:
            due_us += 1
        self._event_queue.at_us(due_us, self._run, timer)
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: a cancelled timer is skipped when it is due."""

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, _T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[_T]:
        """A task of this loop."""
        task: asyncio.Task[_T] = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        if self.is_dead:
            task.cancel()
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., _T], *args: Any) -> asyncio.Future[_T]:  # type: ignore[override]
        """Call the function now: a clock that jumps cannot wait for a thread."""
        future: asyncio.Future[_T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Fail the current step. An error of a dead process is ignored."""
        error = context.get("exception")
        if error is not None and not self.is_dead:
            self._event_queue.failure = error

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """The same as `call_exception_handler`."""
        self.call_exception_handler(context)

    # ------------------------------------------------------------ faults of the process

    def hold(self) -> None:
        """Run nothing until `release`."""
        self._is_held = True

    def release(self) -> None:
        """Run again, first the callbacks that became due while it was held, in order."""
        self._is_held = False
        held, self._held = self._held, deque()
        for handle in held:
            self._event_queue.soon(self._run, handle)

    def kill(self) -> None:
        """Run no more callbacks, and cancel every task later in this moment."""
        if not self.is_dead:
            self.is_dead = self._is_held = True
            self._event_queue.soon(self._end_tasks)

    @property
    def has_tasks(self) -> bool:
        """Whether any task has not finished."""
        return bool(self._tasks)

    def _end_tasks(self) -> None:
        """Cancel every task before waiting callbacks run, so that tasks only run their cleanup."""
        for task in tuple(self._tasks):
            task.cancel()
        self.release()

    def _run(self, handle: asyncio.Handle) -> None:
        if handle.cancelled():
            return
        if self._is_held:
            self._held.append(handle)
            return
        events._set_running_loop(self)
        try:
            handle._run()
        finally:
            events._set_running_loop(None)
