"""The bus over NATS: core subjects for lossy messages, JetStream for durable ones, micro services for requests."""

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from secrets import token_hex
from typing import Any, Final

import nats.errors
import nats.js.errors
import nats.micro.service
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.micro.request import Handler, Request

from colo_common.adapters.conflating_queue import ConflatingQueue
from colo_common.adapters.nats_access import NatsAccess
from colo_common.adapters.nats_advisories import listen_advisories
from colo_common.adapters.nats_audit import NatsAudit
from colo_common.adapters.nats_backlogs import backlogs_of
from colo_common.adapters.nats_connection import NatsConnection
from colo_common.adapters.nats_dead_letters import NatsDeadLetters
from colo_common.adapters.nats_errors import NATS_ERRORS, NoStream, keeps_cancellation, port_error, to_its_end
from colo_common.adapters.nats_publish import Publisher
from colo_common.adapters.nats_pull import PullConsumer
from colo_common.adapters.nats_replay import NatsReplay
from colo_common.adapters.nats_stream_config import StreamWish
from colo_common.events.registry import STREAMS, Stream, StreamLimits, reaches_each
from colo_common.events.subjects import PREFIX, matches
from colo_common.ports import (
    Advisory,
    Answerer,
    AnswerTooLarge,
    Backlog,
    Delivery,
    Missed,
    Outgoing,
    Sink,
    Source,
    Unavailable,
)

__all__ = ["NatsBus"]

# An operator states what streams must have, and without a statement they are taken with what they were made with.
_AS_STATED: Final = StreamWish()
# Requests of one endpoint that are answered concurrently; more wait in the subscription.
_ANSWERS_AT_ONCE: Final = 256
# After an answer to a question to all, how long to wait for one more.
_FURTHER_S: Final = 0.05
#: The library's reader ends when the answer to a flush comes after its timeout, so the timeout is longer than any server takes.
_FLUSH_S: Final = 60
#: The status of the server's message that nobody listens.
_NOBODY: Final = "503"
#: The code of an answer that is larger than the server carries, and what its headers may add.
_TOO_LARGE: Final = "413"
_HEADERS_BYTES: Final = 1_024
# Size of the cache from subject to stream; when it is full it is cleared.
_SUBJECTS_MOST: Final = 65_536


