"""The real servers as tests see them: one of each for a session, a skip where they are missing, a failure in CI."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import nats
import pytest
import redis.asyncio

from colo_cli.server_process import ServerProcess
from colo_cli.servers import NatsServer, RedisServer, ServerMissing

__all__ = ["NatsServer", "RedisServer", "emptied", "in_ci", "missing", "nats_server", "redis_server"]

S = TypeVar("S", bound=ServerProcess)


def in_ci() -> bool:
    """Return whether what is missing must fail instead of being skipped."""
    return os.environ.get("CI", "").lower() in ("1", "true", "yes")


def missing(reason: str) -> None:
    """Skip the test, or fail it under CI=true: a suite that nobody runs proves nothing."""
    if in_ci():
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@contextmanager
def nats_server(*, sync_always: bool = False) -> Iterator[NatsServer]:
    """A nats-server with JetStream on a free port and a store of its own, stopped and removed at the end."""
    with _running(NatsServer(sync_always=sync_always)) as server:
        yield server


@contextmanager
def redis_server(*, appendfsync: str = "") -> Iterator[RedisServer]:
    """A redis-server on a Unix socket, without persistence unless told to, stopped and removed at the end."""
    with _running(RedisServer(appendfsync=appendfsync)) as server:
        yield server


async def emptied(nats_url: str, redis_url: str) -> None:
    """Delete every stream and every key, so that whole services may run on servers that others have used."""
    client = await nats.connect(nats_url)
    try:
        js = client.jetstream()
        for stream in await js.streams_info():
            await js.delete_stream(str(stream.config.name))
    finally:
        await client.close()
    store = redis.asyncio.from_url(redis_url)
    try:
        await store.flushall()
    finally:
        await store.aclose()


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
