"""A JetStream pull consumer that recovers: one pull request is always open, and without heartbeats the consumer is created again.

The library's `fetch` is not used: it makes a task and a timer for every message, which costs several times the message itself, and
with heartbeats it leaves requests open and drops their messages. Requests and messages use a plain subscription of the library.
"""

import asyncio
import json
import random
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import structlog
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy, Header
from nats.js.client import JetStreamContext
from nats.js.errors import NotFoundError

from colo_common.adapters.nats_connection import NatsConnection
from colo_common.adapters.nats_errors import NATS_ERRORS, port_error
from colo_common.adapters.nats_stream_config import VERSION_KEY
from colo_common.events.registry import STREAMS, STREAMS_VERSION
from colo_common.ports import Delivery, Missed, PortError, Settlement, Sink, Source

__all__ = ["PullConsumer"]

_HEARTBEAT_S: Final = 2.0
_REQUEST_S: Final = 30.0
# The server removes an unnamed consumer without pulls for this long.
_EPHEMERAL_KEPT_S: Final = 60.0
_RETRY_FIRST_S: Final = 0.1
_RETRY_MOST_S: Final = 5.0
# After this time without a message or heartbeat the consumer is taken as deleted.
_SILENCE_S: Final = 2.5 * _HEARTBEAT_S
_WATCH_LEAST_S: Final = 0.1
_LOOK_EVERY_S: Final = 10.0
# Whatever was said before the stream was made is said again within this time without a question.
_YOUNG_S: Final = 1_800.0
# By how much the clocks of servers may differ that store a stream one after the other.
_CLOCKS_DIFFER: Final = timedelta(minutes=2)
_NS: Final = 1_000_000_000
_NS_PER_US: Final = 1_000
_NS_PER_MS: Final = 1_000_000
#: The streams that discard their oldest messages at a limit.
_DISCARDING: Final = frozenset(stream.value for stream, limits in STREAMS.items() if not limits.work_queue)
#: What must be equal for a consumer to be left as it is.
_COMPARED: Final = (
    "filter_subject",
    "filter_subjects",
    "ack_wait",
    "max_deliver",
    "max_ack_pending",
    "inactive_threshold",
)


class _Renew(Exception):
    """The session is over; the consumer is looked up or created again at once."""


