"""All services on servers that let in nobody without credentials: work runs, nothing is refused, keys are rotated and revoked."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import redis

from colo_cli.lab_processes import LabProcesses
from colo_cli.main import main
from tests.support.running import SERVICES, RunningColo, flat_environment
from tests.support.secured import Secured, secured
from tests.support.waiting import eventually

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="session")]

JOB: Final[dict[str, Any]] = {"name": "probe", "cpu": "1", "memory": "64Mi", "work": "10 cpu-s"}
_ROLE_OF: Final = {"sim": "simulator"}


async def make_streams(servers: Secured) -> None:
    """What an administrator does once."""
    key = str(servers.folder / "admin.nkey")
    words = ["admin", "init", "--nats-url", servers.nats.url, "--nats-nkey-file", key]
    assert await asyncio.to_thread(main, words) == 0


@asynccontextmanager
async def running(servers: Secured, directory: Path) -> AsyncIterator[RunningColo]:
    """Every service with the credentials of its role."""
    await make_streams(servers)
    processes = LabProcesses(directory, flat_environment(directory, servers.nats.url, servers.redis.url, 2))
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as http:
            for name in SERVICES:
                role = _ROLE_OF.get(name, name)
                await processes.start(name, f"colo_{name}", servers.environment(role))
            await processes.wait_ready(list(SERVICES))
            yield RunningColo(
                processes, http, nats_url=servers.nats.url, redis_url=servers.redis.url, directory=directory
            )
    finally:
        await processes.stop()


def reload(servers: Secured) -> None:
    os.kill(servers.nats.pid, signal.SIGHUP)


def admin_password(servers: Secured) -> str:
    return (servers.folder / "admin.redis-password").read_text().strip()


def tell_redis(servers: Secured, password: str, *words: str) -> Any:
    """The answer to a command of the administrator; without one the users are read again and every connection is made anew."""
    with redis.Redis.from_url(servers.redis.url, username="admin", password=password, decode_responses=True) as client:
        if words:
            return client.execute_command(*words)
        client.execute_command("ACL", "LOAD")
        return client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


async def completes(colo: RunningColo, name: str) -> None:
    job = await colo.submit(JOB | {"name": name}, key=name)
    assert await colo.reaches(job, "Completed", "Failed") == "Completed"


async def test_everything_works_with_credentials_and_while_keys_are_rotated(tmp_path: Path) -> None:
    with secured(tmp_path) as servers:
        folder = ["-d", str(servers.folder)]
        async with running(servers, tmp_path) as colo:
            await completes(colo, "first")
            assert await colo.get("/v1/status")
            assert (await colo.get("/v1/services"))["services"]
            assert (await colo.call("DELETE", "/v1/restrictions?kind=quiesce&scope=fleet")).status in (200, 404)
            assert (await colo.get("/v1/nodes"))["nodes"]

            # ---- new keys for all, while everything runs
            password = admin_password(servers)
            assert main(["admin", "credentials", "rotate", *folder]) == 0
            # While the server does not know the new ones yet, each program goes on with those before.
            logs = [colo.process(name).log for name in SERVICES]

            def all_say(event: str) -> bool:
                return all(f'"event":"{event}"' in log.read_text() for log in logs)

            async def waiting() -> bool:
                return all_say("credentials-not-known-yet")

            await eventually(waiting, "every program has seen its new key")
            assert all([(await ready(colo, name)) for name in SERVICES])
            await completes(colo, "between")
            assert not any("nats-away" in log.read_text() for log in logs)
            reload(servers)
            await asyncio.to_thread(tell_redis, servers, password)

            # Each program reads its new key from the file that it knows, and connects with it.
            async def changed() -> bool:
                return all_say("credentials-changed") and all([(await ready(colo, name)) for name in SERVICES])

            await eventually(changed, "every program takes its new key")
            assert main(["admin", "credentials", "rotate", "--finish", *folder]) == 0
            reload(servers)
            await asyncio.to_thread(tell_redis, servers, admin_password(servers))
            await completes(colo, "second")
            log = await asyncio.to_thread(tell_redis, servers, admin_password(servers), "ACL", "LOG")
            # A connection that is made before the server has read the new users is made again.
            refused_by_redis = [each for each in log if each["reason"] != "auth"]
            assert not refused_by_redis, refused_by_redis
            assert all(process.process.returncode is None for process in colo.processes.running.values())

            # ---- one of them is let in no longer, and says so; with its key back it goes on
            kept = (servers.folder / "users.json").read_bytes(), (servers.folder / "nats-users.conf").read_bytes()
            key = (servers.folder / "evictor.nkey").read_bytes()
            word = (servers.folder / "evictor.redis-password").read_bytes()
            assert main(["admin", "credentials", "revoke", "evictor", *folder]) == 0
            reload(servers)
            await eventually(lambda: not_ready(colo, "evictor", "nats_nkey_file: must be"), "its file is gone")
            (servers.folder / "evictor.nkey").write_bytes(key)
            (servers.folder / "evictor.redis-password").write_bytes(word)
            await eventually(lambda: not_ready(colo, "evictor", "uthorization"), "it is not let in")
            (servers.folder / "users.json").write_bytes(kept[0])
            (servers.folder / "nats-users.conf").write_bytes(kept[1])
            reload(servers)
            await eventually(lambda: ready(colo, "evictor"), "the evictor is back")
            # A reload makes the server forget which answers are outstanding; such a question is asked again.
            lines = [line for log in logs for line in log.read_text().splitlines()]
            refused = [line for line in lines if "ermissions" in line and "_inbox." not in line]
            assert not refused, refused[:5]


async def ready(colo: RunningColo, name: str) -> bool:
    async with colo.http.get(f"http://{colo.process(name).address}/readyz") as reply:
        return reply.status == 200


async def not_ready(colo: RunningColo, name: str, why: str) -> bool:
    async with colo.http.get(f"http://{colo.process(name).address}/readyz?verbose") as reply:
        text = await reply.text()
        return reply.status == 503 and why in text
