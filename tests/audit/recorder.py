"""Writes down what a running colo says and stores, as one who only listens to the bus and reads Redis."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import nats
import redis.asyncio
from msgspec import Struct
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from redis.exceptions import RedisError

from colo_common.events.registry import STREAMS, Stream
from tests.audit.recording import Emptied, LedgerRow, Received, Record, StoredAtEnd, append

__all__ = ["BusAccess", "Recorder"]

#: A work queue gives each message to one reader only: the orders are not read, what they led to is.
_READ: Final = tuple(name for name in STREAMS if name is not Stream.CMD)
_LIVE: Final = "colo.v1.evt.node.>"
_BATCH: Final = 500
_FETCH_S: Final = 1.0
_AGAIN_S: Final = 0.2
_LEDGER_S: Final = 0.5
_IDLE_S: Final = 2.0
#: What an instance that was cut off had in hand comes again after 30 s (`ack_wait_s`), and may be the end of an attempt.
_LAST_LIMIT_S: Final = 45.0
_CONSUMER_S: Final = 30.0
_ERRORS: Final = (nats.errors.Error, nats.js.errors.Error, RedisError, OSError, TimeoutError)
_LEDGER: Final = "colo:v1:ledger"
_JOBS: Final = "colo:v1:job"


class BusAccess(Struct, frozen=True, kw_only=True):
    """Servers of NATS, separated by commas; their authority in PEM; the seed of a user with his name below it."""

    url: str
    ca_file: str = ""
    nkey_file: str = ""

    def options(self) -> dict[str, Any]:
        """What the library connects with."""
        found: dict[str, Any] = {"servers": self.url.split(",")}
        if self.ca_file:
            found["tls"] = ssl.create_default_context(cafile=self.ca_file)
        if self.nkey_file:
            seed, user = Path(self.nkey_file).read_text("ascii").split()
            # Each user hears its own inbox alone.
            found |= {"nkeys_seed_str": seed, "inbox_prefix": f"_INBOX.{user}"}
        return found


class _JobRow(Struct, frozen=True):
    state: str


class Recorder:
    """Reads every stream but the orders from its beginning, the numbers of nodes as they are published, and the ledger's rows.

    Servers may go away and come back at any time, also with an emptied store, which is noted.
    """

    def __init__(self, server: BusAccess, redis_url: str, path: Path) -> None:
        self._server = server
        self._redis: Any = redis_at(redis_url)
        self._path = path
        self._received_s = time.monotonic()
        self._client: Any = None
        self._is_over = False

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`; then what is left in the streams is read, and what Redis holds is written down at last.

        While the ledger still holds something that waits for a message to come again, for 45 s at most.
        """
        self._client = await nats.connect(
            **self._server.options(), max_reconnect_attempts=-1, reconnect_time_wait=_AGAIN_S
        )
        await self._client.subscribe(_LIVE, cb=self._hear_live)
        reading = [asyncio.create_task(self._forever(self._reader(name))) for name in _READ]
        reading.append(asyncio.create_task(self._forever(self._ledger())))
        try:
            await stop.wait()
            deadline_s = time.monotonic() + _LAST_LIMIT_S
            while time.monotonic() < deadline_s and (
                time.monotonic() < self._received_s + _IDLE_S or await self._holds()
            ):
                await asyncio.sleep(_AGAIN_S)
            self._write(await self._stored())
        finally:
            # A cancellation that a library takes for the end of its own wait is lost; then the task ends by itself.
            self._is_over = True
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)
            await self._client.close()
            await self._redis.aclose()

    def _write(self, *records: Record) -> None:
        if records:
            append(self._path, records)

    async def _forever(self, turn: Callable[[], Awaitable[None]]) -> None:
        while not self._is_over:
            try:
                await turn()
            except _ERRORS:
                await asyncio.sleep(_AGAIN_S)

    async def _hear_live(self, message: Msg) -> None:
        self._received_s = time.monotonic()
        self._write(Received(at_us=time.time_ns() // 1_000, subject=message.subject, text=message.data.decode()))

    def _reader(self, stream: Stream) -> Callable[[], Awaitable[None]]:
        """Reads a stream on from the last message that was read; once more from its beginning when it was emptied."""
        last = 0

        async def turn() -> None:
            nonlocal last
            js = self._client.jetstream(timeout=2.0)
            state = (await js.stream_info(stream)).state
            if state.last_seq < last:
                last = 0
                self._write(Emptied(at_us=time.time_ns() // 1_000, what=stream))
            config = ConsumerConfig(
                ack_policy=AckPolicy.NONE,
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=last + 1,
                inactive_threshold=_CONSUMER_S,
            )
            consumer = (await js.add_consumer(stream, config)).name
            subscription = await js.pull_subscribe_bind(consumer, stream)
            try:
                while self._client.is_connected and not self._is_over:
                    try:
                        messages = await subscription.fetch(_BATCH, timeout=_FETCH_S)
                    except TimeoutError:
                        # Whether nothing came or the consumer has gone says the server.
                        if (await js.stream_info(stream)).state.last_seq != last:
                            return
                        continue
                    self._received_s = time.monotonic()
                    # A server that was killed may have forgotten how far this consumer was, and gives a message again.
                    records = [_received(stream, message) for message in messages]
                    fresh = [record for record in records if record.seq > last]
                    last = max((record.seq for record in fresh), default=last)
                    self._write(*fresh)
            finally:
                await subscription.unsubscribe()

        return turn

    def _ledger(self) -> Callable[[], Awaitable[None]]:
        """Reads the rows of the ledger that were written since the last look."""
        known: dict[bytes, bytes] = {}

        async def turn() -> None:
            changes: dict[bytes, bytes] = await self._redis.hgetall(f"{_LEDGER}:changes")
            if known and not changes:
                known.clear()
                self._write(Emptied(at_us=time.time_ns() // 1_000, what="redis"))
            for node, count in changes.items():
                if known.get(node) != count:
                    fields = await self._redis.hgetall(f"{_LEDGER}:node:{node.decode()}")
                    self._write(LedgerRow(at_us=time.time_ns() // 1_000, node=node.decode(), fields=_text(fields)))
            known.update(changes)
            await asyncio.sleep(_LEDGER_S)

        return turn

    async def _holds(self) -> bool:
        """Whether the ledger holds an attempt, or cannot say."""
        try:
            return bool(await self._redis.hlen(f"{_LEDGER}:held"))
        except _ERRORS:
            return True

    async def _stored(self) -> StoredAtEnd:
        nodes = [key.decode() async for key in self._redis.scan_iter(f"{_LEDGER}:node:*", count=1_000)]
        rows = {key.rpartition(":")[2]: _text(await self._redis.hgetall(key)) for key in sorted(nodes)}
        jobs = {
            job.decode(): msgspec.json.decode(row.partition(b"\n")[2], type=_JobRow).state
            async for job, row in self._redis.hscan_iter(_JOBS, count=1_000)
        }
        held = _text(await self._redis.hgetall(f"{_LEDGER}:held"))
        return StoredAtEnd(at_us=time.time_ns() // 1_000, jobs=jobs, held=held, rows=rows)


def redis_at(url: str) -> redis.asyncio.Redis:
    """A client of a server, or of the primary that sentinels name (redis+sentinel://HOST:PORT,.../NAME)."""
    parts = urlsplit(url)
    if parts.scheme != "redis+sentinel":
        return redis.asyncio.from_url(url)
    addresses = [(host, int(port)) for host, _, port in (one.partition(":") for one in parts.netloc.split(","))]
    sentinel = redis.asyncio.Sentinel(addresses, socket_timeout=_FETCH_S)  # type: ignore[no-untyped-call]
    found: redis.asyncio.Redis = sentinel.master_for(parts.path.strip("/"), socket_timeout=_FETCH_S)
    return found


def _text(fields: dict[bytes, bytes]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in fields.items()}


def _received(stream: Stream, message: Msg) -> Received:
    return Received(
        at_us=round(message.metadata.timestamp.timestamp() * 1_000_000),
        subject=message.subject,
        text=message.data.decode(),
        stream=stream,
        seq=message.metadata.sequence.stream,
        id=(message.headers or {}).get("Nats-Msg-Id", ""),
    )
