"""Publishing to JetStream without waiting for one acknowledgement at a time."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import nats.errors

from colo_common.adapters.nats_client import DirectClient, message_bytes, status_of
from colo_common.adapters.nats_errors import NATS_ERRORS, api_error, port_error
from colo_common.ports import Outgoing, PortError, Refused, Unavailable

__all__ = ["NoStream", "Publisher"]

# Acknowledgements that may be outstanding in one call; the next messages wait for these.
_WINDOW: Final = 1_000
_ACK_TIMEOUT_S: Final = 5.0


class NoStream(Refused):
    """No stream keeps the subject at this moment."""


class _ApiError(msgspec.Struct):
    code: int = 500
    err_code: int = 0
    description: str = ""


class _Ack(msgspec.Struct):
    error: _ApiError | None = None


_ACK: Final = msgspec.json.Decoder(_Ack)


class _Flight:
    """Messages that were sent together and wait for their acknowledgements."""

    def __init__(self) -> None:
        self.waiting: set[str] = set()
        self.failure: PortError | None = None
        self.landed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(self, token: str, failure: PortError | None) -> None:
        self.waiting.discard(token)
        self.failure = self.failure or failure
        if not self.waiting and not self.landed.done():
            self.landed.set_result(None)


class Publisher:
    """Sends batches over one client; acknowledgements come to one inbox and are matched by token."""

    def __init__(self, client: DirectClient) -> None:
        self._client = client
        self._prefix = ""
        self._count = 0
        self._flights: dict[str, tuple[_Flight, str]] = {}

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """Send all in order; returns when every durable one is stored. Raises Unavailable, Refused or NoStream."""
        for start in range(0, len(messages), _WINDOW):
            await self._fly(messages[start : start + _WINDOW])

    def abandon(self) -> None:
        """The connection broke: what is in flight will not be acknowledged."""
        for token, (flight, subject) in tuple(self._flights.items()):
            del self._flights[token]
            flight.settle(token, Unavailable(f"publish {subject}: the connection broke before the acknowledgement"))

    async def _fly(self, messages: Iterable[Outgoing]) -> None:
        flight = _Flight()
        doing = "publish"
        try:
            await self._open_inbox()
            parts = []
            for message in messages:
                doing = f"publish {message.subject}"
                parts.append(self._part(message, flight))
            await self._client.send(parts)
            if flight.waiting:
                async with asyncio.timeout(_ACK_TIMEOUT_S):
                    await flight.landed
        except NATS_ERRORS as error:
            raise port_error(error, doing) from error
        finally:
            for token in flight.waiting:
                self._flights.pop(token, None)
        if flight.failure is not None:
            raise flight.failure

    def _part(self, message: Outgoing, flight: _Flight) -> bytes:
        """The bytes of one message; a durable one waits for its acknowledgement from now on."""
        if len(message.data) > self._client.max_payload:
            raise nats.errors.MaxPayloadError
        headers: list[tuple[str, str]] = list(message.headers.items())
        if not message.durable:
            return message_bytes(message.subject, "", headers, message.data)
        if message.msg_id:
            headers.append(("Nats-Msg-Id", message.msg_id))
        self._count += 1
        token = str(self._count)
        part = message_bytes(message.subject, f"{self._prefix}.{token}", headers, message.data)
        flight.waiting.add(token)
        self._flights[token] = (flight, message.subject)
        return part

    async def _open_inbox(self) -> None:
        if not self._prefix:
            self._prefix = self._client.new_inbox()
            await self._client.receive(f"{self._prefix}.*", self._on_ack)

    def _on_ack(self, subject: str, _reply: str, data: bytes, headers: bytes) -> None:
        token = subject.rpartition(".")[2]
        found = self._flights.pop(token, None)
        if found is None:
            return  # its call gave up already
        flight, published = found
        flight.settle(token, _failure(data, headers, published))


def _failure(data: bytes, headers: bytes, subject: str) -> PortError | None:
    if headers and status_of(headers)[0] == "503":
        return NoStream(f"publish {subject}: no stream keeps this subject")
    try:
        ack = _ACK.decode(data)
    except msgspec.DecodeError as error:
        return Unavailable(f"publish {subject}: the acknowledgement is unreadable: {error}")
    if ack.error is None:
        return None
    return api_error(ack.error.code, ack.error.err_code, ack.error.description, f"publish {subject}")
