"""A Redis with the users of `colo admin credentials` has after a restart what it had before, and lets nobody in as nobody."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis.asyncio

from colo_cli.main import main
from colo_cli.servers import RedisServer
from colo_common.adapters.redis_access import RedisAccess
from colo_common.adapters.redis_check import check_redis
from colo_common.adapters.store_redis import key_of_kind

pytestmark = [pytest.mark.server, pytest.mark.asyncio]

TWO_KEYS = "redis.call('HSET', KEYS[1], ARGV[1], '1') redis.call('HSET', KEYS[2], ARGV[1], '1')"


def client_of(server: RedisServer, folder: Path, user: str) -> redis.asyncio.Redis:
    password = (folder / f"{user}.redis-password").read_text().strip()
    return redis.asyncio.from_url(server.url, username=user, password=password, decode_responses=True)


async def rows_of(server: RedisServer, folder: Path) -> dict[str, dict[str, str]]:
    async with client_of(server, folder, "admin") as admin:
        return {name: await admin.hgetall(name) for name in sorted(await admin.keys("*"))}


async def test_what_scripts_and_transactions_wrote_is_there_after_a_restart(tmp_path: Path) -> None:
    folder, data = tmp_path / "credentials", tmp_path / "data"
    data.mkdir()
    assert main(["admin", "credentials", "init", "-d", str(folder)]) == 0
    users = ("--aclfile", str(folder / "redis-users.acl"))
    job, page = key_of_kind("job"), key_of_kind("replica-page")
    async with RedisServer(directory=data, appendfsync="always", arguments=users) as server:
        async with client_of(server, folder, "jobs") as jobs:
            await jobs.hset(job, "alone", "1")
            await jobs.eval(TWO_KEYS, 2, job, page, "by a script")
            async with jobs.pipeline(transaction=True) as together:
                together.hset(job, "in a transaction", "1").hset(page, "in a transaction", "1")
                await together.execute()
        before = await rows_of(server, folder)
    assert len(before[job]) == 3
    async with RedisServer(directory=data, appendfsync="always", arguments=users) as server:
        assert await rows_of(server, folder) == before
        for given in ({}, {"username": "default", "password": ""}, {"password": "default"}):
            stranger = redis.asyncio.from_url(server.url, **given)
            with pytest.raises(redis.exceptions.ConnectionError):
                await stranger.hgetall(job)
            await stranger.connection_pool.disconnect()
            await stranger.aclose()


@pytest.mark.parametrize(
    ("rights", "is_well"), [("off ~* &* +@all", True), ("off", False), ("on nopass ~colo:* +@all", True)]
)
async def test_the_doctor_says_when_a_restart_would_lose_rows(tmp_path: Path, rights: str, is_well: bool) -> None:
    users, password = tmp_path / "users.acl", tmp_path / "password"
    password.write_text("word\n")
    users.write_text(f"user default {rights}\nuser admin on >word ~* &* +@all\n")
    async with RedisServer(appendfsync="always", arguments=("--aclfile", str(users))) as server:
        access = RedisAccess(url=server.url, user="admin", password_file=str(password))
        found = {check.name: check for check in await check_redis(access, min_replicas=0)}["redis-default-user"]
        assert found.ok == is_well
        assert is_well or found.means.endswith("user default off ~* &* +@all")
