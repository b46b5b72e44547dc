"""What the gateway core hears, and how its entries reach the open streams."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from colo_common.events.effects import Effect
from colo_common.events.registry import EVENTS, Stream
from colo_common.model.invalid import InvariantBroken
from colo_common.runtime.core import Performer, Subscription
from colo_gateway.core import Shown
from colo_gateway.streams import Streams

__all__ = ["HEARS", "performer"]

# Telemetry samples would crowd everything else out of the event_log; of it only spans are heard.
HEARS: Final = tuple(
    Subscription(type=row.body, durable=False, replay=row.stream is Stream.NODE)
    for row in EVENTS
    if row.stream not in (None, Stream.CMD) or row.subject.parameters == ("service",)
)


def performer(streams: Streams) -> Performer:
    """Shows entries to the open streams."""

    async def perform(effect: Effect) -> Sequence[Struct]:
        if not isinstance(effect, Shown):
            raise InvariantBroken("the gateway performs no such effect", effect=type(effect).__name__)
        streams.show(effect.entry)
        return ()

    return perform
