"""The gateway's door as programs meet it: every route over real services, what it refuses, and how a stream is resumed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import pytest
import yaml

from colo_common.adapters.bus_nats import NatsBus
from colo_common.adapters.clock import SystemClock
from colo_common.events.requests import NodeExplained
from colo_common.runtime.build import build_version
from colo_common.runtime.telemetry import Telemetry
from colo_gateway.api import Api
from colo_gateway.ask import Asker
from colo_gateway.audit_routes import AuditRoutes
from colo_gateway.body import BODY_BYTES_MAX
from colo_gateway.core import GatewayCore
from colo_gateway.dead_letters import DeadLetterRoutes
from colo_gateway.state import StateRoutes
from colo_gateway.streams import Streams
from colo_gateway.survey import ServiceSurvey
from colo_overcommit.explain import recompute
from tests.support.bus_memory import MemoryBus
from tests.support.running import SERVICES, RunningColo
from tests.support.waiting import eventually

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="session")]

JOB: dict[str, Any] = {"name": "probe", "cpu": "1", "memory": "64Mi", "work": "10 cpu-s"}
LONG = JOB | {"name": "long", "work": "100 cpu-h"}
TOO_WIDE = JOB | {"name": "wide", "cpu": "64"}


# ---------------------------------------------------------------- jobs


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", json.dumps(JOB).encode()),
        ("application/yaml", b"name: probe\ncpu: 1\nmemory: 64Mi\nwork: 10 cpu-s\n"),
        ("text/yaml; charset=utf-8", b"name: probe\ntasks: [{name: main, cpu: 1, memory: 64Mi, work: 10 cpu-s}]\n"),
    ],
    ids=["json", "yaml", "yaml-with-tasks"],
)
async def test_a_job_is_submitted_as_json_and_as_yaml_and_completes(colo: RunningColo, kind: str, body: bytes) -> None:
    answer = await colo.call("POST", "/v1/jobs", data=body, headers={"Content-Type": kind})
    assert answer.status == 201
    assert (answer.body["state"], answer.body["version"]) == ("Inqueue", 1)
    job = answer.body["job"]
    assert job.startswith("probe-")
    assert await colo.reaches(job, "Completed", "Failed") == "Completed"
    detail = await colo.get(f"/v1/jobs/{job}")
    (replica,) = detail["replicas"]
    assert (replica["replica"], replica["state"], replica["exit_code"]) == (f"{job}/main/0", "Succeeded", 0)
    spec = detail["spec"]["tasks"][0]
    assert spec["request"] == {"cpu_mcpu": 1000, "memory_bytes": 64 << 20}
    assert spec["run"]["work_mcpu_ms"] == 10_000_000


async def test_the_same_key_and_job_again_is_the_same_submission(colo: RunningColo) -> None:
    key = {"Idempotency-Key": "once"}
    first = await colo.call("POST", "/v1/jobs", JOB, headers=key)
    again = await colo.call("POST", "/v1/jobs", JOB, headers=key)
    assert (first.status, again.status) == (201, 201)
    assert first.body["job"] == again.body["job"]
    listed = (await colo.get("/v1/jobs?limit=1000"))["jobs"]
    assert [job["job"] for job in listed].count(first.body["job"]) == 1
    other = await colo.call("POST", "/v1/jobs", JOB | {"replicas": 2}, headers=key)
    assert (other.status, other.body["field"], other.body["rule"]) == (409, "job", "another job has this id")


async def test_keys_whose_jobs_would_have_the_same_id_give_two_jobs(colo: RunningColo) -> None:
    # Two keys whose digests begin with the same 32 bits.
    keys = [{"Idempotency-Key": "key-8337"}, {"Idempotency-Key": "key-15029"}]
    jobs = [(await colo.call("POST", "/v1/jobs", JOB, headers=key)).body["job"] for key in (*keys, *keys)]
    assert jobs[0].endswith("-7152ff1c")
    assert jobs[0] != jobs[1]
    assert jobs[2:] == jobs[:2]


async def test_jobs_are_listed_newest_first_by_state_and_by_queue(colo: RunningColo) -> None:
    # What the tests before handed in may still wait for its place.
    await colo.cancel_all()
    waiting = [await colo.submit(TOO_WIDE), await colo.submit(TOO_WIDE | {"queue": "tiny"})]
    listed = await colo.get("/v1/jobs?state=inqueue,PENDING")
    assert [job["job"] for job in listed["jobs"]] == waiting[::-1]
    assert listed["total"] == 2
    assert [job["job"] for job in (await colo.get("/v1/jobs?queue=tiny"))["jobs"]] == waiting[1:]
    newest = await colo.get("/v1/jobs?limit=1")
    assert [job["job"] for job in newest["jobs"]] == waiting[1:]
    assert newest["total"] > 1
    queues = {queue["queue"]: queue for queue in (await colo.get("/v1/queues"))["queues"]}
    assert {name: (queue["waiting"], queue["capacity"]) for name, queue in queues.items()} == {
        "default": (1, 1000),
        "tiny": (1, 2),
    }
    full = await colo.call("POST", "/v1/jobs", TOO_WIDE | {"queue": "tiny", "replicas": 2})
    assert (full.status, full.body["field"], full.body["got"]) == (429, "queue", "tiny")
    assert "1 wait, at most 2 may, the job brings 2" in full.body["rule"]
    for job in waiting:
        assert (await colo.call("DELETE", f"/v1/jobs/{job}")).status == 200
        assert await colo.reaches(job, "Terminated") == "Terminated"


async def test_a_cancelled_job_is_stopped_and_holds_nothing(colo: RunningColo) -> None:
    job = await colo.submit(LONG | {"replicas": 2})
    await colo.reaches(job, "Running")
    answer = await colo.call("DELETE", f"/v1/jobs/{job}")
    assert (answer.status, answer.body["state"]) == (200, "Terminating")
    assert await colo.reaches(job, "Terminated", "Completed", "Failed") == "Terminated"
    summary = (await colo.get(f"/v1/jobs/{job}"))["summary"]
    assert (summary["stopped"], summary["running"], summary["waiting"]) == (2, 0, 0)

    async def released() -> bool:
        async with colo.ledger() as ledger:
            rows = await ledger.rows(sorted(await ledger.changes()))
        return not any(hold.placement.job == job for row in rows for hold in row.holds)

    await eventually(released, "the ledger holds nothing of the job")


# ---------------------------------------------------------------- explanations


async def test_a_waiting_replica_is_explained_with_the_nearest_miss(colo: RunningColo) -> None:
    job = await colo.submit(TOO_WIDE)

    async def decided() -> Any:
        explained = await colo.get(f"/v1/jobs/{job}/explain")
        return explained if explained["replicas"][0]["decision"] else None

    explained = await eventually(decided, "the scheduler looked at it")
    (item,) = explained["replicas"]
    decision = item["decision"]
    assert (item["state"], decision["placement"], decision["nodes"]) == ("Pending", None, 2)
    assert [(count["reason"], count["nodes"]) for count in decision["counts"]] == [("batch-cpu-short", 2)]
    nearest = decision["nearest"]
    assert (nearest["reason"], nearest["unit"], nearest["need"]) == ("batch-cpu-short", "mcpu", 64_000)
    assert 0 < nearest["have"] < 64_000
    short, have = (f"{mcpu / 1000:.3f}".rstrip("0").rstrip(".") for mcpu in (64_000 - nearest["have"], nearest["have"]))
    assert item["sentence"] == (
        f"0 of 2 nodes fit: 2 batch-cpu-short; nearest miss: {short} CPU short in {nearest['node']} ({have} of 64)"
    )
    assert explained["partial"] == ""
    await colo.call("DELETE", f"/v1/jobs/{job}")


async def test_a_running_replica_is_explained_with_its_score(colo: RunningColo) -> None:
    job = await colo.submit(LONG | {"replicas": 2})
    replica = f"{job}/main/1"

    async def running() -> dict[str, Any] | None:
        # A job runs as soon as one of its replicas does.
        found = await colo.get(f"/v1/jobs/{job}/explain?replica={replica}")
        return found if found["replicas"][0]["sentence"].startswith("running") else None

    explained = await eventually(running, f"{replica} runs")
    assert explained is not None
    (item,) = explained["replicas"]
    placement = item["decision"]["placement"]
    rows = {row["node"]: row for row in item["decision"]["scores"]}
    chosen = rows[placement["node"]]
    assert chosen["total"] == max(row["total"] for row in rows.values())
    scores = ", ".join(f"{name} {value}" for name, value in sorted(chosen["scores"].items()))
    zones = [zone["zone"] for zone in placement["zones"]]
    where = f"running on {placement['node']}, zone {zones[0]}"
    best = f"{where}: best of 2 fitting nodes with score {chosen['total']} ({scores})"
    # Whether both replicas come in one batch is up to the services.
    assert item["sentence"] in (best, f"{best}; 2nd of 2 decided together")
    (detail,) = [item for item in explained["job"]["replicas"] if item["replica"] == replica]
    assert (detail["node"], detail["zones"]) == (placement["node"], zones)
    await colo.call("DELETE", f"/v1/jobs/{job}")


async def test_the_explanation_of_a_node_recomputes_to_the_unit(colo: RunningColo) -> None:
    job = await colo.submit(LONG | {"replicas": 3})
    await colo.reaches(job, "Running")
    nodes = (await colo.get("/v1/nodes"))["nodes"]
    assert [node["node"] for node in nodes] == ["node-01", "node-02"]
    for node in nodes:
        body = await colo.get(f"/v1/nodes/{node['node']}/explain")
        published = msgspec.convert(body, NodeExplained).published
        assert recompute(published.explanation) == published.zones
        for name in ("batch_cpu_mcpu", "batch_memory_bytes", "headroom_cpu_mcpu", "headroom_memory_bytes"):
            assert sum(getattr(zone, name) for zone in published.zones) == getattr(published, name)
        assert published.batch_cpu_mcpu > 0
        assert {term.unit for term in published.explanation.terms} == {"mcpu", "bytes", "pct"}
        assert body["newest"]["formula"] == body["published"]["explanation"]["formula"]
    await colo.call("DELETE", f"/v1/jobs/{job}")


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("change", "field", "rule"),
    [
        ({"cpu": "-1"}, "cpu", "must not be negative"),
        ({"cpu": "1e400"}, "cpu", "must have an exponent between -40 and 40"),
        ({"replicas": 10**9}, "replicas", "must be a whole number from 1 to 10000"),
        ({"replica": 1}, "replica", "is not a key of a job file; did you mean `replicas`?"),
        ({"queue": "nope"}, "queue", "there is no such queue; queues: default tiny"),
        ({"name": "Ä"}, "name", ""),
        ({"work": "much"}, "work", 'must be CPU time such as "30 cpu-min", "90 cpu-s" or "2 cpu-h"'),
    ],
    ids=["negative", "huge-exponent", "many-replicas", "typing-error", "no-such-queue", "bad-name", "work-in-words"],
)
async def test_a_bad_job_is_refused_with_field_and_rule(
    colo: RunningColo, change: Mapping[str, Any], field: str, rule: str
) -> None:
    answer = await colo.call("POST", "/v1/jobs", JOB | change)
    assert (answer.status, answer.body["status"], answer.body["field"]) == (400, 400, field)
    assert answer.body["rule"].startswith(rule)
    assert answer.body["got"]


@pytest.mark.parametrize(
    ("kind", "data", "rule"),
    [
        ("application/json", b'{"name":', "must be JSON"),
        ("application/json", b"[1]", "must be a mapping"),
        ("application/yaml", b"name: [", "must be YAML"),
        ("application/yaml", b"[" * 50_000, "must not be nested deeper"),
    ],
    ids=["cut-json", "list", "cut-yaml", "deep-yaml"],
)
async def test_a_body_that_is_no_job_is_refused(colo: RunningColo, kind: str, data: bytes, rule: str) -> None:
    answer = await colo.call("POST", "/v1/jobs", data=data, headers={"Content-Type": kind})
    assert (answer.status, answer.body["field"]) == (400, "body")
    assert answer.body["rule"].startswith(rule)


async def test_a_body_above_the_limit_is_refused_and_the_gateway_goes_on(colo: RunningColo) -> None:
    answer = await colo.call("POST", "/v1/jobs", data=b"#" * (BODY_BYTES_MAX + 1))
    rule = f"must have at most {BODY_BYTES_MAX} bytes"
    assert answer.body == {"status": 413, "field": "body", "rule": rule, "got": ""}
    long_key = await colo.call("POST", "/v1/jobs", JOB, headers={"Idempotency-Key": "x" * 257})
    assert (long_key.status, long_key.body["field"]) == (400, "Idempotency-Key")


@pytest.mark.parametrize(
    ("method", "path", "status", "field"),
    [
        ("GET", "/v1/jobs?limit=0", 400, "limit"),
        ("GET", "/v1/jobs?limit=1001", 400, "limit"),
        ("GET", "/v1/jobs?limit=many", 400, "limit"),
        ("GET", "/v1/jobs?state=Gone", 400, "states"),
        ("GET", "/v1/stream?since=-1", 400, "since"),
        ("GET", "/v1/stream?types=JobSubmitted,JobEaten", 400, "types"),
        ("GET", "/v1/reservations?phase=gone", 400, "phases"),
        ("GET", "/v1/nodes/a%2Fb/explain", 400, "node"),
        ("GET", "/v1/jobs/none", 404, "job"),
        ("DELETE", "/v1/jobs/none", 404, "job"),
        ("GET", "/v1/jobs/none/explain", 404, "job"),
        ("GET", "/v1/jobs/none/trace", 404, "job"),
        ("GET", "/v1/nodes/node-99/explain", 404, "node"),
        ("GET", "/v1/jobs?foo=1", 400, "foo"),
        ("GET", "/v1/jobs?limit=1&limit=2", 400, "limit"),
        ("POST", "/v1/plan?place=1", 400, "place"),
        ("GET", "/v1/version?verbose=1", 400, "verbose"),
        ("GET", "/v1/nothing", 404, "path"),
        ("PUT", "/v1/jobs", 405, "method"),
    ],
)
async def test_what_is_not_there_or_makes_no_sense_is_refused(
    colo: RunningColo, method: str, path: str, status: int, field: str
) -> None:
    answer = await colo.call(method, path)
    assert (answer.status, answer.body["status"], answer.body["field"]) == (status, status, field)
    assert answer.body["rule"]


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/v1/jobs?stat=Running", "is not a query key of this path; did you mean `state`?"),
        ("/v1/version?verbose=1", "is not a query key of this path; it has none"),
        ("/v1/jobs?state=Runing", "did you mean `Running`?"),
        ("/v1/nodes/node-1/explain", "did you mean `node-01`?"),
        ("/v1/jobs/nearby", "did you mean `nearby-"),
    ],
)
async def test_a_typing_error_is_told_the_nearest_name(colo: RunningColo, path: str, hint: str) -> None:
    await colo.submit(JOB | {"name": "nearby"}, key="nearby")
    answer = await colo.call("GET", path)
    assert hint in answer.body["rule"]


async def test_yaml_by_plain_curl_is_told_how_it_is_sent(colo: RunningColo) -> None:
    body = yaml.safe_dump(JOB).encode()
    plain = await colo.call(
        "POST", "/v1/jobs", data=body, headers={"Content-Type": "application/x-www-form-urlencoded"}
    )
    assert (plain.status, plain.body["field"], plain.body["got"][:1]) == (400, "body", '"')
    assert "YAML needs `Content-Type: application/yaml`" in plain.body["rule"]


# ---------------------------------------------------------------- the stream


class Reader:
    """One reader of the stream; `next` is the next event as (id, type, body)."""

    def __init__(self, lines: AsyncIterator[bytes]) -> None:
        self._lines = lines

    async def next(self) -> tuple[int, str, dict[str, Any]]:
        fields: dict[str, str] = {}
        async for line in self._lines:
            text = line.decode().rstrip("\n")
            if not text and fields:
                return int(fields["id"]), fields["event"], json.loads(fields["data"])
            name, _, value = text.partition(": ")
            if name:
                fields[name] = value
        raise AssertionError("the stream ended")


async def test_a_stream_is_resumed_after_the_last_event_that_was_seen(colo: RunningColo) -> None:
    job = await colo.submit(JOB)
    await colo.reaches(job, "Completed")
    url = f"{colo.api}/v1/stream?job={job}"
    whole: list[tuple[int, str, dict[str, Any]]] = []
    async with colo.http.get(url, headers={"Last-Event-ID": "0"}) as reply:
        assert (reply.status, reply.content_type) == (200, "text/event-stream")
        reader = Reader(reply.content)
        while not whole or whole[-1][2].get("state") != "Completed":
            whole.append(await reader.next())
    kinds = [kind for _, kind, _ in whole]
    assert {"JobSubmitted", "PlacementsRequested", "PlacementsDecided", "ReplicaStarted", "ReplicaEnded"} <= set(kinds)
    positions = [position for position, _, _ in whole]
    assert positions == sorted(set(positions))
    seen = whole[2][0]
    for resume in (f"&since={seen}", ""):
        headers = {} if resume else {"Last-Event-ID": str(seen)}
        async with colo.http.get(url + resume, headers=headers) as reply:
            reader = Reader(reply.content)
            assert [await reader.next() for _ in whole[3:]] == whole[3:]


async def test_a_stream_without_a_position_shows_what_comes_and_only_what_is_wanted(colo: RunningColo) -> None:
    async with colo.http.get(f"{colo.api}/v1/stream?types=JobSubmitted,jobstatechanged") as reply:
        reader = Reader(reply.content)
        job = await colo.submit(JOB)

        async def next_of_job() -> tuple[int, str, dict[str, Any]]:
            """Jobs of the tests before may end meanwhile."""
            while True:
                position, kind, body = await reader.next()
                assert kind in ("JobSubmitted", "JobStateChanged")
                if body["job"] == job:
                    return position, kind, body

        position, kind, body = await next_of_job()
        assert (kind, body["spec"]["tasks"][0]["replicas"]) == ("JobSubmitted", 1)
        after, kind, _ = await next_of_job()
        assert (kind, after > position) == ("JobStateChanged", True)


async def test_a_reader_that_goes_away_is_no_error(colo: RunningColo) -> None:
    log = colo.process("gateway").log
    for _ in range(3):
        async with colo.http.get(f"{colo.api}/v1/stream", headers={"Last-Event-ID": "0"}) as reply:
            await reply.content.readline()
            reply.close()
        # Something to tell it.
        await colo.reaches(await colo.submit(JOB), "Completed")
    assert not [line for line in log.read_text().splitlines() if '"level":"error"' in line]


# ---------------------------------------------------------------- documents and health


async def test_the_openapi_document_lists_exactly_what_is_served(colo: RunningColo) -> None:
    document = await colo.get("/v1/openapi.json")
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    asker, core = Asker(MemoryBus(), 1.0), GatewayCore(event_log_size=1, trace_size=1)
    survey = ServiceSurvey(NatsBus("nats://127.0.0.1:9", name="nobody"), 1.0)
    api = Api(
        asker=asker,
        core=core,
        streams=Streams(limit=1, queue_size=1),
        state=StateRoutes(
            asker=asker, core=core, survey=survey, now_ms=lambda: 0, clock_speed=1.0, version=build_version()
        ),
        dead_letters=DeadLetterRoutes(
            MemoryBus(), NatsBus("nats://127.0.0.1:9", name="nobody").dead_letters, lambda: 0
        ),
        audit=AuditRoutes(NatsBus("nats://127.0.0.1:9", name="nobody").audit),
        telemetry=Telemetry("gateway"),
        clock=SystemClock(),
        clock_speed=1.0,
        version="1",
        trace_ratio=1.0,
    )
    served = {(route.method, route.path) for route in api.routes()}
    assert described == served
    assert document["info"]["version"] == build_version()
    assert await colo.get("/v1/version") == {"version": build_version(), "schema": "v1"}


@pytest.mark.parametrize("name", SERVICES)
async def test_every_service_says_how_it_is(colo: RunningColo, name: str) -> None:
    address = f"http://{colo.process(name).address}"

    async def page(path: str) -> tuple[int, str]:
        async with colo.http.get(address + path) as reply:
            return reply.status, await reply.text()

    assert await page("/livez") == (200, "ok\n")
    assert await page("/readyz") == (200, "ok\n")
    status, parts = await page("/readyz?verbose")
    assert (status, parts.splitlines()[-1]) == (200, "readyz check passed")
    assert "[+]nats ok" in parts.splitlines()
    status, metrics = await page("/metrics")
    assert status == 200
    assert f'colo_build_info{{version="{build_version()}"}} 1.0' in metrics.splitlines()
