"""All services of colo as the processes that operators run, with servers of their own, for tests that look from outside."""

from __future__ import annotations

import io
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import uuid4

import aiohttp
import nats
from msgspec import Struct
from nats.js.api import ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError

from colo_cli.lab_options import LabOptions
from colo_cli.lab_processes import NO_PUBLIC_CA, LabProcess, LabProcesses
from colo_common.events.fact import Fact
from colo_common.events.registry import STREAMS
from colo_common.events.subjects import matches
from colo_common.events.wire import decode
from colo_scheduler.ledger.redis import RedisLedger
from tests.support.servers import nats_server, redis_server
from tests.support.waiting import LIMIT_S, eventually

__all__ = ["FINAL", "SERVICES", "Answer", "RunningColo", "flat_environment", "running_colo"]

F = TypeVar("F", bound=Fact)

SPEED: Final = 60
#: Every service that runs in a process of its own; collectors and executors are inside `sim`, one of each a node.
SERVICES: Final = ("overcommit", "jobs", "scheduler", "evictor", "gateway", "sim")
#: States of a job that has ended.
FINAL: Final = ("Completed", "Failed", "Terminated")
_FETCH_MAX: Final = 500
_HTTP_LIMIT_S: Final = 60.0


class Answer(Struct, frozen=True):
    """What the gateway said to one call; `body` is what its JSON means."""

    status: int
    body: Any
    headers: Mapping[str, str]


class RunningColo:
    """The processes, their servers, and the gateway's door."""

    def __init__(
        self, processes: LabProcesses, http: aiohttp.ClientSession, *, nats_url: str, redis_url: str, directory: Path
    ) -> None:
        self.processes = processes
        self.http = http
        self.nats_url = nats_url
        self.redis_url = redis_url
        self.directory = directory

    def process(self, name: str) -> LabProcess:
        """The process of this service as it runs now."""
        return self.processes.running[name]

    @property
    def api(self) -> str:
        """The gateway's address; one that nobody has while it starts."""
        return f"http://{self.process('gateway').address or '127.0.0.1:9'}"

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One call of the API: `body` is sent as JSON, `data` as it is."""
        # A stream: the client warns of large bodies that it would send in one piece.
        sent = io.BytesIO(json.dumps(body).encode() if body is not None else data or b"")
        kind = {"Content-Type": "application/json"} if body is not None else {}
        async with self.http.request(method, self.api + path, data=sent, headers={**kind, **(headers or {})}) as reply:
            text = await reply.text()
            decoded = json.loads(text) if reply.content_type == "application/json" else text
            return Answer(reply.status, decoded, reply.headers)

    async def get(self, path: str) -> Any:
        """The body of what must answer with 200."""

        async def answered() -> Answer | None:
            """None where the gateway asks for patience: a service was busy for as long as a question waits."""
            answer = await self.call("GET", path)
            return None if answer.status == 503 else answer

        answer = await eventually(answered, f"{path} is answered")
        assert answer is not None
        assert answer.status == 200, f"{path}: {answer.status} {answer.body}"
        return answer.body

    async def submit(self, job: Mapping[str, Any], *, key: str = "") -> str:
        """The id of the job. It is handed in again while the gateway says 503, under a key of its own, with which that is harmless;
        with a key that is given, also while the gateway is away.
        """
        headers = {"Idempotency-Key": key or uuid4().hex}

        async def accepted() -> Any:
            try:
                answer = await self.call("POST", "/v1/jobs", job, headers=headers)
            except aiohttp.ClientConnectionError:
                if key:
                    return None
                raise
            if answer.status == 503:
                return None
            assert answer.status == 201, f"{job}: {answer.status} {answer.body}"
            return answer.body["job"]

        found: str = await eventually(accepted, f"{job['name']} is accepted")
        return found

    async def state(self, job: str) -> str:
        """The job's state."""
        found: str = (await self.get(f"/v1/jobs/{job}"))["summary"]["state"]
        return found

    async def reaches(self, job: str, *states: str, limit_s: float = LIMIT_S) -> str:
        """Wait until the job is in one of the states; that state."""

        async def there() -> str:
            state = await self.state(job)
            return state if state in states else ""

        return await eventually(there, f"{job} becomes {' or '.join(states)}", limit_s=limit_s)

    async def cancel_all(self) -> None:
        """Cancel every job that has not ended, and wait until none holds or wants anything."""

        async def all_ended() -> bool:
            jobs = (await self.get("/v1/jobs?limit=1000"))["jobs"]
            live = [job for job in jobs if job["state"] not in FINAL]
            for job in live:
                if job["state"] != "Terminating":
                    await self.call("DELETE", f"/v1/jobs/{job['job']}")
            return not live

        async def nothing_held() -> bool:
            async with self.ledger() as ledger:
                rows = await ledger.rows(sorted(await ledger.changes()))
            return not any(row.holds for row in rows)

        await eventually(all_ended, "every job ends")
        await eventually(nothing_held, "the ledger is empty")

    async def kill(self, name: str) -> None:
        """SIGKILL, and wait until it is gone."""
        process = self.process(name).process
        process.kill()
        assert await process.wait() == -9

    async def restart(self, name: str, *, wait: bool = True) -> None:
        """Start what has ended again, with the settings that it had."""
        assert self.process(name).process.returncode is not None
        await self.processes.heal()
        if wait:
            await self.processes.wait_ready([name])

    async def facts(self, kind: type[F], subject: str) -> list[F]:
        """Every message of a subject that its stream holds, in order."""
        stream = next(
            stream
            for stream, limits in STREAMS.items()
            if any(matches(pattern, subject) for pattern in limits.subjects)
        )
        client = await nats.connect(self.nats_url)
        try:
            js = client.jetstream()
            try:
                await js.get_last_msg(stream.value, subject)
            except NotFoundError:
                return []
            config = ConsumerConfig(deliver_policy=DeliverPolicy.ALL)
            reader = await js.pull_subscribe(subject, stream=stream.value, config=config)
            waiting = (await reader.consumer_info()).num_pending
            found: list[F] = []
            while len(found) < waiting:
                for message in await reader.fetch(min(_FETCH_MAX, waiting - len(found)), timeout=30):
                    fact = decode(message.subject, message.data)
                    assert isinstance(fact, kind)
                    found.append(fact)
            return found
        finally:
            await client.close()

    @asynccontextmanager
    async def ledger(self) -> AsyncIterator[RedisLedger]:
        """The scheduler's ledger as a reader sees it."""
        ledger = RedisLedger.of(self.redis_url, name="colo-test")
        try:
            yield ledger
        finally:
            await ledger.close()


