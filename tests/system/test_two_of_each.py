"""Two instances of every control service beside one another: one is killed, another stands still, and all work ends once."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.msg import Msg

from colo_common.events.enforcement import ReplicaEnded, ReplicaStarted
from colo_common.events.job import ReplicasChanged
from colo_common.events.node import AllocatableChanged, FreshnessChanged, NodeUsageSampled
from colo_common.events.wire import decode
from colo_common.model.freshness import Freshness
from colo_common.model.qos import PriorityBand
from tests.support.running import RunningColo, running_colo
from tests.support.waiting import eventually

pytestmark = [pytest.mark.server, pytest.mark.failover, pytest.mark.timeout(400)]

#: The services whose nodes two instances share; one instance of jobs serves while the other stands by.
SHARED = ("overcommit", "evictor")
PARTITIONS = 4
REPLICAS = 6
NODES = 6
#: A zone's use is a whole number, and so is each workload's part of it.
ROUNDED_MCPU = 16
FRESHNESS = "colo.v1.evt.freshness.*.changed"
#: Longer than a lease with its renewals. A loaded machine starts processes slowly.
LIMIT_S = 120.0


def a_job(name: str) -> dict[str, Any]:
    task = {
        "name": "main",
        "replicas": REPLICAS,
        "cpu": 0.2,
        "memory": "64Mi",
        "command": ["sleep", "60"],
        "work": "20 cpu-s",
    }
    return {"name": name, "tasks": [task]}


async def instances(colo: RunningColo, service: str) -> list[dict[str, Any]]:
    answer = await colo.call("GET", "/v1/services")
    if answer.status != 200:
        return []
    entry = next(entry for entry in answer.body["services"] if entry["service"] == service)
    found: list[dict[str, Any]] = entry["instances"]
    return found


async def holder(colo: RunningColo, service: str, *, of: int) -> int:
    """The process that holds all of the service's work, once so many instances answer and just one does; else 0."""
    found = await instances(colo, service)
    holding = [one["pid"] for one in found if one["held"]]
    return holding[0] if len(found) == of and len(holding) == 1 else 0


async def shares(colo: RunningColo, service: str) -> list[int]:
    """How many partitions each instance that answers holds, once all are held."""
    found = sorted(len(one["held"]) for one in await instances(colo, service))
    return found if sum(found) == (16 if service == "scheduler" else PARTITIONS) else []


async def all_fresh(colo: RunningColo) -> list[FreshnessChanged]:
    """Every change of freshness so far, once the last one of each node says that it is fresh."""
    found = await colo.facts(FreshnessChanged, FRESHNESS)
    newest = {fact.node: fact.freshness for fact in found}
    return found if list(newest.values()) == [Freshness.FRESH] * NODES else []


async def divided(colo: RunningColo, service: str, *expected: int) -> None:
    """Wait until the instances hold so many partitions each."""

    async def is_so() -> bool:
        return await shares(colo, service) == sorted(expected)

    await eventually(is_so, f"the instances of {service} hold {expected}", limit_s=LIMIT_S)


def name_of(colo: RunningColo, pid: int) -> str:
    return next(name for name, child in colo.processes.running.items() if child.process.pid == pid)


class Received:
    """What is published of each node, and what its online work used in each sample (mcpu), by node and number of the sample."""

    def __init__(self) -> None:
        self.numbers: dict[str, list[AllocatableChanged]] = {}
        self.online_mcpu: dict[tuple[str, int], int] = {}

    async def note(self, message: Msg) -> None:
        fact = decode(message.subject, message.data)
        if isinstance(fact, AllocatableChanged):
            self.numbers.setdefault(fact.node, []).append(fact)
        elif isinstance(fact, NodeUsageSampled):
            batch_mcpu = sum(one.cpu_used_mcpu for one in fact.workloads if one.band is PriorityBand.BATCH)
            self.online_mcpu[fact.node, fact.sample_seq] = fact.cpu_used_mcpu - batch_mcpu

    def left_mcpu(self, fact: AllocatableChanged) -> int:
        """What there is for batch work by this number and for online work by the sample that it names, together."""
        return fact.batch_cpu_mcpu + self.online_mcpu[fact.node, fact.sample_seq]


