"""What a person sees when something is wrong: one sentence, a counter or exit code 2, and the rest goes on and heals."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import nats
import pytest
import yaml
from msgspec import structs
from nats.aio.client import Client

from colo_cli.main import main
from colo_common.events import requests as rq
from colo_common.events import wire
from colo_common.events.fact import Fact
from colo_common.events.node import FreshnessChanged
from colo_common.events.registry import request_spec_of, subject_of
from colo_common.events.service import DeadLettered
from colo_common.model.freshness import Freshness
from tests.support.builders import a_node, a_sample
from tests.support.servers import emptied
from tests.support.waiting import eventually
from tests.system.bad_input import Servers, ask, refused_start, submission

pytestmark = pytest.mark.server

FRESHNESS: Final = "colo.v1.evt.freshness.n1.changed"
USAGE: Final = "colo.v1.tlm.node.n1.usage"
HEADER: Final = "time,node,cpu_pct,mem_pct\n"
LISTENERS: Final = ("collector", "evictor", "executor", "gateway", "jobs", "overcommit", "scheduler", "sim")


def freshness(node: str = "n1", **change: Any) -> dict[str, Any]:
    """A change of freshness as plain values."""
    fact = FreshnessChanged(
        node=node, freshness=Freshness.FRESH, previous=Freshness.WARMING, sample_seq=3, age_ms=0, at_ms=1_000
    )
    return {**msgspec.to_builtins(fact), **change}


def job(**task: Any) -> dict[str, Any]:
    """A job file's content."""
    return {"name": "render", "tasks": [{"name": "main", "cpu": "1", "memory": "1Gi", "work": "1 cpu-s", **task}]}


@pytest.fixture
async def servers(tmp_path: Path, nats_url: str, redis_url: str) -> AsyncIterator[Servers]:
    """The servers of this worker, empty before and after the test."""
    await emptied(nats_url, redis_url)
    yield Servers(nats_url, redis_url, tmp_path)
    await emptied(nats_url, redis_url)


# ---------------------------------------------------------------- messages


MALFORMED: Final[tuple[tuple[str, bytes, str], ...]] = (
    (FRESHNESS, b"not json", f"{FRESHNESS} $: JSON is malformed"),
    (FRESHNESS, json.dumps(freshness(age_ms="3")).encode(), f"{FRESHNESS} $.age_ms: Expected `int`, got `str`"),
    (FRESHNESS, json.dumps(freshness(age_ms=-3)).encode(), f"{FRESHNESS} $.age_ms: Expected `int` >= 0"),
    (FRESHNESS, json.dumps(freshness(age_ms=10**30)).encode(), f"{FRESHNESS} $.age_ms: Expected `int` <="),
    (FRESHNESS, json.dumps(freshness("n2")).encode(), f"{FRESHNESS} $.node: must be 'n1' as in the subject"),
    (FRESHNESS, json.dumps(freshness(freshness="rotten")).encode(), f"{FRESHNESS} $.freshness: Invalid enum value"),
    (FRESHNESS, b'{"x":' + b"[" * 200_000, f"{FRESHNESS} $: maximum recursion depth exceeded"),
    (FRESHNESS, b'{"x":"' + b"y" * 1_000_000, f"{FRESHNESS} $: Input data was truncated"),
)


