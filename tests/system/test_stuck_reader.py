"""A reader whose connection takes nothing keeps no place among the open event streams."""

import asyncio
import socket

import pytest
from aiohttp import web

from colo_common.events.job import JobStateChanged
from colo_gateway.event_log import EventLog
from colo_gateway.since import Since
from colo_gateway.sse import stream_events
from colo_gateway.streams import Streams

pytestmark = pytest.mark.server

_FACT = JobStateChanged(job="j" * 60_000, queue="q", state="Running", previous="Inqueue", transition="J04", version=2)


def a_log(facts: int) -> EventLog:
    log = EventLog(1_000)
    for _ in range(facts):
        log.append("JobStateChanged", "colo.v1.evt.job.changed", _FACT, 0)
    return log


async def test_a_reader_whose_connection_takes_nothing_is_cut_off() -> None:
    # More than the buffers of both ends of a connection hold.
    log, streams, ended = a_log(400), Streams(limit=1, queue_size=10, write_s=0.2), asyncio.Event()

    async def holds() -> str:
        return ""

    async def serve(request: web.Request) -> web.StreamResponse:
        found = await stream_events(request, log, streams, Since(position=0), now_ms=0, speed=1.0, why_ended=holds)
        assert found is not None
        ended.set()
        return found

    app = web.Application()
    app.add_routes([web.get("/", serve)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert isinstance(site._server, asyncio.Server)
    port = site._server.sockets[0].getsockname()[1]
    try:
        with socket.create_connection(("127.0.0.1", port)) as reader:
            reader.sendall(b"GET / HTTP/1.1\r\nHost: colo\r\n\r\n")
            async with asyncio.timeout(120):
                await ended.wait()
            assert len(streams) == 0
    finally:
        await runner.cleanup()
