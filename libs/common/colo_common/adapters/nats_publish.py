"""Publishes to JetStream: a call sends its messages, then waits for all acknowledgements together.

Many messages of one call for one stream are an atomic batch, which the server stores with a handful of syncs of its disk and
acknowledges once. A refused batch is sent again message by message, so that only the duplicate is dropped and a message that
cannot be stored delays no other. A repeated batch is refused as a whole when any of its message ids was stored within the duplicate
window, so it never stores a message twice.

The library's `publish_async` is not used: its bookkeeping for each message costs more than publishing.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec
import nats.errors
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import Header
from nats.js.errors import APIError, NoStreamResponseError

from colo_common.adapters.nats_errors import NATS_ERRORS, keeps_cancellation, port_error
from colo_common.ports import Outgoing, PoisonMessage, PortError, Unavailable

__all__ = ["Publisher"]

# Messages sent before waiting for their acknowledgements; also the most messages of an atomic batch.
_WINDOW: Final = 1_000
# Fewer messages than this are stored one by one, because the server's files for a batch cost more. Where the server syncs its disk
# for each message, calls grow beyond this by themselves, because waiting messages are published together.
_BATCH_LEAST: Final = 64
# JetStream error: a message of the batch was stored before, or is in the batch twice.
_DUPLICATE: Final = 10201
_ACK_TIMEOUT_S: Final = 5.0
# The server counts headers as part of a message. Those that the publisher adds itself (id, batch, frame) fit in this many bytes.
_HEADERS_OWN_BYTES: Final = 256
# A message that is smaller than the limit by this much, with this many headers at most, need not be counted exactly.
_HEADERS_SMALL_BYTES: Final = 16_384
_HEADERS_FEW: Final = 16


class _ApiError(msgspec.Struct):
    code: int = 500
    err_code: int = 0
    description: str = ""


class _Ack(msgspec.Struct):
    error: _ApiError | None = None
    #: Messages of the batch; absent after a single message.
    count: int = 1
    #: Where the message is. With `duplicate` it was stored before, under the same id.
    seq: int = 0
    stream: str = ""
    duplicate: bool = False


_ACK: Final = msgspec.json.Decoder(_Ack)


class _Batch(NamedTuple):
    """An atomic batch: `size` is the number of messages it will have, `messages` are those sent so far."""

    stream: str
    id: str
    size: int
    messages: list[Outgoing]


class _Unacked(NamedTuple):
    """The message, or the batch that it ends, that one acknowledgement will settle."""

    message: Outgoing
    batch: _Batch | None

    @property
    def messages(self) -> Sequence[Outgoing]:
        """All messages that the acknowledgement is for."""
        return (self.message,) if self.batch is None else self.batch.messages


class _Window:
    """Messages sent together. `unacked` has those without an acknowledgement, by the subject it will come to."""

    def __init__(self) -> None:
        self.unacked: dict[str, _Unacked] = {}
        self.failure: PortError | None = None
        #: Messages that were not stored, although their acknowledgements came.
        self.failed: list[Outgoing] = []
        #: Messages of batches that were refused.
        self.refused: list[Outgoing] = []
        #: Messages that the server says it had stored before, with what it says.
        self.before: list[tuple[Outgoing, _Ack]] = []
        self._acked = asyncio.Event()

    def settle(self, inbox: str, failure: PortError | None) -> None:
        """Settle a message or batch. `failure` of the window is the first one that is no PoisonMessage, else the first."""
        unacked = self.unacked.pop(inbox)
        if failure is not None:
            self.failed += unacked.messages
            if self.failure is None or isinstance(self.failure, PoisonMessage):
                self.failure = failure
        if not self.unacked:
            self._acked.set()

    async def wait_acked(self) -> None:
        """Return when all messages are settled. Raises TimeoutError after 5 s."""
        if self.unacked:
            async with asyncio.timeout(_ACK_TIMEOUT_S):
                await self._acked.wait()


class Publisher:
    """Publishes messages over one client. Acknowledgements come to one inbox, each to its own subject below it.

    `batching_stream` returns the stream of a subject; empty for none, or for a server that takes no batches.
    """

    def __init__(self, client: Client, batching_stream: Callable[[str], str] = lambda _subject: "") -> None:
        self._client = client
        self._batching_stream = batching_stream
        self._log = structlog.get_logger(source="nats")
        self._inbox = ""
        self._count = 0
        self._windows: dict[str, _Window] = {}
        # Streams that refused a batch, until the connection breaks.
        self._refusing: set[str] = set()

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """Send all in order; return when every durable one is stored or was a duplicate. Raises Unavailable, Refused or NoStream.

        A refused message delays no other; a failure is raised when all are settled, with the messages that were not stored as
        `left`, and as PoisonMessage only when no other failed for another reason. No message is sent when any of them is larger
        than the server takes.
        """
        most_bytes = self._client.max_payload
        for message in messages:
            if _is_larger(message, most_bytes):
                raise port_error(nats.errors.MaxPayloadError(), f"publish {message.subject}")
        for start in range(0, len(messages), _WINDOW):
            window = messages[start : start + _WINDOW]
            try:
                refused = await self._publish_window(window, self._batches(window))
                if refused:
                    await self._publish_window(refused, {})
            except PortError as error:
                if error.left is not None:
                    error.left = (*error.left, *messages[start + _WINDOW :])
                raise

    def abandon(self) -> None:
        """Fail all unacknowledged messages, because the connection broke."""
        for inbox, window in self._windows.items():
            subject = window.unacked[inbox].message.subject
            window.settle(inbox, Unavailable(f"publish {subject}: the connection broke before the acknowledgement"))
        self._windows.clear()
        self._refusing.clear()

    def _batches(self, messages: Sequence[Outgoing]) -> dict[str, _Batch]:
        """An atomic batch for each stream with at least _BATCH_LEAST of the messages."""
        if len(messages) < _BATCH_LEAST:
            return {}
        sizes = Counter(self._batching_stream(message.subject) for message in messages if message.durable)
        batches: dict[str, _Batch] = {}
        for stream, size in sizes.items():
            if stream and size >= _BATCH_LEAST and stream not in self._refusing:
                self._count += 1
                batches[stream] = _Batch(stream, f"{self._client.new_inbox()[-22:]}.{self._count}", size, [])
        return batches

    async def _publish_window(self, messages: Sequence[Outgoing], batches: dict[str, _Batch]) -> list[Outgoing]:
        """Send and wait for the acknowledgements; returns the messages of refused batches."""
        window = _Window()
        subject = ""
        try:
            with keeps_cancellation():
                await self._open_inbox()
                for message in messages:
                    subject = message.subject
                    await self._send(message, window, batches)
                await window.wait_acked()
        except NATS_ERRORS as error:
            raise port_error(error, f"publish {subject}".rstrip(), stores=True) from error
        finally:
            for inbox in window.unacked:
                del self._windows[inbox]
            self._tell_before(window.before)
        if window.failure is not None:
            unstored = {id(message) for message in (*window.failed, *window.refused)}
            window.failure.left = tuple(message for message in messages if id(message) in unstored)
            raise window.failure
        return window.refused

    async def _send(self, message: Outgoing, window: _Window, batches: dict[str, _Batch]) -> None:
        """Send one message. A single durable one, or the last of a batch, is added to the unacknowledged ones."""
        if not message.durable:
            await self._client.publish(message.subject, message.data, headers=message.headers or None)
            return
        headers = dict(message.headers)
        if message.msg_id:
            headers[Header.MSG_ID] = message.msg_id
        batch = batches.get(self._batching_stream(message.subject)) if batches else None
        if batch is not None:
            batch.messages.append(message)
            headers[Header.BATCH_ID] = batch.id
            headers[Header.BATCH_SEQUENCE] = str(len(batch.messages))
            if len(batch.messages) < batch.size:
                await self._client.publish(message.subject, message.data, headers=headers)
                return
            headers[Header.BATCH_COMMIT] = "1"
        self._count += 1
        inbox = f"{self._inbox}.{self._count}"
        window.unacked[inbox] = _Unacked(message, batch)
        self._windows[inbox] = window
        await self._client.publish(message.subject, message.data, reply=inbox, headers=headers or None)

    async def _open_inbox(self) -> None:
        if not self._inbox:
            self._inbox = self._client.new_inbox()
            # The library resubscribes by itself after a reconnect.
            await self._client.subscribe(f"{self._inbox}.*", cb=self._on_ack)

    async def _on_ack(self, message: Msg) -> None:
        window = self._windows.pop(message.subject, None)
        if window is None:
            return  # the call that sent it timed out
        sent, batch = window.unacked[message.subject]
        subject = sent.subject
        ack = _ack_of(message, f"publish {subject}")
        if isinstance(ack, PortError):
            window.settle(message.subject, ack)
        elif batch is not None and (ack.error is not None or ack.count != batch.size):
            self._note_refused(batch, ack)
            window.refused += batch.messages
            window.settle(message.subject, None)
        else:
            if ack.duplicate:
                window.before.append((sent, ack))
            window.settle(message.subject, _failure(ack, f"publish {subject}"))

    def _tell_before(self, before: Sequence[tuple[Outgoing, _Ack]]) -> None:
        """Say where a repeated message is, once a call: in a cluster that changed its leader it can be compared with the stream."""
        if before:
            sent, ack = before[0]
            self._log.info(
                "stored-before",
                messages=len(before),
                first=sent.msg_id,
                stream=ack.stream,
                seq=ack.seq,
                last=before[-1][1].seq,
            )

    def _note_refused(self, batch: _Batch, ack: _Ack) -> None:
        """Send the stream no more batches, unless it refused this one only for a duplicate."""
        if ack.error is None or ack.error.err_code != _DUPLICATE:
            self._refusing.add(batch.stream)
            why = ack.error.description if ack.error is not None else "it was stored in part"
            self._log.info("batch-refused", stream=batch.stream, messages=batch.size, why=why)


def _is_larger(message: Outgoing, most_bytes: int) -> bool:
    """Whether data and headers together exceed the server's limit, beyond which it closes the connection instead of answering."""
    size_bytes = len(message.data)
    if size_bytes + _HEADERS_SMALL_BYTES <= most_bytes and len(message.headers) <= _HEADERS_FEW:
        return False
    headers = sum(len(name.encode()) + len(value.encode()) + 4 for name, value in message.headers.items())
    return size_bytes + headers + len(message.msg_id) + _HEADERS_OWN_BYTES > most_bytes


def _ack_of(message: Msg, doing: str) -> _Ack | PortError:
    if message.headers and message.headers.get(Header.STATUS) == "503":
        return port_error(NoStreamResponseError(), doing)
    try:
        return _ACK.decode(message.data)
    except msgspec.DecodeError as unreadable:
        return Unavailable(f"{doing}: the acknowledgement is unreadable: {unreadable}")


def _failure(ack: _Ack, doing: str) -> PortError | None:
    """The error of a message that was not stored; None when it was."""
    error = ack.error
    if error is None:
        return None
    return port_error(APIError(code=error.code, err_code=error.err_code, description=error.description), doing)
