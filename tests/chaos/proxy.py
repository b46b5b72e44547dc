"""A TCP proxy between a program and its server, which can hold up, slow down or cut either direction."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Literal

__all__ = ["BOTH", "Direction", "Proxy"]

Direction = Literal["up", "down"]
BOTH: Final[tuple[Direction, ...]] = ("up", "down")
"""`up`: to the server; `down`: from the server."""

_CHUNK: Final = 64 * 1024
_CHUNKS_MOST: Final = 64
_ALL: Final = ""


class Proxy:
    """Listens on a port of its own, `listens_at` or any.

    What a cut holds up arrives when it ends, as a network that lost packets sends them again.
    """

    def __init__(self, host: str, port: int, *, listens_at: int = 0) -> None:
        self._to = host, port
        #: By the address that connections come from.
        self._open: defaultdict[str, dict[Direction, asyncio.Event]] = defaultdict(_opened)
        self._delay_s: dict[Direction, float] = dict.fromkeys(BOTH, 0.0)
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = listens_at
        self.heal()

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """End every connection and stop listening."""
        if self._server is not None:
            self._server.close()
        self.reset()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def cut(self, directions: Sequence[Direction] = BOTH, *, source: str = _ALL) -> None:
        """Let nothing through in these directions; connections stay, as in a network that drops packets.

        `source`: only of connections that come from this address.
        """
        for direction in directions:
            self._open[source][direction].clear()

    def slow(self, delay_s: float, directions: Sequence[Direction] = BOTH) -> None:
        """Let everything through later by this."""
        for direction in directions:
            self._delay_s[direction] = delay_s

    def heal(self) -> None:
        """Let everything through at once."""
        for direction in BOTH:
            for opened in self._open.values():
                opened[direction].set()
            self._delay_s[direction] = 0.0

    def lead_to(self, host: str, port: int) -> None:
        """Lead every connection from now on to this server, and end those that there are."""
        self._to = host, port
        self.reset()

    def reset(self) -> None:
        """End every connection that there is."""
        for connection in self._connections:
            connection.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):
                await self._connect(reader, writer)
        finally:
            self._connections.discard(task)
            writer.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        source, _ = writer.get_extra_info("peername")
        for direction in BOTH:
            await self._is_open(direction, source)
        above, to_server = await asyncio.open_connection(*self._to)
        pumps = [
            asyncio.create_task(self._pump("up", source, reader, to_server)),
            asyncio.create_task(self._pump("down", source, above, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            to_server.close()

    async def _is_open(self, direction: Direction, source: str) -> None:
        for named in (_ALL, source):
            await self._open[named][direction].wait()

    async def _pump(
        self, direction: Direction, source: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Carry one direction until it ends. What is read keeps its distance in time, so that a delay costs no throughput."""
        loop = asyncio.get_running_loop()
        chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_CHUNKS_MOST)

        async def write() -> None:
            while True:
                due_s, chunk = await chunks.get()
                await asyncio.sleep(max(0.0, due_s - loop.time()))
                await self._is_open(direction, source)
                if not chunk:
                    return
                writer.write(chunk)
                await writer.drain()

        async def read() -> None:
            while True:
                chunk = await reader.read(_CHUNK)
                await chunks.put((loop.time() + self._delay_s[direction], chunk))
                if not chunk:
                    return

        async with asyncio.TaskGroup() as group:
            group.create_task(read())
            group.create_task(write())


def _opened() -> dict[Direction, asyncio.Event]:
    opened = {direction: asyncio.Event() for direction in BOTH}
    for event in opened.values():
        event.set()
    return opened