class PullConsumer:
    """Delivers one source to one sink until cancelled.

    A stream that reached a limit discards its oldest messages, and one that was restored lacks its newest: messages that this
    consumer had not received are gone then, and nobody says so. Where a message does not follow the one before (most are of other
    subjects) the stream is asked, every few seconds at most, whether it still has what lies between. A source of the last messages
    misses nothing, and orders are not discarded while they wait.

    Who had received all that there was, and has asked for more ever since, missed nothing however much of other subjects has gone
    meanwhile: a fact that comes once in a month is no alarm in a stream that keeps a week, nor is one that another member of the
    group received.

    Whenever its consumer is gone it looks whether the stream is still the one of before, by the time at which that was made. Who
    begins to listen to the last messages cannot compare: a stream that is young then may be one that was lost and made again. A
    stream that lost its newest messages is known by when those at the numbers of the received ones were stored.
    """

    def __init__(self, connection: NatsConnection, source: Source, sink: Sink, missed: Missed | None = None) -> None:
        self._connection = connection
        is_kept = source.last_per_subject or source.stream not in _DISCARDING
        self._missed = None if is_kept else missed
        self._lost = missed if source.last_per_subject else None
        # When the stream was made, by its server.
        self._stream_made: datetime | None = None
        # The first sequence that was passed over since the stream was asked, and when it was asked last.
        self._passed_over: int | None = None
        self._looked_s = 0.0
        # Whether nothing more waited behind the last message, and a request has been open since then.
        self._is_caught_up = False
        self._source = source
        self._sink = sink
        self._jetstream: JetStreamContext = connection.client.jetstream(timeout=5)
        self._log = structlog.get_logger(source="nats").bind(consumer=source.durable or source.subject)
        self._logged = ""
        #: Why there is no consumer now; "" while there is one, and before the first try.
        self.problem = ""
        self._last_seq: int | None = None
        # When the newest received message was stored, by the server; 0 before the first one. In a stream that lost its newest
        # messages others are stored under their numbers, later than this.
        self._newest_ns = 0
        # Of such a stream: when an unnamed consumer begins again; 0 while it goes on after its last message.
        self._again_ns = 0
        # Of a source of the last messages: when its consumer was made, by the server (Unix ns) and by the loop.
        self._made_ns = 0
        self._made_s = 0.0
        # Of the session: the inbox, the messages left of the open request, whether the sink handles one, when the last one came.
        self._inbox = ""
        self._next_subject = ""
        self._open = 0
        self._is_busy = False
        self._seen_s = 0.0
        self._end: asyncio.Future[None]
        self._request = json.dumps(
            {"batch": source.batch, "expires": int(_REQUEST_S * _NS), "idle_heartbeat": int(_HEARTBEAT_S * _NS)}
        ).encode()

    async def run(self) -> None:
        """Deliver until cancelled. Raises no other error; failures are logged once and retried."""
        wait_s = _RETRY_FIRST_S
        while True:
            await self._connection.wait_usable()
            try:
                await self._session()
            except _Renew as renew:
                self._log_once(str(renew))
                wait_s = _RETRY_FIRST_S
            except PortError as error:
                self.problem = str(error)
                self._log_once(str(error))
                wait_s = min(wait_s * 2, _RETRY_MOST_S)
            await asyncio.sleep(wait_s * random.uniform(0.5, 1))

    async def _session(self) -> None:
        """One subscription to one consumer. Ends by raising _Renew or PortError."""
        generation = self._connection.generation
        client = self._connection.client
        loop = asyncio.get_running_loop()
        try:
            name = await self._make_consumer()
            self.problem = ""
            self._inbox = client.new_inbox()
            self._next_subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._source.stream}.{name}"
            self._end = end = loop.create_future()
            self._is_busy, self._seen_s, self._is_caught_up = False, loop.time(), False
            # The library calls `_on_message` for one message at a time; others wait in its queue.
            subscription = await client.subscribe(self._inbox, cb=self._on_message)
            try:
                await self._pull()
                await self._watch(generation, end)
            finally:
                with suppress(*NATS_ERRORS):
                    await subscription.unsubscribe()
        except NATS_ERRORS as error:
            raise port_error(error, f"listen {self._source.subject}") from error

    async def _watch(self, generation: int, end: "asyncio.Future[None]") -> None:
        """Wait for the end of the session: an error, another connection, or silence."""
        loop = asyncio.get_running_loop()
        reconnect = loop.create_task(self._connection.wait_other_generation(generation))
        try:
            while True:
                # Not at every heartbeat: the earliest moment at which the silence could be too long.
                quiet_s = _HEARTBEAT_S if self._is_busy else self._seen_s + _SILENCE_S - loop.time()
                await asyncio.wait(
                    (reconnect, end), timeout=max(_WATCH_LEAST_S, quiet_s), return_when=asyncio.FIRST_COMPLETED
                )
                if end.done():
                    end.result()
                if reconnect.done():
                    raise _Renew("the connection was made again")
                if self._passed_over is not None and loop.time() - self._looked_s > _LOOK_EVERY_S:
                    await self._look()
                if not self._is_busy and loop.time() - self._seen_s > _SILENCE_S:
                    raise _Renew("no heartbeat of the consumer")
        finally:
            reconnect.cancel()

    async def _look(self) -> None:
        """Ask the stream whether it still has what was passed over."""
        self._looked_s = asyncio.get_running_loop().time()
        begin, self._passed_over = self._passed_over, None
        info = await self._jetstream.stream_info(self._source.stream)
        if begin is not None and info.state.first_seq > begin:
            await self._tell_missed(
                f"{self._source.stream} discarded messages from {begin} to {info.state.first_seq - 1}"
            )

    async def _tell_missed(self, why: str) -> None:
        if self._missed is not None:
            self._log.warning("messages-missed", why=why)
            await self._missed(why)

    async def _look_at_stream(self, delivered: int = 0) -> None:
        """Tell what was discarded or lost since this consumer listened last.

        `delivered` is the last message that the server knows this consumer to have; what this process received counts before it.
        A stream that was made again begins at 1: it may hold as many messages by now as were received from the one before, so that
        its numbers alone say nothing.
        """
        info = await self._jetstream.stream_info(self._source.stream)
        before, self._stream_made = self._stream_made, info.created
        received, state = self._last_seq or delivered, info.state
        if (before is not None and before != info.created) or state.last_seq < received:
            # It was made again, or restored: it begins again.
            self._last_seq = self._newest_ns = self._again_ns = 0
            if self._lost is not None:
                await self._lost(f"{self._source.stream} was made again, or restored")
            elif received:
                await self._tell_missed(
                    f"{self._source.stream} was made again, or restored: it ends at {state.last_seq}, and {received} was received"
                )
        elif received and state.first_seq > received + 1:
            await self._tell_missed(
                f"{self._source.stream} discarded messages from {received + 1} to {state.first_seq - 1}"
            )

    async def _tell_restored(self, stream_seq: int) -> None:
        """Another message is where all was received: the stream lost its newest ones, and has grown since then."""
        why = f"{self._source.stream} was restored: it has another message {stream_seq} than was received from it"
        self._last_seq = 0
        if self._lost is not None:
            await self._lost(why)
            return
        await self._tell_missed(why)
        if self._goes_on:
            self._again_ns = self._newest_ns
            raise _Renew(why)

    @property
    def _goes_on(self) -> bool:
        """Whether the position is kept here, and each consumer goes on where the one before ended."""
        return not (self._source.durable or self._source.last_per_subject)

    async def _pull(self) -> None:
        self._open = self._source.batch
        await self._connection.client.publish(self._next_subject, self._request, reply=self._inbox)

    async def _on_message(self, message: Msg) -> None:
        """Handle a message or a status of the open request; an error ends the session."""
        end = self._end
        if end.done():
            return
        headers = message.headers
        now_s = asyncio.get_running_loop().time()
        # After a standstill nobody knows how long no request was open.
        self._is_caught_up = self._is_caught_up and now_s - self._seen_s <= _SILENCE_S
        self._seen_s = now_s
        try:
            if headers and not message.data and Header.STATUS in headers:
                await self._on_status(headers[Header.STATUS], headers.get(Header.DESCRIPTION, ""))
            else:
                await self._deliver(message)
        except Exception as error:
            if not end.done():
                end.set_exception(error)

    async def _on_status(self, status: str, description: str) -> None:
        if status == "100":
            return
        if status in ("404", "408") or description == "Batch Completed":
            await self._pull()
            return
        raise _Renew(f"the server ended the request: {description or status}")

    async def _deliver(self, message: Msg) -> None:
        deliveries, stream_seq, stored_ns, waiting = _numbers_of(message.reply)
        source = self._source
        self._open -= 1
        if stream_seq <= (self._last_seq or 0):
            if stored_ns > self._newest_ns > 0:
                await self._tell_restored(stream_seq)
            elif self._goes_on:
                # An unnamed consumer begins with the last message that was received, to see that it is still the same one.
                if self._open <= 0:
                    await self._pull()
                return
        self._is_busy = True
        begun_s = self._seen_s
        try:
            await self._sink(
                Delivery(
                    message.subject,
                    message.data,
                    message.headers,
                    deliveries=deliveries,
                    stream=source.stream,
                    stream_seq=stream_seq,
                    stored_us=stored_ns // _NS_PER_US,
                    settle=partial(_settle, message) if source.durable else None,
                    age_ms=self._age_ms(stored_ns),
                )
            )
        finally:
            self._is_busy = False
            self._seen_s = asyncio.get_running_loop().time()
        last = self._last_seq or 0
        is_passed_over = last and stream_seq > last + 1 and not self._is_caught_up
        if self._missed is not None and is_passed_over and self._passed_over is None:
            self._passed_over = last + 1
        self._is_caught_up = not waiting and self._open > 0 and self._seen_s - begun_s <= _SILENCE_S
        self._last_seq, self._newest_ns, self._again_ns = max(last, stream_seq), max(self._newest_ns, stored_ns), 0
        self._logged = ""
        if self._open <= 0:
            await self._pull()

    def _age_ms(self, stored_ns: int) -> int:
        """How long ago a message was stored that the stream had before its consumer was made; 0 for any other one."""
        if stored_ns >= self._made_ns:
            return 0
        return max(1, (self._made_ns - stored_ns) // _NS_PER_MS + int((self._seen_s - self._made_s) * 1_000))

    async def _make_consumer(self) -> str:
        """Create or update the consumer at the server; returns its name."""
        source, is_first = self._source, self._stream_made is None
        if source.also:
            config = ConsumerConfig(filter_subjects=list(source.subjects))
        else:
            config = ConsumerConfig(filter_subject=source.subject)
        if source.durable:
            config = config.evolve(
                name=source.durable,
                durable_name=source.durable,
                ack_policy=AckPolicy.EXPLICIT,
                ack_wait=source.ack_wait_s,
                max_deliver=-1,
                max_ack_pending=max(1_000, 4 * source.batch),
                inactive_threshold=source.forget_s or None,
                metadata={VERSION_KEY: str(STREAMS_VERSION)},
                **await self._durable_start(),
            )
        else:
            # Its position is kept here and it is created again with every connection, so the server need not keep it on disk.
            config = config.evolve(
                ack_policy=AckPolicy.NONE,
                mem_storage=True,
                inactive_threshold=_EPHEMERAL_KEPT_S,
                **await self._start_policy(),
            )
        info = await self._present(config) or await self._jetstream.add_consumer(source.stream, config)
        if is_first and self._lost is not None and self._stream_made is not None:
            age_s = (info.created - self._stream_made).total_seconds()
            if age_s < _YOUNG_S:
                await self._lost(f"{source.stream} was made {max(0, age_s):.0f} s ago, and may have been lost before")
        if config.deliver_policy is DeliverPolicy.BY_START_TIME and not source.durable and not self._again_ns:
            info = await self._made_later(config, info)
        if source.last_per_subject:
            self._made_ns, self._made_s = int(info.created.timestamp() * _NS), asyncio.get_running_loop().time()
        if self._last_seq is None and not source.durable:
            # A consumer created later continues from here, even if this one is lost before its first message.
            self._last_seq = info.delivered.stream_seq if info.delivered else 0
        elif source.durable and self._missed is not None:
            await self._look_at_stream(info.delivered.stream_seq if info.delivered else 0)
        return info.name

    async def _present(self, wanted: ConsumerConfig) -> ConsumerInfo | None:
        """The named consumer when it needs no change: it is as wanted, or a newer version of colo has made it."""
        if not self._source.durable:
            return None
        try:
            info = await self._jetstream.consumer_info(self._source.stream, self._source.durable)
        except NotFoundError:
            return None
        version = (info.config.metadata or {}).get(VERSION_KEY, "")
        is_newer = version.isdigit() and int(version) > STREAMS_VERSION
        is_same = version == str(STREAMS_VERSION) and all(
            (getattr(info.config, name) or None) == (getattr(wanted, name) or None) for name in _COMPARED
        )
        return info if is_newer or is_same else None

    async def _durable_start(self) -> dict[str, Any]:
        """The start of a named consumer, as fields of its configuration. No update may change that of one that is there."""
        if not self._source.since_s:
            return {"deliver_policy": DeliverPolicy.ALL}
        try:
            known = (await self._jetstream.consumer_info(self._source.stream, self._source.durable)).config
        except NotFoundError:
            since = datetime.now(UTC) - timedelta(seconds=self._source.since_s)
            return {"deliver_policy": DeliverPolicy.BY_START_TIME, "opt_start_time": since}
        return {"deliver_policy": known.deliver_policy, "opt_start_time": known.opt_start_time}

    async def _start_policy(self) -> dict[str, Any]:
        """The start of an unnamed consumer, as fields of its configuration."""
        if self._source.last_per_subject:
            if self._lost is not None:
                await self._look_at_stream()
            return {"deliver_policy": DeliverPolicy.LAST_PER_SUBJECT}
        await self._look_at_stream()
        if self._last_seq is None:
            if not self._source.since_s:
                return {"deliver_policy": DeliverPolicy.NEW}
            since = datetime.now(UTC) - timedelta(seconds=self._source.since_s)
            return {"deliver_policy": DeliverPolicy.BY_START_TIME, "opt_start_time": since}
        if self._again_ns:
            again = datetime.fromtimestamp(self._again_ns / _NS, UTC) - _CLOCKS_DIFFER
            return {"deliver_policy": DeliverPolicy.BY_START_TIME, "opt_start_time": again}
        # The previous consumer was lost with its connection or server: continue with its last message, which is left out, or at the
        # first one of a stream that was created again.
        start = self._last_seq if self._last_seq and self._newest_ns else self._last_seq + 1
        return {"deliver_policy": DeliverPolicy.BY_START_SEQUENCE, "opt_start_seq": start}

    async def _made_later(self, config: ConsumerConfig, info: ConsumerInfo) -> ConsumerInfo:
        """The consumer that starts at a time, or another one that starts later, where more is stored since then than is wanted.

        The first one is forgotten by the server, because nobody asks for its messages.
        """
        if (info.num_pending or 0) <= self._source.since_most:
            return info
        state = (await self._jetstream.stream_info(self._source.stream)).state
        later = config.evolve(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_time=None,
            opt_start_seq=max(1, state.last_seq - self._source.since_most + 1),
        )
        return await self._jetstream.add_consumer(self._source.stream, later)

    def _log_once(self, why: str) -> None:
        if why != self._logged:
            self._logged = why
            level = self._log.warning if self.problem else self._log.info
            level("consumer-renewed", why=why)


def _numbers_of(reply: str) -> tuple[int, int, int, int]:
    """How often a message was delivered, its sequence in the stream, when it was stored (Unix ns), and how many wait behind it.

    Faster than `Msg.metadata`.
    """
    # $JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.<sequence of the consumer>.<time>.<waiting>, or, with a domain and an
    # account hash, two tokens more before the stream, and a random one at the end.
    tokens = reply.split(".")
    at = 4 if len(tokens) == 9 else 6
    return int(tokens[at]), int(tokens[at + 1]), int(tokens[at + 3]), int(tokens[at + 4])


async def _settle(message: Msg, settlement: Settlement, delay_s: float) -> None:
    try:
        match settlement:
            case Settlement.ACK:
                await message.ack()
            case Settlement.NAK:
                await message.nak(delay_s)
            case Settlement.TERM:
                await message.term()
    except NATS_ERRORS as error:
        raise port_error(error, f"acknowledge {message.subject}") from error
