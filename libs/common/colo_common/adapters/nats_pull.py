"""A JetStream pull consumer that heals: one request for a batch is always open, silence means that it must be made again."""

import asyncio
import json
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import structlog
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from colo_common.adapters.nats_client import ack_bytes, headers_from, status_of
from colo_common.adapters.nats_connection import NatsConnection
from colo_common.adapters.nats_errors import NATS_ERRORS, port_error
from colo_common.ports import PortError, Sink, Source

__all__ = ["NatsDelivery", "PullConsumer"]

_HEARTBEAT_S: Final = 2.0
_REQUEST_S: Final = 30.0
# A consumer without a name that nobody pulls from for this long is removed by the server.
_EPHEMERAL_KEPT_S: Final = 60.0
_RETRY_FIRST_S: Final = 0.1
_RETRY_MOST_S: Final = 5.0


class _Lost(Exception):
    """The session is over; the consumer is looked up or made again."""


class NatsDelivery:
    """One message of a stream."""

    def __init__(
        self, connection: NatsConnection, subject: str, reply: str, data: bytes, headers: bytes, *, acknowledged: bool
    ) -> None:
        self._connection = connection
        self._acknowledged = acknowledged
        self._reply = reply
        self._headers = headers
        self.subject = subject
        self.data = data
        # $JS.ACK.<stream>.<consumer>.<delivered>... or, with a domain and an account hash, two tokens more.
        tokens = reply.split(".")
        self.deliveries = int(tokens[4 if len(tokens) == 9 else 6])
        self.stream_seq = int(tokens[5 if len(tokens) == 9 else 7])

    @property
    def headers(self) -> Mapping[str, str]:
        """Taken apart when asked for: nothing on a hot path reads them."""
        return headers_from(self._headers)

    async def ack(self) -> None:
        """Done."""
        await self._say(b"+ACK")

    async def nak(self, delay_s: float = 0.0) -> None:
        """Again after the delay."""
        await self._say(b'-NAK {"delay": %d}' % int(delay_s * 1_000_000_000) if delay_s > 0 else b"-NAK")

    async def term(self) -> None:
        """Never again."""
        await self._say(b"+TERM")

    async def _say(self, word: bytes) -> None:
        if not self._acknowledged:
            return
        try:
            self._connection.client.put(ack_bytes(self._reply, word))
        except NATS_ERRORS as error:
            raise port_error(error, f"acknowledge {self.subject}") from error


