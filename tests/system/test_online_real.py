"""Online work from a job file to the kernel of this machine: what is placed is held. Needs root, and leaves nothing behind."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from colo_cli.lab_processes import LabProcesses
from colo_common.events.enforcement import AttachedGroupsChanged, PlacementRefused, ReplicaEnded, ReplicaStarted
from colo_common.events.placement import PlacementsDecided
from colo_common.model.cpuset import CpuSet
from colo_common.model.placement import Placement, replica_token
from colo_executor.cgroup import CgroupTree
from colo_executor.knob_table import Knob
from colo_executor.process.machine import online_cpus
from tests.support.lab import groups_of
from tests.support.other_service import other_service
from tests.support.running import RunningColo
from tests.support.servers import nats_server, redis_server
from tests.support.waiting import eventually

ALL = online_cpus("/sys")
pytestmark = [
    pytest.mark.kernel,
    pytest.mark.server,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(len(ALL) < 2, reason="two CPUs are needed"),
]

ROOT = "/sys/fs/cgroup"
NODE = "this-machine"
SUBTREE = f"colo-whole-{os.getpid()}"
OTHERS = f"others-whole-{os.getpid()}"
SERVICES = ("overcommit", "jobs", "scheduler", "gateway", "collector", "executor")
BATCH = "batch"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def colo(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningColo]:
    """Every service that online work needs, with this machine as the only node."""
    directory = tmp_path_factory.mktemp("colo")
    with nats_server() as nats_, redis_server() as redis_:
        environment = {
            "COLO_NATS_URL": nats_.url,
            "COLO_REDIS_URL": redis_.url,
            "COLO_HTTP_PORT": "0",
            "COLO_NODE": NODE,
            "COLO_COLLECTOR_SUBTREE": SUBTREE,
            "COLO_EXECUTOR_PROCESS_SUBTREE": SUBTREE,
            "COLO_EXECUTOR_PROCESS_STATE_DIR": str(directory / "state"),
            "COLO_EXECUTOR_PROCESS_USERS": "default=root",
            "COLO_EXECUTOR_ON_EXIT": "restore",
            "COLO_EXECUTOR_PROCESS_ATTACH": f"{OTHERS}/*",
            # However busy others keep this machine: the work of this test sleeps.
            "COLO_SCHEDULER_POLICY_LOAD_PROD_CPU_PCT": "0",
            "COLO_SCHEDULER_POLICY_LOAD_PROD_MEMORY_PCT": "0",
        }
        processes = LabProcesses(directory, environment)
        try:
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as http:
                for name in SERVICES:
                    await processes.start(name, f"colo_{name}")
                await processes.wait_ready(list(SERVICES))
                yield RunningColo(processes, http, nats_url=nats_.url, redis_url=redis_.url, directory=directory)
        finally:
            await processes.stop()
    assert groups_of(SUBTREE) + groups_of(f"{SUBTREE}-online") == []


def a_job(qos: str, until: Path) -> dict[str, Any]:
    """Ends well as soon as the file is there."""
    script = f"while [ ! -e {until} ]; do sleep 0.1; done"
    return {"name": f"own-{qos.lower()}", "qos": qos, "cpu": "1", "memory": "64Mi", "command": ["sh", "-c", script]}


async def placed(colo: RunningColo, job: str) -> Placement:
    """The place of the job's only replica, once it runs."""
    await colo.reaches(job, "Running")
    facts = await colo.facts(PlacementsDecided, "colo.v1.evt.placement.decided")
    (placement,) = [placement for fact in facts for placement in fact.placements if placement.job == job]

    async def started() -> list[ReplicaStarted]:
        facts = await colo.facts(ReplicaStarted, "colo.v1.evt.enforcement.*.started")
        return [fact for fact in facts if fact.job == job]

    delivered = (await eventually(started, "it runs"))[0]
    for knob in delivered.knobs:
        assert Path(ROOT, knob.path).read_text().strip() == knob.value
    return placement


def allowed(pid: int) -> CpuSet:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return CpuSet.parse(next(line for line in lines if line.startswith("Cpus_allowed_list:")).split()[1])


