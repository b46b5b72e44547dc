"""NATS and Redis with certificates: a server or a process whose certificate is foreign or has expired is not used, and the reason
is said; renewed files are taken without a restart.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from colo_cli.servers import NatsServer, RedisServer
from colo_common.adapters.bus_nats import NatsBus
from colo_common.adapters.nats_access import NatsAccess
from colo_common.adapters.redis_access import RedisAccess
from colo_common.adapters.redis_client import REDIS_ERRORS, redis_client
from tests.support.ports import free_ports
from tests.support.waiting import eventually

pytestmark = [pytest.mark.server, pytest.mark.asyncio]

YESTERDAY = datetime.now(UTC) - timedelta(days=1)


class Files:
    """Certificates, keys and authorities as files of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def authority(self, name: str, authority: trustme.CA) -> str:
        path = str(self._folder / f"{name}-ca.pem")
        authority.cert_pem.write_to_path(path)
        return path

    def pair(self, name: str, certificate: trustme.LeafCert) -> tuple[str, str]:
        cert, key = str(self._folder / f"{name}.pem"), str(self._folder / f"{name}.key")
        certificate.cert_chain_pems[0].write_to_path(cert)
        certificate.private_key_pem.write_to_path(key)
        return cert, key


async def problem_of(access: NatsAccess) -> str:
    """What the bus says when it does not get in; empty when the server was reached."""
    bus = NatsBus(access, name="certificates", streams={})
    bus.start()
    try:

        async def settled() -> str:
            found = await bus.ready()
            return "" if found.endswith("was not reached yet") else found or "usable"

        found = await eventually(settled, "an answer")
        return "" if found == "usable" else found
    finally:
        await bus.close()


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ("good", ""),
        ("foreign", "certificate verify failed"),
        ("expired", "certificate has expired"),
        ("another host", "127.0.0.1"),
    ],
)
async def test_the_certificate_of_the_server(tmp_path: Path, case: str, says: str) -> None:
    files, ours, theirs = Files(tmp_path), trustme.CA(), trustme.CA()
    signer = theirs if case == "foreign" else ours
    host = "elsewhere.example" if case == "another host" else "127.0.0.1"
    certificate = signer.issue_cert(host, not_after=YESTERDAY) if case == "expired" else signer.issue_cert(host)
    cert, key = files.pair("server", certificate)
    config = f"tls {{ cert_file: {json.dumps(cert)}, key_file: {json.dumps(key)} }}\n"
    async with NatsServer(directory=tmp_path, config=config) as server:
        address = server.url.replace("nats://", "tls://")
        problem = await problem_of(NatsAccess(url=address, ca_file=files.authority("ours", ours)))
        assert says in problem
        assert bool(says) == bool(problem)


@pytest.mark.parametrize("case", ["good", "foreign", "expired", "none"])
async def test_the_certificate_of_the_process(tmp_path: Path, case: str) -> None:
    files, ours, theirs = Files(tmp_path), trustme.CA(), trustme.CA()
    authority = files.authority("ours", ours)
    cert, key = files.pair("server", ours.issue_cert("127.0.0.1"))
    given: dict[str, str] = {}
    if case != "none":
        signer = theirs if case == "foreign" else ours
        not_after = YESTERDAY if case == "expired" else None
        own = files.pair("process", signer.issue_cert("scheduler@example", not_after=not_after))
        given = dict(zip(("cert_file", "key_file"), own, strict=True))
    parts = (f"cert_file: {json.dumps(cert)}", f"key_file: {json.dumps(key)}", f"ca_file: {json.dumps(authority)}")
    config = f"tls {{ {', '.join(parts)}, verify: true }}\n"
    async with NatsServer(directory=tmp_path, config=config) as server:
        address = server.url.replace("nats://", "tls://")
        problem = await problem_of(NatsAccess(url=address, ca_file=authority, **given))
        assert bool(problem) == (case != "good"), problem
        if problem:
            assert problem.startswith(f"NATS at {address}"), problem


