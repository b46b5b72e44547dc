"""The memory twin of the bus: subjects, streams, consumers, acknowledgement and redelivery inside one process."""

import asyncio
from collections.abc import Mapping, Sequence

from colo_common.adapters.conflating_queue import ConflatingQueue
from colo_common.events.registry import STREAMS, Stream, StreamLimits
from colo_common.events.subjects import matches
from colo_common.ports import Answerer, Delivery, Missed, Outgoing, PortError, Refused, Sink, Source, Unavailable
from tests.support.stream_memory import MemoryConsumer, MemoryStream

__all__ = ["MemoryBus"]


class MemoryBus:
    """All of the bus in one process, on the time of its event loop. Services that share an instance hear one another.

    `go_away` makes every call raise Unavailable and holds deliveries back until `come_back`: how tests take the bus away.
    `sent` keeps what was published while `keep_sent` is true.
    """

    def __init__(self, streams: Mapping[Stream, StreamLimits] = STREAMS, *, keep_sent: bool = False) -> None:
        self._streams = {stream.value: MemoryStream(limits) for stream, limits in streams.items()}
        self._live: list[tuple[str, ConflatingQueue[Delivery]]] = []
        self._answerers: dict[str, list[Answerer]] = {}
        self._fault: PortError | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._keep_sent = keep_sent
        self.sent: list[Outgoing] = []
        #: What a stream has to call when it discarded messages before they were received.
        self.missed: dict[str, Missed] = {}

    def go_away(self, sentence: str = "the bus is away") -> None:
        """From now on nothing flows."""
        self._fault = Unavailable(sentence)
        self._flowing.clear()

    def come_back(self) -> None:
        """Messages flow again; what was not acknowledged comes again in its time."""
        self._fault = None
        self._flowing.set()

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """Store the durable ones, hand all of them to live listeners."""
        self._check_fault()
        for message in messages:
            if message.durable and not self._stream_of(message.subject).append(message):
                continue  # a duplicate
            if self._keep_sent:
                self.sent.append(message)
            for pattern, buffer in self._live:
                if matches(pattern, message.subject):
                    buffer.put(message.subject, Delivery(message.subject, message.data, message.headers))
        await asyncio.sleep(0)

    async def listen(self, source: Source, sink: Sink, missed: Missed | None = None) -> None:
        """Deliver until cancelled."""
        if source.stream:
            if missed is not None:
                self.missed[source.stream] = missed
            await self._listen_stream(source, sink)
        else:
            await self._listen_live(source, sink)

    async def ask(self, subject: str, data: bytes, timeout_s: float, headers: Mapping[str, str] | None = None) -> bytes:
        """The answer of the answerer whose turn it is, or of the next one where it leaves that to another."""
        self._check_fault()
        answerers = self._answerers.get(subject)
        if not answerers:
            raise Unavailable(f"nobody answers {subject}")
        answerers.append(answerers.pop(0))
        try:
            async with asyncio.timeout(timeout_s):
                for answerer in reversed(answerers):
                    if body := await answerer(data, headers or {}):
                        return body
                return await asyncio.get_running_loop().create_future()
        except TimeoutError as error:
            raise Unavailable(f"no answer on {subject} in {timeout_s} s") from error

    async def answer(self, service: str, answerers: Mapping[str, Answerer], *, is_listed: bool = True) -> None:
        """Answer until cancelled."""
        for subject, answerer in answerers.items():
            self._answerers.setdefault(subject, []).append(answerer)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            for subject, answerer in answerers.items():
                self._answerers[subject].remove(answerer)

    async def ready(self) -> str:
        """Empty, or why nothing flows."""
        return str(self._fault) if self._fault is not None else ""

    async def close(self) -> None:
        """Nothing to leave."""

    async def _listen_live(self, source: Source, sink: Sink) -> None:
        entry = (source.subject, ConflatingQueue[Delivery]())
        self._live.append(entry)
        try:
            while True:
                delivery = await entry[1].take()
                await self._flowing.wait()
                await sink(delivery)
        finally:
            self._live.remove(entry)

    async def _listen_stream(self, source: Source, sink: Sink) -> None:
        stream = self._streams.get(source.stream)
        if stream is None:
            raise Refused(f"there is no stream {source.stream}")
        consumer: MemoryConsumer = stream.consumer(source)
        try:
            while True:
                await consumer.wait()
                await self._flowing.wait()
                delivery = consumer.next()
                if delivery is not None:
                    await sink(delivery)
        finally:
            if not source.durable:
                stream.forget(consumer)

    def _stream_of(self, subject: str) -> MemoryStream:
        for stream in self._streams.values():
            if stream.takes(subject):
                return stream
        raise Refused(f"no stream keeps {subject}")

    def _check_fault(self) -> None:
        if self._fault is not None:
            raise self._fault
