"""A whole service process as an operator meets it: start, pages, servers that go and come, SIGTERM, and its exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from colo_cli.lab_processes import LabProcesses
from colo_cli.servers import NatsServer
from colo_common.adapters.bus_nats import NatsBus
from colo_common.events.requests import GetJob, Refusal
from colo_common.ports import Unavailable
from colo_common.runtime.ask import ask
from tests.support.ports import free_ports
from tests.support.servers import made_streams
from tests.support.waiting import LIMIT_S, eventually

# A service that answers one question and crashes when it is asked for the job "defect".
PROGRAM = """
import sys
from msgspec import Struct
from colo_common.events.effects import RequestReceived, Reply
from colo_common.events.requests import GetJob, Refusal
from colo_common.model.invalid import InvariantBroken
from colo_common.runtime.process import run
from colo_common.runtime.service import Service
from colo_common.runtime.settings import Common

class Settings(Struct, frozen=True, kw_only=True):
    common: Common = Common()
    queue_limit: int = 5

class Core:
    def handle(self, event, now_ms):
        if event.body.job == "defect":
            raise InvariantBroken("as asked for")
        return [Reply(request=event.request, body=Refusal(code=404, field="job", rule="is not known"))]
    def deadline_ms(self):
        return None
    def check(self):
        pass

async def build(process, settings):
    process.add(Service(name="jobs", core=Core(), bus=process.bus, store=process.store, clock=process.clock, subscriptions=[],
                        answers=[GetJob], metrics=process.metrics))

