"""The subscriptions of the gateway, and the performer of its effects."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from colo_common.events.effects import Effect
from colo_common.events.node import NodeUsageSampled
from colo_common.events.registry import EVENTS, Stream
from colo_common.model.invalid import InvariantBroken
from colo_common.runtime.core import Performer, Subscription
from colo_gateway.core import Shown
from colo_gateway.streams import Streams

__all__ = ["HEARS", "performer"]

# All facts, and of the telemetry finished spans and the samples, which the core keeps out of the event log.
HEARS: Final = tuple(
    Subscription(type=row.body, durable=False, replay=row.stream in (Stream.NODE, Stream.POLICY))
    for row in EVENTS
    if row.stream not in (None, Stream.CMD) or row.subject.parameters == ("service",) or row.body is NodeUsageSampled
)


def performer(streams: Streams) -> Performer:
    """Return the performer of Shown: it offers the entry to every open stream."""

    async def perform(effect: Effect) -> Sequence[Struct]:
        if not isinstance(effect, Shown):
            raise InvariantBroken("the gateway performs no such effect", effect=type(effect).__name__)
        streams.show(effect.entry)
        return ()

    return perform
