"""One listener of a simulated process: what has arrived and waits to be taken, and how it is acknowledged."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Protocol

from colo_common.events.wire import event_at
from colo_common.ports import Outgoing, Source, Unavailable
from colo_sim.world_boot import Boot

__all__ = ["Acknowledged", "Reader"]


class Acknowledged(Protocol):
    """The consumer that a message came from."""

    def ack(self, seq: int) -> None: ...
    def again(self, seq: int) -> None: ...


class _Delivery:
    """One message that arrived. `consumer` None: live, there is nothing to acknowledge."""

    def __init__(self, boot: Boot, message: Outgoing, deliveries: int, consumer: Acknowledged | None, seq: int) -> None:
        self.subject = message.subject
        self.data = message.data
        self.headers: Mapping[str, str] = message.headers
        self.deliveries = deliveries
        self._boot = boot
        self._consumer = consumer
        self._seq = seq

    async def ack(self) -> None:
        """The word of it may get lost."""
        if self._consumer is None:
            return
        boot = self._boot
        await boot.step("acknowledge")
        if boot.link.is_cut:
            raise Unavailable("the process is cut off")
        if not boot.chance.strikes("ack_lost"):
            self._consumer.ack(self._seq)

    async def nak(self, delay_s: float = 0.0) -> None:
        """Again after the delay."""
        await self._boot.step("acknowledge")
        if self._consumer is not None and not self._boot.link.is_cut:
            self._boot.event_queue.after(round(delay_s * 1_000), self._consumer.again, self._seq)

    async def term(self) -> None:
        """Never again."""
        await self.ack()


class Reader:
    """Messages lie here until the process takes them, however long that is: also while it stands still."""

    def __init__(self, boot: Boot, source: Source) -> None:
        self.boot = boot
        self.source = source
        self._arrived: deque[_Delivery] = deque()
        self._has_some = asyncio.Event()

    def bring(self, message: Outgoing, deliveries: int, consumer: Acknowledged | None, seq: int) -> None:
        """A message has arrived."""
        self._arrived.append(_Delivery(self.boot, message, deliveries, consumer, seq))
        self._has_some.set()

    async def take(self) -> _Delivery:
        """The next one, as soon as there is one."""
        while not self._arrived:
            self._has_some.clear()
            await self._has_some.wait()
        delivery = self._arrived.popleft()
        self.boot.note(f"hears     {event_at(delivery.subject).body.__name__}")
        return delivery
