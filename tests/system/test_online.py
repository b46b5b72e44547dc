"""Online work beside batch work over running services: the four classes of one machine, as people write them in job files."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from colo_common.events.enforcement import PlacementRefused, ReplicaEnded
from colo_common.events.placement import PlacementsDecided
from colo_common.events.service import DeadLettered
from colo_common.model.cpuset import CpuSet
from colo_common.model.placement import Placement
from colo_common.model.qos import PriorityBand, QosClass
from tests.support.four_pods import FOUR_PODS
from tests.support.running import RunningColo, running_colo
from tests.support.waiting import eventually
from tests.system.test_cli import Printed, colo_command

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="module")]

NODE = "node-01"
EVERY = CpuSet.parse("0-15")
#: One zone of 16 CPUs, no margin, and no limit of load: the online work of this test is more than a third of the machine.
MACHINE = {
    "COLO_SIM_SOCKETS": "1",
    "COLO_SIM_ZONES_PER_SOCKET": "1",
    "COLO_SIM_CPUS_PER_ZONE": "16",
    "COLO_OVERCOMMIT_CPU_RECLAIM_PCT": "100",
    "COLO_SCHEDULER_POLICY_LOAD_PROD_CPU_PCT": "0",
}
ORDER = ("LSE", "LSR", "LS", "BE")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def colo(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningColo]:
    directory: Path = tmp_path_factory.mktemp("colo")
    async with running_colo(directory, nodes=1, environment=MACHINE) as running:
        yield running


def a_job(qos: str, **changes: Any) -> bytes:
    """A job file. Its work lasts longer than the test unless `changes` say otherwise."""
    job = {"name": f"nginx-{qos.lower()}", "qos": qos, "cpu": "2", "memory": "256Mi", "work": "1000 cpu-h", **changes}
    return yaml.safe_dump(job).encode()


async def submitted(colo: RunningColo, text: bytes) -> str:
    reported = await colo_command("submit", "-f", "-", "-o", "json", api=colo.api, stdin=text)
    assert reported.code == 0, reported.err
    return str(json.loads(reported.out)["job"])


async def planned(colo: RunningColo, text: bytes, *words: str) -> Printed:
    return await colo_command("plan", "-f", "-", *words, api=colo.api, stdin=text)


async def held(colo: RunningColo) -> dict[str, Placement]:
    """What the ledger holds, by job."""
    async with colo.ledger() as ledger:
        rows = await ledger.rows(sorted(await ledger.changes()))
    return {one.placement.job: one.placement for row in rows for one in row.holds}


async def nothing_is_held(colo: RunningColo) -> None:
    async def empty() -> bool:
        return await held(colo) == {}

    await eventually(empty, "the ledger is empty")


async def published(colo: RunningColo) -> dict[str, int]:
    """The numbers by which overcommit explains what it promises on the node; none while it starts."""
    answer = await colo.call("GET", f"/v1/nodes/{NODE}/explain")
    if answer.status != 200:
        return {}
    return {term["name"]: term["value"] for term in answer.body["newest"]["terms"]}


async def decisions(colo: RunningColo) -> dict[str, Placement]:
    """The place of each job's only replica, from the stream of decisions."""
    found = {}
    for fact in await colo.facts(PlacementsDecided, "colo.v1.evt.placement.decided"):
        for placement in fact.placements:
            assert found.setdefault(placement.job, placement) == placement, "it was placed twice"
    return found


async def test_the_four_classes_share_a_machine_as_the_rules_say(colo: RunningColo) -> None:
    plans, jobs = {}, {}
    for qos in ORDER:
        text = a_job(qos, place={"cpu_bind": "spread-by-pcpus"} if qos in ("LSE", "LSR") else None)
        reported = await planned(colo, text, "-o", "json")
        assert reported.code == 0, reported.out + reported.err
        (plans[qos],) = json.loads(reported.out)["places"]
        jobs[qos] = await submitted(colo, text)
        await colo.reaches(jobs[qos], "Running")
    assert [await colo.state(jobs[qos]) for qos in ORDER] == ["Running"] * 4
    in_ledger = await held(colo)
    decided = await decisions(colo)
    placed = {qos: in_ledger[jobs[qos]] for qos in ORDER}
    assert placed == {qos: decided[jobs[qos]] for qos in ORDER}
    assert {qos: (p.node, p.cpus) for qos, p in placed.items()} == {
        qos: (plan["node"], plan["cpus"]) for qos, plan in plans.items()
    }
    for qos, placement in placed.items():
        assert placement.qos is QosClass(qos)
        assert placement.band is (PriorityBand.BATCH if qos == "BE" else PriorityBand.PROD)
    lse, lsr = CpuSet.parse(placed["LSE"].cpus), CpuSet.parse(placed["LSR"].cpus)
    assert (len(lse), len(lsr), lse & lsr, lse | lsr) == (2, 2, CpuSet(), (lse | lsr) & EVERY)
    # The others have the shared pools: LS all but these four, BE all but the two of LSE.
    assert (placed["LS"].cpus, placed["BE"].cpus) == ("", "")

    for job in jobs.values():
        assert (await colo_command("cancel", job, api=colo.api)).code == 0
    await nothing_is_held(colo)
    # Work that comes to its end does so in every class.
    short = {qos: await submitted(colo, a_job(qos, work="10 cpu-s")) for qos in ORDER}
    for job in short.values():
        assert await colo.reaches(job, "Completed", "Failed") == "Completed"
    await nothing_is_held(colo)
    ended = await colo.facts(ReplicaEnded, "colo.v1.evt.enforcement.*.ended")
    assert {(fact.job, fact.exit_code) for fact in ended} >= {(job, 0) for job in short.values()}
    assert await colo.facts(PlacementRefused, "colo.v1.evt.enforcement.*.refused") == []
    assert await colo.facts(DeadLettered, "colo.v1.evt.dead-letter.>") == []


