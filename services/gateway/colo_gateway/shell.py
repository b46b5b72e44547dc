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

__all__ = ["hears", "performer"]

_LAST_KEPT: Final = (Stream.NODE, Stream.POLICY)


def hears(since_s: int = 0, since_most: int = 0) -> tuple[Subscription, ...]:
    """All facts, and of the telemetry finished spans and the samples, which the core keeps out of the event log.

    What happened is read again from the streams: the facts of the last `since_s`, of each stream at most the newest `since_most`.
    """
    return tuple(
        Subscription(type=row.body, durable=False, replay=True)
        if row.stream in _LAST_KEPT
        else Subscription(type=row.body, durable=False, since_s=since_s, since_most=since_most)
        for row in EVENTS
        if row.stream not in (None, Stream.CMD)
        or row.subject.parameters == ("service",)
        or row.body is NodeUsageSampled
    )


def performer(streams: Streams) -> Performer:
    """Return the performer of Shown: it offers the entry to every open stream."""

    async def perform(effect: Effect) -> Sequence[Struct]:
        if not isinstance(effect, Shown):
            raise InvariantBroken("the gateway performs no such effect", effect=type(effect).__name__)
        streams.show(effect.entry)
        return ()

    return perform
