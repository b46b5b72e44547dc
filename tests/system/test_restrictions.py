"""An operator's hands as people use them, against running services: cordon, drain, pause, quiesce."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats
import pytest
import pytest_asyncio
import yaml
from msgspec.structs import replace

from colo_common.events.eviction import EvictionRequested, NodeDrained
from colo_common.events.node import NodeTopologyReported
from colo_common.events.registry import subject_of
from colo_common.events.wire import encode
from colo_common.model.colocation import COLOCATION_LABEL
from tests.support.running import RunningColo, running_colo
from tests.support.standstill import Standstill
from tests.support.waiting import eventually
from tests.system.test_cli import Printed, colo_command

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="module")]

LIMIT_S = 120.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def colo(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningColo]:
    directory: Path = tmp_path_factory.mktemp("colo")
    async with running_colo(directory, nodes=3) as running:

        async def promised() -> bool:
            nodes = (await running.get("/v1/nodes"))["nodes"]
            return len(nodes) == 3 and all(node["batch_cpu_mcpu"] > 3000 for node in nodes)

        await eventually(promised, "every node promises batch work something", limit_s=LIMIT_S)
        yield running


async def typed(colo: RunningColo, *words: str) -> Printed:
    return await colo_command(*words, api=colo.api)


async def names(colo: RunningColo) -> list[str]:
    return [node["node"] for node in (await colo.get("/v1/nodes"))["nodes"]]


async def planned(colo: RunningColo, replicas: int = 6) -> dict[str, Any]:
    job = {"name": "plan", "cpu": "1", "memory": "64Mi", "work": "60 cpu-min", "replicas": replicas}
    printed = await colo_command("plan", "-f", "-", "-o", "json", api=colo.api, stdin=yaml.safe_dump(job).encode())
    found: dict[str, Any] = json.loads(printed.out)
    return found


async def test_a_cordon_says_who_and_why_wherever_it_matters(colo: RunningColo) -> None:
    first, *others = await names(colo)
    printed = await typed(colo, "cordon", first, "--reason", "kernel upgrade", "--as", "ana")
    assert (printed.code, printed.out, printed.err) == (0, f"node {first} cordoned by ana: kernel upgrade\n", "")
    again = await typed(colo, "cordon", first, "--reason", "kernel upgrade", "--as", "ana")
    assert (again.code, again.out) == (0, f"node {first} is cordoned already\n")
    for other in others:
        assert (await typed(colo, "cordon", other, "--as", "bo")).code == 0

    async def refused() -> bool:
        return not (await planned(colo))["placed"]

    await eventually(refused, "no node takes new work", limit_s=LIMIT_S)
    (task,) = (await planned(colo))["tasks"]
    (count,) = task["counts"]
    assert (count["reason"], count["nodes"]) == ("node-cordoned", 3)
    assert f"{first} cordoned by ana: kernel upgrade" in count["detail"]
    listed = await typed(colo, "get", "restrictions")
    assert "kernel upgrade" in listed.out
    assert f"node {first} cordoned by ana: kernel upgrade" in listed.out.partition("changes, newest first")[2]
    assert len((await colo.get("/v1/restrictions"))["audit"]) == 3

    for node in (first, *others):
        assert (await typed(colo, "uncordon", node, "--as", "ana")).out == f"node {node}: cordon lifted by ana\n"
    assert (await typed(colo, "uncordon", first)).out == f"node {first} is not cordoned\n"
    assert (await typed(colo, "get", "restrictions")).out.startswith("nothing is restricted")

    async def open_again() -> bool:
        return bool((await planned(colo))["fits"])

    await eventually(open_again, "the nodes take work again", limit_s=LIMIT_S)


async def test_what_makes_no_sense_is_refused_by_field_and_rule(colo: RunningColo) -> None:
    first = (await names(colo))[0]
    wrong = await typed(colo, "cordon", first + "x")
    assert (wrong.code, wrong.err) == (1, f"colo: node: is not known; did you mean {first}? (got {first}x)\n")
    late = await typed(colo, "cordon", first, "--for", "soon")
    assert late.code == 2
    assert late.err.startswith("colo: for: must be a time such as")
    for body, field in (
        ({"kind": "cordon", "scope": "queue", "target": "default"}, "scope"),
        ({"kind": "cordon", "scope": "node", "target": first, "why": "x"}, "why"),
        ({"kind": "cordn", "scope": "node", "target": first}, "kind"),
        ({"kind": "pause", "scope": "node", "target": first, "grace": "5s"}, "grace_ms"),
        ({"kind": "cordon", "scope": "node", "target": first, "by": "a\nb"}, "by"),
    ):
        answer = await colo.call("POST", "/v1/restrictions", body)
        assert (answer.status, answer.body["field"]) == (400, field), answer.body
    for body, field in (
        ({"kind": "pause", "scope": "job", "target": "nobody-0"}, "job"),
        ({"kind": "pause", "scope": "queue", "target": "none"}, "queue"),
    ):
        answer = await colo.call("POST", "/v1/restrictions", body)
        assert (answer.status, answer.body["field"]) == (404, field), answer.body
    assert (await colo.call("DELETE", "/v1/restrictions?kind=cordon&scope=node&why=x")).body["field"] == "why"
    assert (await colo.call("GET", "/v1/restrictions?all=1")).status == 400


async def submitted(colo: RunningColo, name: str, **fields: Any) -> str:
    job = {"name": name, "cpu": "1", "memory": "64Mi", "work": "6000 cpu-min", **fields}
    return await colo.submit(job)


async def batch_used_mcpu(colo: RunningColo) -> int:
    return sum(node["batch_cpu_used_mcpu"] for node in (await colo.get("/v1/nodes"))["nodes"])


async def test_a_quiesce_stops_all_batch_work_within_a_second_and_back(colo: RunningColo) -> None:
    job = await submitted(colo, "long", replicas=6)

    async def all_run() -> bool:
        return bool(
            (await colo.get(f"/v1/jobs/{job}"))["summary"]["running"] == 6 and await batch_used_mcpu(colo) > 4000
        )

    await eventually(all_run, "six replicas run and use CPU", limit_s=LIMIT_S)
    with Standstill() as machine:
        printed = await typed(colo, "quiesce", "--reason", "incident 42", "--as", "ana", "-o", "json")
    assert printed.code == 0, (printed.out, printed.err)
    answer = json.loads(printed.out)
    progress = answer["quiesce"]
    assert (progress["nodes"], progress["confirmed"], progress["missing"]) == (3, 3, [])
    assert progress["suspended"] == 6
    assert max(answer["took_ms"], progress["slowest_ms"]) <= 1_000 * (1 + machine.lost_s())

    async def idle() -> bool:
        return await batch_used_mcpu(colo) == 0

    await eventually(idle, "batch work uses no CPU", limit_s=LIMIT_S)
    # Said wherever somebody asks: the job's story, a plan, a second quiesce.
    explained = await typed(colo, "explain", "job", job)
    assert "suspended: " in explained.out
    assert "quiesced by ana: incident 42" in explained.out
    (task,) = (await planned(colo, 1))["tasks"]
    assert [count["reason"] for count in task["counts"]] == ["batch-quiesced"]
    assert task["counts"][0]["detail"] == "quiesced by ana: incident 42"
    again = await typed(colo, "quiesce", "--reason", "incident 42", "--as", "ana")
    assert again.out.startswith("all batch work is quiesced already\nquiesced by ana: incident 42\n3 of 3 nodes")

    # A gateway and a bus that come back lift nothing.
    await colo.kill("gateway")
    await colo.restart("gateway")
    listed = await colo.get("/v1/restrictions")
    assert [(each["kind"], each["by"]) for each in listed["restrictions"]] == [("quiesce", "ana")]
    assert await batch_used_mcpu(colo) == 0

    ended = await typed(colo, "unquiesce", "--as", "bo")
    assert ended.code == 0, (ended.out, ended.err)
    assert ended.out.startswith("fleet: quiesce lifted by bo\n3 of 3 nodes confirmed it")
    await eventually(all_run, "the replicas run on", limit_s=LIMIT_S)
    replicas = (await colo.get(f"/v1/jobs/{job}"))["replicas"]
    assert {(each["attempt"], each["evictions"], each["retries"]) for each in replicas} == {(1, 0, 0)}
    await colo.cancel_all()


async def on_node(colo: RunningColo, job: str) -> dict[str, list[str]]:
    """The running replicas of a job by node."""
    found: dict[str, list[str]] = {}
    for replica in (await colo.get(f"/v1/jobs/{job}"))["replicas"]:
        if replica["state"] == "Running":
            found.setdefault(replica["node"], []).append(replica["replica"])
    return found


async def test_a_drain_is_shown_first_and_then_empties_the_node(colo: RunningColo) -> None:
    job = await submitted(colo, "drained", replicas=6)

    async def all_run() -> bool:
        return sum(map(len, (await on_node(colo, job)).values())) == 6

    await eventually(all_run, "six replicas run", limit_s=LIMIT_S)
    node, there = max((await on_node(colo, job)).items(), key=lambda item: len(item[1]))
    preview = json.loads((await typed(colo, "drain", node, "--dry-run", "-o", "json")).out)
    assert sorted(each["replica"] for each in preview["leaving"]) == sorted(there)
    assert all(each["fits_on"] not in ("", node) for each in preview["leaving"])
    shown = await typed(colo, "drain", node, "--dry-run")
    assert shown.out.endswith("nothing was changed\n")
    assert (await colo.get("/v1/restrictions"))["restrictions"] == []

    printed = await typed(colo, "drain", node, "--reason", "new disks", "--as", "ana", "--grace", "1s")
    assert printed.code == 0, (printed.out, printed.err)
    assert printed.out.startswith(f"node {node} drained by ana: new disks\n{len(there)} replica")

    async def empty() -> bool:
        return node not in await on_node(colo, job) and await all_run()

    await eventually(empty, "the replicas run elsewhere", limit_s=LIMIT_S)
    evicted = await colo.facts(EvictionRequested, "colo.v1.evt.eviction.requested")
    assert {(each.reason.value, each.asked_by, each.grace_ms) for each in evicted} == {("node-drained", "ana", 1_000)}

    async def reported() -> bool:
        facts = await colo.facts(NodeDrained, "colo.v1.evt.eviction.drained")
        return [(fact.node, fact.asked_by) for fact in facts] == [(node, "ana")]

    await eventually(reported, "the end of the drain is published", limit_s=LIMIT_S)
    again = await typed(colo, "drain", node, "--reason", "new disks", "--as", "ana", "--grace", "1s")
    assert again.out == f"node {node} is being drained already\ndrained: no replica is on the node\n"
    assert (await typed(colo, "uncordon", node, "--as", "ana")).out == f"node {node}: drain lifted by ana\n"
    await colo.cancel_all()


_STARTS = itertools.count(1)


async def label(colo: RunningColo, node: str, labels: dict[str, str]) -> None:
    """The node reports itself with these labels, as its collector does after a restart with another setting."""
    *_, newest = [
        fact for fact in await colo.facts(NodeTopologyReported, "colo.v1.evt.node.*.topology") if fact.node == node
    ]
    fact = replace(newest, labels=labels, boot_id=f"labelled-{next(_STARTS)}", seq=1)
    client = await nats.connect(colo.nats_url)
    try:
        await client.jetstream().publish(subject_of(fact), encode(fact))
    finally:
        await client.close()


async def test_another_label_shows_what_the_node_does_not_meet_any_more_and_withdraws_it(colo: RunningColo) -> None:
    node, *_ = await names(colo)
    job = {"name": "gold", "cpu": "1", "memory": "64Mi", "work": "6000 cpu-min", "replicas": 2}
    job["place"] = {"node_labels": {"tier": "gold"}}

    async def runs() -> bool:
        # Again and again: the node's own collector also reports it, with the labels that it was started with.
        await label(colo, node, {"tier": "gold"})
        return len((await on_node(colo, name)).get(node, [])) == 2

    name = await colo.submit(job)
    await eventually(runs, "both replicas run where the label is", limit_s=LIMIT_S)

    async def unmet() -> str:
        await label(colo, node, {"tier": "silver"})
        printed = await typed(colo, "drain", node, "--unmet")
        assert (printed.code, printed.err) == (0, "")
        return printed.out if "asks for tier=gold, the node has silver" in printed.out else ""

    shown = await eventually(unmet, "the preview knows the labels", limit_s=LIMIT_S)
    assert [line.partition(":")[0] for line in shown.splitlines()] == [f"{name}/main/0", f"{name}/main/1"]
    assert "the node has silver; would wait: " in shown
    # Nothing leaves for that: only an operator's drain lets it.
    assert len((await on_node(colo, name))[node]) == 2

    async def left() -> bool:
        await label(colo, node, {"tier": "gold", COLOCATION_LABEL: "false"})
        return node not in await on_node(colo, name)

    await eventually(left, "batch work leaves the node that takes none", limit_s=LIMIT_S)
    reasons = {
        (each.reason.value, each.asked_by)
        for each in await colo.facts(EvictionRequested, "colo.v1.evt.eviction.requested")
        if each.job == name
    }
    assert reasons == {("colocation-off", "the node's label")}
    await label(colo, node, {})
    await colo.cancel_all()


async def test_a_paused_job_is_suspended_and_its_waiting_replicas_get_no_place(colo: RunningColo) -> None:
    job = await submitted(colo, "paused", replicas=2)

    async def both_run() -> bool:
        return sum(map(len, (await on_node(colo, job)).values())) == 2 and await batch_used_mcpu(colo) > 1000

    await eventually(both_run, "both replicas run", limit_s=LIMIT_S)
    printed = await typed(colo, "pause", "--job", job, "--reason", "wrong input", "--as", "ana")
    assert (printed.code, printed.out) == (0, f"job {job} paused by ana: wrong input\n")

    async def idle() -> bool:
        return await batch_used_mcpu(colo) == 0

    await eventually(idle, "the paused job uses no CPU", limit_s=LIMIT_S)
    explained = await typed(colo, "explain", "job", job)
    assert "its job is paused by ana: wrong input" in explained.out
    # The name alone says which: no node and no queue is called so.
    assert (await typed(colo, "resume", job, "--as", "bo")).out == f"job {job}: pause lifted by bo\n"
    await eventually(both_run, "the replicas run on", limit_s=LIMIT_S)

    assert (await typed(colo, "pause", "default", "--as", "ana", "--for", "1h")).out == (
        "queue default paused by ana, for 60m00s\n"
    )
    late = await submitted(colo, "late")
    other = await typed(colo, "explain", "job", late)
    assert "its queue is paused by ana" in other.out
    assert (await colo.get(f"/v1/jobs/{late}"))["summary"]["waiting"] == 1
    # What runs goes on until the pause is changed to one with what runs.
    assert await batch_used_mcpu(colo) > 1000
    changed = await typed(colo, "pause", "default", "--running", "--as", "ana")
    assert changed.out == "queue default paused with what runs by ana (changed)\n"
    await eventually(idle, "the paused queue uses no CPU", limit_s=LIMIT_S)
    assert "its queue is paused with what runs by ana" in (await typed(colo, "explain", "job", job)).out
    refused = await typed(colo, "pause", "--job", job, "--running")
    assert (refused.code, refused.out) == (2, "")
    assert "running: goes with a pause of a queue only" in refused.err
    assert (await typed(colo, "resume", "default")).code == 0
    await eventually(both_run, "the replicas run on", limit_s=LIMIT_S)

    async def placed() -> bool:
        return bool(await on_node(colo, late))

    await eventually(placed, "the late job runs", limit_s=LIMIT_S)
    nobody = await typed(colo, "pause", "nobody")
    assert (nobody.code, nobody.err) == (1, "colo: no node, queue or job has the name nobody\n")
    await colo.cancel_all()
