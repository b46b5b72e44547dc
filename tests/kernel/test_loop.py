"""The whole loop around a real kernel: collector and executor in the machine, everything else of colo on the host."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from colo_cli.lab_processes import LabProcesses
from tests.kernel.node_story import NODE, REPLICAS
from tests.support.waiting import eventually

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

SERVICES: Final = ("overcommit", "jobs", "scheduler", "evictor", "gateway")
JOB: Final = {
    "name": "spin",
    "tasks": [
        {
            "name": "main",
            "replicas": REPLICAS,
            "cpu": "1",
            "memory": "64Mi",
            "command": ["sh", "-c", "while :; do :; done"],
        }
    ],
}


class Outside:
    """Everything that is not on the node: what the story asks for is done here."""

    def __init__(self, processes: LabProcesses, http: aiohttp.ClientSession) -> None:
        self._processes = processes
        self._http = http
        self.job = ""

    async def do(self, wish: str) -> None:
        """One wish of the story."""
        match wish:
            case "batch":
                self.job = await self._submit()
            case "outage":
                await self._kill()
            case "return":
                await self.start()
                assert await self.state() == "Running"
            case "end":
                await self._call("DELETE", f"/v1/jobs/{self.job}")
            case _:
                pytest.fail(f"the story wants {wish!r}")

    async def start(self) -> None:
        """Every service, ready."""
        for name in SERVICES:
            await self._processes.start(name, f"colo_{name}")
        await self._processes.wait_ready(list(SERVICES))

    async def state(self) -> str:
        """The job's state."""
        return str((await self._call("GET", f"/v1/jobs/{self.job}"))["summary"]["state"])

    async def _submit(self) -> str:
        async def is_promised() -> bool:
            nodes = (await self._call("GET", "/v1/nodes"))["nodes"]
            return any(node["node"] == NODE and node["batch_cpu_mcpu"] >= REPLICAS * 1_000 for node in nodes)

        await eventually(is_promised, "the node promises enough", limit_s=90)
        return str((await self._call("POST", "/v1/jobs", JOB))["job"])

    async def _kill(self) -> None:
        """All at once, and without a word."""
        for name in SERVICES:
            self._processes.running[name].process.kill()
        for name in SERVICES:
            await self._processes.running[name].process.wait()

    async def _call(self, method: str, path: str, body: object = None) -> Any:
        address = self._processes.running["gateway"].address
        async with self._http.request(method, f"http://{address}{path}", json=body) as reply:
            assert reply.status < 300, f"{path}: {reply.status} {await reply.text()}"
            return await reply.json()


@contextlib.asynccontextmanager
async def outside(directory: Path, nats_url: str, redis_url: str) -> AsyncIterator[Outside]:
    processes = LabProcesses(
        directory,
        {"COLO_NATS_URL": nats_url, "COLO_REDIS_URL": redis_url, "COLO_HTTP_PORT": "0", "COLO_GATEWAY_HTTP_PORT": "0"},
    )
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as http:
            made = Outside(processes, http)
            await made.start()
            yield made
    finally:
        await processes.stop()


async def test_batch_gives_way_to_a_spike_and_to_a_silent_control_plane_and_comes_back(
    tmp_path: Path, nats_url: str, redis_url: str
) -> None:
    told: list[dict[str, Any]] = []
    async with outside(tmp_path, nats_url, redis_url) as world:
        lab = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.kernel.lab", "--timeout", "500", "--nats", nats_url.rpartition("/")[2]),
            *("python", "-m", "tests.kernel.node_story"),
            stdout=asyncio.subprocess.PIPE,
        )
        assert lab.stdout is not None
        try:
            async for line in lab.stdout:
                told.append(turn := _turn(line))
                if "ask" in turn:
                    await world.do(turn["ask"])
            assert await lab.wait() == 0, told[-20:]
        finally:
            if lab.returncode is None:
                lab.terminate()
                await lab.wait()
    phases = {turn["phase"]: turn for turn in told if "phase" in turn}
    _print_table(phases)
    assert list(phases) == ["alone", "with batch", "spike", "outage", "healed"]
    assert phases["with batch"]["batch_mcpu"] > 1_000
    assert phases["outage"]["ceiling_mcpu"] == 200
    # A fifth of a CPU is the floor; an emulated kernel stops what runs late.
    assert phases["outage"]["batch_mcpu"] < phases["with batch"]["batch_mcpu"] / 2
    assert phases["healed"]["batch_mcpu"] > phases["outage"]["batch_mcpu"] * 2
    assert {"same_processes": True} in told
    assert {"exits": [0, 0]} in told
    assert {"left": []} in told


def _turn(line: bytes) -> dict[str, Any]:
    """A line of the story; anything else that the machine says is kept as it is, for the one who reads the failure."""
    with contextlib.suppress(ValueError):
        turn = json.loads(line)
        if isinstance(turn, dict):
            return turn
    return {"said": line.decode(errors="replace").rstrip()}


def _print_table(phases: dict[str, dict[str, Any]]) -> None:
    alone = phases["alone"]
    lines = [f"{'phase':<12} {'p50 us':>8} {'p99 us':>8} {'p50 to alone':>12} {'batch mcpu':>10} {'ceiling mcpu':>12}"]
    for name, turn in phases.items():
        ratio = turn["p50_us"] / max(1, alone["p50_us"])
        cells = [turn.get(key, "-") for key in ("batch_mcpu", "ceiling_mcpu")]
        lines.append(f"{name:<12} {turn['p50_us']:>8} {turn['p99_us']:>8} {ratio:>12.2f} {cells[0]:>10} {cells[1]:>12}")
    sys.stdout.write("\n" + "\n".join(lines) + "\n")
