"""One look at everything that may grow: keys of Redis, bytes and consumers of streams, memory of processes."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import nats
import redis.asyncio

from colo_common.events.registry import EVENTS, STREAMS
from tests.soak.flat import Bound

__all__ = ["BOUNDS", "Measure"]

_MIB: Final = 1 << 20

BOUNDS: Final = {
    "keys": Bound(share_pct=15, floor=30),
    "bytes of Redis": Bound(share_pct=15, floor=1 * _MIB),
    "bytes of stream": Bound(share_pct=20, floor=256 * 1024),
    "consumers": Bound(share_pct=10, floor=2),
    "rss": Bound(share_pct=8, floor=6 * _MIB),
}
"""By the first words of a line's name: the most by which the line may rise over the judged part of the run."""


class Measure:
    """Reads the servers themselves, past the proxies."""

    def __init__(self, nats_url: str, redis_url: str) -> None:
        self._nats_url = nats_url
        self._redis: Any = redis.asyncio.from_url(redis_url)
        self._nats: Any = None

    async def look(self) -> dict[str, float]:
        """Every line's value now. Keys are counted by kind: the fields of a hash, and the keys of one prefix."""
        found: dict[str, float] = dict(await self._keys())
        found["bytes of Redis"] = (await self._redis.info("memory"))["used_memory_dataset"]
        if self._nats is None:
            self._nats = await nats.connect(self._nats_url)
        for stream in await self._nats.jetstream().streams_info():
            found[f"bytes of stream {stream.config.name}"] = stream.state.bytes
            found[f"consumers of stream {stream.config.name}"] = stream.state.consumer_count
        return found

    async def messages(self) -> dict[str, int]:
        """How many messages of each event the streams hold: what a stream that rises is full of."""
        counts: Counter[str] = Counter()
        if self._nats is not None:
            js = self._nats.jetstream()
            for stream in STREAMS:
                info = await js.stream_info(stream, subjects_filter=">")
                for subject, count in (info.state.subjects or {}).items():
                    row = next((event for event in EVENTS if event.subject.parse(subject) is not None), None)
                    counts[f"messages {row.body.__name__ if row else subject}"] += count
        return dict(sorted(counts.items()))

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()
        if self._nats is not None:
            await self._nats.close()

    async def _keys(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        async for key in self._redis.scan_iter("*", count=1_000):
            name = key.decode()
            prefix = ":".join(name.split(":")[:4])
            counts[f"keys {prefix}"] += await self._redis.hlen(key) if await self._redis.type(key) == b"hash" else 1
        return counts
