"""One run of a simulated process: its event loop, its clock, and the steps between which it may die."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from colo_sim.chance import Chance
from colo_sim.event_queue import EventQueue, LocalClock
from colo_sim.process_loop import ProcessLoop
from colo_sim.world_log import WorldLog

__all__ = ["Boot", "Link"]


class Link:
    """The network link of a process, which outlives restarts. While `is_cut` no message passes, and the process knows it.

    While it `is_deaf` nothing arrives at the process, and while it `is_mute` nothing that it sends arrives anywhere: the connection
    seems to stand.
    """

    def __init__(self) -> None:
        self.is_cut = False
        self.is_deaf = False
        self.is_mute = False

    @property
    def passes_in(self) -> bool:
        """Whether messages to the process arrive."""
        return not (self.is_cut or self.is_deaf)

    @property
    def passes_out(self) -> bool:
        """Whether messages of the process arrive."""
        return not (self.is_cut or self.is_mute)


class Boot:
    """One run of a process, from its start to its crash. Every port of the process uses it and has no effect after the crash.

    `stop` stands for SIGTERM. `crashes_in` is the number of steps after which the process dies: each call of a port is a step, and
    so is each message of a publish. `clock` is the machine's; the process has its own, which shows the wall clock of the start.
    """

    def __init__(
        self,
        key: str,
        number: int,
        *,
        event_queue: EventQueue,
        clock: LocalClock,
        chance: Chance,
        world_log: WorldLog,
        link: Link,
        die: Callable[[], None],
        begin_again: Callable[[], None],
    ) -> None:
        self.key = key
        self.boot_id = f"{key}-{number}"
        self.event_queue = event_queue
        self.clock = clock.of_process()
        self.chance = chance
        self.link = link
        self.seed = chance.rng.getrandbits(32)
        # The loop has no files, sockets or signals: a simulated process must not use them.
        self.loop = ProcessLoop(event_queue)  # type: ignore[abstract]
        self.stop = asyncio.Event()
        self.crashes_in: int | None = None
        self._world_log = world_log
        self._die = die
        #: End this run like a crash, and start the next one at once: what a process does that lost its lease unnoticed.
        self.begin_again = begin_again

    @property
    def is_over(self) -> bool:
        """Whether the process died."""
        return self.loop.is_dead

    def note(self, what: str) -> None:
        """Add a line of this process to the world log."""
        self._world_log.add(self.event_queue.now_ms, self.key, what)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the coroutine until the process dies. Its exception fails the world."""
        self.loop.create_task(work).add_done_callback(self._ended)

    async def step(self, what: str) -> None:
        """Return, unless the process dies now; `what` names the step that it dies before."""
        if self.loop.is_dead:
            raise asyncio.CancelledError
        if self.crashes_in is not None:
            self.crashes_in -= 1
            if self.crashes_in < 0:
                self.chance.reached[f"died before {what}"] += 1
                self._die()
                await self.loop.create_future()

    async def call(self, what: str) -> None:
        """A step, then the latency of a message to a server, during which other processes run."""
        await self.step(what)
        await asyncio.sleep((self.chance.latency_ms() + self.chance.pause_ms()) / 1_000)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not self.is_over and not task.cancelled():
            self.event_queue.failure = task.exception() or self.event_queue.failure
