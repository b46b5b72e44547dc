"""The control plane over real servers, killed in the middle: nothing is lost and nothing is placed twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import redis.asyncio

from colo_common.events.enforcement import ReplicaEnded, ReplicaStarted
from colo_common.events.placement import PlacementsDecided
from colo_common.events.service import DeadLettered
from tests.support.running import FINAL, RunningColo, running_colo
from tests.support.waiting import eventually

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="module")]

CLUSTER = ("jobs", "scheduler", "overcommit", "evictor", "gateway")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def colo(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningColo]:
    directory: Path = tmp_path_factory.mktemp("colo")
    async with running_colo(directory) as running:
        yield running


REPLICAS = 6
WAVE = 12


def a_job(name: str) -> dict[str, Any]:
    """A third of a second of work on the wall, so that kills fall into every part of a replica's life.

    A wave of these wants more CPU than the nodes have: some run, the others wait and were acknowledged long ago.
    """
    return {
        "name": name,
        "replicas": REPLICAS,
        "cpu": "4",
        "memory": "64Mi",
        "work": "80 cpu-s",
        "max_retry": 2,
    }


class Wave:
    """Jobs handed in one after the other by three callers at once. `jobs` grows with each that was accepted."""

    def __init__(self, colo: RunningColo, name: str, *, is_keyed: bool = False) -> None:
        self.jobs: list[str] = []
        self._colo = colo
        self._names = iter([f"{name}-{n}" for n in range(WAVE)])
        self._is_keyed = is_keyed

    async def __aenter__(self) -> Wave:
        self._callers = [asyncio.create_task(self._call()) for _ in range(3)]
        return self

    async def __aexit__(self, *failed: object) -> None:
        await asyncio.gather(*self._callers)

    async def half(self) -> None:
        """Half of them are accepted, and the callers go on."""

        async def reached() -> bool:
            return len(self.jobs) >= WAVE // 2 or any(caller.done() for caller in self._callers)

        await eventually(reached, "half of the wave is accepted")

    async def _call(self) -> None:
        for name in self._names:
            self.jobs.append(await self._colo.submit(a_job(name), key=name if self._is_keyed else ""))


async def test_a_job_whose_placements_do_not_fit_into_one_message_runs_whole(colo: RunningColo) -> None:
    """All its places are decided at once: 1.8 MiB of facts, and 600 KiB of orders for each of the three nodes."""
    long = {**a_job("long-env"), "replicas": 30, "cpu": "200m", "work": "1 cpu-s", "env": {"LONG": "x" * (60 << 10)}}
    job = await colo.submit(long)
    assert await colo.reaches(job, *FINAL) == "Completed"
    summary = (await colo.get(f"/v1/jobs/{job}"))["summary"]
    assert summary["succeeded"] == summary["replicas"] == 30
    assert await colo.facts(DeadLettered, "colo.v1.evt.dead-letter.>") == []


async def test_a_scheduler_killed_in_the_middle_loses_nothing_and_places_nothing_twice(colo: RunningColo) -> None:
    jobs: list[str] = []
    for turn in range(3):
        async with Wave(colo, f"sched-{turn}") as wave:
            await wave.half()
            await colo.kill("scheduler")
        # Killed again at once where it is ready: with all that waited still to be placed.
        await colo.restart("scheduler")
        if turn == 1:
            await colo.kill("scheduler")
            await colo.restart("scheduler")
        jobs += wave.jobs
    await assert_all_done_once(colo, jobs)


async def test_jobs_killed_in_the_middle_loses_nothing_and_places_nothing_twice(colo: RunningColo) -> None:
    jobs: list[str] = []
    for turn in range(3):
        async with Wave(colo, f"jobs-{turn}", is_keyed=True) as wave:
            await wave.half()
            accepted = tuple(wave.jobs)
            await colo.kill("jobs")
            await colo.restart("jobs", wait=False)
        jobs += wave.jobs
        # What was accepted before the kill is the same job when it is submitted again.
        again = [await colo.submit(a_job(job[:-9]), key=job[:-9]) for job in accepted]
        assert again == list(accepted)
    await assert_all_done_once(colo, jobs)


async def test_all_services_of_the_cluster_killed_together_come_back(colo: RunningColo) -> None:
    async with Wave(colo, "all", is_keyed=True) as wave:
        await wave.half()
        for name in CLUSTER:
            await colo.kill(name)
        await colo.processes.heal()
        await colo.processes.wait_ready(list(CLUSTER))
    await assert_all_done_once(colo, wave.jobs)


async def test_a_store_emptied_while_no_scheduler_lives_gets_back_what_is_held_before_anything_is_placed(
    colo: RunningColo,
) -> None:
    long = {**a_job("long"), "work": "2400 cpu-s"}
    running = await colo.submit(long)
    await colo.reaches(running, "Running")
    async with Wave(colo, "emptied", is_keyed=True) as wave:
        await wave.half()
        await colo.kill("scheduler")
        held = await attempts_held(colo)
        client = redis.asyncio.Redis.from_url(colo.redis_url)
        await client.flushall()
        await client.aclose()
        await colo.restart("scheduler")
    kept = await attempts_held(colo)
    ended = {(fact.replica, fact.attempt) for fact in await colo.facts(ReplicaEnded, "colo.v1.evt.enforcement.*.ended")}
    assert {attempt for attempt in held if attempt[0].startswith(f"{running}/")}
    assert held <= kept | ended
    jobs = [running, *wave.jobs]
    await all_ended(colo, jobs)
    await assert_counts_agree(colo, jobs)
    await assert_started_where_placed(colo, await placed_once(colo, jobs))


async def attempts_held(colo: RunningColo) -> set[tuple[str, int]]:
    """All attempts that hold a place in the ledger."""
    async with colo.ledger() as ledger:
        return {hold.attempt for row in await ledger.rows(sorted(await ledger.changes())) for hold in row.holds}


async def assert_all_done_once(colo: RunningColo, jobs: list[str]) -> None:
    """Every job Completed; one node for each attempt in the stream, on the nodes and in the ledger, which is empty."""
    assert len(set(jobs)) == len(jobs)
    await all_ended(colo, jobs)
    await assert_counts_agree(colo, jobs)
    placed = await placed_once(colo, jobs)
    await assert_started_where_placed(colo, placed)
    await assert_ledger_is_empty(colo, placed)
    assert await colo.facts(DeadLettered, "colo.v1.evt.dead-letter.>") == []


async def all_ended(colo: RunningColo, jobs: list[str]) -> None:
    async def ended() -> bool:
        states = {job["job"]: job["state"] for job in (await colo.get("/v1/jobs?limit=1000"))["jobs"]}
        return all(states[job] in FINAL for job in jobs)

    await eventually(ended, f"{len(jobs)} jobs end")


async def assert_counts_agree(colo: RunningColo, jobs: list[str]) -> None:
    """The job's own page, the list and the queue tell the same."""
    listed = {job["job"]: job for job in (await colo.get("/v1/jobs?limit=1000"))["jobs"]}
    for job in jobs:
        detail = await colo.get(f"/v1/jobs/{job}")
        summary = detail["summary"]
        assert summary == listed[job]
        assert summary["state"] == "Completed", detail["story"]
        assert summary["succeeded"] == summary["replicas"] == len(detail["replicas"]) == REPLICAS
        assert summary["waiting"] == summary["running"] == summary["failed"] == summary["stopped"] == 0
        assert {(item["state"], item["exit_code"]) for item in detail["replicas"]} == {("Succeeded", 0)}
    queues = (await colo.get("/v1/queues"))["queues"]
    assert [(queue["waiting"], queue["running"]) for queue in queues] == [(0, 0)] * len(queues)