async def test_a_malformed_event_is_put_aside_and_the_next_one_is_handled(servers: Servers) -> None:
    async with servers.service("jobs") as jobs, servers.client() as client:
        await jobs.ready()
        js = client.jetstream()
        for subject, data, _ in MALFORMED:
            await js.publish(subject, data)
        await js.publish(FRESHNESS, json.dumps(freshness()).encode())
        await jobs.reaches('colo_jobs_events_handled_total{type="FreshnessChanged"}', 1)
        assert await jobs.number("colo_jobs_dead_letters_total") == len(MALFORMED)
        reported = jobs.log("dead-letter")
        assert len(reported) == len(MALFORMED)
        for line, (subject, _, sentence) in zip(reported, MALFORMED, strict=True):
            assert line["subject"] == subject
            assert line["reason"].startswith(sentence)
            assert len(line["reason"]) < 500

        async def all_acknowledged() -> bool:
            """What is handled is acknowledged a moment later. None of them is delivered again."""
            consumers = await js.consumers_info("COLO_EVT")
            assert not [consumer.name for consumer in consumers if consumer.num_redelivered]
            return not any(consumer.num_ack_pending or consumer.num_pending for consumer in consumers)

        await eventually(all_acknowledged, "every message is acknowledged")
        dead_letters = await dead_letters_of(client, "jobs", len(MALFORMED))
        assert [dead_letter.reason for dead_letter in dead_letters] == [line["reason"] for line in reported]
        assert [dead_letter.size_bytes for dead_letter in dead_letters] == [len(data) for _, data, _ in MALFORMED]


async def dead_letters_of(client: Client, service: str, count: int) -> list[DeadLettered]:
    """The first dead letters of a service."""
    reader = await client.jetstream().pull_subscribe(f"colo.v1.evt.dead-letter.{service}", stream="COLO_DEAD")
    found: list[Fact] = []
    while len(found) < count:
        found += [wire.decode(each.subject, each.data) for each in await reader.fetch(count - len(found), timeout=30)]
    return [dead_letter for dead_letter in found if isinstance(dead_letter, DeadLettered)]


async def test_dead_letters_are_listed_read_replayed_and_dropped_from_the_command_line(
    servers: Servers, capsys: pytest.CaptureFixture[str]
) -> None:
    async with servers.service("jobs") as jobs, servers.service("gateway") as gateway, servers.client() as client:
        await jobs.ready()

        async def colo(*words: str) -> tuple[int, str]:
            status = await asyncio.to_thread(main, ["dead-letters", *words, "--api", gateway.address])
            printed = capsys.readouterr()
            return status, printed.out + printed.err

        async def waiting() -> list[int]:
            """The numbers of the dead letters of jobs; the gateway hears the same subject and writes its own."""
            status, text = await colo("list", "--service", "jobs", "-o", "json")
            return [each["seq"] for each in json.loads(text)["dead_letters"]] if status == 0 else []

        async def answers() -> bool:
            return await colo("list") == (0, "no dead letters\n")

        await eventually(answers, "the gateway answers")
        await client.jetstream().publish(FRESHNESS, b'{"age_ms":', headers={"traceparent": "t"})
        (first,) = await eventually(waiting, "the letter is stored")
        status, text = await colo("list", "--service", "jobs")
        row = rf"^ *{first} +jobs +colo\.v1\.evt\.freshness\.n1\.changed +10 bytes +\S+ ago +colo\.v1\.evt\.freshness"
        assert status == 0
        assert re.search(row, text, re.MULTILINE)
        status, text = await colo("show", str(first))
        assert status == 0
        assert text.splitlines()[-2:] == ["  traceparent: t", '{"age_ms":']
        assert (await colo("list", "--service", "evictor"))[1] == "no dead letters\n"
        # Still malformed: it is handled again, and gets a letter of its own.
        assert await colo("replay", str(first)) == (0, f"{first} replayed: {FRESHNESS}\n")
        await jobs.reaches("colo_jobs_dead_letters_total", 2)
        (second,) = await eventually(waiting, "the second letter is stored")
        assert second > first
        assert (await colo("show", str(first)))[0] == 1
        assert await colo("drop", str(second)) == (0, f"{second} dropped: {FRESHNESS}\n")
        rule = f"colo: dead letter: there is none of this number (got {second})\n"
        assert await colo("drop", str(second)) == (1, rule)
        assert await waiting() == []
        assert (await colo("list", "--limit", "0"))[0] == 2
        assert (await colo("drop"))[0] == 2


