"""NATS with certificates: a server or a process whose certificate is foreign or has expired is not used, and the reason is said."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from colo_cli.servers import NatsServer
from colo_common.adapters.bus_nats import NatsBus
from colo_common.adapters.nats_access import NatsAccess
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
