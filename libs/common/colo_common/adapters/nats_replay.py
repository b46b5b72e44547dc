"""Reads what a stream keeps of some facts, from its beginning to the message that was its last when the reading began."""

from collections.abc import Callable, Sequence
from typing import Final

from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from colo_common.adapters.nats_connection import NatsConnection
from colo_common.adapters.nats_errors import NATS_ERRORS, keeps_cancellation, port_error
from colo_common.events.fact import Fact
from colo_common.events.registry import event_of
from colo_common.events.wire import decode
from colo_common.model.invalid import InvalidInput, InvariantBroken

__all__ = ["NatsReplay"]

_TIMEOUT_S: Final = 10.0
_BATCH: Final = 500
_KEPT_S: Final = 60.0


class NatsReplay:
    """See ports.Replay."""

    def __init__(self, connection: NatsConnection) -> None:
        self._connection = connection

    async def facts(self, types: Sequence[type[Fact]], take: Callable[[Fact], None]) -> int:
        """See Replay.facts."""
        rows = [event_of(each) for each in types]
        (stream,) = {row.stream for row in rows}
        if stream is None:
            raise InvariantBroken("only facts that a stream keeps can be read again", types=[row.body for row in rows])
        await self._connection.wait_usable()
        jetstream = self._connection.client.jetstream(timeout=_TIMEOUT_S)
        config = ConsumerConfig(
            filter_subjects=[row.subject.wildcard() for row in rows],
            ack_policy=AckPolicy.NONE,
            deliver_policy=DeliverPolicy.ALL,
            mem_storage=True,
            inactive_threshold=_KEPT_S,
        )
        try:
            with keeps_cancellation():
                info = await jetstream.add_consumer(stream.value, config)
                left = count = info.num_pending or 0
                subscription = await jetstream.pull_subscribe_bind(consumer=info.name, stream=stream.value)
                while left > 0:
                    for message in await subscription.fetch(min(_BATCH, left), timeout=_TIMEOUT_S):
                        left -= 1
                        _take(message.subject, message.data, take)
                await subscription.unsubscribe()
        except NATS_ERRORS as error:
            raise port_error(error, f"read {stream.value} again") from error
        return count


def _take(subject: str, data: bytes, take: Callable[[Fact], None]) -> None:
    try:
        fact = decode(subject, data)
    except InvalidInput:
        # Whoever heard it first has dead-lettered it.
        return
    take(fact)