class PullConsumer:
    """Delivers one source to one sink until cancelled."""

    def __init__(self, connection: NatsConnection, source: Source, sink: Sink) -> None:
        self._connection = connection
        self._source = source
        self._sink = sink
        self._log = structlog.get_logger(source="nats").bind(consumer=source.durable or source.subject)
        self._said = ""
        self._open = 0
        self._busy = False
        self._seen_s = 0.0
        self._end: asyncio.Future[None] | None = None
        self._last_seq: int | None = None
        self._request = json.dumps(
            {
                "batch": source.batch,
                "expires": int(_REQUEST_S * 1_000_000_000),
                "idle_heartbeat": int(_HEARTBEAT_S * 1_000_000_000),
            }
        ).encode()
        self._next_subject = ""
        self._inbox = ""
        # At most what was asked for; the receiver fills it as bytes are read and must not wait for a slow sink.
        self._came: deque[tuple[str, str, bytes, bytes]] = deque()
        self._filled = asyncio.Event()

    async def run(self) -> None:
        """Deliver for ever. Raises nothing but cancellation; what goes wrong is said in the log once and tried again."""
        wait_s = _RETRY_FIRST_S
        while True:
            await self._connection.wait_usable()
            try:
                await self._session()
            except _Lost as lost:
                self._say(str(lost))
                wait_s = _RETRY_FIRST_S
            except PortError as error:
                self._say(str(error))
                wait_s = min(wait_s * 2, _RETRY_MOST_S)
            await asyncio.sleep(wait_s)

    async def _session(self) -> None:
        """One subscription to one consumer; ends with _Lost or PortError."""
        generation = self._connection.generation
        loop = asyncio.get_running_loop()
        name = await self._make_consumer()
        client = self._connection.client
        self._inbox = client.new_inbox()
        self._next_subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._source.stream}.{name}"
        self._end = loop.create_future()
        self._open, self._busy, self._seen_s = 0, False, loop.time()
        self._came.clear()
        try:
            subscription = await client.receive(self._inbox, self._on_message)
            pump = loop.create_task(self._pump(self._end))
            try:
                await self._pull()
                await self._watch(generation, self._end)
            finally:
                pump.cancel()
                with suppress(*NATS_ERRORS):
                    await subscription.unsubscribe()
        except NATS_ERRORS as error:
            raise port_error(error, f"listen {self._source.subject}") from error

    async def _watch(self, generation: int, end: asyncio.Future[None]) -> None:
        """Wait for the end of the session: a status that ends it, another connection, or silence."""
        loop = asyncio.get_running_loop()
        reconnect = loop.create_task(self._connection.wait_other_generation(generation))
        try:
            while True:
                await asyncio.wait((reconnect, end), timeout=_HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED)
                if end.done():
                    end.result()
                if reconnect.done():
                    raise _Lost("the connection was made anew")
                if not self._busy and loop.time() - self._seen_s > 2.5 * _HEARTBEAT_S:
                    raise _Lost("no heartbeat of the consumer")
        finally:
            reconnect.cancel()

    async def _make_consumer(self) -> str:
        """The name of the consumer; made or brought up to date at the server."""
        source = self._source
        if source.also:
            config = ConsumerConfig(filter_subjects=list(source.subjects))
        else:
            config = ConsumerConfig(filter_subject=source.subject)
        if source.durable:
            config = config.evolve(
                name=source.durable,
                durable_name=source.durable,
                deliver_policy=DeliverPolicy.ALL,
                ack_policy=AckPolicy.EXPLICIT,
                ack_wait=source.ack_wait_s,
                max_deliver=source.max_deliver,
                max_ack_pending=max(1_000, 4 * source.batch),
            )
        else:
            # What it delivered is known here, and it is made anew with every connection: the server keeps nothing on disk.
            config = config.evolve(
                ack_policy=AckPolicy.NONE, mem_storage=True, inactive_threshold=_EPHEMERAL_KEPT_S, **await self._begin()
            )
        try:
            info = await self._connection.client.jetstream(timeout=5).add_consumer(source.stream, config)
        except NATS_ERRORS as error:
            raise port_error(error, f"consumer of {source.subject}") from error
        if self._last_seq is None and not source.durable:
            # Made again it goes on from here, also when nothing came before it was lost.
            self._last_seq = info.delivered.stream_seq if info.delivered else 0
        return info.name

    async def _begin(self) -> dict[str, Any]:
        """Where an unnamed consumer begins."""
        if self._source.last_per_subject:
            return {"deliver_policy": DeliverPolicy.LAST_PER_SUBJECT}
        if self._last_seq is None:
            return {"deliver_policy": DeliverPolicy.NEW}
        # The last one was lost with its connection or its server: go on after what it had delivered.
        start_seq = await self._resume_seq(self._last_seq)
        return {"deliver_policy": DeliverPolicy.BY_START_SEQUENCE, "opt_start_seq": start_seq}

    async def _resume_seq(self, last_seq: int) -> int:
        """The sequence after the last one seen, or the first one of a stream that began anew."""
        try:
            info = await self._connection.client.jetstream(timeout=5).stream_info(self._source.stream)
        except NATS_ERRORS as error:
            raise port_error(error, f"stream {self._source.stream}") from error
        return last_seq + 1 if info.state.last_seq >= last_seq else 1

    async def _pull(self) -> None:
        self._open = self._source.batch
        await self._connection.client.publish(self._next_subject, self._request, reply=self._inbox)

    def _on_message(self, subject: str, reply: str, data: bytes, headers: bytes) -> None:
        self._seen_s = asyncio.get_running_loop().time()
        self._came.append((subject, reply, data, headers))
        self._filled.set()

    async def _pump(self, end: asyncio.Future[None]) -> None:
        """Bring what came to the sink, in order; what goes wrong ends the session."""
        try:
            while True:
                while self._came:
                    await self._bring(*self._came.popleft())
                self._filled.clear()
                await self._filled.wait()
        except Exception as error:
            if not end.done():
                end.set_exception(error)

    async def _bring(self, subject: str, reply: str, data: bytes, headers: bytes) -> None:
        if not data and headers:
            status, description = status_of(headers)
            if status:
                await self._on_status(status, description)
                return
        delivery = NatsDelivery(
            self._connection, subject, reply, data, headers, acknowledged=bool(self._source.durable)
        )
        self._open -= 1
        self._busy = True
        try:
            await self._sink(delivery)
        finally:
            self._busy = False
        self._last_seq = max(self._last_seq or 0, delivery.stream_seq)
        self._said = ""
        if self._open <= 0:
            await self._pull()

    async def _on_status(self, status: str, description: str) -> None:
        if status == "100":
            return
        if status in ("404", "408") or description == "Batch Completed":
            await self._pull()
            return
        if self._end is not None and not self._end.done():
            self._end.set_exception(_Lost(f"the server ended the request: {description or status}"))

    def _say(self, sentence: str) -> None:
        if sentence != self._said:
            self._said = sentence
            self._log.info("consumer-renewed", why=sentence)
