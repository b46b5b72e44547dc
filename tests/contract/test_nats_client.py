"""What a flush of the client promises, shown by the order of what it writes to a server that only listens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from colo_common.adapters.nats_client import ColoClient
from tests.support.waiting import eventually

INFO = b'INFO {"server_id":"x","version":"2.15.0","proto":1,"max_payload":1048576,"headers":true}\r\n'


@asynccontextmanager
async def listening_server(lines: list[bytes]) -> AsyncIterator[str]:
    """The address of a server that answers pings and keeps what it read."""
    connections: set[asyncio.Task[None]] = set()

    async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(INFO)
        while line := await reader.readline():
            lines.append(line.rstrip())
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
        writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(asyncio.get_running_loop().create_task(read(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await asyncio.gather(*connections)


async def test_the_ping_of_a_flush_comes_after_what_was_said_before_it() -> None:
    lines: list[bytes] = []
    async with listening_server(lines) as url:
        client = ColoClient()
        await client.connect(url, allow_reconnect=False)
        lines.clear()
        await client.subscribe("colo.v1.req.jobs.get")
        await client.publish("colo.v1.tlm.x", b"x")
        await client.flush()
        await client.close()

        async def is_read() -> bool:
            return b"PING" in lines

        await eventually(is_read, "the ping is read")
    assert lines[: lines.index(b"PING") + 1] == [
        b"SUB colo.v1.req.jobs.get  1",
        b"PUB colo.v1.tlm.x  1",
        b"x",
        b"PING",
    ]
