"""Publishing to JetStream: a call sends its messages, then waits for all their acknowledgements together.

The library's `publish_async` is not used: what it keeps for each message costs more than to publish it.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import Header
from nats.js.errors import APIError, NoStreamResponseError

from colo_common.adapters.nats_errors import NATS_ERRORS, keeps_cancellation, port_error
from colo_common.ports import Outgoing, PortError, Unavailable

__all__ = ["Publisher"]

# Acknowledgements that one call waits for at once; its next messages wait for these.
_WINDOW: Final = 1_000
_ACK_TIMEOUT_S: Final = 5.0


class _ApiError(msgspec.Struct):
    code: int = 500
    err_code: int = 0
    description: str = ""


class _Ack(msgspec.Struct):
    error: _ApiError | None = None


_ACK: Final = msgspec.json.Decoder(_Ack)


class _Window:
    """Messages that were sent together: the subject of each that is not acknowledged yet, by the inbox of its acknowledgement."""

    def __init__(self) -> None:
        self.unacked: dict[str, str] = {}
        self.failure: PortError | None = None
        self._acked = asyncio.Event()

    def settle(self, inbox: str, failure: PortError | None) -> None:
        """A message is stored, or why it is not. The first failure is kept."""
        del self.unacked[inbox]
        self.failure = self.failure or failure
        if not self.unacked:
            self._acked.set()

    async def wait_acked(self) -> None:
        """Return when all messages are settled. Raises TimeoutError when that takes too long."""
        if self.unacked:
            async with asyncio.timeout(_ACK_TIMEOUT_S):
                await self._acked.wait()


class Publisher:
    """Sends messages over one client. Acknowledgements come below one inbox, each to a subject of its own."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._inbox = ""
        self._count = 0
        self._windows: dict[str, _Window] = {}

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """Send all in order; return when every durable one is stored or was a duplicate. Raises Unavailable, Refused or NoStream.

        A message that the server refuses holds up no other; the first failure is raised when all are settled. Nothing is sent when
        one is larger than the server takes.
        """
        most_bytes = self._client.max_payload
        for message in messages:
            if len(message.data) > most_bytes:
                raise port_error(nats.errors.MaxPayloadError(), f"publish {message.subject}")
        for start in range(0, len(messages), _WINDOW):
            await self._publish_window(messages[start : start + _WINDOW])

    def abandon(self) -> None:
        """The connection broke: what is not acknowledged yet will not be."""
        for inbox, window in self._windows.items():
            subject = window.unacked[inbox]
            window.settle(inbox, Unavailable(f"publish {subject}: the connection broke before the acknowledgement"))
        self._windows.clear()

    async def _publish_window(self, messages: Sequence[Outgoing]) -> None:
        window = _Window()
        subject = ""
        try:
            with keeps_cancellation():
                await self._open_inbox()
                for message in messages:
                    subject = message.subject
                    await self._send(message, window)
                await window.wait_acked()
        except NATS_ERRORS as error:
            raise port_error(error, f"publish {subject}".rstrip()) from error
        finally:
            for inbox in window.unacked:
                del self._windows[inbox]
        if window.failure is not None:
            raise window.failure

    async def _send(self, message: Outgoing, window: _Window) -> None:
        headers = message.headers
        if not message.durable:
            await self._client.publish(message.subject, message.data, headers=headers or None)
            return
        if message.msg_id:
            headers = {**headers, Header.MSG_ID: message.msg_id}
        self._count += 1
        inbox = f"{self._inbox}.{self._count}"
        window.unacked[inbox] = message.subject
        self._windows[inbox] = window
        await self._client.publish(message.subject, message.data, reply=inbox, headers=headers or None)

    async def _open_inbox(self) -> None:
        if not self._inbox:
            self._inbox = self._client.new_inbox()
            # The library subscribes again by itself after a reconnect.
            await self._client.subscribe(f"{self._inbox}.*", cb=self._on_ack)

    async def _on_ack(self, message: Msg) -> None:
        window = self._windows.pop(message.subject, None)
        if window is not None:  # else its call gave up already
            window.settle(message.subject, _failure(message, f"publish {window.unacked[message.subject]}"))


def _failure(ack: Msg, doing: str) -> PortError | None:
    """Why a message was not stored; None when it was."""
    if ack.headers and ack.headers.get(Header.STATUS) == "503":
        return port_error(NoStreamResponseError(), doing)
    try:
        error = _ACK.decode(ack.data).error
    except msgspec.DecodeError as unreadable:
        return Unavailable(f"{doing}: the acknowledgement is unreadable: {unreadable}")
    if error is None:
        return None
    return port_error(APIError(code=error.code, err_code=error.err_code, description=error.description), doing)
