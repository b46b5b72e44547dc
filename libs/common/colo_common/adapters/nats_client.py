"""The library's client with a short way for the many messages of a stream: in and out in bulk, headers read when asked for.

The library queues each message for a task of its own, takes all headers apart, and checks every header of what is sent. On a hot
path that is most of a process's work. Here a subscription may have a `direct` receiver, which is called as the bytes are read,
and `send` takes messages that are bytes already. Everything else is the library's.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

import nats.aio.client
import nats.errors
from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser

__all__ = ["DirectClient", "Receiver", "ack_bytes", "headers_from", "message_bytes", "status_of"]

#: Subject, reply subject, payload, headers as they came (empty: none). Never waits and never raises.
Receiver = Callable[[str, str, bytes, bytes], None]

_VERSION: Final = b"NATS/1.0"
_MESSAGES: Final = (b"HMSG ", b"MSG ")


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
        queue = self._flush_queue
        if queue is not None and queue.empty():
            queue.put_nowait(asyncio.get_running_loop().create_future())

    async def send(self, messages: Iterable[bytes]) -> None:
        """Send messages of `message_bytes` or `ack_bytes`. Raises as `publish` of the library does."""
        self._demand_connection()
        await self._send_command(b"".join(messages))
        if self._flush_queue is not None and self._flush_queue.empty():
            await self._flush_pending()

    def _demand_connection(self) -> None:
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
    """Takes whole messages with direct receivers out of what is read; leaves everything else to the library's parser."""

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
        rest = data[self._take_whole(data) :]
        if rest:
            # Of a part of a message that is to come the library's parser would only keep the bytes.
            await super().parse(rest)

    def _take_whole(self, data: bytes) -> int:
        """Deliver the messages at the beginning of the bytes; where the first other thing begins."""
        direct = self._client.direct
        at = 0
        while data.startswith(_MESSAGES, at):
            end = data.find(b"\r\n", at)
            if end < 0:
                break
            # MSG subject sid [reply] bytes, HMSG subject sid [reply] header-bytes bytes
            words = data[at:end].split()
            has_headers = words[0] == b"HMSG"
            try:
                receiver = direct.get(int(words[2]))
                size = int(words[-1])
                headers_size = int(words[-2]) if has_headers else 0
            except (IndexError, ValueError):
                break  # the library's parser says what is wrong with it
            begin = end + 2
            after = begin + size + 2
            if receiver is None or after > len(data):
                break
            reply = words[3].decode() if len(words) == (6 if has_headers else 5) else ""
            headers = data[begin : begin + headers_size]
            receiver(words[1].decode(), reply, data[begin + headers_size : begin + size], headers)
            at = after
        return at


def message_bytes(subject: str, reply: str, headers: Iterable[tuple[str, str]], data: bytes) -> bytes:
    """A message as it goes over the wire. Raises BadSubjectError or BadHeaderError of the library for what would break the line."""
    if not subject.isprintable() or " " in subject or not subject:
        raise nats.errors.BadSubjectError
    lines = [f"{name}: {value}\r\n" for name, value in headers]
    if not lines:
        return b"PUB %s %s %d\r\n%s\r\n" % (subject.encode(), reply.encode(), len(data), data)
    text = "".join(lines)
    if text.count("\n") != len(lines) or text.count("\r") != len(lines):
        raise nats.errors.BadHeaderError(text)
    head = b"NATS/1.0\r\n%s\r\n" % text.encode()
    size = len(head)
    return b"HPUB %s %s %d %d\r\n%s%s\r\n" % (subject.encode(), reply.encode(), size, size + len(data), head, data)


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
