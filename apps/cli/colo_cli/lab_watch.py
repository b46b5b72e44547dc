"""The lab hears everything that the services say, through the same shell that they run in."""

from collections.abc import Callable

from msgspec import Struct

from colo_cli.lab_observe import LabObserver
from colo_common.events.effects import Effect
from colo_common.events.fact import Fact
from colo_common.events.registry import EVENTS, Stream
from colo_common.events.service import SpansFinished
from colo_common.runtime.core import Subscription

__all__ = ["LabCore", "lab_hears"]


class LabCore:
    """A core that only counts, and lets another listener hear the same."""

    def __init__(self, listener: Callable[[Fact], None] | None = None) -> None:
        self.seen = LabObserver()
        self._listener = listener

    def handle(self, event: Struct, now_ms: int) -> list[Effect]:
        """Count the message."""
        del now_ms
        if isinstance(event, Fact):
            self.seen.see(event)
            if self._listener is not None:
                self._listener(event)
        return []

    def deadline_ms(self) -> int | None:
        """No timer."""
        return None

    def check(self) -> None:
        """Nothing to break: duplicates are reported by the verdict."""


def lab_hears() -> tuple[Subscription, ...]:
    """Every event from now on, nodes' last facts first; commands are for their nodes alone and are not heard."""
    rows = (row for row in EVENTS if row.stream is not Stream.CMD and row.body is not SpansFinished)
    return tuple(Subscription(type=row.body, durable=False, replay=row.stream is Stream.NODE) for row in rows)
