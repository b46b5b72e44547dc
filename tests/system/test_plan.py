"""`colo plan` as people type it, against running services."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.support.running import RunningColo
from tests.support.waiting import eventually
from tests.system.test_cli import Printed, colo_command

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="session")]


async def planned(colo: RunningColo, *words: str, **changes: Any) -> Printed:
    job = {"name": "planned", "replicas": 2, "cpu": "500m", "memory": "64Mi", "work": "10 cpu-min", **changes}
    text = yaml.safe_dump({key: value for key, value in job.items() if value is not None}).encode()
    return await colo_command("plan", "-f", "-", *words, api=colo.api, stdin=text)


async def test_a_job_that_fits_ends_with_0_and_says_where(colo: RunningColo) -> None:
    reported: list[Printed] = []
    before = (await colo.get("/v1/jobs"))["jobs"]

    async def fits() -> bool:
        reported.append(await planned(colo))
        return reported[-1].code == 0

    # The first samples are still on their way.
    await eventually(fits, "a plan that fits")
    assert reported[-1].out.startswith("fits: 2 of 2 replicas on the 2 nodes known now")
    assert "fewest-zones" in reported[-1].out
    assert (await colo.get("/v1/jobs"))["jobs"] == before


async def test_a_job_that_does_not_fit_ends_with_1_and_says_what_is_short(colo: RunningColo) -> None:
    delivered = await planned(colo, replicas=1, cpu="900")
    assert delivered.code == 1
    assert delivered.out.startswith("does not fit: 0 of 1")
    assert "no node could hold one even when empty: a machine has " in delivered.out
    assert "fewest-zones" not in delivered.out


async def test_a_plan_and_a_submission_refuse_an_unknown_queue_alike(colo: RunningColo) -> None:
    job = yaml.safe_dump(
        {"name": "lost", "cpu": "1", "memory": "64Mi", "work": "1 cpu-min", "queue": "nowhere"}
    ).encode()
    reported = [await colo_command(word, "-f", "-", api=colo.api, stdin=job) for word in ("plan", "submit")]
    assert reported[0] == reported[1]
    assert reported[0].code == 2


async def test_a_large_plan_is_answered(colo: RunningColo) -> None:
    delivered = await planned(colo, "-o", "json", "--places", "0", replicas=10_000)
    answer = json.loads(delivered.out)
    assert (delivered.code, answer["fits"], answer["replicas"]) == (1, False, 10_000)


async def test_programs_read_the_plan_as_json(colo: RunningColo) -> None:
    delivered = await planned(colo, "-o", "json", "--places", "1")
    answer = json.loads(delivered.out)
    assert (delivered.code, answer["fits"], answer["placed"], len(answer["places"])) == (0, True, 2, 1)
    assert {"replica", "node", "zones"} <= answer["places"][0].keys()


@pytest.mark.parametrize(
    ("words", "changes", "what"),
    [
        ((), {"cpu": "-1"}, "cpu:"),
        ((), {"place": {"numa_policy": "sometimes"}}, "place.numa_policy: must be one of"),
        ((), {"qos": "LSE", "cpu": "1500m"}, "cpu: must be whole CPUs"),
        ((), {"queue": "nowhere"}, "queue: there is no such queue; queues: "),
        (("--places", "1001"), {}, "places: must be a whole number from 0 to 1000"),
    ],
)
async def test_what_breaks_a_rule_ends_with_2(
    colo: RunningColo, words: tuple[str, ...], changes: Any, what: str
) -> None:
    delivered = await planned(colo, *words, **changes)
    assert (delivered.code, delivered.out) == (2, "")
    assert what in delivered.err


async def test_without_a_gateway_the_plan_ends_with_2() -> None:
    job = b'{"name": "a", "cpu": "1", "memory": "1Gi", "work": "1 cpu-s"}'
    delivered = await colo_command("plan", "-f", "-", "--api", "http://127.0.0.1:1", stdin=job)
    assert delivered.code == 2
    assert "no gateway answers" in delivered.err


async def test_a_plan_is_compared_with_the_running_job_and_holds_until_the_jobs_of_its_name_change(
    colo: RunningColo,
) -> None:
    def a_job(**changes: Any) -> bytes:
        job = {"name": "compared", "replicas": 2, "cpu": "500m", "memory": "64Mi", "work": "1000 cpu-h", **changes}
        return yaml.safe_dump(job).encode()

    async def submitted(text: bytes, index: str) -> Printed:
        return await colo_command("submit", "-f", "-", "--check-index", index, api=colo.api, stdin=text)

    async def index_of(text: bytes) -> str:
        delivered = await colo_command("plan", "-f", "-", "-o", "json", api=colo.api, stdin=text)
        assert delivered.code == 0, delivered.out + delivered.err
        return str(json.loads(delivered.out)["check_index"])

    first = await index_of(a_job())
    accepted = await submitted(a_job(), first)
    assert accepted.code == 0, accepted.err
    job = accepted.out.split()[0]
    await colo.reaches(job, "Running")

    stale = await submitted(a_job(), first)
    assert (stale.code, stale.out) == (1, "")
    assert f"check index: a job of this name came or ended since the plan, now {job} is Running" in stale.err
    taken = await submitted(a_job(), "0")
    assert "check index: a job of this name came or ended since the plan" in taken.err

    changed = a_job(replicas=3, cpu="1", priority=5)
    shown = await colo_command("plan", "-f", "-", api=colo.api, stdin=changed)
    assert f"{job} is Running; a submission adds a job beside it and changes nothing of it" in shown.out
    for line in (
        "  ~ priority: 0 -> 5 (in-place)",
        "  ~ task main: 2 -> 3 replicas (+1)",
        "      ~ cpu: 0.5 -> 1 (destructive)",
    ):
        assert line in shown.out.splitlines(), shown.out
    same = await colo_command("plan", "-f", "-", api=colo.api, stdin=a_job())
    assert "  the same job: nothing differs" in same.out

    second = await index_of(changed)
    assert f"check index {second}: `colo submit -f - --check-index {second}`" in shown.out
    edited = await submitted(a_job(replicas=4), second)
    assert "check index: the job file is not the one that was planned" in edited.err
    fewer = await submitted(changed, second[:-1] + "9")
    assert "check index: 3 of 3 replicas fit now, 9 did when it was planned" in fewer.err
    wrong = await submitted(changed, "often")
    assert (wrong.code, "must be the check index that `colo plan` prints" in wrong.err) == (2, True)
    added = await submitted(changed, second)
    assert added.code == 0, added.err
    for each in (job, added.out.split()[0]):
        assert (await colo_command("cancel", each, api=colo.api)).code == 0