sys.exit(run("jobs", Settings, build))
"""


class Running:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self.port = 0

    async def until(self, event: str) -> dict[str, Any]:
        """Read log lines until this event."""
        assert self.process.stderr is not None
        async with asyncio.timeout(LIMIT_S):
            while line := await self.process.stderr.readline():
                self.lines.append(json.loads(line))
                if self.lines[-1]["event"] == event:
                    return self.lines[-1]
        raise AssertionError(f"{event} never came, only {[each['event'] for each in self.lines]}")

    async def ready(self) -> None:
        """Wait until /readyz says so."""

        async def is_ready() -> bool:
            return (await self.page("/readyz"))[0] == 200

        await eventually(is_ready, "the process is ready", limit_s=LIMIT_S)

    async def page(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{self.port}{path}") as answer:
            return answer.status, await answer.text()


@asynccontextmanager
async def started(*flags: str, **environ: str) -> AsyncIterator[Running]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, *flags, env={**os.environ, **environ}, stderr=asyncio.subprocess.PIPE
    )
    running = Running(process)
    try:
        running.port = (await running.until("http-listening"))["port"]
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def refused(*flags: str, **environ: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, *flags, env={**os.environ, **environ}, stderr=asyncio.subprocess.PIPE
    )
    _out, error = await asyncio.wait_for(process.communicate(), LIMIT_S)
    assert process.returncode is not None
    return process.returncode, error.decode()


async def test_a_process_serves_tells_of_itself_and_leaves_on_sigterm(nats_url: str, redis_url: str) -> None:
    async with started(COLO_NATS_URL=nats_url, COLO_JOBS_REDIS_URL=redis_url) as running:
        await running.ready()
        bus = NatsBus(nats_url, name="contract")
        bus.start()
        await bus.connected(LIMIT_S)
        # Ready means that the first question finds it.
        assert await ask(bus, GetJob(job="a")) == Refusal(code=404, field="job", rule="is not known")
        await bus.close()
        assert await running.page("/livez") == (200, "ok\n")
        assert await running.page("/healthz") == (200, "ok\n")
        assert await running.page("/readyz") == (200, "ok\n")
        assert await running.page("/readyz?verbose") == (
            200,
            "[+]jobs ok\n[+]nats ok\n[+]redis ok\nreadyz check passed\n",
        )
        status, text = await running.page("/metrics")
        assert status == 200
        for name in (
            "colo_build_info",
            "colo_jobs_events_handled_total",
            "colo_loop_lag_seconds",
            "colo_jobs_inbox_items",
        ):
            assert name in text
        running.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(running.process.wait(), LIMIT_S) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels have no such policy")
async def test_only_what_must_act_at_once_interrupts_others(nats_url: str, redis_url: str, tmp_path: Path) -> None:
    policies = dict.fromkeys(("jobs", "overcommit", "scheduler", "gateway"), os.SCHED_BATCH) | {
        "evictor": os.SCHED_OTHER
    }
    environ = {
        "COLO_NATS_URL": nats_url,
        "COLO_REDIS_URL": redis_url,
        "COLO_HTTP_PORT": "0",
        "COLO_GATEWAY_HTTP_PORT": "0",
    }
    processes = LabProcesses(tmp_path, environ)
    try:
        # The gateway is not ready without the others.
        for service in policies:
            await processes.start(service, f"colo_{service}")
        await processes.wait_ready(list(policies))
        found = {service: os.sched_getscheduler(processes.running[service].process.pid) for service in policies}
        assert found == policies
    finally:
        await processes.stop()


async def test_a_defect_ends_the_process_with_code_one_and_a_line(nats_url: str, redis_url: str) -> None:
    async with started(COLO_NATS_URL=nats_url, COLO_REDIS_URL=redis_url) as running:
        await running.ready()
        bus = NatsBus(nats_url, name="contract")
        bus.start()
        await bus.connected(LIMIT_S)
        with pytest.raises(Unavailable):
            await ask(bus, GetJob(job="defect"))
        await bus.close()
        crash = await running.until("service-crashed")
        assert crash["error"] == "InvariantBroken: as asked for"
        assert await asyncio.wait_for(running.process.wait(), LIMIT_S) == 1


async def test_a_process_that_starts_before_nats_is_alive_says_why_it_is_not_ready_and_heals(
    redis_url: str, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    first = NatsServer(directory=tmp_path, port=port)
    await first.start()
    url = first.url
    await made_streams(url)
    await first.stop()
    async with started(COLO_NATS_URL=url, COLO_REDIS_URL=redis_url) as running:
        assert (await running.page("/livez"))[0] == 200
        status, text = await running.page("/readyz?verbose")
        assert status == 503
        assert "[-]nats failed: " in text
        assert text.endswith("readyz check failed\n")
        second = NatsServer(directory=tmp_path, port=port)
        await second.start()
        try:
            await running.ready()
            running.process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(running.process.wait(), LIMIT_S) == 0
        finally:
            await second.stop()


async def test_bad_settings_are_all_named_and_the_code_is_two() -> None:
    status, text = await refused("--queue-limit", "many", "--no-such", COLO_HTTP_PORT="x")
    assert status == 2
    assert text.splitlines() == [
        "colo jobs: --no-such: there is no such setting",
        'COLO_HTTP_PORT: Expected `int`, got `str` (got "x")',
        '--queue-limit: Expected `int`, got `str` (got "many")',
    ]


async def test_a_taken_port_is_named_and_the_code_is_two(nats_url: str, redis_url: str) -> None:
    taken = nats_url.rpartition(":")[2]
    status, text = await refused("--http-port", taken, COLO_NATS_URL=nats_url, COLO_REDIS_URL=redis_url)
    assert status == 2
    assert "http_port: must be a port this program may listen on" in text


@pytest.mark.parametrize(
    ("flag", "value", "field"),
    [
        ("--redis-url", "http://x", "redis_url"),
        ("--clock-speed", "0", "clock_speed"),
        ("--otlp-endpoint", "x", "otlp_endpoint"),
    ],
)
async def test_an_impossible_value_is_named_and_the_code_is_two(
    nats_url: str, flag: str, value: str, field: str
) -> None:
    status, text = await refused(flag, value, COLO_NATS_URL=nats_url)
    assert status == 2
    assert field in text
