"""The bus of the simulated nodes of one process: what every node hears comes once, and is handed to each."""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import structs

from colo_common.adapters.conflating_queue import ConflatingQueue
from colo_common.events.subjects import matches
from colo_common.events.wire import event_at
from colo_common.model.invalid import InvalidInput
from colo_common.ports import Answerer, Bus, Delivery, Missed, Outgoing, Sink, Source

__all__ = ["NodesBus"]


class NodesBus:
    """A bus on which listeners of last messages share one consumer a type of fact; all else goes to `bus` as it is.

    Real nodes have a connection each. In one process a consumer for every node would cost more than what it brings: a thousand
    copies of each message, and the heartbeats of a thousand consumers.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._shared: dict[Source, _SharedConsumer] = {}

    async def listen(self, source: Source, sink: Sink, missed: Missed | None = None) -> None:
        """See Bus.listen. A later listener gets the last message of each subject first, as from a consumer of its own."""
        if not (source.stream and source.last_per_subject) or source.durable or source.also:
            await self._bus.listen(source, sink, missed)
            return
        of_all = _of_all_nodes(source)
        shared = self._shared.setdefault(of_all, _SharedConsumer(self._bus, of_all))
        with shared.queue(source.subject) as queue:
            while True:
                await sink(await queue.take())

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """See Bus.publish."""
        await self._bus.publish(messages)

    async def ask(self, subject: str, data: bytes, timeout_s: float, headers: Mapping[str, str] | None = None) -> bytes:
        """See Bus.ask."""
        return await self._bus.ask(subject, data, timeout_s, headers)

    def answer(
        self, service: str, answerers: Mapping[str, Answerer], *, is_listed: bool = True
    ) -> Coroutine[Any, Any, None]:
        """See Bus.answer."""
        return self._bus.answer(service, answerers, is_listed=is_listed)

    async def ready(self) -> str:
        """See Bus.ready."""
        return await self._bus.ready()

    async def close(self) -> None:
        """See Bus.close."""
        await self._bus.close()


class _SharedConsumer:
    """One consumer while there is a listener, and a queue for each listener: a slow listener delays no other."""

    def __init__(self, bus: Bus, source: Source) -> None:
        self._bus = bus
        self._source = source
        # By the subject that is heard: that of a node, or the whole source.
        self._queues: dict[str, list[ConflatingQueue[Delivery]]] = {}
        self._last: dict[str, Delivery] = {}
        self._listening: asyncio.Task[None] | None = None

    @contextmanager
    def queue(self, subject: str) -> Iterator[ConflatingQueue[Delivery]]:
        """What a new listener of the subject hears from now on."""
        queue = ConflatingQueue[Delivery]()
        for found, delivery in self._last.items():
            if matches(subject, found):
                queue.put(found, delivery)
        self._queues.setdefault(subject, []).append(queue)
        if self._listening is None:
            self._listening = asyncio.get_running_loop().create_task(self._bus.listen(self._source, self._take))
        try:
            yield queue
        finally:
            self._queues[subject].remove(queue)
            if not any(self._queues.values()):
                self._listening.cancel()
                self._listening = None
                self._queues.clear()
                self._last.clear()

    async def _take(self, delivery: Delivery) -> None:
        self._last[delivery.subject] = delivery
        for subject in {delivery.subject, self._source.subject}:
            for queue in self._queues.get(subject, ()):
                queue.put(delivery.subject, delivery)


def _of_all_nodes(source: Source) -> Source:
    """The source with the subject of every node; what concerns all nodes, or several types, as it is."""
    try:
        return structs.replace(source, subject=event_at(source.subject).subject.wildcard())
    except InvalidInput:
        return source
