"""The dead letters that their stream keeps: read one by one, published again, removed. For operators, not for hot paths."""

from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

import nats.js.errors
from nats.js.api import Header, RawStreamMsg
from nats.js.client import JetStreamContext

from colo_common.adapters.nats_connection import NatsConnection
from colo_common.adapters.nats_errors import NATS_ERRORS, keeps_cancellation, port_error
from colo_common.events.registry import Stream
from colo_common.events.service import DeadLettered
from colo_common.events.subjects import PREFIX
from colo_common.events.wire import decode
from colo_common.model.invalid import InvalidInput
from colo_common.ports import DeadLetter, NotKept, Outgoing

__all__ = ["NatsDeadLetters"]

_ALL: Final = f"{PREFIX}.evt.dead-letter.>"
_TIMEOUT_S: Final = 5.0
# JetStream error: there is no message of that sequence to delete.
_NO_MESSAGE: Final = 10043
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_Answer = TypeVar("_Answer")


class NatsDeadLetters:
    """See ports.DeadLetters."""

    def __init__(self, connection: NatsConnection) -> None:
        self._connection = connection

    async def page(self, after: int, limit: int, service: str = "") -> tuple[DeadLetter, ...]:
        """See DeadLetters.page."""
        subject = f"{PREFIX}.evt.dead-letter.{service}" if service else _ALL
        found: list[DeadLetter] = []
        seq = after + 1
        while len(found) < limit:
            message = await self._read(Stream.DEAD.value, seq, subject)
            if message is None:
                break
            seq = (message.seq or seq) + 1
            # A letter that cannot be decoded is of a later version: it is left for that.
            letter = _letter_of(message)
            if letter is not None:
                found.append(letter)
        return tuple(found)

    async def get(self, seq: int) -> DeadLetter | None:
        """See DeadLetters.get."""
        message = await self._read(Stream.DEAD.value, seq)
        return None if message is None else _letter_of(message)

    async def message_of(self, letter: DeadLetter) -> Outgoing | NotKept:
        """See DeadLetters.message_of."""
        fact = letter.letter
        data, headers = fact.data, dict(fact.headers)
        # A letter of an earlier version tells no size and has no data.
        if fact.size_bytes != len(data) or not (data or fact.stream):
            if not (fact.stream and fact.stream_seq):
                return NotKept(f"holds only the beginning of its {fact.size_bytes} bytes, which no stream keeps")
            message = await self._read(fact.stream, fact.stream_seq)
            if message is None or not _is_about(fact, message):
                other = "" if message is None else " is another one since it was made again or restored"
                where = f"{fact.stream} no longer keeps it (message {fact.stream_seq}{other})"
                return NotKept(f"does not hold its message, and {where}")
            data, headers = message.data or b"", dict(message.headers or {})
        # Under its own id the stream would drop it as a duplicate; under this one it drops the second of two replays. The number
        # of a letter is that of another one in a stream of letters that was made again.
        headers.pop(Header.MSG_ID.value, None)
        msg_id = f"replay:{letter.seq}:{fact.boot_id}:{fact.seq}"
        return Outgoing(subject=fact.subject, data=data, durable=True, msg_id=msg_id, headers=headers)

    async def drop(self, seq: int) -> bool:
        """See DeadLetters.drop."""
        return bool(await self._asked(self._jetstream().delete_msg(Stream.DEAD.value, seq), f"drop dead letter {seq}"))

    def _jetstream(self) -> JetStreamContext:
        self._connection.check()
        return self._connection.client.jetstream(timeout=_TIMEOUT_S)

    async def _read(self, stream: str, seq: int, following: str = "") -> RawStreamMsg | None:
        """The message of that sequence, or the first from there on of the subject `following`; None without one."""
        if following:
            asked = self._jetstream().get_msg(stream, seq=seq, subject=following, next=True)
        else:
            asked = self._jetstream().get_msg(stream, seq=seq)
        return await self._asked(asked, f"read {stream} {seq}")

    async def _asked(self, asked: Awaitable[_Answer], doing: str) -> _Answer | None:
        try:
            with keeps_cancellation():
                return await asked
        except nats.js.errors.NotFoundError:
            return None
        except nats.js.errors.APIError as error:
            if error.err_code == _NO_MESSAGE:
                return None
            raise port_error(error, doing) from error
        except NATS_ERRORS as error:
            raise port_error(error, doing) from error


def _is_about(fact: DeadLettered, message: RawStreamMsg) -> bool:
    """Whether the letter is about this message, which has its place: a stream that was made again counts from 1."""
    data = message.data or b""
    # A letter of an earlier version does not say when its message was stored.
    is_of_then = not fact.stored_us or (message.time is not None and _us_of(message.time) == fact.stored_us)
    if not is_of_then or message.subject != fact.subject or len(data) != fact.size_bytes:
        return False
    try:
        return data.decode().startswith(fact.payload)
    except UnicodeDecodeError:
        return data.hex().startswith(fact.payload)


def _us_of(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _letter_of(message: RawStreamMsg) -> DeadLetter | None:
    try:
        fact = decode(message.subject or "", message.data or b"")
    except InvalidInput:
        return None
    return DeadLetter(seq=message.seq or 0, letter=fact) if isinstance(fact, DeadLettered) else None
