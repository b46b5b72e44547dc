"""What a process of a simulated world is made of: its role, its clock, and how it dies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from colo_common.events.effects import Effect
from colo_common.runtime.core import Core, Subscription
from colo_sim.event_queue import EventQueue, Work

if TYPE_CHECKING:
    from colo_sim.world_process import SimProcess

__all__ = ["Crashed", "LocalClock", "Role", "Watcher"]


class Crashed(Exception):
    """The process dies here."""


class LocalClock:
    """The clock of one machine: the world's, off by `skew_ms`."""

    def __init__(self, event_queue: EventQueue, skew_ms: int = 0) -> None:
        self._event_queue = event_queue
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        """Unix milliseconds on this machine."""
        return self._event_queue.now_ms + self.skew_ms

    def wall_us(self) -> int:
        """The same in microseconds."""
        return self.now_ms() * 1_000

    def real_s(self, span_ms: int) -> float:
        """The world has no other time."""
        return max(span_ms, 0) / 1_000


class Role(Protocol):
    """What makes a process this or that service: made anew at every start, so that nothing survives a crash."""

    core: Core
    hears: Sequence[Subscription]

    def load(self) -> list[Struct]:
        """Events before anything is heard. Raises Unavailable."""
        ...

    def perform(self, effect: Effect) -> Sequence[Struct]:
        """Do an effect of the service's own. Raises Unavailable: it is tried again."""
        ...

    def begin(self) -> Sequence[Work]:
        """What goes on beside the core."""
        ...


class Watcher(Protocol):
    """Is shown every turn of every process."""

    def turned(self, process: SimProcess) -> None: ...
