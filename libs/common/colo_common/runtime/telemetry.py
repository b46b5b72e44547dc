"""Spans of a process: always published on the bus in batches, and exported by OTLP over HTTP where an endpoint is set."""

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import structlog

from colo_common.events.effects import Publish
from colo_common.events.service import SpanData, SpansFinished
from colo_common.events.trace import child_traceparent, placement_trace, span_of, trace_is_sampled, trace_of
from colo_common.ports import Bus, Clock, PortError
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.stamp import Stamp

__all__ = ["Exporter", "Telemetry", "placement_trace"]

_SPANS_A_MESSAGE: Final = 200
_SPANS_WAITING: Final = 10_000
_FLUSH_EVERY_S: Final = 0.5
_EXPORT_REST_S: Final = 10.0


class Exporter(Protocol):
    """Sends finished spans elsewhere; called in a thread."""

    def export(self, spans: list[SpanData]) -> None:
        """Send them; raises OSError or RuntimeError when that fails."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


def _random_span_id() -> str:
    return secrets.token_hex(8)


class Telemetry:
    """Collects spans of one service. At most 10,000 wait; at the limit the oldest are dropped and counted."""

    def __init__(
        self,
        service: str,
        *,
        metrics: Metrics | None = None,
        exporter: Exporter | None = None,
        span_ids: Callable[[], str] = _random_span_id,
    ) -> None:
        self._service = service
        self._exporter = exporter
        self._span_ids = span_ids
        self._waiting: deque[SpanData] = deque()
        self._came = asyncio.Event()
        self._dropped = (metrics or Metrics()).counter(
            f"colo_{service.replace('-', '_')}_spans_dropped_total", "spans that nobody will see"
        )
        self._log = structlog.get_logger(source="telemetry")
        self._export_failed = False
        self._export_again_s = 0.0

    def span(
        self,
        name: str,
        *,
        parent: str,
        start_us: int,
        end_us: int,
        attributes: Mapping[str, str] | None = None,
        error: str = "",
    ) -> str:
        """Note a finished span under the span that `parent` (a traceparent) names; the traceparent of the new one.

        Times are Unix microseconds of the wall clock. "" when the parent is no traceparent; the parent itself when its trace is not
        sampled: then nothing is kept.
        """
        if not trace_is_sampled(parent):
            # This span is not kept, so its children become children of its parent.
            return parent if trace_of(parent) else ""
        own = child_traceparent(parent, self._span_ids())
        self._keep(own, span_of(parent), name, start_us, end_us, attributes, error)
        return own

    def root(
        self,
        name: str,
        *,
        traceparent: str,
        start_us: int,
        end_us: int,
        attributes: Mapping[str, str] | None = None,
        error: str = "",
    ) -> None:
        """Note the finished span that `traceparent` itself names, which has no parent."""
        self._keep(traceparent, "", name, start_us, end_us, attributes, error)

    def take(self, limit: int = _SPANS_A_MESSAGE) -> tuple[SpanData, ...]:
        """Remove and return the oldest waiting spans, up to `limit`."""
        return tuple(self._waiting.popleft() for _ in range(min(limit, len(self._waiting))))

    async def run(self, bus: Bus, clock: Clock) -> None:
        """Publish finished spans, those of half a second together, until cancelled. Sleeps while there are none."""
        stamp = Stamp(self._service, f"spans-{secrets.token_hex(4)}", clock)
        while True:
            await self._came.wait()
            await asyncio.sleep(_FLUSH_EVERY_S)
            # A span that comes during the flush is taken with it, or it sets the event again: the next wait returns at once.
            self._came.clear()
            await self.flush(bus, clock, stamp)

    async def flush(self, bus: Bus, clock: Clock, stamp: Stamp | None = None) -> None:
        """Publish all waiting spans. Spans that cannot be published now are dropped and counted: telemetry never delays work."""
        stamp = stamp or Stamp(self._service, f"spans-{secrets.token_hex(4)}", clock)
        while spans := self.take():
            try:
                await bus.publish([stamp.outgoing(Publish(fact=SpansFinished(service=self._service, spans=spans)))])
            except PortError:
                self._dropped.inc(len(spans))
            if self._exporter is not None:
                await self._export(self._exporter, list(spans))

    def close(self) -> None:
        """Close the exporter."""
        if self._exporter is not None:
            self._exporter.close()

    async def _export(self, exporter: Exporter, spans: list[SpanData]) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._export_again_s:
            self._dropped.inc(len(spans))
            return
        try:
            await asyncio.to_thread(exporter.export, spans)
        except (OSError, RuntimeError) as error:
            self._dropped.inc(len(spans))
            if not self._export_failed:
                self._log.warning("otlp-away", error=str(error))
            self._export_failed = True
            # An endpoint that does not answer takes seconds; the bus must not wait for it again and again.
            self._export_again_s = loop.time() + _EXPORT_REST_S
        else:
            if self._export_failed:
                self._log.info("otlp-back")
            self._export_failed = False

    def _keep(
        self,
        own: str,
        parent_id: str,
        name: str,
        start_us: int,
        end_us: int,
        attributes: Mapping[str, str] | None,
        error: str,
    ) -> None:
        if not trace_is_sampled(own):
            return
        if len(self._waiting) >= _SPANS_WAITING:
            self._waiting.popleft()
            self._dropped.inc()
        if not self._waiting:
            self._came.set()
        self._waiting.append(
            SpanData(
                trace_id=trace_of(own),
                span_id=span_of(own),
                parent_id=parent_id,
                name=name,
                service=self._service,
                start_us=start_us,
                end_us=end_us,
                attributes=dict(attributes or {}),
                error=error,
            )
        )
