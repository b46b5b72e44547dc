"""The bus port of one simulated process, with the steps at which the process may die."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from colo_common.ports import Answerer, Outgoing, Sink, Source, Unavailable
from colo_sim.world_boot import Boot
from colo_sim.world_bus import WorldBus
from colo_sim.world_reader import Reader
from colo_sim.world_requests import RequestRouter, Responder

__all__ = ["Connection"]

_CALL_MS = (1, 30)
_AGAIN_MS = (200, 2_000)


class Connection:
    """Raises Unavailable while the process is cut off, and where an acknowledgement of the bus got lost."""

    def __init__(self, boot: Boot, bus: WorldBus, router: RequestRouter) -> None:
        self._boot = boot
        self._bus = bus
        self._router = router
        self._saying = asyncio.Lock()

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """Each message is a step of its own: a process may die in the midst of a call. Lossy ones are not waited for."""
        boot = self._boot
        # What one connection says leaves in the order of the calls, also when they wait for their acknowledgements at once.
        async with self._saying:
            pause_ms = boot.chance.pause_ms()
            if pause_ms:
                await asyncio.sleep(pause_ms / 1_000)
            is_known = await self._say(messages)
        if any(message.durable for message in messages):
            await asyncio.sleep(boot.chance.way_ms() / 1_000)
            self._check()
        if not is_known:
            raise Unavailable("an acknowledgement was lost")

    async def _say(self, messages: Sequence[Outgoing]) -> bool:
        """Whether everything will be acknowledged."""
        is_known = True
        for message in messages:
            await self._boot.step("publish")
            self._check()
            is_known = self._bus.publish(self._boot.key, message) and is_known
        return is_known

    async def listen(self, source: Source, sink: Sink) -> None:
        """Making a consumer is a call over the network: it takes a moment, and works only while there is one."""
        boot, rng = self._boot, self._boot.chance.rng
        await boot.step("listen")
        await asyncio.sleep(rng.randint(*_CALL_MS) / 1_000)
        while boot.link.is_cut:
            again_s = rng.randint(*_AGAIN_MS) / 1_000
            await asyncio.sleep(again_s)
        reader = Reader(boot, source)
        self._bus.attach(reader)
        while True:
            await sink(await reader.take())

    async def ask(self, subject: str, data: bytes, timeout_s: float, headers: Mapping[str, str] | None = None) -> bytes:
        """The answer of one of those who answer the subject, whichever, as long as it listens."""
        await self._boot.step("ask")
        self._check()
        answer = self._boot.loop.create_future()
        self._router.ask(self._boot, subject, data, headers or {}, answer)
        try:
            async with asyncio.timeout(timeout_s):
                body: bytes = await answer
                return body
        except TimeoutError as error:
            raise Unavailable(f"no answer on {subject} in {timeout_s} s") from error

    async def answer(self, service: str, answerers: Mapping[str, Answerer]) -> None:
        """Answer until cancelled."""
        responder = Responder(self._boot, answerers)
        self._router.add(responder)
        try:
            await self._boot.loop.create_future()
        finally:
            self._router.remove(responder)

    async def ready(self) -> str:
        """Empty, or why nothing flows."""
        return "the process is cut off" if self._boot.link.is_cut else ""

    async def close(self) -> None:
        """Nothing to leave."""

    def _check(self) -> None:
        if self._boot.link.is_cut:
            raise Unavailable("the process is cut off")