def own_group(placement: Placement) -> str:
    return f"{placement.qos.value.lower()}.{replica_token(placement.replica, placement.attempt)}"


async def test_own_cpus_are_the_kernels_and_batch_work_keeps_off_those_of_lse(colo: RunningColo) -> None:
    tree, own = CgroupTree(ROOT, SUBTREE), CgroupTree(ROOT, f"{SUBTREE}-online")

    def pool() -> CpuSet:
        return CpuSet.parse(tree.value(Knob.CPUSET_CPUS, BATCH))

    assert pool() == ALL
    ends = {qos: colo.directory / f"end-{qos}" for qos in ("LSR", "LSE")}
    jobs, cpus = {}, {}
    for qos, until in ends.items():
        jobs[qos] = await colo.submit(a_job(qos, until))
        placement = await placed(colo, jobs[qos])
        cpus[qos] = CpuSet.parse(placement.cpus)
        assert (placement.node, len(cpus[qos])) == (NODE, 1)
        group = own_group(placement)
        assert CpuSet.parse(own.value(Knob.CPUSET_CPUS, group)) == cpus[qos]
        pids = own.pids(group)
        assert pids
        assert {allowed(pid) for pid in pids} == {cpus[qos]}
        # LSR shares with batch work, LSE with nobody.
        assert pool() == (ALL if qos == "LSR" else ALL - cpus["LSE"])
    assert not cpus["LSE"] & cpus["LSR"]

    for qos in ("LSE", "LSR"):
        ends[qos].touch()
        assert await colo.reaches(jobs[qos], "Completed", "Failed") == "Completed"
        # The group is gone before the end is told.
        assert pool() == ALL
    ended = await colo.facts(ReplicaEnded, "colo.v1.evt.enforcement.*.ended")
    assert {(fact.job, fact.exit_code) for fact in ended} == {(job, 0) for job in jobs.values()}
    assert own.children("") == ()

    async def released() -> bool:
        async with colo.ledger() as ledger:
            rows = await ledger.rows(sorted(await ledger.changes()))
        return not any(row.holds for row in rows)

    await eventually(released, "nothing is held")


async def test_a_service_that_runs_already_is_measured_as_a_replica_and_let_go(colo: RunningColo) -> None:
    with other_service(OTHERS) as service:
        process, before = service.start(), service.values()
        job = await colo.submit(
            {"name": "shop", "qos": "LS", "cpu": "1500m", "memory": "64Mi", "attach": {"cgroup": service.path}}
        )
        await colo.reaches(job, "Running")
        replica = f"{job}/main/0"
        assert service.tree.read(Knob.CPU_WEIGHT, "web") >= 1_500

        async def measured() -> list[Any]:
            workloads = (await colo.get(f"/v1/nodes/{NODE}"))["node"]["workloads"]
            return [one for one in workloads if one.get("replica") == replica]

        (shown,) = await eventually(measured, "the collector measures the group as the replica")
        assert (shown["workload"], shown["qos"]) == (f"{replica}#1", "LS")
        attached = (await colo.facts(AttachedGroupsChanged, "colo.v1.evt.enforcement.*.attached"))[-1]
        assert [(each.replica, each.group) for each in attached.groups] == [(replica, service.path)]
        # A job that asks for the same group is refused by the node, and waits.
        twin = await colo.submit(
            {"name": "twin", "qos": "LS", "cpu": "100m", "memory": "64Mi", "attach": {"cgroup": service.path}}
        )

        async def refused() -> list[PlacementRefused]:
            facts = await colo.facts(PlacementRefused, "colo.v1.evt.enforcement.*.refused")
            return [fact for fact in facts if fact.job == twin]

        assert "is attached already" in (await eventually(refused, "the node refuses the twin"))[0].detail
        for each in (twin, job):
            assert (await colo.call("DELETE", f"/v1/jobs/{each}")).status == 200
            await colo.reaches(each, "Terminated")
        assert service.values() == before
        assert process.poll() is None, "it runs on"

        async def let_go() -> bool:
            facts = await colo.facts(AttachedGroupsChanged, "colo.v1.evt.enforcement.*.attached")
            return facts[-1].groups == ()

        await eventually(let_go, "the collector is told")
