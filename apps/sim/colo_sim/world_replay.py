"""The Replay port of one simulated process: what a stream of the simulated bus keeps, read once more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from colo_common.events.fact import Fact
from colo_common.events.registry import event_of
from colo_common.events.subjects import matches
from colo_common.events.wire import decode
from colo_common.ports import Outgoing, Unavailable
from colo_sim.world_boot import Boot
from colo_sim.world_bus import WorldBus

__all__ = ["SimReplay"]


class SimReplay:
    """See ports.Replay. Raises Unavailable while the process's link is cut."""

    def __init__(self, boot: Boot, bus: WorldBus) -> None:
        self._boot = boot
        self._bus = bus

    async def facts(
        self,
        types: Sequence[type[Fact]],
        take: Callable[[Fact], None],
        *,
        newest_ms: int | None = None,
        newest_of: Sequence[type[Fact]] = (),
    ) -> int:
        """See Replay.facts."""
        await self._boot.step("replay")
        await asyncio.sleep(self._boot.chance.latency_ms() / 1_000)
        if not (self._boot.link.passes_in and self._boot.link.passes_out):
            raise Unavailable("the link is cut")
        kept = self._kept(types)
        if newest_ms is not None:
            newest = self._kept(newest_of or types)[-1:]
            kept = [(age_ms, one) for age_ms, one in kept if newest and age_ms <= newest[0][0] + newest_ms]
        for _, message in kept:
            take(decode(message.subject, message.data))
        return len(kept)

    def _kept(self, types: Sequence[type[Fact]]) -> list[tuple[int, Outgoing]]:
        """The messages of these types with their ages (ms), oldest first."""
        rows = [event_of(each) for each in types]
        (name,) = {row.stream.value for row in rows if row.stream is not None}
        stream, now_ms = self._bus.streams[name], self._bus.event_queue.now_ms
        patterns = [row.subject.wildcard() for row in rows]
        return [
            (stream.age_ms(seq, now_ms), message)
            for seq, message in sorted(stream.messages.items())
            if any(matches(pattern, message.subject) for pattern in patterns)
        ]