@asynccontextmanager
async def all_received(colo: RunningColo) -> AsyncIterator[Received]:
    """Listen from now on."""
    client = await nats.connect(colo.nats_url)
    received = Received()
    try:
        for subject in ("tlm.node.*.usage", "evt.node.*.allocatable"):
            await client.subscribe(f"colo.v1.{subject}", cb=received.note)
        await client.flush()
        yield received
    finally:
        await client.close()


async def each_replica_ran_once(colo: RunningColo, jobs: list[str]) -> None:
    """By the facts of the executors and of jobs."""
    replicas = {f"{job}/main/{index}" for job in jobs for index in range(REPLICAS)}
    ended = await colo.facts(ReplicaEnded, "colo.v1.evt.enforcement.*.ended")
    started = await colo.facts(ReplicaStarted, "colo.v1.evt.enforcement.*.started")
    assert {(fact.replica, fact.attempt) for fact in started} == {(replica, 1) for replica in replicas}
    assert {(fact.replica, fact.attempt) for fact in ended} == {(replica, 1) for replica in replicas}
    changes = Counter(
        (change.replica, change.attempt, change.state)
        for fact in await colo.facts(ReplicasChanged, "colo.v1.evt.replica.changed")
        for change in fact.changes
    )
    assert {replica for replica, _, state in changes if state == "Succeeded"} == replicas
    assert max(changes.values()) == 1, [key for key, count in changes.items() if count > 1]


async def test_all_work_ends_once_whatever_becomes_of_one_of_two(tmp_path: Path) -> None:
    environment = {f"COLO_{service.upper()}_PARTITIONS": str(PARTITIONS) for service in SHARED}
    # A minute of silence, since a busy machine may hold the samples up; an hour is a minute of the lab's clock.
    environment |= {"COLO_OVERCOMMIT_STALE_AFTER_MS": "3600000", "COLO_OVERCOMMIT_LOST_AFTER_MS": "7200000"}
    async with AsyncExitStack() as stack:
        colo = await stack.enter_async_context(running_colo(tmp_path, nodes=NODES, environment=environment))
        for service in ("jobs", *SHARED, "scheduler", "gateway"):
            await colo.processes.start(f"{service}-2", f"colo_{service}")
        holds_jobs = await eventually(lambda: holder(colo, "jobs", of=2), "one holds the jobs", limit_s=LIMIT_S)
        for service in SHARED:
            await divided(colo, service, 2, 2)
        await divided(colo, "scheduler", 8, 8)
        warmed = await eventually(lambda: all_fresh(colo), "every node is fresh", limit_s=LIMIT_S)
        received = await stack.enter_async_context(all_received(colo))
        jobs = [await colo.submit(a_job("before"), key="before")]

        # One of those that share is killed; the holder of jobs and one of the schedulers stand still.
        for service in SHARED:
            await colo.kill(service)
        frozen = colo.process(name_of(colo, holds_jobs)).process
        frozen_scheduler = colo.process("scheduler-2").process
        for process in (frozen, frozen_scheduler):
            process.send_signal(signal.SIGSTOP)
        try:
            jobs.append(await colo.submit(a_job("meanwhile"), key="meanwhile"))
            assert await eventually(lambda: holder(colo, "jobs", of=1), "jobs moved", limit_s=LIMIT_S) != holds_jobs
            for service in SHARED:
                await divided(colo, service, PARTITIONS)
                # As one that is restarted: it takes its share from the one that has everything.
                await colo.processes.start(f"{service}-3", f"colo_{service}")
                await divided(colo, service, 2, 2)
            await colo.reaches(jobs[1], "Completed", limit_s=LIMIT_S)
        finally:
            for process in (frozen, frozen_scheduler):
                process.send_signal(signal.SIGCONT)

        # What stood still stands by again, and changes nothing.
        async def stands_by() -> bool:
            found = await instances(colo, "jobs")
            return sorted((one["pid"] == frozen.pid, len(one["held"])) for one in found) == [(False, 1), (True, 0)]

        await eventually(stands_by, "the one that stood still stands by", limit_s=LIMIT_S)
        # The present holder leaves, as in a rolling update.
        leaving = colo.process("jobs-2" if frozen is colo.process("jobs").process else "jobs").process
        leaving.terminate()
        jobs.append(await colo.submit(a_job("after"), key="after"))
        assert await leaving.wait() == 0
        # The job may have been the last one that the leaving instance took: the other one asks for the lease at its next renewal.
        assert await eventually(lambda: holder(colo, "jobs", of=1), "one holds", limit_s=LIMIT_S) == frozen.pid
        for job in jobs:
            assert await colo.reaches(job, "Completed", limit_s=LIMIT_S) == "Completed"
        # Both gateways say the same, and one that is killed leaves the other one's answers as they are.
        seen = await colo.get(f"/v1/jobs/{jobs[0]}")
        await colo.kill("gateway")
        colo.processes.running["gateway"] = colo.process("gateway-2")
        assert (await colo.get(f"/v1/jobs/{jobs[0]}"))["replicas"] == seen["replicas"]

        await each_replica_ran_once(colo, jobs)
        # No node was late or lost for a moment, and no number jumped, whoever published it: each is what its sample leaves.
        assert await colo.facts(FreshnessChanged, FRESHNESS) == warmed
        assert len(received.numbers) == NODES
        for node, published in received.numbers.items():
            order = [(fact.sampled_at_ms, fact.sample_seq) for fact in published]
            assert order == sorted(order), node
            # The sample before the first number may have come before anybody listened.
            left = [received.left_mcpu(fact) for fact in published if (node, fact.sample_seq) in received.online_mcpu]
            assert len(left) >= len(published) - 1, node
            assert max(left) - min(left) <= ROUNDED_MCPU, (node, left)


