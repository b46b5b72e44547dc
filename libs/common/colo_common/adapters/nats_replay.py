"""Reads what a stream keeps of some facts: all, or the newest, up to the message that was its last when the reading began."""

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from nats.aio.msg import Msg
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
_LAST: Final = DeliverPolicy.LAST_PER_SUBJECT


class NatsReplay:
    """See ports.Replay."""

    def __init__(self, connection: NatsConnection) -> None:
        self._connection = connection

    async def facts(
        self,
        types: Sequence[type[Fact]],
        take: Callable[[Fact], None],
        *,
        newest_ms: int | None = None,
        newest_of: Sequence[type[Fact]] = (),
    ) -> int:
        """See Replay.facts."""
        stream, subjects = _kept(types)
        await self._connection.wait_usable()
        count = 0
        try:
            with keeps_cancellation():
                begin = None if newest_ms is None else await self._begin(*_kept(newest_of or types), newest_ms)
                if newest_ms is not None and begin is None:
                    return 0
                async for message in self._messages(stream, subjects, begin):
                    count += 1
                    _take(message.subject, message.data, take)
        except NATS_ERRORS as error:
            raise port_error(error, f"read {stream} again") from error
        return count

    async def _begin(self, stream: str, subjects: list[str], newest_ms: int) -> datetime | None:
        """So long before the newest message of these subjects, by the clock of the servers; None without any."""
        newest = [message.metadata.timestamp async for message in self._messages(stream, subjects, _LAST)]
        # The library's times are rounded to a part of a millisecond.
        return max(newest) - timedelta(milliseconds=newest_ms + 1) if newest else None

    async def _messages(
        self, stream: str, subjects: list[str], begin: datetime | DeliverPolicy | None
    ) -> AsyncIterator[Msg]:
        """The messages from a time on, all of them (None), or the last one of each subject."""
        jetstream = self._connection.client.jetstream(timeout=_TIMEOUT_S)
        config = ConsumerConfig(
            filter_subjects=subjects,
            ack_policy=AckPolicy.NONE,
            deliver_policy=DeliverPolicy.ALL,
            mem_storage=True,
            inactive_threshold=_KEPT_S,
        )
        if isinstance(begin, datetime):
            config.deliver_policy = DeliverPolicy.BY_START_TIME
            config.opt_start_time = begin
        elif begin is not None:
            config.deliver_policy = begin
        info = await jetstream.add_consumer(stream, config)
        left = info.num_pending or 0
        subscription = await jetstream.pull_subscribe_bind(consumer=info.name, stream=stream)
        while left > 0:
            for message in await subscription.fetch(min(_BATCH, left), timeout=_TIMEOUT_S):
                left -= 1
                yield message
        await subscription.unsubscribe()


def _kept(types: Sequence[type[Fact]]) -> tuple[str, list[str]]:
    """The stream that keeps facts of these types, and their subjects."""
    rows = [event_of(each) for each in types]
    (stream,) = {row.stream for row in rows}
    if stream is None:
        raise InvariantBroken("only facts that a stream keeps can be read again", types=[row.body for row in rows])
    return stream.value, [row.subject.wildcard() for row in rows]


def _take(subject: str, data: bytes, take: Callable[[Fact], None]) -> None:
    try:
        fact = decode(subject, data)
    except InvalidInput:
        # Whoever heard it first has dead-lettered it.
        return
    take(fact)
