"""The commands that look back, as people type them: watch, history, evictions, the story of a job, what online work felt."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time

import msgspec
import nats
import pytest

from colo_common.events.eviction import VictimRank
from colo_common.events.registry import subject_of
from colo_common.model.qos import PriorityBand
from tests.support.builders import an_eviction
from tests.support.running import RunningColo
from tests.support.waiting import eventually
from tests.system.test_cli import JOB, colo_command, submitted

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="session")]

LINE = re.compile(r"\d\d:\d\d:\d\d\.\d  [a-z-]+ +\S")


async def test_what_happened_is_listed_everywhere_on_a_node_and_to_a_job(colo: RunningColo) -> None:
    job = await submitted(colo, name="story", replicas=1)
    await colo.reaches(job, "Running")
    node = (await colo.get(f"/v1/jobs/{job}"))["replicas"][0]["node"]

    async def is_known() -> bool:
        return any(f"placed {job}/main/0 on {node}" in text for _, text in await history_of(colo, job))

    await eventually(is_known, "the gateway hears of the placement")
    of_job = await colo_command("history", "job", "story", "--since", "24h", api=colo.api)
    assert (of_job.code, of_job.err) == (0, "")
    assert "times are simulated, 60 times as fast as the clock on the wall" in of_job.out
    lines = [line for line in of_job.out.splitlines() if LINE.match(line)]
    assert f"job {job} submitted: 1 replica, queue default" in lines[0]
    assert any(f"placed {job}/main/0 on {node} zone" in line for line in lines)
    of_node = json.loads(
        (await colo_command("history", "node", node, "--since", "24h", "-o", "json", api=colo.api)).out
    )
    placed = [line["fact"] for line in of_node["lines"] if line["type"] == "PlacementsDecided"]
    assert placed
    assert {each["node"] for fact in placed for each in fact["placements"]} == {node}
    one_kind = await colo.get("/v1/history?since=24h&kind=job&limit=1000")
    assert {line["kind"] for line in one_kind["lines"]} == {"job"}
    assert (await colo.call("GET", "/v1/history?since=yesterday")).status == 400
    assert (await colo_command("history", "node", api=colo.api)).code == 2


async def test_watch_begins_so_long_ago_names_positions_and_ends_silently_in_a_pipe(colo: RunningColo) -> None:
    job = await submitted(colo, name="seen", replicas=1)
    await colo.reaches(job, "Running")
    typed = f"{sys.executable} -m colo_cli watch --since 24h --kind job"
    for command, count in ((f"{typed} | head -n 2", 2), (f"{typed} --json-lines | head -n 1", 1)):
        shell = await asyncio.create_subprocess_shell(
            command,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "COLO_API": colo.api},
        )
        async with asyncio.timeout(120):
            lines = [await shell.stdout.readline() for _ in range(count)] if shell.stdout else []
        # The next fact meets the closed pipe.
        await submitted(colo, name="seen-next", replicas=1)
        async with asyncio.timeout(120):
            _, err = await shell.communicate()
        assert "Error" not in err.decode()
        assert len(lines) == count
        if count == 2:
            assert all(LINE.match(line.decode()) for line in lines)
        else:
            first = json.loads(lines[0])
            assert (first["type"], first["position"] > 0) == ("JobSubmitted", True)


async def history_of(colo: RunningColo, job: str) -> set[tuple[int, str]]:
    answer = await colo.get(f"/v1/history?job={job}&since=24h&limit=200")
    return {(line["at_ms"], line["text"]) for line in answer["lines"]}


async def test_an_eviction_is_explained_with_value_threshold_and_who_was_spared(colo: RunningColo) -> None:
    job = await submitted(colo, name="evicted", replicas=1)
    await colo.reaches(job, "Running")
    (replica,) = (await colo.get(f"/v1/jobs/{job}"))["replicas"]

    def a_rank(name: str, priority: int, behind: str) -> VictimRank:
        return VictimRank(
            replica=name,
            attempt=1,
            priority=priority,
            used=1 << 30,
            unit="bytes",
            band=PriorityBand.BATCH,
            behind=behind,  # type: ignore[arg-type]
        )

    fact = an_eviction(
        replica["replica"],
        node=replica["node"],
        at_ms=(await colo.get("/v1/history"))["to_ms"],
        sent_us=time.time_ns() // 1_000,
        producer="evictor",
        eviction="ev-00000000aa",
        hold_ms=3_000,
        sample_seq=7,
        ranking=(a_rank(replica["replica"], 0, ""), a_rank("other/main/0", 5, "priority")),
        candidates=2,
        asked_by="evictor",
    )
    client = await nats.connect(colo.nats_url)
    try:
        await client.jetstream().publish(subject_of(fact), msgspec.json.encode(fact))
    finally:
        await client.close()

    async def known() -> bool:
        return (await colo.call("GET", "/v1/evictions/ev-00000000aa")).status == 200

    await eventually(known, "the gateway knows the eviction")
    for name in ("ev-00000000", replica["replica"]):
        explained = await colo_command("explain", "eviction", name, api=colo.api)
        assert (explained.code, explained.err) == (0, "")
        assert "memory in use 93% >= 92% for 3.0s" in explained.out
        assert "priority 5 is above 0" in explained.out
    listed = await colo_command("get", "evictions", "--job", "evicted", api=colo.api)
    assert "ev-00000000aa" in listed.out
    story = await colo_command("explain", "job", "evicted", api=colo.api)
    assert "ev-00000000aa" in story.out
    assert "not chosen: other/main/0 (priority 5 is above 0)" in story.out
    assert "submitted: 1 replica" in story.out
    unknown = await colo_command("explain", "eviction", "ev-ffff", api=colo.api)
    assert (unknown.code, unknown.out) == (1, "")

    # A gateway that starts again reads what happened before from the streams.
    async def several() -> set[tuple[int, str]]:
        found = await history_of(colo, job)
        return found if len(found) > 3 else set()

    before = await eventually(several, "the history of the job")
    await colo.kill("gateway")
    await colo.restart("gateway")

    async def is_known_again() -> bool:
        return before <= await history_of(colo, job)

    await eventually(is_known_again, "the history of before the start is known")
    explained = await colo_command("explain", "eviction", "ev-00000000", api=colo.api)
    assert "memory in use 93% >= 92% for 3.0s" in explained.out
    story = await colo_command("explain", "job", "evicted", api=colo.api)
    assert "submitted: 1 replica" in story.out


async def test_a_waiting_job_is_told_its_place_and_its_estimate_or_why_there_is_none(colo: RunningColo) -> None:
    job = await submitted(colo, **{**JOB, "name": "too-wide", "cpu": "60", "replicas": 1})

    async def decided() -> str:
        reported = await colo_command("explain", "job", job, api=colo.api)
        return reported.out if "0 of 2 nodes fit" in reported.out else ""

    text = await eventually(decided, "the scheduler looked at it")
    assert re.search(r"Wait: main/0 waited \S+ so far, .*; (about \S+ more, by|no estimate, because) ", text)


async def test_what_online_work_felt_is_measured_and_told_in_the_words_of_the_definition(colo: RunningColo) -> None:
    async def measured() -> bool:
        fleet = (await colo.get("/v1/harm"))["fleet"]
        return bool(fleet["lived_ms"] > fleet["unmeasured_ms"])

    await eventually(measured, "samples with the stall of online work")
    answer = await colo.get("/v1/harm")
    assert {each["node"] for each in answer["nodes"]} == {
        each["node"] for each in (await colo.get("/v1/nodes"))["nodes"]
    }
    assert 0 <= answer["fleet"]["harm_ratio"] <= 1
    reported = await colo_command("get", "harm", api=colo.api)
    assert reported.code == 0, reported.err
    assert reported.out.startswith("Online harm: ")
    assert "online work got less CPU than it wanted" in reported.out
    shortened = await colo_command("get", "harm", "--limit", "1", api=colo.api)
    assert re.search(rf"^and {answer['total'] - 1} nodes? more \(--limit shows more\)$", shortened.out, re.MULTILINE)
