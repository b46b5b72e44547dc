"""Publishing to JetStream without waiting for one acknowledgement at a time, nor always for one disk write a message.

Many messages of one call that go to one stream may be an atomic batch: the server stores them together and acknowledges once. A
batch that it refuses, for whatever reason, is sent again message by message, so that each gets an answer of its own: a duplicate
is dropped alone, and one that cannot be stored holds up nobody else. A batch that is sent again is refused as a whole when any of
its message ids was stored within the duplicate window, so it never stores a message twice.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
import nats.errors
import structlog

from colo_common.adapters.nats_batch import LEARN_LEAST, BatchChoice
from colo_common.adapters.nats_client import DirectClient, message_bytes, status_of
from colo_common.adapters.nats_errors import NATS_ERRORS, api_error, port_error
from colo_common.ports import Outgoing, PortError, Refused, Unavailable

__all__ = ["NoStream", "Publisher"]

# Acknowledgements that may be outstanding in one call; the next messages wait for these. Also the most messages of a batch.
_WINDOW: Final = 1_000
_ACK_TIMEOUT_S: Final = 5.0
# Some message of the batch was stored before, or is in the batch twice: no fault of the stream.
_DUPLICATE: Final = 10201


class NoStream(Refused):
    """No stream keeps the subject at this moment."""


class _ApiError(msgspec.Struct):
    code: int = 500
    err_code: int = 0
    description: str = ""


class _Ack(msgspec.Struct):
    error: _ApiError | None = None
    #: Messages of the batch; absent after a single message.
    count: int = 1


_ACK: Final = msgspec.json.Decoder(_Ack)


class _Flight:
    """Messages that were sent together and wait for their acknowledgements."""

    __slots__ = ("failure", "landed", "refused", "waiting")

    def __init__(self) -> None:
        self.waiting: set[str] = set()
        self.failure: PortError | None = None
        self.refused: list[Outgoing] = []
        self.landed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(self, token: str, failure: PortError | None) -> None:
        self.waiting.discard(token)
        self.failure = self.failure or failure
        if not self.waiting:
            self.end()

    def end(self) -> None:
        """Wait no longer, whatever was not acknowledged."""
        if not self.landed.done():
            self.landed.set_result(None)

    async def land(self) -> None:
        """Return when all is acknowledged. Raises TimeoutError when that takes too long."""
        if not self.waiting:
            return
        # One timer is a fraction of what asyncio.timeout costs, and most calls bring a few messages only.
        timer = asyncio.get_running_loop().call_later(_ACK_TIMEOUT_S, self.end)
        try:
            await self.landed
        finally:
            timer.cancel()
        if self.waiting:
            raise TimeoutError


@dataclass(slots=True)
class _Lot:
    """The messages of one flight for one stream; a batch when it has an id, and then those that were put into it so far."""

    stream: str
    size: int
    begun_s: float
    batch_id: str = ""
    stored: int = 0
    messages: list[Outgoing] = field(default_factory=list)


class _Awaited(NamedTuple):
    """What one acknowledgement is for."""

    flight: _Flight
    subject: str
    lot: _Lot | None


class Publisher:
    """Sends many messages over one client; acknowledgements come to one inbox and are matched by token.

    `batching_stream` says which stream keeps a subject; empty for none, or for one that takes no batches at this moment.
    """

    def __init__(self, client: DirectClient, batching_stream: Callable[[str], str] = lambda _subject: "") -> None:
        self._client = client
        self._batching_stream = batching_stream
        self._choice = BatchChoice()
        self._log = structlog.get_logger(source="nats")
        self._prefix = ""
        self._count = 0
        self._awaited: dict[str, _Awaited] = {}

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """Send all in order; returns when every durable one is stored. Raises Unavailable, Refused or NoStream."""
        for start in range(0, len(messages), _WINDOW):
            window = messages[start : start + _WINDOW]
            refused = await self._fly(window, self._lots(window))
            if refused:
                await self._fly(refused, {})

    def abandon(self) -> None:
        """The connection broke: what is in flight will not be acknowledged."""
        self._choice.forget()
        for token, awaited in tuple(self._awaited.items()):
            del self._awaited[token]
            failure = Unavailable(f"publish {awaited.subject}: the connection broke before the acknowledgement")
            awaited.flight.settle(token, failure)

    def _lots(self, messages: Sequence[Outgoing]) -> dict[str, _Lot]:
        """What goes to each stream that gets enough of the messages to learn from, or for a batch."""
        if len(messages) < LEARN_LEAST:
            return {}
        now_s = asyncio.get_running_loop().time()
        counts = Counter(self._batching_stream(message.subject) for message in messages if message.durable)
        lots: dict[str, _Lot] = {}
        for stream, size in counts.items():
            if stream and size >= LEARN_LEAST:
                lots[stream] = lot = _Lot(stream, size, now_s)
                if self._choice.is_batch(stream, size, now_s):
                    self._count += 1
                    lot.batch_id = str(self._count)
        return lots

    async def _fly(self, messages: Sequence[Outgoing], lots: dict[str, _Lot]) -> list[Outgoing]:
        """Send and wait; the messages of the batches that were refused."""
        flight = _Flight()
        subject = ""
        try:
            await self._open_inbox()
            most_bytes = self._client.max_payload
            parts = []
            for message in messages:
                subject = message.subject
                if len(message.data) > most_bytes:
                    raise nats.errors.MaxPayloadError
                parts.append(self._part(message, flight, lots))
            await self._client.send(parts)
            await flight.land()
        except NATS_ERRORS as error:
            raise port_error(error, f"publish {subject}".rstrip()) from error
        finally:
            for token in flight.waiting:
                self._awaited.pop(token, None)
        if flight.failure is not None:
            raise flight.failure
        return flight.refused

    def _part(self, message: Outgoing, flight: _Flight, lots: dict[str, _Lot]) -> bytes:
        """The bytes of one message. A durable one, or the last of a batch, waits for its acknowledgement from now on."""
        headers = list(message.headers.items())
        if not message.durable:
            return message_bytes(message.subject, "", headers, message.data)
        if message.msg_id:
            headers.append(("Nats-Msg-Id", message.msg_id))
        lot = lots.get(self._batching_stream(message.subject)) if lots else None
        if lot is not None and lot.batch_id:
            lot.messages.append(message)
            place = len(lot.messages)
            # The inbox is this client's alone.
            headers.append(("Nats-Batch-Id", f"{self._prefix[-22:]}.{lot.batch_id}"))
            headers.append(("Nats-Batch-Sequence", str(place)))
            if place < lot.size:
                return message_bytes(message.subject, "", headers, message.data)
            headers.append(("Nats-Batch-Commit", "1"))
        self._count += 1
        token = str(self._count)
        part = message_bytes(message.subject, f"{self._prefix}.{token}", headers, message.data)
        flight.waiting.add(token)
        self._awaited[token] = _Awaited(flight, message.subject, lot)
        return part

    async def _open_inbox(self) -> None:
        if not self._prefix:
            self._prefix = self._client.new_inbox()
            await self._client.receive(f"{self._prefix}.*", self._on_ack)

    def _on_ack(self, subject: str, _reply: str, data: bytes, headers: bytes) -> None:
        token = subject.rpartition(".")[2]
        awaited = self._awaited.pop(token, None)
        if awaited is None:
            return  # its call gave up already
        found = _answer(data, headers, awaited.subject)
        if isinstance(found, PortError):
            awaited.flight.settle(token, found)
            return
        lot = awaited.lot
        failure = None
        if lot is not None and lot.batch_id and (found.error is not None or found.count != lot.size):
            self._refuse(lot, found)
            awaited.flight.refused += lot.messages
        elif found.error is not None:
            error = found.error
            failure = api_error(error.code, error.err_code, error.description, f"publish {awaited.subject}")
        elif lot is not None:
            self._store(lot, found.count)
        awaited.flight.settle(token, failure)

    def _refuse(self, lot: _Lot, ack: _Ack) -> None:
        """No more batches to the stream for a while, unless it only knew a message already."""
        if ack.error is None or ack.error.err_code != _DUPLICATE:
            self._choice.refuse(lot.stream, asyncio.get_running_loop().time())
            why = ack.error.description if ack.error is not None else "it was stored in part"
            self._log.info("batch-refused", stream=lot.stream, messages=lot.size, why=why)

    def _store(self, lot: _Lot, count: int) -> None:
        lot.stored += count
        if lot.stored == lot.size:
            took_s = asyncio.get_running_loop().time() - lot.begun_s
            self._choice.learn(lot.size, bool(lot.batch_id), took_s)


def _answer(data: bytes, headers: bytes, subject: str) -> _Ack | PortError:
    if headers and status_of(headers)[0] == "503":
        return NoStream(f"publish {subject}: no stream keeps this subject")
    try:
        return _ACK.decode(data)
    except msgspec.DecodeError as error:
        return Unavailable(f"publish {subject}: the acknowledgement is unreadable: {error}")