UNCHANGED: Final = FreshnessChanged(
    node="n1", freshness=Freshness.FRESH, previous=Freshness.WARMING, sample_seq=3, age_ms=0, at_ms=1_000
)
LETTER: Final = DeadLettered(service="test", subject=FRESHNESS, reason="why", at_ms=1_000)
WHOLE: Final = wire.encode(UNCHANGED)
#: A letter, and what the operator is told who has it replayed.
REPLAYED: Final[tuple[tuple[DeadLettered, int, str], ...]] = (
    (structs.replace(LETTER, size_bytes=len(WHOLE), data=WHOLE), 0, f"replayed: {FRESHNESS}"),
    (
        structs.replace(LETTER, size_bytes=2_000_000, payload="{"),
        1,
        "holds only the beginning of its 2000000 bytes, which no stream keeps; drop it instead",
    ),
    (
        structs.replace(LETTER, size_bytes=600_000, payload="{", stream="COLO_EVT", stream_seq=999_999_999),
        1,
        "does not hold its message, and COLO_EVT no longer keeps it (message 999999999); drop it instead",
    ),
)


async def test_a_letter_that_has_its_message_whole_is_replayed_and_another_one_says_why_not(
    servers: Servers, capsys: pytest.CaptureFixture[str]
) -> None:
    async with servers.service("jobs") as jobs, servers.service("gateway") as gateway, servers.client() as client:
        await jobs.ready()
        js = client.jetstream()
        for letter, status, reported in REPLAYED:
            stored = await js.publish("colo.v1.evt.dead-letter.test", wire.encode(letter))
            assert (
                await asyncio.to_thread(main, ["dead-letters", "show", str(stored.seq), "--api", gateway.address]) == 0
            )
            assert ("\n  cannot be replayed: it " in capsys.readouterr().out) == (status == 1)
            words = ["dead-letters", "replay", str(stored.seq), "--api", gateway.address]
            assert await asyncio.to_thread(main, words) == status
            printed = capsys.readouterr()
            assert reported in printed.out + printed.err
        await jobs.reaches('colo_jobs_events_handled_total{type="FreshnessChanged"}', 1)


#: Would clear a terminal, set its title and its clipboard, hide what follows, and write lines of its own beside those of colo.
CODES: Final = "\x1b[2J\x1b]0;t\x07\x1b]52;c;bHM=\x07\x9b8m\u202e\r\b"


async def test_what_anybody_sent_is_shown_without_what_a_terminal_would_obey(
    servers: Servers, capsys: pytest.CaptureFixture[str]
) -> None:
    letter = structs.replace(LETTER, reason=f"{CODES}\nwhy", headers={"x": CODES})
    texts = {
        json.dumps({"name": f"{CODES}späte\nZeile"}, ensure_ascii=False): '{\n  "name": "\\u001b[2J',
        f"eine\nzweite Zeile ✓ {CODES}": "\neine\nzweite Zeile ✓ \\u001b[2J\\u001b]0;t\\u0007",
    }
    async with servers.service("gateway") as gateway, servers.client() as client:
        await gateway.logged("nats-connected")

        async def colo(*words: str) -> str:
            assert await asyncio.to_thread(main, [*words, "--api", gateway.address]) == 0
            printed = capsys.readouterr()
            assert all(each.isprintable() or each == "\n" for each in printed.out + printed.err)
            return printed.out

        for text, shown in texts.items():
            fact = structs.replace(letter, data=text.encode(), size_bytes=len(text.encode()))
            stored = await client.jetstream().publish("colo.v1.evt.dead-letter.test", wire.encode(fact))
            printed = await colo("dead-letters", "show", str(stored.seq))
            assert shown in printed
            assert "  why: \\u001b[2J" in printed
            for form in ("json", "yaml"):
                found = yaml.safe_load(await colo("dead-letters", "show", str(stored.seq), "-o", form))
                assert (found["text"], found["headers"]["x"]) == (text, CODES)
        listed = await colo("dead-letters", "list")
        assert len(listed.splitlines()) == 1 + len(texts)
        # An event that is malformed becomes a letter of the gateway's own, which is a line of its history.
        await client.jetstream().publish(FRESHNESS, json.dumps({CODES: 1, "node": CODES}).encode())

        async def is_in_history() -> bool:
            return FRESHNESS in await colo("history", "--since", "1h")

        await eventually(is_in_history, "the letter is in the history", limit_s=20)