async def test_jobs_that_two_share_end_once_whatever_becomes_of_one_of_them(tmp_path: Path) -> None:
    environment = {"COLO_JOBS_PARTITIONS": str(PARTITIONS)}
    names = [f"shared{number}" for number in range(8)]
    async with running_colo(tmp_path, nodes=NODES, environment=environment) as colo:
        await colo.processes.start("jobs-2", "colo_jobs")
        await divided(colo, "jobs", 2, 2)
        jobs = [await colo.submit(a_job(name), key=name) for name in names[:4]]
        listed = await colo.get("/v1/jobs?limit=3")
        rest = await colo.get(f"/v1/jobs?limit=3&cursor={listed['next']}")
        assert sorted(job["job"] for job in listed["jobs"] + rest["jobs"]) == sorted(jobs)
        assert (listed["total"], len(listed["jobs"]), rest["next"]) == (4, 3, "")
        (queue,) = (await colo.get("/v1/queues"))["queues"]
        assert queue["jobs"] == 4
        # A plan counts the jobs of its name in all partitions, and so does who submits what was planned.
        planned = await colo.call("POST", "/v1/plan", a_job("planned"))
        index = {"Check-Index": planned.body["check_index"]}
        for key, status in (("one", 201), ("two", 409), ("three", 409)):
            answer = await colo.call("POST", "/v1/jobs", a_job("planned"), headers={**index, "Idempotency-Key": key})
            assert answer.status == status, (key, answer.body)
        jobs += [job["job"] for job in (await colo.get("/v1/jobs?name=planned"))["jobs"]]
        assert len(jobs) == 5

        # One is killed, its partitions move, and another one takes a share.
        await colo.kill("jobs")
        jobs += [await colo.submit(a_job(name), key=name) for name in names[4:6]]
        await divided(colo, "jobs", PARTITIONS)
        await colo.processes.start("jobs-3", "colo_jobs")
        await divided(colo, "jobs", 2, 2)
        # One stands still: its partitions move as well, and when it wakes up it changes nothing that is not its own.
        frozen = colo.process("jobs-2").process
        frozen.send_signal(signal.SIGSTOP)
        try:
            jobs += [await colo.submit(a_job(name), key=name) for name in names[6:]]
            await divided(colo, "jobs", PARTITIONS)
        finally:
            frozen.send_signal(signal.SIGCONT)
        await divided(colo, "jobs", 2, 2)
        for job in jobs:
            assert await colo.reaches(job, "Completed", limit_s=LIMIT_S) == "Completed"
            assert len((await colo.get(f"/v1/jobs/{job}"))["replicas"]) == REPLICAS
        await each_replica_ran_once(colo, jobs)
