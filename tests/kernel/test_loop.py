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
from tests.kernel.lab.boots import FROZEN, TIMED_OUT
from tests.kernel.lab.frozen import SILENCE_S, STALL_S
from tests.kernel.node_story import NODE, REPLICAS
from tests.support.servers import nats_server, redis_server
from tests.support.waiting import eventually

pytestmark = [pytest.mark.lab, pytest.mark.server, pytest.mark.enable_socket, pytest.mark.timeout(1_000)]

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


P50_RATIO_MOST: Final = 3.0
P90_RATIO_MOST: Final = 6.0
REACTION_MS_MOST: Final = 10_000
WRITTEN_SHARE_LEAST: Final = 0.8

TOGETHER_S: Final = 700
_BROKEN: Final = {FROZEN: "the emulator broke the machine: it froze", TIMED_OUT: "the emulated machine was too slow"}
NOTICED_S: Final = STALL_S + SILENCE_S + 15


class MachineFroze(Exception):
    """The emulator broke the machine in the middle of the story, or was too slow for it: nothing of colo is at fault.

    Each step of the story has a limit of its own, much shorter than that of the whole: a step that never comes is a failure.
    """


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

        await eventually(is_promised, "the node promises enough", limit_s=120)
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
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as http:
            made = Outside(processes, http)
            await made.start()
            yield made
    finally:
        await processes.stop()


async def test_batch_low_priority_to_a_spike_and_to_a_silent_control_plane_and_comes_back(tmp_path: Path) -> None:
    try:
        delivered = await _published(tmp_path)
    except MachineFroze as froze:
        pytest.skip(f"{froze}; nothing is judged")
    phases = {turn["phase"]: turn for turn in delivered if "phase" in turn}
    _print_table(phases)
    assert list(phases) == ["alone", "with batch", "beside", "spike", "outage", "healed"]
    assert phases["with batch"]["batch_mcpu"] > 1_000
    assert phases["outage"]["ceiling_mcpu"] == 200
    # A fifth of a CPU is the floor; an emulated kernel stops what runs late.
    assert phases["outage"]["batch_mcpu"] < phases["with batch"]["batch_mcpu"] / 2
    # Both replicas are without a limit, so nothing but the ceiling may hold them.
    assert phases["healed"]["batch_mcpu"] > 1_000
    _check_harm(phases)
    _check_reaction(phases["spike"], next(turn["ceilings"] for turn in delivered if "ceilings" in turn))
    assert {"same_processes": True} in delivered
    assert {"exits": [0, 0]} in delivered
    assert {"left": []} in delivered


def _check_harm(phases: dict[str, dict[str, Any]]) -> None:
    """Emulated CPUs share real ones, so batch work slows the probe on others down, too. A real kernel is held to less.

    The slowest one in a hundred is printed and not judged: it is the host's, which stops the emulator for a while.
    """
    sibling = phases["beside"]
    assert sibling["p50_us"] <= sibling["alone_p50_us"] * P50_RATIO_MOST
    assert sibling["p90_us"] <= sibling["alone_p90_us"] * P90_RATIO_MOST


def _check_reaction(spike: dict[str, Any], within: dict[str, float]) -> None:
    """Budgets of an emulated machine: of a real one they are in tests/system/test_reflex_budget.py."""
    assert spike["reaction_ms"] <= spike["loops_ms"] + REACTION_MS_MOST
    assert within["+Inf"] > 0
    assert within["1.0"] >= within["+Inf"] * WRITTEN_SHARE_LEAST


