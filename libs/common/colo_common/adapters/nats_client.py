"""The library's client with a short way for the many messages of a stream: in and out in bulk, headers read when asked for.

The library queues each message for a task of its own, takes all headers apart, and checks every header of what is sent. On a hot
path that is most of a process's work. Here a subscription may have a `direct` receiver, which is called as the bytes are read,
and `send` takes messages that are bytes already. Everything else is the library's.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import nats.aio.client
import nats.errors
from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser

__all__ = ["DirectClient", "Receiver", "ack_bytes", "headers_from", "message_bytes", "status_of"]

#: Subject, reply subject, payload, headers as they came (empty: none). Never waits and never raises.
Receiver = Callable[[str, str, bytes, bytes], None]

_VERSION: Final = b"NATS/1.0"
_MESSAGES: Final = (b"HMSG ", b"MSG ")
_H: Final = b"H"[0]
_AROUND_HEADERS: Final = len(b"NATS/1.0\r\n\r\n\r\n")


class DirectClient(nats.aio.client.Client):
    """The client. `direct` receivers are by the number of a subscription, which must have no callback."""

    def __init__(self) -> None:
        super().__init__()
        self.direct: dict[int, Receiver] = {}
        self._ps = _DirectParser(self)

    async def receive(self, subject: str, receiver: Receiver) -> "Subscription":
        """Subscribe; messages go to the receiver, also after a reconnect, until the subscription ends."""
        found = await self.subscribe(subject)
        self.direct[found._id] = receiver
        return Subscription(self, found)

    def put(self, message: bytes) -> None:
        """Send one message of `ack_bytes` soon, without waiting. Raises as `send` does."""
        self._demand_connection()
        self._pending.append(message)
        self._pending_data_size += len(message)
        self._flush_soon()

    async def send(self, messages: Iterable[bytes]) -> None:
        """Send messages of `message_bytes` or `ack_bytes`. Raises as `publish` of the library does."""
        self._demand_connection()
        # Waits when more is pending than the library lets be.
        await self._send_command(b"".join(messages))
        self._flush_soon()

    def _flush_soon(self) -> None:
        """Wake the library's flusher, unless it was woken already and has yet to look."""
        queue = self._flush_queue
        if queue is not None and queue.empty():
            queue.put_nowait(asyncio.get_running_loop().create_future())

    def _demand_connection(self) -> None:
        if self._status == self.CONNECTED:
            return
        if self.is_closed:
            raise nats.errors.ConnectionClosedError
        if not self.is_connected:
            raise nats.errors.OutboundBufferLimitError

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        receiver = self.direct.get(sid)
        if receiver is None:
            await super()._process_msg(sid, subject, reply, data, headers)
        else:
            receiver(subject.decode(), reply.decode(), data, headers or b"")


class Subscription:
    """One direct subscription."""

    def __init__(self, client: DirectClient, inner: Any) -> None:
        self._client = client
        self._inner = inner

    async def unsubscribe(self) -> None:
        """End it. Raises as the library does."""
        self._client.direct.pop(self._inner._id, None)
        await self._inner.unsubscribe()


class _DirectParser(Parser):
    """Takes whole messages out of what is read, whoever receives them; leaves everything else to the library's parser."""

    def __init__(self, client: DirectClient) -> None:
        super().__init__(client)
        self._client = client

    async def parse(self, data: bytes = b"") -> None:
        if self.state != AWAITING_CONTROL_LINE:
            await super().parse(data)
            return
        if self.buf:
            data = bytes(self.buf) + data
            self.buf.clear()
        at, other = self._take_whole(data, 0)
        while other is not None:
            # The library's subscription: requests, and the answers to our own.
            await self._client._process_msg(*other)
            at, other = self._take_whole(data, at)
        if at < len(data):
            # Of a part of a message that is to come the library's parser would only keep the bytes.
            await super().parse(data[at:])

    def _take_whole(self, data: bytes, at: int) -> tuple[int, tuple[int, bytes, bytes, bytes, bytes] | None]:
        """Deliver the messages from there on; where the first other thing begins, or what follows a message to hand on."""
        direct = self._client.direct
        while data.startswith(_MESSAGES, at):
            end = data.find(b"\r\n", at)
            if end < 0:
                break
            # MSG subject sid [reply] bytes, HMSG subject sid [reply] header-bytes bytes
            words = data[at:end].split()
            has_headers = data[at] == _H
            try:
                sid = int(words[2])
                size = int(words[-1])
                headers_size = int(words[-2]) if has_headers else 0
            except (IndexError, ValueError):
                break  # the library's parser says what is wrong with it
            begin = end + 2
            after = begin + size + 2
            if after > len(data):
                break
            reply = words[3] if len(words) == (6 if has_headers else 5) else b""
            body = begin + headers_size
            receiver = direct.get(sid)
            if receiver is None:
                return after, (sid, words[1], reply, data[body : after - 2], data[begin:body])
            receiver(words[1].decode(), reply.decode(), data[body : after - 2], data[begin:body])
            at = after
        return at, None


def message_bytes(subject: str, reply: str, headers: Sequence[tuple[str, str]], data: bytes) -> bytes:
    """A message as it goes over the wire. Raises BadSubjectError or BadHeaderError of the library for what would break the line."""
    if not subject.isprintable() or " " in subject or not subject:
        raise nats.errors.BadSubjectError
    if not headers:
        return b"PUB %s %s %d\r\n%s\r\n" % (subject.encode(), reply.encode(), len(data), data)
    text = "\r\n".join(map(": ".join, headers))
    if text.count("\n") != len(headers) - 1 or text.count("\r") != len(headers) - 1:
        raise nats.errors.BadHeaderError(text)
    lines = text.encode()
    # The version line before them, the end of the last one and the empty line after it.
    size = len(lines) + _AROUND_HEADERS
    head = f"HPUB {subject} {reply} {size} {size + len(data)}\r\nNATS/1.0\r\n".encode()
    return b"%s%s\r\n\r\n%s\r\n" % (head, lines, data)


def ack_bytes(reply: str, word: bytes) -> bytes:
    """An acknowledgement as it goes over the wire."""
    return b"PUB %s %d\r\n%s\r\n" % (reply.encode(), len(word), word)


def status_of(headers: bytes) -> tuple[str, str]:
    """Status and description in the first line of headers; two empty texts where there are none."""
    line = headers[len(_VERSION) : headers.find(b"\r\n")] if headers.startswith(_VERSION) else b""
    code, _, description = line.strip().decode("ascii", "replace").partition(" ")
    return code, description.strip()


def headers_from(headers: bytes) -> dict[str, str]:
    """The headers by name."""
    found: dict[str, str] = {}
    for line in headers.split(b"\r\n")[1:]:
        name, separator, value = line.partition(b":")
        if separator:
            found[name.strip().decode("utf-8", "replace")] = value.strip().decode("utf-8", "replace")
    return found
