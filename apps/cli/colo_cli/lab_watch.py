"""The lab's core: receives every event of the services, in the same generic service as they run in."""

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
    """A core that counts every fact and passes it on to a listener."""

    def __init__(self, listener: Callable[[Fact], None] | None = None) -> None:
        self.seen = LabObserver()
        self._listener = listener

    def handle(self, event: Struct, now_ms: int) -> list[Effect]:
        """Count the fact."""
        del now_ms
        if isinstance(event, Fact):
            self.seen.see(event)
            if self._listener is not None:
                self._listener(event)
        return []

    def deadline_ms(self) -> int | None:
        """None: the core has no timer."""
        return None

    def check(self) -> None:
        """Do nothing: the verdict reports duplicates."""


def lab_hears() -> tuple[Subscription, ...]:
    """Subscriptions to every event from now on, after the last facts of the nodes; not to commands, which are for one node each."""
    rows = (row for row in EVENTS if row.stream is not Stream.CMD and row.body is not SpansFinished)
    return tuple(
        Subscription(type=row.body, durable=False, replay=row.stream in (Stream.NODE, Stream.POLICY)) for row in rows
    )
