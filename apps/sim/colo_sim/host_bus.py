"""The bus of the simulated nodes of one process: what every node hears comes once, and is handed to each."""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from colo_common.adapters.conflating_queue import ConflatingQueue
from colo_common.ports import Answerer, Bus, Delivery, Missed, Outgoing, Sink, Source

__all__ = ["NodesBus"]


class NodesBus:
    """A bus on which listeners of the same last messages share one consumer; all else goes to `bus` as it is.

    Real nodes have a connection each. In one process a consumer for every node would cost more than what it brings: a thousand
    copies of each message, and the heartbeats of a thousand consumers.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._shared: dict[Source, _SharedConsumer] = {}

    async def listen(self, source: Source, sink: Sink, missed: Missed | None = None) -> None:
        """See Bus.listen. Who comes later gets the last message of each subject first, as from a consumer of its own."""
        if not (source.stream and source.last_per_subject) or source.durable:
            await self._bus.listen(source, sink, missed)
            return
        shared = self._shared.setdefault(source, _SharedConsumer(self._bus, source))
        with shared.queue() as queue:
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
    """One consumer for as long as somebody listens, a queue for each listener: a slow one delays no other."""

    def __init__(self, bus: Bus, source: Source) -> None:
        self._bus = bus
        self._source = source
        self._queues: list[ConflatingQueue[Delivery]] = []
        self._last: dict[str, Delivery] = {}
        self._listening: asyncio.Task[None] | None = None

    @contextmanager
    def queue(self) -> Iterator[ConflatingQueue[Delivery]]:
        """What a new listener hears from now on."""
        queue = ConflatingQueue[Delivery]()
        for subject, delivery in self._last.items():
            queue.put(subject, delivery)
        self._queues.append(queue)
        if self._listening is None:
            self._listening = asyncio.get_running_loop().create_task(self._bus.listen(self._source, self._take))
        try:
            yield queue
        finally:
            self._queues.remove(queue)
            if not self._queues:
                self._listening.cancel()
                self._listening = None
                self._last.clear()

    async def _take(self, delivery: Delivery) -> None:
        self._last[delivery.subject] = delivery
        for queue in self._queues:
            queue.put(delivery.subject, delivery)
