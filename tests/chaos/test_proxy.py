"""What the proxy does to a connection: it carries, holds up, slows down and breaks, each direction by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.chaos.proxy import BOTH, Direction, Proxy
from tests.support.waiting import eventually

pytestmark = pytest.mark.enable_socket


@asynccontextmanager
async def through_proxy() -> AsyncIterator[tuple[Proxy, asyncio.StreamReader, asyncio.StreamWriter, list[bytes]]]:
    """A proxy before a server that notes what it reads and answers it, and a connection through the proxy."""
    reached: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(100):
            reached.append(chunk)
            writer.write(chunk.upper())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    proxy = Proxy("127.0.0.1", server.sockets[0].getsockname()[1])
    await proxy.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        yield proxy, reader, writer, reached
    finally:
        writer.close()
        await proxy.close()
        server.close()
        await server.wait_closed()


async def test_what_is_sent_arrives_and_is_answered() -> None:
    async with through_proxy() as (_, reader, writer, reached):
        writer.write(b"one")
        assert await reader.readexactly(3) == b"ONE"
        assert reached == [b"one"]


@pytest.mark.parametrize(("cut", "reaches"), [("up", False), ("down", True)])
async def test_a_cut_holds_one_direction_up_until_it_is_healed(cut: Direction, reaches: bool) -> None:
    async with through_proxy() as (proxy, reader, writer, reached):
        writer.write(b"one")
        assert await reader.readexactly(3) == b"ONE"
        proxy.cut((cut,))
        writer.write(b"two")
        answer = asyncio.create_task(reader.readexactly(3))

        async def has_both() -> bool:
            return reached == [b"one", b"two"]

        if reaches:
            await eventually(has_both, "what the server read")
        done, _ = await asyncio.wait((answer,), timeout=0.2)
        assert not done
        assert reached == ([b"one", b"two"] if reaches else [b"one"])
        proxy.heal()
        assert await answer == b"TWO"


async def test_a_cut_may_be_of_those_alone_that_come_from_one_address() -> None:
    async with through_proxy() as (proxy, reader, writer, reached):
        proxy.cut(source="127.0.0.2")
        others = await asyncio.open_connection("127.0.0.1", proxy.port, local_addr=("127.0.0.2", 0))
        others[1].write(b"two")
        writer.write(b"one")
        assert await reader.readexactly(3) == b"ONE"
        assert reached == [b"one"]
        proxy.heal()
        assert await others[0].readexactly(3) == b"TWO"
        others[1].close()


async def test_what_is_slow_arrives_later_and_in_order() -> None:
    async with through_proxy() as (proxy, reader, writer, _):
        proxy.slow(0.1, BOTH)
        begun_s = asyncio.get_running_loop().time()
        writer.write(b"one")
        writer.write(b"two")
        assert await reader.readexactly(6) == b"ONETWO"
        assert asyncio.get_running_loop().time() - begun_s >= 0.2


async def test_a_reset_ends_what_is_connected_and_new_connections_are_carried() -> None:
    async with through_proxy() as (proxy, reader, writer, _):
        writer.write(b"one")
        assert await reader.readexactly(3) == b"ONE"
        proxy.reset()
        assert await reader.read() == b""
        again_reader, again_writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        again_writer.write(b"two")
        assert await again_reader.readexactly(3) == b"TWO"
        again_writer.close()
