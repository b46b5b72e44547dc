"""The library's client, which comes back after the server refused its credentials, whose flush keeps its promise, and which writes
and reads headers at a lower cost.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import nats.aio.client
import nats.errors
from nats.aio.transport import TcpTransport
from nats.js.api import Header
from nats.protocol.command import hpub_cmd

from colo_common.adapters.nats_headers import header_block, headers_from_lines

__all__ = ["ColoClient"]

_REFUSED: Final = (
    "authorization violation",
    "authentication revoked",
    "authentication expired",
    "account authentication",
)
# Every consumer gets one in two seconds, whether anything happens or not, and of its headers nobody reads more than that it is one.
_HEARTBEAT: Final = b"NATS/1.0 100 Idle Heartbeat\r\n"
_STALLED: Final = Header.CONSUMER_STALLED.value.encode()


class _JoinedTransport(TcpTransport):
    """A connection that writes in one piece what waits together: under TLS the loop makes a record of each piece, which costs both
    ends.
    """

    def __init__(self, connected: TcpTransport) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        vars(self).update(vars(connected))

    def writelines(self, payload: Sequence[bytes]) -> None:
        self.write(b"".join(payload))  # type: ignore[no-untyped-call]


class ColoClient(nats.aio.client.Client):
    """Where the library closes for good when a server stops to accept its credentials, this one connects again: an administrator
    may have put new ones in their place, and an agent must go on to protect its node.

    `flush` returns when the server has read everything that was said before it. The library writes the ping of a flush ahead of the
    commands that wait to be written, so that the answer says nothing about a subscription that was made just before.
    """

    # Called with the lines of each message that has headers.
    _parse_header_lines = staticmethod(headers_from_lines)

    async def _send_publish(
        self, subject: str, reply: str, payload: bytes, payload_size: int, headers: dict[str, str] | None
    ) -> None:
        block = header_block(headers) if headers and subject else None
        if block is None:
            await super()._send_publish(subject, reply, payload, payload_size, headers)
            return
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += payload_size
        await self._send_command(hpub_cmd(subject, reply, block, payload))
        if self._flush_queue is not None and self._flush_queue.empty():
            await self._flush_pending()

    async def _connect_to_server(self, s: nats.aio.client.Srv) -> None:
        await super()._connect_to_server(s)
        if type(self._transport) is TcpTransport:
            self._transport = _JoinedTransport(self._transport)

    async def _send_ping(self, future: asyncio.Future[bool] | None = None) -> None:
        if self.is_connected and self._transport is not None and self._pending:
            self._transport.writelines(self._pending)
            self._pending = []
            self._pending_data_size = 0
        await super()._send_ping(future)

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        if headers and headers.startswith(_HEARTBEAT) and _STALLED not in headers:
            return {Header.STATUS.value: "100", Header.DESCRIPTION.value: "Idle Heartbeat"}
        found: dict[str, str] | None = await super()._process_headers(headers)
        return found

    async def _process_err(self, err_msg: str) -> None:
        if not self.is_connecting and any(words in err_msg.lower() for words in _REFUSED):
            await self._process_op_err(nats.errors.AuthorizationError())
            return
        await super()._process_err(err_msg)