async def test_own_cpus_that_cannot_be_had_are_told_with_the_nearest_miss(colo: RunningColo) -> None:
    """More than the machine has, and all that it has: LSE leaves one CPU to the rest of the node."""
    for cpu, reason, most, nearest in (
        ("17", "cpu-short", "16 CPU", {"need": 17_000, "have": 16_000, "unit": "mcpu"}),
        ("16", "cpus-short", "15 CPUs of its own", {"need": 16, "have": 15, "unit": "cpus"}),
    ):
        text = a_job("LSE", cpu=cpu)
        reported = await planned(colo, text, "-o", "json")
        (task,) = json.loads(reported.out)["tasks"]
        # What the node could never hold is told of the machine, whatever its load lets the filters say first.
        assert (reported.code, task["never"]) == (1, True)
        job = await submitted(colo, text)

        async def delivered(job: str = job) -> Any:
            return (await colo.get(f"/v1/jobs/{job}/explain"))["replicas"][0]["decision"]

        decision = await eventually(delivered, "a decision")
        assert decision["placement"] is None
        assert (decision["never"], decision["nearest"]) == (True, task["nearest"])
        assert decision["nearest"] == {"node": NODE, "reason": reason, "zone": None, **nearest}
        explained = await colo_command("explain", "job", job, api=colo.api)
        assert f"no node could hold it even when empty: a machine has {most} at most ({NODE})" in explained.out
        assert (await colo_command("cancel", job, api=colo.api)).code == 0
    assert await colo.facts(PlacementRefused, "colo.v1.evt.enforcement.*.refused") == []


async def test_an_overcommit_service_that_starts_counts_online_holds_as_what_they_are(colo: RunningColo) -> None:
    jobs = [await submitted(colo, a_job(qos, cpu="3", work="10 cpu-h")) for qos in ("LSE", "LS")]
    for job in jobs:
        await colo.reaches(job, "Running")

    async def counted() -> bool:
        numbers = await published(colo)
        return (numbers.get("cpu_held"), numbers.get("cpu_lse_requested")) == (0, 3_000)

    await eventually(counted, "LSE work is counted, and no online work as batch work")
    await colo.kill("overcommit")
    await colo.restart("overcommit")
    await eventually(counted, "the same after a restart")
    for job in jobs:
        assert (await colo_command("cancel", job, api=colo.api)).code == 0
    await nothing_is_held(colo)


async def test_the_four_manifests_are_placed_as_they_are_written(colo: RunningColo) -> None:
    jobs = {}
    for qos in ORDER:
        reported = await colo_command("submit", "-f", "-", api=colo.api, stdin=FOUR_PODS[qos].encode())
        assert reported.code == 0, reported.err
        jobs[qos] = reported.out.split()[0]
        await colo.reaches(jobs[qos], "Running")
        assert "schedulerName: is ignored" in reported.err
        assert ("preferredCPUBindPolicy: is ignored" in reported.err) == (qos in ("LS", "BE"))
    in_ledger = await held(colo)
    placed = {qos: in_ledger[jobs[qos]] for qos in ORDER}
    for qos, placement in placed.items():
        spec = (await colo.get(f"/v1/jobs/{jobs[qos]}"))["spec"]
        assert (spec["name"], spec["qos"]) == (f"nginx-{qos.lower()}", qos)
        assert spec["tasks"][0]["request"] == {"cpu_mcpu": 2_000, "memory_bytes": 200 << 20}
        explained = await colo.get(f"/v1/jobs/{jobs[qos]}/explain")
        (decision,) = [item["decision"]["placement"] for item in explained["replicas"]]
        assert (
            (decision["node"], decision.get("cpus", "")) == (placement.node, placement.cpus) == (NODE, placement.cpus)
        )
    lse, lsr = CpuSet.parse(placed["LSE"].cpus), CpuSet.parse(placed["LSR"].cpus)
    assert (len(lse), len(lsr), lse & lsr) == (2, 2, CpuSet())
    assert (placed["LS"].cpus, placed["BE"].cpus) == ("", "")
    for job in jobs.values():
        assert (await colo_command("cancel", job, api=colo.api)).code == 0
    await nothing_is_held(colo)
