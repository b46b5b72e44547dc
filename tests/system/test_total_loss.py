"""Streams made again and Redis emptied under living nodes: they tell by themselves what they are, and new work is placed soon."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from colo_common.events.enforcement import ReplicaEnded, ReplicaStarted
from colo_common.events.node import AllocatableChanged, NodeTopologyReported
from colo_common.events.restriction import RestrictionsChanged
from colo_common.model.placement import Attempt
from colo_scheduler.ledger.compare import read_rows
from tests.support.running import RunningColo, running_colo
from tests.support.servers import emptied
from tests.support.waiting import eventually
from tests.system.test_cli import colo_command

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="module")]

NODES: Final = 5
CONTROL: Final = ("overcommit", "jobs", "scheduler", "evictor", "gateway")
#: On the clock of everybody, so that nothing comes because an hour went by.
REAL_TIME: Final = {
    "COLO_CLOCK_SPEED": "1",
    "COLO_SIM_SAMPLE_MS": "1000",
    "COLO_OVERCOMMIT_STALE_AFTER_MS": "5000",
    "COLO_OVERCOMMIT_LOST_AFTER_MS": "40000",
    # One that loses its lease on a busy machine begins again with nothing, and no longer is one that lives.
    "COLO_JOBS_LEASE_TTL_MS": "0",
    "COLO_OVERCOMMIT_LEASE_TTL_MS": "0",
}
#: It takes some seconds on a quiet machine, and took the hour after which collectors repeat themselves.
LATEST_S: Final = 60.0
JOB: Final = {"replicas": 3, "cpu": "1", "memory": "64Mi", "work": "90000 cpu-s"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def colo(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningColo]:
    directory: Path = tmp_path_factory.mktemp("colo")
    async with running_colo(directory, nodes=NODES, environment=REAL_TIME) as running:
        yield running


async def reported(colo: RunningColo, kind: type[NodeTopologyReported] | type[AllocatableChanged], what: str) -> bool:
    return len({fact.node for fact in await colo.facts(kind, f"colo.v1.evt.node.*.{what}")}) == NODES


async def assert_all_is_known_and_a_job_runs(colo: RunningColo, name: str) -> None:
    job = await colo.submit({**JOB, "name": name})
    await colo.reaches(job, "Running", limit_s=LATEST_S)
    await eventually(lambda: reported(colo, NodeTopologyReported, "topology"), "topologies are told", limit_s=LATEST_S)
    await eventually(lambda: reported(colo, AllocatableChanged, "allocatable"), "numbers are told", limit_s=LATEST_S)


async def what_runs(colo: RunningColo) -> set[str]:
    """The replicas that nodes say to run, of all that the stream keeps."""
    return {fact.replica for fact in await colo.facts(ReplicaStarted, "colo.v1.evt.enforcement.*.started")}


async def holds(colo: RunningColo) -> dict[Attempt, tuple[str, int, int]]:
    """What the ledger holds: on which node, and how much CPU and memory of its zones."""
    async with colo.ledger() as ledger:
        rows = await read_rows(ledger)
    return {
        hold.attempt: (
            row.node,
            sum(share.cpu_mcpu for share in hold.placement.zones),
            sum(share.memory_bytes for share in hold.placement.zones),
        )
        for row in rows
        for hold in row.holds
    }


async def test_where_all_live_what_nodes_operators_and_numbers_said_is_on_the_bus_again(colo: RunningColo) -> None:
    running = await colo.submit({**JOB, "name": "before"})
    await colo.reaches(running, "Running", limit_s=LATEST_S)
    node = (await colo.get("/v1/nodes"))["nodes"][0]["node"]
    printed = await colo_command("cordon", node, "--reason", "looked at", api=colo.api)
    assert printed.code == 0, printed.err
    await emptied(colo.nats_url, colo.redis_url)
    await assert_all_is_known_and_a_job_runs(colo, "living")

    async def restricted() -> bool:
        facts = await colo.facts(RestrictionsChanged, "colo.v1.evt.policy.restrictions")
        return [each.target for fact in facts for each in fact.restrictions] == [node]

    async def reported_running() -> bool:
        return {f"{running}/main/{n}" for n in range(3)} <= await what_runs(colo)

    await eventually(restricted, "the table of restrictions is on the bus again", limit_s=LATEST_S)
    await eventually(reported_running, "nodes say again what runs", limit_s=LATEST_S)
    assert await colo.state(running) == "Running"
    assert (await colo_command("uncordon", node, api=colo.api)).code == 0


async def test_a_scheduler_that_begins_with_nothing_beside_jobs_that_lives_holds_what_runs_before_it_places_more(
    colo: RunningColo,
) -> None:
    job = await colo.submit({**JOB, "name": "held"})
    await colo.reaches(job, "Running", limit_s=LATEST_S)
    before = await holds(colo)
    assert {(f"{job}/main/{n}", 1) for n in range(3)} <= before.keys()
    await colo.kill("scheduler")
    await emptied(colo.nats_url, colo.redis_url)
    assert await holds(colo) == {}
    await colo.processes.heal()
    await colo.processes.wait_ready(["scheduler"])
    assert await holds(colo) == before
    await assert_all_is_known_and_a_job_runs(colo, "beside")
    assert before.items() < (await holds(colo)).items()
    assert {job["state"] for job in (await colo.get("/v1/jobs"))["jobs"]} == {"Running"}


async def test_services_that_begin_with_nothing_learn_the_nodes_and_have_what_nobody_knows_stopped(
    colo: RunningColo,
) -> None:
    for name in CONTROL:
        await colo.kill(name)
    await emptied(colo.nats_url, colo.redis_url)
    await colo.processes.heal()
    await colo.processes.wait_ready(list(CONTROL))
    await assert_all_is_known_and_a_job_runs(colo, "begun-again")

    async def leftovers_ended() -> bool:
        ended = {fact.job for fact in await colo.facts(ReplicaEnded, "colo.v1.evt.enforcement.*.ended")}
        return {job.rpartition("-")[0] for job in ended} == {"before", "living", "held", "beside"}

    await eventually(leftovers_ended, "what ran before, and nobody knows, is stopped", limit_s=LATEST_S)
    assert len((await colo.get("/v1/jobs"))["jobs"]) == 1