async def test_garbage_among_telemetry_costs_its_sample_and_no_more(servers: Servers) -> None:
    async with servers.service("overcommit") as overcommit, servers.client() as client:
        # Alone it measures and promises nothing, because nobody lists what is held.
        await overcommit.not_ready("[-]fleet failed: nothing is promised before", "[+]nats ok")
        node = a_node("n1")
        await client.jetstream().publish(subject_of(node), wire.encode(node))
        await overcommit.reaches('colo_overcommit_events_handled_total{type="NodeTopologyReported"}', 1)
        sample = msgspec.to_builtins(a_sample("n1"))
        bad = (
            b"\xc1\xff\x00",
            msgspec.msgpack.encode({**sample, "cpu_used_mcpu": -1}),
            msgspec.msgpack.encode({**sample, "cpu_used_mcpu": float("nan")}),
            msgspec.msgpack.encode({**sample, "memory_used_bytes": 2**63}),
            msgspec.msgpack.encode({**sample, "node": "n2"}),
            b"\x81\xa1x" + b"\x91" * 100_000,
        )
        for number, data in enumerate(bad, start=1):
            # Live messages of a subject replace each other where a reader is slow; these are all to be seen.
            await client.publish(USAGE, data)
            await overcommit.reaches("colo_overcommit_telemetry_malformed_total", number)
        assert await overcommit.number("colo_overcommit_dead_letters_total") == 0
        assert [line["subject"] for line in overcommit.log("telemetry-malformed")] == [USAGE]
        await client.publish(USAGE, wire.encode(a_sample("n1")))
        await overcommit.reaches('colo_overcommit_events_handled_total{type="NodeUsageSampled"}', 1)
        answer = await ask(client, rq.ListNodes())
        assert [node.cpu_used_mcpu for node in answer.nodes] == [8_000]


async def test_subjects_of_another_version_or_nobody_disturb_nobody(servers: Servers) -> None:
    async with servers.service("jobs") as jobs, servers.client() as client:
        await jobs.ready()
        js = client.jetstream()
        # No stream keeps another version: whoever sends it is told at once.
        with pytest.raises(nats.js.errors.NoStreamResponseError):
            await js.publish("colo.v2.evt.freshness.n1.changed", b"{}")
        with pytest.raises(nats.errors.NoRespondersError):
            await client.request("colo.v2.req.jobs.list", b"{}", timeout=30)
        with pytest.raises(nats.errors.NoRespondersError):
            await client.request("colo.v1.req.jobs.unknown", b"{}", timeout=30)
        for subject in ("colo.v1.evt.job.unknown", "colo.v1.evt.freshness.n1.unknown", "colo.v1.cmd.node.n1.unknown"):
            await js.publish(subject, b"{}")
        await js.publish(FRESHNESS, json.dumps(freshness()).encode())
        await jobs.reaches('colo_jobs_events_handled_total{type="FreshnessChanged"}', 1)
        assert await jobs.number("colo_jobs_dead_letters_total") == 0


# ---------------------------------------------------------------- jobs


HTTP_JOBS: Final[tuple[tuple[dict[str, Any] | bytes, str, str], ...]] = (
    (job(cpu="-1"), "tasks[0].cpu", "must"),
    (job(cpu="0"), "tasks[0].cpu", "must be from 10m to 1024 CPUs"),
    (job(cpu="100000"), "tasks[0].cpu", "must be from 10m to 1024 CPUs"),
    (job(cpu="8m"), "tasks[0].cpu", "must be at least 10m"),
    (job(memory="-1Gi"), "tasks[0].memory", "must"),
    (job(memory="100Pi"), "tasks[0].memory", "must be from 1Mi to 16Ti"),
    (job(replicas=-1), "tasks[0].replicas", "must be a whole number from 1 to 10000"),
    (job(replicas=10**9), "tasks[0].replicas", "must be a whole number from 1 to 10000"),
    ({**job(), "priority": 10**30}, "priority", "must be"),
    ({**job(), "queue": "nowhere"}, "queue", "there is no such queue"),
    ({**job(cpu="1500m"), "qos": "LSR", "band": "prod"}, "tasks[0].cpu", "must be whole CPUs"),
    (job(cpu="1500m", place={"cpu_policy": "exclusive"}), "tasks[0].place.cpu_policy", "needs a request of whole CPUs"),
    (job(place={"devices": {"gpu": 0.5}}), "tasks[0].place.devices.gpu", "must be a whole number"),
    (job(place={"numa_exclusive": "required"}), "tasks[0].place.numa_exclusive", "needs a `numa_policy`"),
    (b'{"name": NaN}', "body", "must be JSON"),
    (b"[" * 100_000, "body", "must be"),
)


