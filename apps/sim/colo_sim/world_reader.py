"""One listener of a simulated process: a queue of arrived messages, and their acknowledgement."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import Protocol

from colo_common.events.wire import event_at
from colo_common.ports import Delivery, Missed, Outgoing, Settlement, Source, Unavailable
from colo_sim.world_boot import Boot

__all__ = ["Acknowledged", "Reader"]


class Acknowledged(Protocol):
    """The consumer of a delivered message, as seen by its reader."""

    def ack(self, seq: int) -> None: ...
    def redeliver(self, seq: int) -> None: ...


class Reader:
    """The queue of arrived messages until the process takes them; a stopped process takes none."""

    def __init__(self, boot: Boot, source: Source, missed: Missed | None = None) -> None:
        self.missed = missed
        self.boot = boot
        self.source = source
        self._arrived: deque[Delivery] = deque()
        self._filled = asyncio.Event()

    def deliver(
        self, message: Outgoing, deliveries: int, consumer: Acknowledged | None, seq: int, age_ms: int = 0
    ) -> None:
        """Add an arrived message. `consumer` None: a live message, which is not acknowledged. `age_ms`: see Delivery."""
        delivery = Delivery(
            message.subject,
            message.data,
            message.headers,
            deliveries=deliveries,
            stream=self.source.stream,
            stream_seq=seq,
            settle=None if consumer is None else partial(self._settle, consumer, seq),
            age_ms=age_ms,
        )
        self._arrived.append(delivery)
        self._filled.set()

    def find_missed(self, why: str) -> None:
        """Find out that the stream lost messages that were received from it."""
        if self.missed is not None and not self.boot.is_over:
            self.boot.spawn(_call(self.missed, why))

    async def _settle(self, consumer: Acknowledged, seq: int, settlement: Settlement, delay_s: float) -> None:
        """Settle a message at its consumer; the acknowledgement may be lost. Raises Unavailable while the link is cut."""
        boot = self.boot
        await boot.step("acknowledge")
        if settlement is Settlement.NAK:
            if boot.link.passes_out:
                boot.event_queue.after(round(delay_s * 1_000), consumer.redeliver, seq)
            return
        if boot.link.is_cut:
            raise Unavailable("the process is cut off")
        if boot.link.passes_out and not boot.chance.strikes("ack_lost"):
            consumer.ack(seq)

    async def take(self) -> Delivery:
        """The next message, as soon as there is one."""
        while not self._arrived:
            self._filled.clear()
            await self._filled.wait()
        delivery = self._arrived.popleft()
        self.boot.note(f"receives  {event_at(delivery.subject).body.__name__}")
        return delivery


async def _call(missed: Missed, why: str) -> None:
    await missed(why)