@asynccontextmanager
async def running_colo(
    directory: Path, *, nodes: int = 3, environment: Mapping[str, str] | None = None, limit_s: float = LIMIT_S
) -> AsyncIterator[RunningColo]:
    """Everything, ready: every node promises batch CPU, within `limit_s`. Ended and removed at the end."""
    with nats_server() as nats_, redis_server() as redis_:
        common = flat_environment(directory, nats_.url, redis_.url, nodes) | dict(environment or {})
        processes = LabProcesses(directory, common)
        limit = aiohttp.ClientTimeout(total=_HTTP_LIMIT_S)
        try:
            async with aiohttp.ClientSession(timeout=limit) as http:
                for name in SERVICES:
                    await processes.start(name, f"colo_{name}")
                await processes.wait_ready(list(SERVICES))
                colo = RunningColo(processes, http, nats_url=nats_.url, redis_url=redis_.url, directory=directory)
                await eventually(lambda: _promising(colo, nodes), "every node promises batch CPU", limit_s=limit_s)
                yield colo
        finally:
            await processes.stop()


async def _promising(colo: RunningColo, nodes: int) -> bool:
    answer = await colo.call("GET", "/v1/nodes")
    if answer.status != 200:
        return False
    return sum(node["batch_cpu_mcpu"] > 0 for node in answer.body["nodes"]) == nodes


def flat_environment(directory: Path, nats_url: str, redis_url: str, nodes: int) -> dict[str, str]:
    """As `colo lab` sets it, on free ports. The machines' day is a flat one: their load is no part of these tests."""
    trace = directory / "flat.csv"
    trace.write_text("time,node,cpu_pct,mem_pct\n0,m1,20,20\n86400,m1,20,20\n")
    options = LabOptions(nodes=nodes, speed=SPEED)
    period_ms = options.sample_period_ms
    return {
        **NO_PUBLIC_CA,
        "COLO_NATS_URL": nats_url,
        "COLO_REDIS_URL": redis_url,
        "COLO_HTTP_PORT": "0",
        "COLO_CLOCK_SPEED": str(SPEED),
        "COLO_CLOCK_ORIGIN_MS": str(time.time_ns() // 1_000_000),
        "COLO_OVERCOMMIT_LEASE_MS": str(options.lease_ms),
        "COLO_OVERCOMMIT_STALE_AFTER_MS": str(5 * period_ms),
        "COLO_OVERCOMMIT_LOST_AFTER_MS": str(40 * period_ms),
        "COLO_OVERCOMMIT_REFRESH_MS": str(max(60_000, 8 * period_ms)),
        "COLO_EVICTOR_POLICY_GAP_MS": str(4 * period_ms),
        # A question that a killed service took with it is given up soon.
        "COLO_GATEWAY_ASK_TIMEOUT_S": "2",
        "COLO_SIM_NODES": str(nodes),
        "COLO_SIM_TRACE": str(trace),
        "COLO_SIM_SAMPLE_MS": str(period_ms),
        "COLO_SIM_REFLEX_LEASE_DEFAULT_MS": str(options.lease_ms),
    }
