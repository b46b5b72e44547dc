"""The real servers as tests see them: one of each for a session, a skip where they are missing, a failure in CI."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, TypeVar

import nats
import pytest
import redis.asyncio

from colo_cli.server_process import ServerProcess
from colo_cli.servers import NatsServer, RedisServer, ServerMissing
from colo_common.adapters.nats_access import NatsAccess
from colo_common.adapters.nats_stream_config import StreamWish
from colo_common.adapters.nats_streams import StreamState, make_streams

__all__ = [
    "NatsServer",
    "RedisServer",
    "emptied",
    "in_a_thread",
    "in_ci",
    "made_streams",
    "missing",
    "nats_server",
    "redis_server",
]

STREAM_DISK_BYTES: Final = 2 << 30

S = TypeVar("S", bound=ServerProcess)
T = TypeVar("T")


def in_ci() -> bool:
    """Return whether what is missing must fail instead of being skipped."""
    return os.environ.get("CI", "").lower() in ("1", "true", "yes")


def missing(reason: str) -> None:
    """Skip the test, or fail it under CI=true: a suite that nobody runs proves nothing."""
    if in_ci():
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@contextmanager
def nats_server(*, sync_always: bool = False, streams: bool = True) -> Iterator[NatsServer]:
    """A nats-server on a free port with a store of its own and, unless told not to, colo's streams; removed at the end."""
    with _running(NatsServer(sync_always=sync_always)) as server:
        if streams:
            with ThreadPoolExecutor(1) as thread:
                # The caller may be a coroutine, whose loop cannot run another one.
                thread.submit(asyncio.run, made_streams(server.url)).result()
        yield server


async def made_streams(url: str, *, replicas: int = 1, disk_bytes: int = STREAM_DISK_BYTES) -> list[StreamState]:
    """Make colo's streams as `colo admin init` does, with a small disk."""
    wish = StreamWish(replicas=replicas, disk_bytes=disk_bytes)
    return await make_streams(NatsAccess(url=url), wish, upgrade=False)


@contextmanager
def redis_server(*, appendfsync: str = "") -> Iterator[RedisServer]:
    """A redis-server on a Unix socket, without persistence unless told to, stopped and removed at the end."""
    with _running(RedisServer(appendfsync=appendfsync)) as server:
        yield server


async def emptied(nats_url: str, redis_url: str) -> None:
    """Delete every stream and every key and make the streams again, so that services may run on servers that others have used."""
    client = await nats.connect(nats_url)
    try:
        js = client.jetstream()
        for stream in await js.streams_info():
            await js.delete_stream(str(stream.config.name))
    finally:
        await client.close()
    await made_streams(nats_url)
    store = redis.asyncio.from_url(redis_url)
    try:
        await store.flushall()
    finally:
        await store.aclose()


async def in_a_thread(work: Callable[[], T]) -> T:
    """Run what makes a loop of its own, such as a command of the command line, beside the loop of the test."""
    return await asyncio.to_thread(work)


@contextmanager
def _running(server: S) -> Iterator[S]:
    try:
        server.start_blocking()
    except ServerMissing as error:
        missing(str(error))
    try:
        yield server
    finally:
        server.stop_blocking()