class NatsBus:
    """The bus of a process, over one connection. `start` returns at once; until connected, calls raise Unavailable."""

    def __init__(
        self,
        server: str | NatsAccess,
        *,
        name: str,
        version: str = "0.0.0",
        streams: Mapping[Stream, StreamLimits] = STREAMS,
        wish: StreamWish = _AS_STATED,
    ) -> None:
        """`server` is an address, or an access with credentials; `wish` is what the streams must have to be used."""
        access = NatsAccess(url=server) if isinstance(server, str) else server
        self._connection = NatsConnection(access, name, streams, wish)
        #: The dead letters on this server.
        self.dead_letters = NatsDeadLetters(self._connection)
        #: What the streams of this server keep.
        self.replay = NatsReplay(self._connection)
        #: The audit on this server.
        self.audit = NatsAudit(self._connection)
        self._publisher = Publisher(self._connection.client, self._batching_stream)
        self._connection.on_lost = self._publisher.abandon
        self._version = version
        self._patterns = tuple(
            (pattern, stream.value) for stream, limits in streams.items() for pattern in limits.subjects
        )
        self._streams_by_subject: dict[str, str] = {}
        self._not_answering_yet = 0
        #: Whether this member gets every request to its service and not a share: only the holder of the work answers then, and a
        #: former holder that stands still takes no request from it.
        self.answers_alone = False
        self._consumers: list[PullConsumer] = []

    def on_refused(self, count: Callable[[str], None]) -> None:
        """Call `count` with "publish" or "subscription" when the server refuses this user a subject."""
        self._connection.on_refused = count

    def start(self) -> None:
        """Start connecting, in the background."""
        self._connection.start()

    async def connected(self, timeout_s: float) -> None:
        """Wait for the first connection. Raises Unavailable after `timeout_s`, Refused when the server lacks JetStream."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._connection.wait_settled()
        except TimeoutError as error:
            raise Unavailable(self._connection.problem()) from error

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """Send all messages, then wait for the acknowledgements of the durable ones together."""
        self._connection.check()
        try:
            await self._publisher.publish(messages)
        except NoStream as error:
            if not all(self._stream_of(message.subject) for message in messages if message.durable):
                raise
            # A stream of colo is missing, or a cluster elects its leader: the caller retries when that is over.
            later = Unavailable(str(error))
            later.left = error.left
            self._connection.doubt_streams(later)
            raise later from error

    async def listen(self, source: Source, sink: Sink, missed: Missed | None = None) -> None:
        """Deliver until cancelled."""
        if source.stream:
            consumer = PullConsumer(self._connection, source, sink, missed)
            self._consumers.append(consumer)
            try:
                await consumer.run()
            finally:
                self._consumers.remove(consumer)
        else:
            await self._listen_live(source, sink)

    async def ask(self, subject: str, data: bytes, timeout_s: float, headers: Mapping[str, str] | None = None) -> bytes:
        """The answer of one member of the service that answers the subject."""
        self._connection.check()
        doing = f"ask {subject}"
        try:
            with keeps_cancellation():
                msg = await self._connection.client.request(
                    subject, data, timeout=timeout_s, headers=dict(headers or {}) or None
                )
        except NATS_ERRORS as error:
            raise port_error(error, doing) from error
        headers_of_answer = msg.headers or {}
        failed = headers_of_answer.get("Nats-Service-Error")
        if failed and headers_of_answer.get("Nats-Service-Error-Code") == _TOO_LARGE:
            raise AnswerTooLarge(f"{doing}: {failed}")
        if failed:
            raise Unavailable(f"{doing}: {failed}")
        return msg.data

    def answer(
        self, service: str, answerers: Mapping[str, Answerer], *, is_listed: bool = True
    ) -> Coroutine[Any, Any, None]:
        """Answer as NATS micro service `colo-<service>`, discoverable by $SRV.PING, INFO and STATS.

        From this call on the bus is not ready until the server knows every subject: a client that asks a ready service is
        answered.
        """
        self._not_answering_yet += 1
        return self._answer(service, answerers) if is_listed else self._answer_unlisted(service, answerers)

    async def _answer(self, service: str, answerers: Mapping[str, Answerer]) -> None:
        await self._connection.wait_usable()
        client = self._connection.client
        config = nats.micro.service.ServiceConfig(
            name=f"colo-{service}",
            version=self._version,
            description=f"colo {service}",
            metadata={"schema": PREFIX},
        )
        with warnings.catch_warnings():
            # The library uses datetime.utcnow, which newer Pythons deprecate.
            warnings.simplefilter("ignore", DeprecationWarning)
            micro = nats.micro.service.Service(client, config)
        running: set[asyncio.Task[None]] = set()
        is_answering = False
        starting = asyncio.get_running_loop().create_task(to_its_end(micro.start()))
        try:
            # It subscribes, and then waits once for a server that may be slow: `_until_known` waits for as long as that takes.
            with suppress(nats.errors.FlushTimeoutError):
                await asyncio.shield(starting)
            for subject, answerer in answerers.items():
                # The members of a service share its requests; some reach every member.
                is_for_each = self.answers_alone or reaches_each(subject)
                await micro.add_endpoint(
                    name="-".join(subject.split(".")[-2:]),
                    subject=subject,
                    queue_group=f"{config.name}-{token_hex(6)}" if is_for_each else config.name,
                    handler=_handler(answerer, running, lambda: client.max_payload),
                )
            await _until_known(client)
            is_answering = True
            self._not_answering_yet -= 1
            await asyncio.get_running_loop().create_future()
        finally:
            self._not_answering_yet -= not is_answering
            for task in tuple(running):
                task.cancel()
            if client.is_connected:
                with suppress(TimeoutError, *NATS_ERRORS):
                    async with asyncio.timeout(2):
                        # Only what has subscribed can be taken back.
                        await starting
                        await to_its_end(micro.stop())

    async def _answer_unlisted(self, service: str, answerers: Mapping[str, Answerer]) -> None:
        """Answer by plain subscriptions: a micro service costs ten of them, whatever it answers."""
        await self._connection.wait_usable()
        client = self._connection.client
        running: set[asyncio.Task[None]] = set()
        subscriptions = []
        try:
            for subject, answerer in answerers.items():
                handle = _plain_handler(answerer, running)
                subscriptions.append(await client.subscribe(subject, queue=f"colo-{service}", cb=handle))
            await _until_known(client)
            self._not_answering_yet -= 1
            await asyncio.get_running_loop().create_future()
        finally:
            for task in tuple(running):
                task.cancel()
            for subscription in subscriptions:
                with suppress(*NATS_ERRORS):
                    await subscription.unsubscribe()

    async def ask_all(self, subject: str, data: bytes, timeout_s: float) -> list[bytes]:
        """See Survey.ask_all."""
        self._connection.check()
        client = self._connection.client
        inbox = client.new_inbox()
        answers: list[bytes] = []
        subscription = None
        try:
            with keeps_cancellation():
                subscription = await client.subscribe(inbox)
                await client.publish(subject, data, reply=inbox)
                wait_s = timeout_s
                ends_s = asyncio.get_running_loop().time() + timeout_s
                while wait_s > 0:
                    message = await subscription.next_msg(timeout=wait_s)
                    if (message.headers or {}).get("Status") == _NOBODY:
                        break
                    answers.append(message.data)
                    wait_s = min(_FURTHER_S, ends_s - asyncio.get_running_loop().time())
        except nats.errors.TimeoutError:
            # Nobody says how many will answer: the silence after the last one ends the wait.
            pass
        except NATS_ERRORS as error:
            raise port_error(error, f"ask all {subject}") from error
        finally:
            if subscription is not None:
                with suppress(*NATS_ERRORS):
                    await subscription.unsubscribe()
        return answers

    async def backlogs(self, streams: Sequence[str], timeout_s: float) -> list[Backlog]:
        """See Survey.backlogs."""
        self._connection.check()
        try:
            with keeps_cancellation():
                client = self._connection.client
                each = await asyncio.gather(*(backlogs_of(client, stream, timeout_s) for stream in streams))
        except NATS_ERRORS as error:
            raise port_error(error, "consumers") from error
        return [backlog for part in each for backlog in part]

    async def advisories(self, sink: Callable[[Advisory], Awaitable[None]]) -> None:
        """See Survey.advisories."""
        await listen_advisories(self._connection, sink)

    @property
    def connections(self) -> int:
        """How many times the server was connected; more than once after a reconnect."""
        return self._connection.generation

    @property
    def present_connection(self) -> int:
        """The number of the connection that stands, as in `connections`; 0 while no server or none of its streams is reached."""
        return self._connection.generation if self._connection.has_streams else 0

    def watch_streams(self) -> None:
        """From now on `present_connection` tells within seconds also when this process may not use the streams any more."""
        self._connection.watch_streams()

    async def ready(self) -> str:
        """Empty when connected, the streams are as wanted and every consumer is there, else one sentence that names the problem."""
        without = next((consumer.problem for consumer in self._consumers if consumer.problem), "")
        return (
            self._connection.problem()
            or without
            or ("requests are not answered yet" if self._not_answering_yet else "")
        )

    async def close(self) -> None:
        """Flush, then close the connection."""
        await self._connection.close()

    def _batching_stream(self, subject: str) -> str:
        return self._stream_of(subject) if self._connection.takes_batches else ""

    def _stream_of(self, subject: str) -> str:
        """The stream that stores the subject; empty for none."""
        found = self._streams_by_subject.get(subject)
        if found is None:
            if len(self._streams_by_subject) >= _SUBJECTS_MOST:
                self._streams_by_subject.clear()
            found = next((stream for pattern, stream in self._patterns if matches(pattern, subject)), "")
            self._streams_by_subject[subject] = found
        return found

    async def _listen_live(self, source: Source, sink: Sink) -> None:
        await self._connection.wait_usable()
        buffer = ConflatingQueue[Delivery]()

        async def put(message: Msg) -> None:
            buffer.put(message.subject, Delivery(message.subject, message.data, message.headers))

        # The library resubscribes by itself after a reconnect.
        subscription = await self._connection.client.subscribe(source.subject, cb=put)
        try:
            while True:
                await sink(await buffer.take())
        finally:
            with suppress(*NATS_ERRORS):
                await subscription.unsubscribe()


def _too_large(body: bytes, most_bytes: int) -> str:
    """Why the answer cannot be sent; "" when it can."""
    if len(body) + _HEADERS_BYTES <= most_bytes:
        return ""
    return f"the answer has {len(body)} bytes and NATS carries {most_bytes}; ask for fewer"


async def _until_known(client: Client) -> None:
    """Return when the server has read all subscriptions, or the connection is lost: it subscribes again when it is back."""
    while client.is_connected:
        with suppress(*NATS_ERRORS):
            await to_its_end(client.flush(timeout=_FLUSH_S))
            return


def _plain_handler(answerer: Answerer, running: set[asyncio.Task[None]]) -> Callable[[Msg], Coroutine[Any, Any, None]]:
    """A callback of a subscription that answers requests concurrently."""

    async def answer(message: Msg) -> None:
        with suppress(*NATS_ERRORS):
            body = await answerer(message.data, message.headers or {})
            if not body:
                return
            why = _too_large(body, message._client.max_payload)
            if why:
                error = {"Nats-Service-Error": why, "Nats-Service-Error-Code": _TOO_LARGE}
                await message._client.publish(message.reply, headers=error)
            else:
                await message.respond(body)

    async def handle(message: Msg) -> None:
        if len(running) < _ANSWERS_AT_ONCE:
            task = asyncio.get_running_loop().create_task(answer(message))
            running.add(task)
            task.add_done_callback(running.discard)

    return handle


def _handler(answerer: Answerer, running: set[asyncio.Task[None]], most_bytes: Callable[[], int]) -> Handler:
    """An endpoint handler that answers many requests concurrently; the library alone would answer one after the other."""
    slots = asyncio.Semaphore(_ANSWERS_AT_ONCE)

    async def answer(request: Request) -> None:
        try:
            body = await answerer(request.data, request.headers or {})
            why = _too_large(body, most_bytes())
            if body:
                await (request.respond_error(_TOO_LARGE, why) if why else request.respond(body))
        except NATS_ERRORS:
            # The caller's request times out, and it asks again.
            return
        finally:
            slots.release()

    async def handle(request: Request) -> None:
        await slots.acquire()
        task = asyncio.get_running_loop().create_task(answer(request))
        running.add(task)
        task.add_done_callback(running.discard)

    return handle
