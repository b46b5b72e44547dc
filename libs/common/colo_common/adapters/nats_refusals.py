"""Logins that NATS refuses, from the server itself: it tells its system account of each, and nobody else."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec
import structlog
from msgspec import Struct
from nats.aio.msg import Msg

from colo_common.adapters.nats_access import NatsAccess
from colo_common.adapters.nats_client import ColoClient
from colo_common.adapters.nats_errors import NATS_ERRORS
from colo_common.model.invalid import InvalidInput
from colo_common.ports import RefusedLogin

__all__ = ["REFUSALS_SUBJECT", "listen_refusals"]

#: What a listener subscribes to, and all that it may do.
REFUSALS_SUBJECT: Final = "$SYS.SERVER.*.CLIENT.AUTH.ERR"
# Of several listeners of this name one hears each refusal.
_QUEUE: Final = "colo-audit"
_AGAIN_S: Final = 5.0
_WHO_MOST: Final = 80


class _Client(Struct, frozen=True):
    host: str = ""
    user: str = ""


class _Disconnected(Struct, frozen=True):
    """What is read of the server's advisory `io.nats.server.advisory.v1.client_disconnect`."""

    client: _Client = _Client()
    reason: str = ""


async def listen_refusals(access: NatsAccess, name: str, sink: Callable[[RefusedLogin], None]) -> None:
    """Hand every refused login to the sink, until cancelled. Of several listeners one hears each.

    What is refused while nobody is connected is lost. A listener that is not let in itself says so once and tries again.
    """
    log = structlog.get_logger(source="refused-logins").bind(server=access.shown)
    logged = ""
    while True:
        try:
            await _listen_once(access, name, sink)
            why = "the connection ended"
        except (InvalidInput, *NATS_ERRORS) as error:
            why = str(error) or type(error).__name__
        if why != logged:
            logged = why
            log.warning("refused-logins-unheard", error=why)
        await asyncio.sleep(_AGAIN_S)


async def _listen_once(access: NatsAccess, name: str, sink: Callable[[RefusedLogin], None]) -> None:
    """Listen over one connection. Returns when it ends, since the next one reads the key from its file again."""
    client = ColoClient()
    ended = asyncio.get_running_loop().create_future()

    async def take(message: Msg) -> None:
        with suppress(msgspec.MsgspecError):
            sink(_login_of(message.data))

    async def lost() -> None:
        if not ended.done():
            ended.set_result(None)

    async def failed(error: Exception) -> None:
        # Without the right to the subject it would listen to nothing for ever.
        if not ended.done() and "permissions violation" in str(error).lower():
            ended.set_exception(error)

    try:
        await client.connect(
            **access.options_for(client),
            name=name,
            error_cb=failed,
            disconnected_cb=lost,
            closed_cb=lost,
            allow_reconnect=False,
            connect_timeout=2,
            ping_interval=30,
        )
        await client.subscribe(REFUSALS_SUBJECT, queue=_QUEUE, cb=take)
        await client.flush()
        await ended
    finally:
        ended.cancel()
        with suppress(AssertionError, *NATS_ERRORS):
            await client.close()


def _login_of(data: bytes) -> RefusedLogin:
    """The refusal that the server tells. Raises MsgspecError for what is none."""
    found = msgspec.json.decode(data, type=_Disconnected)
    return RefusedLogin(
        server="nats",
        who=found.client.user[:_WHO_MOST],
        address=found.client.host[:_WHO_MOST],
        why=found.reason.lower(),
    )
