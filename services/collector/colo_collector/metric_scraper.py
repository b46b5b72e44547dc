"""Scrapes the metrics that workloads offer, and takes those that they send.

A hostile endpoint (slow, endless, nonsense) costs its own value only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

import aiohttp
import structlog

from colo_collector.business import BusinessWatch, MetricRule, values_of
from colo_collector.latency_slo import SetLatencySlo
from colo_collector.pushed import TakePushed
from colo_common.events.node import BusinessMetric
from colo_common.model.invalid import InvalidInput
from colo_common.runtime.metrics import Metrics

__all__ = ["MetricScraper"]

_BODY_MAX_BYTES: Final = 1 << 20
_CHUNK_BYTES: Final = 65_536
_AT_ONCE: Final = 8


class MetricScraper:
    """Asks every endpoint once a period, a few at a time, each with a deadline; hands on what is known after each round."""

    def __init__(
        self,
        rules: Sequence[MetricRule],
        take: Callable[[dict[str, BusinessMetric], int], None],
        metrics: Metrics,
        *,
        period_ms: int,
        timeout_ms: int,
    ) -> None:
        """`take` gets the metrics by workload and the monotonic time (ms) at which their ages were counted."""
        self._rules = tuple(rule for rule in rules if rule.url)
        self._take = take
        self._watch = BusinessWatch(rules)
        self._period_s = period_ms / 1_000
        self._timeout = aiohttp.ClientTimeout(total=timeout_ms / 1_000)
        self._problems: dict[str, str] = {}
        self._log = structlog.get_logger("collector")
        self._pushed = metrics.counter("colo_collector_metric_values_pushed_total", "values that workloads sent")
        self._failures = metrics.counter(
            "colo_collector_metric_failures_total", "questions for a workload's own metric without an answer"
        )

    def take_pushed(self, pushed: TakePushed) -> None:
        """Take values that a workload sent, and hand on at once what is known of it."""
        now_ms = time.monotonic_ns() // 1_000_000
        metric = self._watch.take_pushed(pushed.workload, pushed.values, pushed.age_ms, now_ms)
        self._pushed.inc(len(pushed.values))
        self._take({pushed.workload: metric}, now_ms)

    def set_latency_slo(self, slo: SetLatencySlo) -> None:
        """Judge latencies that declare no SLO by this one, and hand on at once what that changes."""
        self._watch.set_latency_slo(slo)
        now_ms = time.monotonic_ns() // 1_000_000
        self._take(self._watch.metrics(now_ms), now_ms)

    async def run(self) -> None:
        """Ask until cancelled. Never raises for what an endpoint does."""
        turn = asyncio.Semaphore(_AT_ONCE)
        async with aiohttp.ClientSession(timeout=self._timeout) as session:
            while True:
                await asyncio.gather(*(self._ask(session, rule, turn) for rule in self._rules))
                now_ms = time.monotonic_ns() // 1_000_000
                self._take(self._watch.metrics(now_ms), now_ms)
                await asyncio.sleep(self._period_s)

    async def _ask(self, session: aiohttp.ClientSession, rule: MetricRule, turn: asyncio.Semaphore) -> None:
        problem = ""
        async with turn:
            try:
                text = await self._fetch(session, rule.url)
                values = values_of(text, rule.metric)
                if not self._watch.take(rule.workload, values, time.monotonic_ns() // 1_000_000):
                    problem = f"{rule.url} has no value of {rule.metric}"
            except (aiohttp.ClientError, TimeoutError, OSError, InvalidInput, ValueError) as error:
                problem = f"{rule.url}: {type(error).__name__}: {error}"
        if problem:
            self._failures.inc()
        if problem != self._problems.get(rule.workload, ""):
            self._problems[rule.workload] = problem
            if problem:
                self._log.warning("metric-silent", workload=rule.workload, reason=problem)
            else:
                self._log.info("metric-answers", workload=rule.workload)

    async def _fetch(self, session: aiohttp.ClientSession, url: str) -> str:
        async with session.get(url, allow_redirects=False) as response:
            if response.status != 200:
                raise InvalidInput("business_metrics", "must answer with 200", response.status)
            pieces, size = [], 0
            async for piece in response.content.iter_chunked(_CHUNK_BYTES):
                size += len(piece)
                if size > _BODY_MAX_BYTES:
                    raise InvalidInput("business_metrics", f"must answer with at most {_BODY_MAX_BYTES} bytes", size)
                pieces.append(piece)
            return b"".join(pieces).decode("utf-8", "replace")
