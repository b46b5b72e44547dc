"""A month in some minutes: what is kept for days is kept for seconds, and everything that should go goes within the run."""

from __future__ import annotations

from typing import Any, Final

import nats
import redis.asyncio
from msgspec import Struct
from nats.js.api import StreamConfig

from colo_common.adapters.nats_stream_config import VERSION_KEY
from colo_common.events.registry import STREAMS, STREAMS_VERSION

__all__ = ["DISK_BYTES", "Month", "Shortener"]

_MONTH_S: Final = 30 * 86_400
_NODE_FORGOTTEN_S: Final = 86_400
_ENDED_JOBS: Final = 200
_ENDED_S: Final = 7 * 86_400
#: What is kept up to a number is kept up to one that the load reaches within some five minutes of a run of thirty.
_PLACEMENTS_A_MINUTE: Final = 30
_ENDS_A_MINUTE: Final = 60
_EVENTS_A_MINUTE: Final = 100
_TRACES: Final = 100
#: A stream writes blocks of a quarter of its limit (8 MiB at most) and keeps the newest in memory. So each has written some.
DISK_BYTES: Final = 64 << 20
_LEAST_AGE_S: Final = 10
#: What goes sooner than this by itself goes within the run.
_LONG_S: Final = 120


class Month(Struct, frozen=True, kw_only=True):
    """How much faster than a month the run is."""

    minutes: float

    @property
    def factor(self) -> float:
        """So many seconds of the month are one of the run."""
        return _MONTH_S / (self.minutes * 60)

    def short_s(self, span_s: float) -> int:
        """A span of the month in seconds of the run, at least ten."""
        return max(_LEAST_AGE_S, round(span_s / self.factor))

    @property
    def warm_s(self) -> float:
        """From here on everything that is kept for a week or less has been deleted once, and the processes have warmed up."""
        return max(self.short_s(7 * 86_400) + 10.0, self.minutes * 60 * 0.35)

    def grows(self, line: str) -> str:
        """Why the line of a stream rises all month, "" where it must not: its messages are kept for long."""
        for stream, limits in STREAMS.items():
            if line == f"bytes of stream {stream}" and self.short_s(limits.max_age_s) > self.warm_s:
                return f"kept for {limits.max_age_s // 86_400} days, at most {limits.max_bytes >> 20} MiB"
        return ""

    def queue_span_s(self, line: str) -> float:
        """Of the bytes of a stream that is a queue: twice the time after which an order that nobody takes is gone; else 0."""
        for stream, limits in STREAMS.items():
            if line == f"bytes of stream {stream}" and limits.work_queue:
                return 2.0 * self.short_s(limits.max_age_s)
        return 0.0

    def settings(self) -> dict[str, str]:
        """The settings of services that keep things for a time or up to a number.

        A month fills what is kept up to a number many times over, so each number is one that the run reaches before it is judged.
        """

        def in_minutes(a_minute: int) -> str:
            return str(max(a_minute, round(a_minute * self.minutes)))

        return {
            "COLO_FORGET_NODE_MS": str(self.short_s(_NODE_FORGOTTEN_S) * 1_000),
            "COLO_JOBS_RETENTION_MAX_ENDED_JOBS": str(_ENDED_JOBS),
            "COLO_JOBS_RETENTION_ENDED_MS": str(self.short_s(_ENDED_S) * 1_000),
            "COLO_SCHEDULER_POLICY_RECORDS_MAX": in_minutes(_PLACEMENTS_A_MINUTE),
            "COLO_SCHEDULER_POLICY_OVER_MAX": in_minutes(_ENDS_A_MINUTE),
            "COLO_GATEWAY_EVENT_LOG_SIZE": in_minutes(_EVENTS_A_MINUTE),
            "COLO_GATEWAY_TRACE_SIZE": str(_TRACES),
        }


class Shortener:
    """Does to the servers what a month does: what they keep for days they keep for its share of the run.

    No setting can do that: the ages of streams are the product's, and Redis has one clock.
    """

    def __init__(self, month: Month, nats_url: str, redis_url: str) -> None:
        self._month = month
        self._nats_url = nats_url
        self._redis: Any = redis.asyncio.from_url(redis_url)

    async def shorten_streams(self) -> dict[str, int]:
        """Set the age of every stream that has one; the seconds by its name.

        The version in the stream's metadata becomes a newer one: services take the limits of a newer version as they are.
        """
        ages: dict[str, int] = {}
        client = await nats.connect(self._nats_url)
        try:
            js = client.jetstream()
            for stream, limits in STREAMS.items():
                if limits.max_age_s:
                    config: StreamConfig = (await js.stream_info(stream)).config
                    ages[stream] = self._month.short_s(limits.max_age_s)
                    config.max_age = float(ages[stream])
                    # The window of the duplicate check cannot be longer than the age.
                    config.duplicate_window = min(config.duplicate_window or 0.0, config.max_age)
                    config.metadata = {**(config.metadata or {}), VERSION_KEY: str(STREAMS_VERSION + 1)}
                    await js.update_stream(config)
        finally:
            await client.close()
        return ages

    async def shorten_consumers(self) -> int:
        """Give every durable consumer that goes when nobody uses it its share of that time; how many got less."""
        changed = 0
        client = await nats.connect(self._nats_url)
        try:
            js = client.jetstream()
            for stream in STREAMS:
                for consumer in await js.consumers_info(stream):
                    config = consumer.config
                    if config.durable_name and (config.inactive_threshold or 0.0) > _LONG_S:
                        config.inactive_threshold = float(self._month.short_s(config.inactive_threshold or 0.0))
                        await js.add_consumer(stream, config)
                        changed += 1
        finally:
            await client.close()
        return changed

    async def shorten_keys(self) -> int:
        """Give every key that has a time to live its share of it; how many got less."""
        changed = 0
        async for key in self._redis.scan_iter("colo:*", count=1_000):
            left_s = await self._redis.ttl(key)
            if left_s > _LONG_S:
                changed += await self._redis.expire(key, self._month.short_s(left_s), lt=True)
        return changed

    async def close(self) -> None:
        """Close the connection."""
        await self._redis.aclose()
