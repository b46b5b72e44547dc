"""What the client promises of a flush, shown by the order of what it writes to a server that only listens, and of headers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import nats.aio.client
import nats.errors
import trustme
from hypothesis import example, given
from hypothesis import strategies as st
from nats.js.api import Header

from colo_common.adapters.nats_client import ColoClient
from tests.support.waiting import eventually

INFO = b'INFO {"server_id":"x","version":"2.15.0","proto":1,"max_payload":1048576,"headers":true}\r\n'


@asynccontextmanager
async def server_of(
    read: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]],
) -> AsyncIterator[str]:
    """The "host:port" of a server that serves each connection by `read`, which returns when the client has closed it."""
    connections: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(asyncio.get_running_loop().create_task(read(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await asyncio.gather(*connections)


@asynccontextmanager
async def listening_server(lines: list[bytes]) -> AsyncIterator[str]:
    """The address of a server that answers pings and keeps what it read."""

    async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(INFO)
        while line := await reader.readline():
            lines.append(line.rstrip())
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
        writer.close()

    async with server_of(read) as address:
        yield f"nats://{address}"


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


@asynccontextmanager
async def tls_server(context: ssl.SSLContext, raw: bytearray) -> AsyncIterator[str]:
    """The address of a server that speaks TLS, answers pings, and keeps the bytes as they came over the wire."""

    async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_side=True)
        writer.write(INFO.replace(b'"headers"', b'"tls_required":true,"headers"'))
        is_open = has_ended = False
        while not has_ended and (data := await reader.read(65_536)):
            raw.extend(data)
            incoming.write(data)
            with suppress(ssl.SSLError):  # nothing more can be read now
                if not is_open:
                    tls.do_handshake()
                    is_open = True
                while text := tls.read(65_536):
                    if text.endswith(b"PING\r\n"):
                        tls.write(b"PONG\r\n")
                has_ended = True
            writer.write(outgoing.read())
        writer.close()

    async with server_of(read) as address:
        yield f"tls://{address}"


def data_records(raw: bytes | bytearray) -> int:
    """How many records of TLS 1.2 carry data."""
    count = at = 0
    while at < len(raw):
        count += raw[at] == 23
        at += 5 + int.from_bytes(raw[at + 3 : at + 5], "big")
    return count


async def test_what_is_published_together_is_one_record_of_tls() -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # In TLS 1.3 the end of the handshake looks like data.
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    authority.issue_cert("127.0.0.1").configure_cert(context)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    raw = bytearray()
    async with tls_server(context, raw) as url:
        client = ColoClient()
        await client.connect(url, allow_reconnect=False, tls=trusting)
        await client.flush()
        before = data_records(raw)
        for _ in range(20):
            await client.publish("colo.v1.tlm.x", b"x" * 100)
        await client.flush()
        assert data_records(raw) - before == 2, "the messages, and the ping of the flush"
        await client.close()


async def test_a_heartbeat_is_read_as_the_library_reads_it_and_a_stalled_one_keeps_its_address() -> None:
    wanted = {"Status": "100", "Description": "Idle Heartbeat"}
    lines = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 7\r\nNats-Last-Stream: 9\r\n"
    for headers in (lines + b"\r\n", lines + b"Nats-Consumer-Stalled: answer.here\r\n\r\n"):
        of_the_library = await nats.aio.client.Client()._process_headers(headers)
        found = await ColoClient()._process_headers(headers)
        assert found is not None
        assert {name: of_the_library[name] for name in found} == found
        assert wanted.items() <= found.items()
        assert ("Nats-Consumer-Stalled" in found) == ("Nats-Consumer-Stalled" in of_the_library)


@given(
    st.binary(max_size=80),
    st.lists(st.tuples(st.sampled_from([b"ce-id", b" Traceparent ", b"a b", b""]), st.binary(max_size=20))),
)
def test_header_lines_are_read_as_the_library_reads_them(rest: bytes, lines: list[tuple[bytes, bytes]]) -> None:
    raw = b"".join(name + b":" + value + b"\r\n" for name, value in lines) + rest
    assert ColoClient._parse_header_lines(raw) == nats.aio.client.Client._parse_header_lines(raw)


@given(
    st.dictionaries(st.text(max_size=6) | st.sampled_from(["ce-id", Header.MSG_ID]), st.text(max_size=20), max_size=4)
)
@example({Header.MSG_ID: "scheduler:1", "ce-id": " ä "})
@example({"two\r\nlines": "x"})
@example({"ce-id": "two\r\nlines"})
async def test_headers_are_written_as_the_library_writes_them(headers: dict[str, str]) -> None:
    assert await commands_of(ColoClient(), headers) == await commands_of(nats.aio.client.Client(), headers)


async def commands_of(client: nats.aio.client.Client, headers: dict[str, str]) -> list[bytes] | str:
    """What the client would send to the server for one message, or the name of the error."""
    client._flush_queue = None
    try:
        await client._send_publish("a.b", "c", b"data", 4, headers)
    except nats.errors.Error as error:
        return type(error).__name__
    return [bytes(command) for command in client._pending]
