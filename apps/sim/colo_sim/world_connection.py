"""The Bus port of one simulated process, with steps at which the process may die."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from msgspec import structs

from colo_common.ports import Answerer, Delivery, Missed, Outgoing, Sink, Source, Unavailable
from colo_sim.wire_filter import WireFilter
from colo_sim.world_boot import Boot
from colo_sim.world_bus import WorldBus
from colo_sim.world_reader import Reader
from colo_sim.world_requests import RequestRouter, Responder

__all__ = ["Connection"]

_CALL_MS = (1, 30)
_RETRY_MS = (200, 2_000)


class Connection:
    """The Bus of one process. Raises Unavailable while its link is cut, and when an acknowledgement is lost."""

    def __init__(self, boot: Boot, bus: WorldBus, router: RequestRouter, wire: WireFilter | None = None) -> None:
        """`wire`: what the version of this process knows; None: everything."""
        self._wire = wire
        self._boot = boot
        self._bus = bus
        self._router = router
        self._publish_lock = asyncio.Lock()
        #: Whether a request reaches this process beside others that answer it.
        self.answers_alone = False

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """See Bus.publish. Each message is a step: the process may die between two messages of a call."""
        boot = self._boot
        # Messages of one connection are sent in the order of the calls, even when several calls wait for acknowledgements.
        async with self._publish_lock:
            pause_ms = boot.chance.pause_ms()
            if pause_ms:
                await asyncio.sleep(pause_ms / 1_000)
            is_acked = await self._send(messages)
        if any(message.durable for message in messages):
            await asyncio.sleep(boot.chance.latency_ms() / 1_000)
            self._check()
            link = self._boot.link
            is_acked = is_acked and link.passes_in and link.passes_out
        if not is_acked:
            raise Unavailable("an acknowledgement was lost")

    async def _send(self, messages: Sequence[Outgoing]) -> bool:
        """Send all; returns whether every message will be acknowledged."""
        is_acked = True
        for message in messages:
            await self._boot.step("publish")
            self._check()
            if self._wire is not None:
                message = structs.replace(message, data=self._wire.fact(message.subject, message.data))
            if self._boot.link.passes_out:
                is_acked = self._bus.publish(self._boot.key, message) and is_acked
            elif message.durable:
                # What never arrived is not acknowledged, even when the link is whole again by then.
                is_acked = False
        return is_acked

    async def listen(self, source: Source, sink: Sink, missed: Missed | None = None) -> None:
        """See Bus.listen. Creating the consumer takes a while and waits until the link is not cut."""
        boot, rng, wire = self._boot, self._boot.chance.rng, self._wire
        if wire is not None and not wire.hears(source.subject, source.stream):
            await boot.loop.create_future()
        await boot.step("listen")
        await asyncio.sleep(rng.randint(*_CALL_MS) / 1_000)
        while boot.link.is_cut:
            retry_s = rng.randint(*_RETRY_MS) / 1_000
            await asyncio.sleep(retry_s)
        reader = Reader(boot, source, missed)
        self._bus.attach(reader)
        try:
            while True:
                delivery = await reader.take()
                await sink(delivery if wire is None else _understood(wire, delivery))
        finally:
            self._bus.detach(reader)

    async def ask(self, subject: str, data: bytes, timeout_s: float, headers: Mapping[str, str] | None = None) -> bytes:
        """See Bus.ask. The request goes to one running responder of the subject, drawn at random."""
        await self._boot.step("ask")
        self._check()
        answer = self._boot.loop.create_future()
        wire = self._wire
        asked = data if wire is None else wire.request(subject, data)
        self._router.ask(self._boot, subject, asked, headers or {}, answer)
        try:
            async with asyncio.timeout(timeout_s):
                body: bytes = await answer
                return body if wire is None else wire.reply(subject, body)
        except TimeoutError as error:
            raise Unavailable(f"no answer on {subject} in {timeout_s} s") from error

    async def answer(self, service: str, answerers: Mapping[str, Answerer], *, is_listed: bool = True) -> None:
        """See Bus.answer."""
        wire = self._wire
        if wire is not None:
            answerers = {subject: _answered(wire, subject, answer) for subject, answer in answerers.items()}
        responder = Responder(self._boot, answerers, is_alone=self.answers_alone)
        self._router.add(responder)
        try:
            await self._boot.loop.create_future()
        finally:
            self._router.remove(responder)

    async def ready(self) -> str:
        """See Bus.ready."""
        return "the process is cut off" if self._boot.link.is_cut else ""

    async def close(self) -> None:
        """There is nothing to close."""

    def _check(self) -> None:
        if self._boot.link.is_cut:
            raise Unavailable("the process is cut off")


def _understood(wire: WireFilter, delivery: Delivery) -> Delivery:
    delivery.data = wire.fact(delivery.subject, delivery.data)
    return delivery


def _answered(wire: WireFilter, subject: str, answer: Answerer) -> Answerer:
    async def answered(data: bytes, headers: Mapping[str, str]) -> bytes:
        body = await answer(wire.request(subject, data), headers)
        return wire.reply(subject, body) if body else body

    return answered