@pytest.mark.parametrize(
    ("machine", "outside", "noticed_s", "expected"),
    [
        ("exit 0", "follows", 120.0, 0),
        ("exit 7", "follows", 120.0, 7),
        ("exit 123", "waits", 120.0, MachineFroze),
        ("sleep 0.5; exit 123", "fails", 120.0, MachineFroze),
        ("sleep 0.5; exit 7", "fails", 120.0, AssertionError),
        ("exec sleep 600", "fails", 0.5, AssertionError),
    ],
    ids=[
        "well",
        "failed",
        "froze",
        "froze, as outside noticed first",
        "failed, and so did outside",
        "only outside failed",
    ],
)
async def test_only_a_machine_that_froze_is_told_apart(
    monkeypatch: pytest.MonkeyPatch, machine: str, outside: str, noticed_s: float, expected: int | type[Exception]
) -> None:
    monkeypatch.setitem(globals(), "NOTICED_S", noticed_s)
    lab = await asyncio.create_subprocess_exec("sh", "-c", machine)

    async def follow() -> None:
        if outside == "waits":
            await asyncio.Event().wait()
        assert outside == "follows", "the job is not Running"

    try:
        if isinstance(expected, int):
            assert await _status(lab, asyncio.create_task(follow())) == expected
        else:
            with pytest.raises(expected):
                await _status(lab, asyncio.create_task(follow()))
    finally:
        with contextlib.suppress(ProcessLookupError):
            lab.kill()
        await lab.wait()


async def _published(directory: Path) -> list[dict[str, Any]]:
    """What the story tells, with servers and services of its own. Raises MachineFroze."""
    delivered: list[dict[str, Any]] = []
    with nats_server() as nats, redis_server() as redis:
        async with outside(directory, nats.url, redis.url) as world:
            lab = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.kernel.lab", "--timeout", str(TOGETHER_S)),
                *("--nats", nats.url.rpartition("/")[2], "python", "-m", "tests.kernel.node_story"),
                stdout=asyncio.subprocess.PIPE,
            )
            try:
                status = await _status(lab, asyncio.create_task(_follow(lab, world, delivered)))
            finally:
                if lab.returncode is None:
                    lab.terminate()
                    await lab.wait()
            # Whole lines: what a shortened list leaves out is what went wrong.
            assert status == 0, "\n".join(str(turn.get("said", turn)) for turn in delivered[-60:])
    return delivered


async def _follow(lab: asyncio.subprocess.Process, world: Outside, delivered: list[dict[str, Any]]) -> None:
    """Keep each turn of the story, and do what it wants."""
    assert lab.stdout is not None
    async for line in lab.stdout:
        delivered.append(turn := _turn(line))
        if "ask" in turn:
            await world.do(turn["ask"])


async def _status(lab: asyncio.subprocess.Process, following: asyncio.Task[None]) -> int:
    """The lab's status when the story is over. Raises MachineFroze, or what went wrong outside for no such reason."""
    ended = asyncio.create_task(lab.wait())
    try:
        await asyncio.wait((following, ended), return_when=asyncio.FIRST_COMPLETED)
        if following.done() and following.exception() is not None:
            # A node that says nothing is noticed outside before the lab can be sure that it froze.
            await asyncio.wait((ended,), timeout=NOTICED_S)
        elif following.done():
            await ended
        if ended.done() and ended.result() in _BROKEN:
            raise MachineFroze(_BROKEN[ended.result()])
        await following
        return await ended
    finally:
        for task in (following, ended):
            task.cancel()
        await asyncio.gather(following, ended, return_exceptions=True)


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
        ratio = turn["p50_us"] / max(1, turn.get("alone_p50_us", alone["p50_us"]))
        cells = [turn.get(key, "-") for key in ("batch_mcpu", "ceiling_mcpu")]
        lines.append(f"{name:<12} {turn['p50_us']:>8} {turn['p99_us']:>8} {ratio:>12.2f} {cells[0]:>10} {cells[1]:>12}")
    spike, sibling = phases["spike"], phases["beside"]
    lines.append(f"probe's p99 beside batch work and without it: {sibling['p99_us']} and {sibling['alone_p99_us']} us")
    lines.append(
        f"spike: all loops ran after {spike['loops_ms']} ms, the ceiling was halved after {spike['reaction_ms']} ms"
    )
    sys.stdout.write("\n" + "\n".join(lines) + "\n")
