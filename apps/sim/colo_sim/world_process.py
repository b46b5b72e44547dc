"""A simulated process: runs the real shell of a service, and can be killed, stopped, cut off and started again."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar

from colo_sim.chance import Chance
from colo_sim.event_queue import EventQueue, LocalClock
from colo_sim.world_boot import Boot, Link
from colo_sim.world_bus import WorldBus
from colo_sim.world_log import WorldLog

__all__ = ["SimProcess"]

Role_co = TypeVar("Role_co", covariant=True)


class SimProcess(Generic[Role_co]):
    """A process that restarts. `make` is called at every start and returns the role and the coroutines to run: no state survives.

    `key` names the process in the world log. `role` is that of the last start.
    """

    role: Role_co

    def __init__(
        self,
        key: str,
        make: Callable[[Boot], tuple[Role_co, Sequence[Coroutine[Any, Any, None]]]],
        *,
        event_queue: EventQueue,
        bus: WorldBus,
        clock: LocalClock,
        chance: Chance,
        world_log: WorldLog,
    ) -> None:
        self.key = key
        self.clock = clock
        self.link = Link()
        self.is_up = False
        self.is_stopped = False
        self.crashed: Callable[[], None] = lambda: None
        self.boots = 0
        self.boot: Boot | None = None
        self._make = make
        self._event_queue = event_queue
        self._bus = bus
        self._chance = chance
        self._world_log = world_log

    def start(self) -> None:
        """Start a new run, with no state but the stored one."""
        self.boots += 1
        self.is_up = True
        boot = self.boot = Boot(
            self.key,
            self.boots,
            event_queue=self._event_queue,
            clock=self.clock,
            chance=self._chance,
            world_log=self._world_log,
            link=self.link,
            die=self._die,
            begin_again=self._begin_again,
        )
        boot.note(f"starts    {boot.boot_id}")
        self._chance.reached["starts with a wrong clock"] += boot.clock.ahead_ms != 0
        self.role, works = self._make(boot)
        for work in works:
            boot.spawn(work)

    def crash(self) -> None:
        """Kill the process now, as by SIGKILL."""
        if not self.is_up or self.boot is None:
            return
        self.boot.note("dies")
        self.is_up = self.is_stopped = False
        self._bus.forget(self.boot)
        self.boot.loop.kill()

    def arm(self, steps: int) -> bool:
        """Kill the process after this many steps. False when it is down or armed already."""
        if not self.is_up or self.boot is None or self.boot.crashes_in is not None:
            return False
        self.boot.crashes_in = steps
        return True

    @property
    def is_armed(self) -> bool:
        """Whether it dies in a few steps."""
        return self.boot is not None and self.boot.crashes_in is not None

    @property
    def is_cut(self) -> bool:
        """Whether the link is cut."""
        return self.link.is_cut

    def cut(self) -> None:
        """Cut the link until `heal`: no message passes."""
        self.link.is_cut = True
        self._note("is cut off")

    def cut_one_way(self, *, is_deaf: bool) -> None:
        """Let nothing arrive at the process, or nothing that it sends arrive, until `heal_one_way`."""
        self.link.is_deaf, self.link.is_mute = is_deaf, not is_deaf
        self._note("receives nothing" if is_deaf else "reaches nobody")

    def heal_one_way(self) -> None:
        """Let messages pass in both directions."""
        self.link.is_deaf = self.link.is_mute = False
        self._note("is connected both ways")
        if self.boot is not None:
            self._bus.resume(self.boot)

    def heal(self) -> None:
        """Restore the link."""
        self.link.is_cut = False
        self._note("is connected")
        if self.boot is not None:
            self._bus.resume(self.boot)

    def stop(self) -> None:
        """Hold the process as by SIGSTOP: it runs nothing while time passes, and messages wait."""
        if self.is_up and self.boot is not None:
            self.is_stopped = True
            self._note("is stopped")
            self.boot.loop.hold()

    def resume(self) -> None:
        """Continue as by SIGCONT, with the state from before the stop."""
        if self.is_stopped and self.boot is not None:
            self.is_stopped = False
            self._note("is resumed")
            self.boot.loop.release()

    def close(self) -> None:
        """Kill all tasks, without a line in the world log."""
        if self.boot is not None:
            self.boot.loop.kill()

    @property
    def is_closed(self) -> bool:
        """Whether all tasks have ended."""
        return self.boot is None or not self.boot.loop.has_tasks

    def _die(self) -> None:
        self.crash()
        self.crashed()

    def _begin_again(self) -> None:
        self._chance.reached["was fenced"] += 1
        self._note("was fenced")
        self.crash()
        self._event_queue.after(1, self._start_if_down)

    def _start_if_down(self) -> None:
        if not self.is_up:
            self.start()

    def _note(self, what: str) -> None:
        self._world_log.add(self._event_queue.now_ms, self.key, what)
