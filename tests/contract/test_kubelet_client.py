"""The kubelet's client against a server that fails, answers nonsense, or answers without end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

from aiohttp import web

from colo_collector.kubelet_access import KubeletAccess
from colo_collector.kubelet_client import KubeletClient
from colo_collector.pods import Pod
from colo_common.runtime.metrics import Metrics

UID = "aaaaaaaa-1111-2222-3333-aaaaaaaaaaaa"
POD = {"metadata": {"name": "db", "namespace": "shop", "uid": UID}}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def asked(handler: Handler, until: Callable[[list[dict[str, Pod]]], bool]) -> None:
    """Let a client ask a kubelet until the condition holds."""
    taken: list[dict[str, Pod]] = []
    app = web.Application()
    app.router.add_get("/pods", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    client = KubeletClient(KubeletAccess(url=f"http://127.0.0.1:{port}", period_ms=10), taken.append, Metrics())
    running = asyncio.create_task(client.run())
    try:
        async with asyncio.timeout(60):
            while not until(taken):
                await asyncio.sleep(0.005)
                assert not running.done(), running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await runner.cleanup()


async def test_a_kubelet_that_fails_first_is_asked_again_and_its_pods_are_taken() -> None:
    answers = iter([(500, b""), (200, b"not json"), (200, json.dumps({"items": [POD]}).encode())])

    async def pods(_: web.Request) -> web.StreamResponse:
        status, body = next(answers, (200, b"{}"))
        return web.Response(status=status, body=body)

    await asked(pods, lambda taken: any(UID in one for one in taken))