async def placed_once(colo: RunningColo, jobs: list[str]) -> dict[tuple[str, int], str]:
    """The node of each attempt, from the stream of decisions: every replica has one, no attempt has two."""
    nodes: dict[tuple[str, int], str] = {}
    for fact in await colo.facts(PlacementsDecided, "colo.v1.evt.placement.decided"):
        for placement in fact.placements:
            if placement.job in jobs:
                attempt = (placement.replica, placement.attempt)
                assert nodes.setdefault(attempt, placement.node) == placement.node, f"{attempt} was placed twice"
    assert {replica for replica, _ in nodes} == {f"{job}/main/{n}" for job in jobs for n in range(REPLICAS)}
    return nodes


async def assert_started_where_placed(colo: RunningColo, placed: dict[tuple[str, int], str]) -> None:
    """A node may say more than once that an attempt runs; no other node ever says so."""
    started: dict[tuple[str, int], set[str]] = {}
    for fact in await colo.facts(ReplicaStarted, "colo.v1.evt.enforcement.*.started"):
        started.setdefault((fact.replica, fact.attempt), set()).add(fact.node)
    assert {attempt: started.get(attempt) for attempt in placed} == {a: {node} for a, node in placed.items()}


async def assert_ledger_is_empty(colo: RunningColo, placed: dict[tuple[str, int], str]) -> None:
    """Nothing is held, and what the ledger remembers of each replica's last attempt is what the stream told."""
    last: dict[str, tuple[int, str]] = {}
    for (replica, attempt), node in placed.items():
        last[replica] = max(last.get(replica, (0, "")), (attempt, node))
    async with colo.ledger() as ledger:

        async def empty() -> bool:
            rows = await ledger.rows(sorted(await ledger.changes()))
            return not any(row.holds for row in rows)

        await eventually(empty, "the ledger is empty")
    client = redis.asyncio.from_url(colo.redis_url)
    try:
        assert await client.hlen("colo:v1:ledger:held") == 0
        for replica, (attempt, node) in last.items():
            assert await client.get(f"colo:v1:ledger:over:{replica}") == f"{attempt} {node}".encode()
    finally:
        await client.aclose()
