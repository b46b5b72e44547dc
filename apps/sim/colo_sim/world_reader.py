"""One listener of a simulated process: what has arrived and waits to be taken, and how it is acknowledged."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import Protocol

from colo_common.events.wire import event_at
from colo_common.ports import Delivery, Outgoing, Settlement, Source, Unavailable
from colo_sim.world_boot import Boot

__all__ = ["Acknowledged", "Reader"]


class Acknowledged(Protocol):
    """The consumer that a message came from."""

    def ack(self, seq: int) -> None: ...
    def again(self, seq: int) -> None: ...


class Reader:
    """Messages lie here until the process takes them, however long that is: also while it stands still."""

    def __init__(self, boot: Boot, source: Source) -> None:
        self.boot = boot
        self.source = source
        self._arrived: deque[Delivery] = deque()
        self._has_some = asyncio.Event()

    def bring(self, message: Outgoing, deliveries: int, consumer: Acknowledged | None, seq: int) -> None:
        """A message has arrived. `consumer` None: it came live, and there is nothing to acknowledge."""
        delivery = Delivery(
            message.subject,
            message.data,
            message.headers,
            deliveries=deliveries,
            is_last=consumer is not None and self.source.is_last(deliveries),
            settle=None if consumer is None else partial(self._settle, consumer, seq),
        )
        self._arrived.append(delivery)
        self._has_some.set()

    async def _settle(self, consumer: Acknowledged, seq: int, settlement: Settlement, delay_s: float) -> None:
        """Tell the consumer what becomes of a message. An acknowledgement may get lost on its way. Raises Unavailable."""
        boot = self.boot
        await boot.step("acknowledge")
        if settlement is Settlement.NAK:
            if not boot.link.is_cut:
                boot.event_queue.after(round(delay_s * 1_000), consumer.again, seq)
            return
        if boot.link.is_cut:
            raise Unavailable("the process is cut off")
        if not boot.chance.strikes("ack_lost"):
            consumer.ack(seq)

    async def take(self) -> Delivery:
        """The next one, as soon as there is one."""
        while not self._arrived:
            self._has_some.clear()
            await self._has_some.wait()
        delivery = self._arrived.popleft()
        self.boot.note(f"hears     {event_at(delivery.subject).body.__name__}")
        return delivery
