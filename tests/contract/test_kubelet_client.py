"""The kubelet's client against a server that fails, answers nonsense, or answers without end."""

from __future__ import annotations

import asyncio
import json

from aiohttp import web

from colo_collector.kubelet_access import KubeletAccess
from colo_collector.kubelet_client import KubeletClient
from colo_collector.pods import Pod
from colo_common.runtime.metrics import Metrics
from tests.support.waiting import eventually

UID = "aaaaaaaa-1111-2222-3333-aaaaaaaaaaaa"
POD = {"metadata": {"name": "db", "namespace": "shop", "uid": UID}}


async def test_a_kubelet_that_fails_first_is_asked_again_and_its_pods_are_taken() -> None:
    answers = iter([(500, b""), (200, b"not json"), (200, json.dumps({"items": [POD]}).encode())])
    taken: list[dict[str, Pod]] = []

    async def pods(_: web.Request) -> web.StreamResponse:
        status, body = next(answers, (200, b"{}"))
        return web.Response(status=status, body=body)

    async def found() -> Pod | None:
        return next((one[UID] for one in taken if UID in one), None)

    app = web.Application()
    app.router.add_get("/pods", pods)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    running = asyncio.create_task(KubeletClient(KubeletAccess(url=url, period_ms=10), taken.append, Metrics()).run())
    try:
        assert await eventually(found, "the pods of the kubelet") == Pod(name="db", namespace="shop")
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await runner.cleanup()
