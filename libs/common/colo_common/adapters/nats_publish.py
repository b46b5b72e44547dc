"""Publishing to JetStream without waiting for one acknowledgement at a time."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg

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

    def __init__(self, client: Client) -> None:
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
            for message in messages:
                doing = f"publish {message.subject}"
                await self._send(message, flight)
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

    async def _send(self, message: Outgoing, flight: _Flight) -> None:
        if not message.durable:
            await self._client.publish(message.subject, message.data, headers=message.headers or None)
            return
        self._count += 1
        token = str(self._count)
        flight.waiting.add(token)
        self._flights[token] = (flight, message.subject)
        headers = {"Nats-Msg-Id": message.msg_id, **message.headers} if message.msg_id else message.headers
        reply = f"{self._prefix}.{token}"
        await self._client.publish(message.subject, message.data, reply=reply, headers=headers or None)

    async def _open_inbox(self) -> None:
        if not self._prefix:
            self._prefix = self._client.new_inbox()
            await self._client.subscribe(f"{self._prefix}.*", cb=self._on_ack)

    async def _on_ack(self, msg: Msg) -> None:
        token = msg.subject.rpartition(".")[2]
        found = self._flights.pop(token, None)
        if found is None:
            return  # its call gave up already
        flight, subject = found
        flight.settle(token, _failure(msg, subject))


def _failure(msg: Msg, subject: str) -> PortError | None:
    if msg.headers and msg.headers.get("Status") == "503":
        return NoStream(f"publish {subject}: no stream keeps this subject")
    try:
        ack = _ACK.decode(msg.data)
    except msgspec.DecodeError as error:
        return Unavailable(f"publish {subject}: the acknowledgement is unreadable: {error}")
    if ack.error is None:
        return None
    return api_error(ack.error.code, ack.error.err_code, ack.error.description, f"publish {subject}")
