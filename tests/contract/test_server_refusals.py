"""Logins that NATS and Redis refuse: received from the servers once, few facts of many, and shown by the audit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import aiohttp
import nats
import pytest
import redis.asyncio
from nats.aio.client import Client

from colo_cli.main import main
from colo_common.adapters.nats_access import NatsAccess
from colo_common.adapters.nats_refusals import listen_refusals
from colo_common.adapters.redis_refusals import RedisRefusals
from colo_common.ports import Refused, RefusedLogin
from tests.support.secured import Secured, secured
from tests.support.waiting import eventually
from tests.system.bad_input import Servers

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="module")]

_FLOOD: Final = 300


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("secured")) as found:
        yield found


async def knock(url: str, **given: str) -> None:
    """Try to log in at NATS, and fail."""
    client = Client()
    try:
        with pytest.raises(nats.errors.Error, match=r"(?i)authorization"):
            await client.connect(url, allow_reconnect=False, **given)
    finally:
        await client.close()


async def flood(url: str, number: int) -> None:
    """As many logins of a user that there is not, as a program would make that guesses."""
    host, _, port = url.removeprefix("nats://").rpartition(":")
    for each in range(number):
        reader, writer = await asyncio.open_connection(host, int(port))
        asked = json.dumps({"verbose": False, "user": f"guess-{each}", "pass": "x"})
        writer.write(f"CONNECT {asked}\r\nPING\r\n".encode())
        with suppress(ConnectionError):
            await reader.read()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def fail_at_redis(servers: Secured, who: str, times: int) -> None:
    reader, writer = await asyncio.open_unix_connection(servers.redis.url.removeprefix("unix://").partition("?")[0])
    for _ in range(times):
        writer.write(f"AUTH {who} wrong\r\n".encode())
        assert (await reader.readline()).startswith(b"-WRONGPASS")
    writer.close()
    await writer.wait_closed()


async def test_of_two_listeners_one_hears_each_refused_login(servers: Secured) -> None:
    import nkeys

    received: dict[str, list[RefusedLogin]] = {"a": [], "b": []}
    access = NatsAccess(url=servers.nats.url, nkey_file=str(servers.folder / "auditor.nkey"))
    listeners = [
        asyncio.create_task(listen_refusals(access, f"gateway-{name}", into.append)) for name, into in received.items()
    ]

    def everything() -> list[RefusedLogin]:
        return [each for into in received.values() for each in into if each.who != "probe"]

    try:

        async def both_listen() -> bool:
            await knock(servers.nats.url, user="probe", password="x")
            return all(received.values())

        await eventually(both_listen, "both have received one")
        strange = nkeys.encode_seed(b"s" * 32, nkeys.PREFIX_BYTE_USER).decode()
        public = nkeys.from_seed(bytearray(strange.encode())).public_key.decode()
        for given in ({}, {"user": "jobs", "password": "secret"}, {"token": "secret"}, {"nkeys_seed_str": strange}):
            await knock(servers.nats.url, **given)
        await flood(servers.nats.url, 40)

        async def all_received() -> bool:
            return len(everything()) >= 44

        await eventually(all_received, "all refusals")
        assert len(everything()) == 44
        assert {each.who for each in everything()} == {
            "", "jobs", "[REDACTED]", public, *(f"guess-{number}" for number in range(40)),
        }  # fmt: skip
        assert {(each.server, each.address, each.why) for each in everything()} == {
            ("nats", "127.0.0.1", "authentication failure")
        }
        assert "secret" not in repr(everything())
    finally:
        for task in listeners:
            task.cancel()
        await asyncio.gather(*listeners, return_exceptions=True)


async def test_of_two_readers_one_tells_what_redis_refused(servers: Secured) -> None:
    password = (servers.folder / "gateway.redis-password").read_text().strip()
    clients = [redis.asyncio.from_url(servers.redis.url, username="gateway", password=password) for _ in "ab"]
    readers = [RedisRefusals(client) for client in clients]
    other = redis.asyncio.from_url(
        servers.redis.url,
        single_connection_client=True,
        username="jobs",
        password=(servers.folder / "jobs.redis-password").read_text().strip(),
    )
    try:
        await readers[0].news()
        await fail_at_redis(servers, "eve", 3)
        # A name that a client chose cannot stop whoever reads the log.
        await other.client_setname("a=b=c")
        with pytest.raises(redis.exceptions.NoPermissionError):
            await other.hset("colo:v1:reservation", "x", "1")
        published = [each for found in await asyncio.gather(*(reader.news() for reader in readers)) for each in found]
        assert {(each.who, each.address, each.is_known, each.times) for each in published} == {
            ("eve", "unix socket", False, 3),
            ("jobs", "unix socket", True, 1),
        }
        assert [list(await reader.news()) for reader in readers] == [[], []]
        await fail_at_redis(servers, "eve", 2)
        assert [each.times for each in await readers[1].news()] == [2]
        with pytest.raises(Refused, match=r"(?i)perm"):
            await RedisRefusals(other).news()
    finally:
        for client in (*clients, other):
            await client.aclose()


async def test_the_audit_shows_whom_the_servers_refused_and_a_flood_is_a_few_lines(
    servers: Secured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = str(servers.folder / "admin.nkey")
    words = ["admin", "init", "--nats-url", servers.nats.url, "--nats-nkey-file", key]
    assert await asyncio.to_thread(main, words) == 0
    both = Servers(servers.nats.url, servers.redis.url, tmp_path)
    async with (
        both.service("gateway", **servers.environment("gateway")) as gateway,
        aiohttp.ClientSession() as http,
    ):
        await gateway.not_ready("scheduler")

        async def entries(how: str) -> list[dict[str, Any]]:
            async with http.get(f"{gateway.address}/v1/audit?refused=true&limit=500") as reply:
                body = await reply.json()
            return [each for each in body.get("entries", ()) if each["how"] == how]

        async def is_published() -> list[dict[str, Any]]:
            await knock(servers.nats.url, user="eve", password="x")
            return await entries("nats")

        first = (await eventually(is_published, "NATS refused somebody"))[-1]
        wanted = {"who": "eve", "method": "CONNECT", "path": "nats", "status": 401, "address": "127.0.0.1"}
        assert {name: first[name] for name in wanted} == wanted
        assert first["reason"] == "authentication failure"
        await flood(servers.nats.url, _FLOOD)
        await gateway.reaches('colo_gateway_server_refusals_total{server="nats"}', _FLOOD + 1)
        assert len(await entries("nats")) <= 3
        await fail_at_redis(servers, "mallory", 3)

        async def redis_is_published() -> list[dict[str, Any]]:
            return [each for each in await entries("redis") if each["who"] == "mallory"]

        (found,) = await eventually(redis_is_published, "Redis refused somebody")
        assert (found["method"], found["status"], found["alike"]) == ("AUTH", 401, 2)
        assert await asyncio.to_thread(main, ["get", "audit", "--refused", "--api", gateway.address]) == 0
        shown = capsys.readouterr().out
        assert "CONNECT nats" in shown
        assert "mallory" in shown
