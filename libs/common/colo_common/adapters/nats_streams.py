"""Checks for and deletes colo's streams on a server that a lab borrows."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import nats.aio.client
import nats.js.client
import nats.js.errors

from colo_common.adapters.nats_errors import NATS_ERRORS, port_error
from colo_common.events.registry import STREAMS
from colo_common.model.invalid import InvalidInput

__all__ = ["delete_streams", "refuse_used_streams"]

_CONNECT_S: Final = 5


async def refuse_used_streams(url: str) -> None:
    """Raise InvalidInput when the server keeps streams of another colo; Unavailable or Refused when it cannot be asked."""
    async with _jetstream(url) as jetstream:
        for stream in STREAMS:
            with suppress(nats.js.errors.NotFoundError):
                await jetstream.stream_info(stream.value)
                raise InvalidInput("nats_url", f"holds {stream.value} of another colo; give an account without it", url)


async def delete_streams(url: str) -> None:
    """Delete colo's streams; a missing one is no error."""
    async with _jetstream(url) as jetstream:
        for stream in STREAMS:
            with suppress(nats.js.errors.NotFoundError):
                await jetstream.delete_stream(stream.value)


async def _ignore(_error: Exception) -> None:
    """Ignore the library's error callback: the call raises the same error."""


@asynccontextmanager
async def _jetstream(url: str) -> AsyncIterator[nats.js.client.JetStreamContext]:
    client = nats.aio.client.Client()
    try:
        # The library keeps trying an address without a listener, even with allow_reconnect=False.
        async with asyncio.timeout(_CONNECT_S):
            await client.connect(url, connect_timeout=_CONNECT_S, allow_reconnect=False, error_cb=_ignore)
        yield client.jetstream(timeout=_CONNECT_S)
    except NATS_ERRORS as error:
        raise port_error(error, f"ask {url}") from error
    finally:
        if client.is_connected:
            await client.close()
