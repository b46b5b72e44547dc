"""The values of colo-stack: names that the charts of NATS and Redis know, and configurations that their servers start with.

The charts themselves are fetched and not here. What they make of the values is what their own comments promise: NATS gets the
configuration as JSON with `merge` laid over it, a key `$include` an include, text between `<<` and `>>` without quotes; Redis gets
a line `KEY VALUE` for each key of `redis.config`, renamed commands, and the password of its default user.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import redis.asyncio
import yaml

from colo_cli.credentials_kubernetes import secrets_of
from colo_cli.credentials_store import NATS_FILE, REDIS_FILE, read_users
from colo_cli.main import main
from colo_cli.servers import RedisServer, find_nats_server
from colo_common.adapters.redis_check import store_weakness
from tests.repo.tree import ROOT

pytestmark = pytest.mark.server

VALUES: Final[dict[str, Any]] = yaml.safe_load((ROOT / "k8s" / "colo-stack" / "values.yaml").read_text())
KNOWN: Final[dict[str, Any]] = yaml.safe_load((ROOT / "tests" / "repo" / "stack_values.yaml").read_text())
#: What the chart of Redis sets by itself beside ours.
OF_THE_CHART: Final = {
    "min-replicas-max-lag": "5",
    "maxmemory": "0",
    "repl-diskless-sync": "yes",
    "rdbcompression": "yes",
}
DISABLED: Final = ("FLUSHDB", "FLUSHALL")


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """The Secrets of the servers, by what follows `colo-credentials-`."""
    folder = tmp_path_factory.mktemp("credentials") / "made"
    assert main(["admin", "credentials", "init", "-d", str(folder)]) == 0
    items = secrets_of(folder, read_users(folder), "colo-credentials", "colo", redis_ha=True)["items"]
    return {
        each["metadata"]["name"].removeprefix("colo-credentials-"): {
            key: base64.b64decode(text).decode() for key, text in each["data"].items()
        }
        for each in items
    }


def unknown(values: Any, known: Any, path: str) -> list[str]:
    """Names of the values that the chart does not have."""
    if known == "any" or not isinstance(values, dict):
        return []
    found = [f"{path}.{name}" for name in values if name not in known]
    for name in values.keys() & known.keys():
        found += unknown(values[name], known[name], f"{path}.{name}")
    return sorted(found)


def test_every_value_is_one_that_the_charts_know():
    assert [each for name, known in KNOWN.items() for each in unknown(VALUES[name], known, name)] == []
    assert unknown({"config": {"jetstream": {"fileStorage": 1}}}, KNOWN["nats"], "nats") == [
        "nats.config.jetstream.fileStorage"
    ]


def test_nats_takes_the_configuration_of_the_stack(tmp_path: Path, secrets: dict[str, dict[str, str]]):
    for folder in ("nats-config", "nats-credentials"):
        (tmp_path / folder).mkdir()
    (tmp_path / "nats-credentials" / NATS_FILE).write_text(secrets["nats"][NATS_FILE])
    config = VALUES["nats"]["config"]
    made = {
        "port": 4222,
        "jetstream": {"store_dir": str(tmp_path / "js"), **config["jetstream"]["merge"]},
        **config["merge"],
    }
    text = re.sub(r'"\$include": "(.*)",?', r"include \1;", json.dumps(made, indent=2, sort_keys=True))
    path = tmp_path / "nats-config" / "nats.conf"
    path.write_text(re.sub(r'"<<\s+(.*)\s+>>"', r"\1", text))
    done = subprocess.run(
        [find_nats_server(), "-t", "-c", path], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    # A typo in it would be found.
    path.write_text(path.read_text().replace("sync_interval", "sync_intervall"))
    bad = subprocess.run(
        [find_nats_server(), "-t", "-c", path], capture_output=True, text=True, check=False, timeout=60
    )
    assert bad.returncode != 0
    assert "sync_intervall" in bad.stderr


async def test_redis_takes_the_configuration_of_the_stack(tmp_path: Path, secrets: dict[str, dict[str, str]]):
    values = VALUES["redis-ha"]
    acl = tmp_path / REDIS_FILE
    acl.write_text(secrets["redis"][REDIS_FILE])
    password = secrets["redis"][values["authKey"]]
    config = OF_THE_CHART | values["redis"]["config"]
    assert Path(config["aclfile"]).name == REDIS_FILE
    lines = [f'rename-command {command} ""' for command in DISABLED]
    lines += [f"{key} {value}" for key, value in sorted((config | {"aclfile": str(acl)}).items())]
    path = tmp_path / "redis.conf"
    path.write_text("\n".join([*lines, f"requirepass {password}", f"masterauth {password}", ""]))
    async with RedisServer(arguments=("--include", str(path))) as server:
        async with redis.asyncio.from_url(server.url, password=password) as client:
            found = await client.config_get("*")
            assert {name: found[name] for name in values["redis"]["config"] if name not in ("aclfile", "save")} == {
                name: str(value) for name, value in values["redis"]["config"].items() if name not in ("aclfile", "save")
            }
            assert found["save"] == ""
            assert (
                store_weakness({**await client.info("memory"), **await client.info("persistence")}, must_append=True)
                == ""
            )
        async with redis.asyncio.from_url(server.url, password="wrong") as client:
            with pytest.raises(redis.exceptions.ConnectionError, match="invalid username-password pair"):
                await client.ping()
        user = secrets["jobs"]["redis-password"].strip()
        async with redis.asyncio.from_url(server.url, username="jobs", password=user) as client:
            assert await client.ping()