async def test_an_absurd_job_is_refused_by_field_and_rule_over_http(servers: Servers) -> None:
    async with (
        servers.service("jobs") as jobs,
        servers.service("gateway") as gateway,
        aiohttp.ClientSession(gateway.address) as http,
    ):
        await jobs.ready()
        # It answers what jobs and the gateway know; the others are not needed for it.
        await gateway.not_ready("scheduler")
        for body, field, rule in HTTP_JOBS:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            async with http.post("/v1/jobs", data=data, headers={"Content-Type": "application/json"}) as reply:
                problem = await reply.json()
            assert (reply.status, problem["field"]) == (400, field), problem
            assert problem["rule"].startswith(rule)
            assert len(problem["got"]) < 200
        async with http.post("/v1/jobs", json=job()) as reply:
            assert reply.status == 201


DIRECT_JOBS: Final[tuple[tuple[dict[str, Any], str], ...]] = (
    ({"request": {"cpu_mcpu": -5, "memory_bytes": 1 << 30}}, "tasks[0].cpu"),
    ({"request": {"cpu_mcpu": 10**30, "memory_bytes": 1 << 30}}, "tasks[0].cpu"),
    ({"request": {"cpu_mcpu": 1_000, "memory_bytes": -(2**63)}}, "tasks[0].memory"),
    ({"replicas": 0}, "tasks[0].replicas"),
    ({"replicas": 10**12}, "tasks[0].replicas"),
    ({"name": "../../etc"}, "tasks[0].name"),
    ({"run": {"command": ["a\0b"]}}, "tasks[0].command[0]"),
    ({"run": {"work_mcpu_ms": 10**30}}, "tasks[0].work"),
    ({"run": {"grace_ms": -1, "work_mcpu_ms": 1}}, "tasks[0].grace"),
)


async def test_an_absurd_job_is_refused_alike_past_the_gateway(servers: Servers) -> None:
    async with servers.service("jobs") as jobs, servers.client() as client:
        await jobs.ready()
        good = msgspec.to_builtins(submission("good"))
        subject = request_spec_of(rq.SubmitJob).subject.of()
        refused = 0
        for change, field in DIRECT_JOBS:
            bad = json.loads(json.dumps({**good, "job": "bad"}))
            bad["spec"]["tasks"][0].update(change)
            reply = await client.request(subject, json.dumps(bad).encode(), timeout=30)
            answer = wire.decode_reply(rq.SubmitJob, reply.data)
            assert isinstance(answer, rq.Refusal)
            assert (answer.code, answer.field) == (400, field)
            refused += 1
        for data in (b"not json", b"[]", b'{"job":1}', b'{"x":' + b"[" * 100_000):
            answer = wire.decode_reply(rq.SubmitJob, (await client.request(subject, data, timeout=30)).data)
            assert isinstance(answer, rq.Refusal)
            assert (answer.code, answer.field.split()[0]) == (400, subject)
            refused += 1
        assert await jobs.number("colo_jobs_refusals_total") == refused
        assert (await ask(client, rq.ListJobs())).total == 0
        assert isinstance(await ask(client, submission("good")), rq.JobAccepted)