async def test_renewed_certificates_and_another_authority_are_taken_without_a_restart(tmp_path: Path) -> None:
    """The server gets a certificate of another authority, and so does the process, which goes on with the same bus."""
    files, ours, theirs = Files(tmp_path), trustme.CA(), trustme.CA()

    def config() -> str:
        names = {"cert_file": "server.pem", "key_file": "server.key", "ca_file": "now-ca.pem"}
        parts = [f"{name}: {json.dumps(str(tmp_path / file))}" for name, file in names.items()]
        return f"tls {{ {', '.join(parts)}, verify: true }}\n"

    authority = files.authority("now", ours)
    files.pair("server", ours.issue_cert("127.0.0.1"))
    cert, key = files.pair("process", ours.issue_cert("scheduler@example"))
    (port,) = free_ports(1)
    server = NatsServer(directory=tmp_path / "data", port=port, config=config())
    await server.start()
    address = server.url.replace("nats://", "tls://")
    access = NatsAccess(url=address, ca_file=authority, cert_file=cert, key_file=key)
    bus = NatsBus(access, name="certificates", streams={})
    bus.start()
    try:

        async def usable() -> bool:
            return not await bus.ready()

        await eventually(usable, "the bus is usable")
        await server.stop()
        files.authority("now", theirs)
        files.pair("server", theirs.issue_cert("127.0.0.1"))
        await server.start()

        async def refused() -> bool:
            return "ertificate" in await bus.ready()

        # The certificate of before is refused by the server, whose own is taken already.
        await eventually(refused, "the process is not let in")
        # Half of a new one is no certificate, and changes nothing.
        renewed = theirs.issue_cert("scheduler@example")
        renewed.cert_chain_pems[0].write_to_path(cert)
        assert not await usable()
        renewed.private_key_pem.write_to_path(key)
        await eventually(usable, "the bus is usable again")
    finally:
        await bus.close()
        await server.stop()


@asynccontextmanager
async def under_tls(
    server: RedisServer, port: int, certificate: trustme.LeafCert, clients: trustme.CA
) -> AsyncIterator[None]:
    """The server by TLS on this port, for clients of that authority: that of the tests speaks none by itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    clients.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    open_: set[asyncio.StreamWriter] = set()

    async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        open_.add(sink)
        with suppress(OSError):
            while part := await source.read(65536):
                sink.write(part)
        sink.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", server.port)
        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))

    listener = await asyncio.start_server(relay, "127.0.0.1", port, ssl=context)
    try:
        yield
    finally:
        listener.close()
        for each in open_:
            each.close()
        await listener.wait_closed()


async def test_renewed_certificates_of_redis_are_taken_by_connections_that_are_made_again(tmp_path: Path) -> None:
    files, ours, theirs = Files(tmp_path), trustme.CA(), trustme.CA()
    authority = files.authority("now", ours)
    cert, key = files.pair("process", ours.issue_cert("jobs@example"))
    plain, port = free_ports(2)
    access = RedisAccess(url=f"rediss://127.0.0.1:{port}/0", ca_file=authority, cert_file=cert, key_file=key)
    client = redis_client(access, name="certificates")

    async def answers() -> bool:
        try:
            return bool(await client.ping())
        except REDIS_ERRORS:
            return False

    async with RedisServer(directory=tmp_path / "data", port=plain) as server:
        async with under_tls(server, port, ours.issue_cert("127.0.0.1"), ours):
            assert await answers()
        async with under_tls(server, port, theirs.issue_cert("127.0.0.1"), theirs):
            assert not await answers(), "another authority"
            files.authority("now", theirs)
            assert not await answers(), "the certificate of before"
            renewed = theirs.issue_cert("jobs@example")
            renewed.cert_chain_pems[0].write_to_path(cert)
            assert not await answers(), "half of a pair"
            renewed.private_key_pem.write_to_path(key)
            assert await answers()
        await client.aclose()
