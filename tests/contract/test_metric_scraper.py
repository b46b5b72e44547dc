"""Endpoints of workloads, honest and hostile: each costs its own value only."""

from __future__ import annotations

import asyncio

from aiohttp import web

from colo_collector.business import MetricRule
from colo_collector.metric_scraper import MetricScraper
from colo_common.events.node import BusinessMetric
from colo_common.runtime.metrics import Metrics
from tests.support.waiting import eventually


async def test_a_slow_an_endless_and_a_senseless_endpoint_cost_their_own_values_only() -> None:
    known: dict[str, BusinessMetric] = {}
    rounds = 0
    released = asyncio.Event()

    def take(metrics: dict[str, BusinessMetric], at_ms: int) -> None:
        nonlocal rounds
        known.update(metrics)
        rounds += 1

    async def honest(_: web.Request) -> web.StreamResponse:
        return web.Response(text="p99_ms 42\n")

    async def senseless(_: web.Request) -> web.StreamResponse:
        return web.Response(body=b"\xff\x00p99_ms\n" * 100, status=200)

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while not released.is_set():
            await response.write(b"x" * 65_536)
        return response

    async def slow(_: web.Request) -> web.StreamResponse:
        await released.wait()
        return web.Response(text="p99_ms 1\n")

    app = web.Application()
    for path, handler in (("honest", honest), ("senseless", senseless), ("endless", endless), ("slow", slow)):
        app.router.add_get(f"/{path}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    names = ("honest", "senseless", "endless", "slow", "gone")
    rules = [MetricRule(workload=name, url=f"{base}/{name}", metric="p99_ms") for name in names]
    # The deadline is long enough for the honest one on a busy machine; the slow one costs it once a round.
    scraper = MetricScraper(rules, take, Metrics(), period_ms=10, timeout_ms=2_000)
    running = asyncio.create_task(scraper.run())

    async def twice() -> bool:
        return rounds >= 2 and "honest" in known

    try:
        assert await eventually(twice, "two rounds")
        assert set(known) == {"honest"}
        assert known["honest"].value_milli == 42_000
    finally:
        released.set()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await runner.cleanup()
