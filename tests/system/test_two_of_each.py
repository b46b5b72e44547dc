"""Two instances of every control service beside one another: one is killed, another stands still, and all work ends once."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from colo_common.events.enforcement import ReplicaEnded, ReplicaStarted
from colo_common.events.job import ReplicasChanged
from tests.support.running import RunningColo, running_colo
from tests.support.waiting import eventually

pytestmark = [pytest.mark.server, pytest.mark.timeout(240)]

#: The services whose work one instance holds while the other stands by.
HELD = ("jobs", "overcommit", "evictor")
REPLICAS = 6
#: Longer than a lease with its renewals. A loaded machine starts processes slowly.
LIMIT_S = 60.0


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


async def shared(colo: RunningColo) -> bool:
    """Whether two schedulers hold half of the shards each."""
    return sorted(len(one["held"]) for one in await instances(colo, "scheduler")) == [8, 8]


def name_of(colo: RunningColo, pid: int) -> str:
    return next(name for name, child in colo.processes.running.items() if child.process.pid == pid)


async def test_all_work_ends_once_whatever_becomes_of_one_of_two(tmp_path: Path) -> None:
    async with running_colo(tmp_path, nodes=2) as colo:
        for service in (*HELD, "scheduler", "gateway"):
            await colo.processes.start(f"{service}-2", f"colo_{service}")
        pids = {
            service: await eventually(lambda: holder(colo, service, of=2), f"one {service} holds", limit_s=LIMIT_S)  # noqa: B023
            for service in HELD
        }
        await eventually(lambda: shared(colo), "two schedulers share the shards", limit_s=LIMIT_S)
        jobs = [await colo.submit(a_job("before"), key="before")]

        # The holder of every kind of work but jobs is killed; the holder of jobs and one of the schedulers stand still.
        for service in ("overcommit", "evictor"):
            await colo.kill(name_of(colo, pids[service]))
        frozen = colo.process(name_of(colo, pids["jobs"])).process
        frozen_scheduler = colo.process("scheduler-2").process
        for process in (frozen, frozen_scheduler):
            process.send_signal(signal.SIGSTOP)
        try:
            jobs.append(await colo.submit(a_job("meanwhile"), key="meanwhile"))
            for service in HELD:
                taken = await eventually(lambda: holder(colo, service, of=1), f"{service} moved", limit_s=LIMIT_S)  # noqa: B023
                assert taken != pids[service]
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