async def test_a_full_queue_says_how_full_it_is_and_takes_no_more(servers: Servers) -> None:
    async with servers.service("jobs", COLO_JOBS_QUEUES="default=5") as jobs, servers.client() as client:
        await jobs.ready()
        assert isinstance(await ask(client, submission("first", replicas=3)), rq.JobAccepted)
        answer = await ask(client, submission("second", replicas=3))
        assert isinstance(answer, rq.Refusal)
        assert (answer.code, answer.field, answer.got) == (429, "queue", "default")
        assert answer.rule.endswith("3 wait, at most 5 may, the job brings 3")
        assert await jobs.number("colo_jobs_submissions_refused_full_total") == 1
        assert await jobs.number("colo_jobs_refusals_total") == 1
        assert isinstance(await ask(client, submission("third", replicas=2)), rq.JobAccepted)


# ---------------------------------------------------------------- commands


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("a,b\n1,2\n", "line 1: must be the header"),
        (HEADER + "0,a,nan,10\n", 'line 2 cpu_pct: must be a number, NaN is refused (got "nan")'),
        (HEADER + "0,a,150,10\n", 'line 2 cpu_pct: must be from 0 to 100 (got "150")'),
        (HEADER, "must hold at least one sample"),
        (gzip.compress(HEADER.encode())[:12], "must be a whole gzip file"),
    ],
    ids=["header", "nan", "range", "empty", "gzip"],
)
def test_a_trace_that_cannot_be_read_is_refused_in_one_line(
    tmp_path: Path, content: str | bytes, sentence: str
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_bytes(content if isinstance(content, bytes) else content.encode())
    lines = refused_start("colo_sim", {"COLO_NATS_URL": "nats://127.0.0.1:9"}, ["--trace", str(trace)])
    assert len(lines) == 1
    assert lines[0].startswith("colo sim: trace.csv")
    assert sentence in lines[0]


def test_the_lab_refuses_such_a_trace_and_leaves(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(HEADER + "0,a,nan,10\n")
    done = subprocess.run(
        [sys.executable, "-m", "colo_cli", "lab", "--trace", str(trace), "--duration", "5s", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "trace.csv line 2 cpu_pct: must be a number, NaN is refused" in done.stderr


async def test_a_trace_with_gaps_is_played_and_the_gaps_are_told(servers: Servers, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(HEADER + "".join(f"{t},a,{10 + t % 7},20\n" for t in (0, 10, 20, 5_000, 5_010, 90_000)))
    async with servers.service("sim", COLO_TRACE=str(trace), COLO_NODES="1") as sim:
        await sim.ready()
        await sim.reaches('colo_collector_events_handled_total{type="SampleRead"}', 1)
        assert any("gap" in line["notice"] for line in sim.log("trace"))


@pytest.mark.parametrize("name", LISTENERS)
def test_a_taken_port_is_named(name: str, tmp_path: Path) -> None:
    environment = {"COLO_NATS_URL": "nats://127.0.0.1:9", "COLO_EXECUTOR_PROCESS_STATE_DIR": str(tmp_path)}
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        lines = refused_start(f"colo_{name}", {**environment, "COLO_HTTP_PORT": str(port)})
    reported = f"colo {name}: http_port: must be a port this program may listen on: Address already in use (got {port})"
    assert lines == [reported]


# Everything that Python loads late is loaded before the user is another one, who may not read the interpreter's own files.
_AS_NOBODY: Final = """
import encodings.ascii, encodings.idna, os, sys
import colo_common.runtime.http, colo_executor.main
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
sys.exit(colo_executor.main.main(sys.argv[1:]))
"""


@pytest.mark.kernel
def test_control_groups_that_may_not_be_written_are_named() -> None:
    # Not below tmp_path, which is closed to other users.
    with tempfile.TemporaryDirectory() as state:
        os.chmod(state, 0o777)
        done = subprocess.run(
            [sys.executable, "-c", _AS_NOBODY, "--process-state-dir", state, "--process-subtree", "colo-refused"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("colo executor: process_cgroup_root: this process may not make control groups below ")
