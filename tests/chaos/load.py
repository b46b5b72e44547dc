"""What users do all the while: jobs are submitted and some cancelled, and an operator drains one node after the other."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.audit.recording import Accepted, append

__all__ = ["ENDED", "Load"]

ENDED: Final = frozenset({"Completed", "Failed", "Terminated"})
_TIMEOUT: Final = aiohttp.ClientTimeout(total=6.0)
_AGAIN_S: Final = 0.5
_OUTSTANDING_MOST: Final = 60
_DRAIN_EVERY_S: Final = 20.0
_DRAIN_S: Final = 6.0
# Of a job whose placements do not all fit into one message: 1.8 MiB of them.
_LONG_EVERY: Final = 20
_LONG_REPLICAS: Final = 30
_LONG_ENV: Final = {"CHAOS": "x" * (60 << 10)}
_TIMES_OUT: Final = (aiohttp.ClientError, OSError, TimeoutError)


class Load:
    """Submits through the gateways as a careful client does: with an idempotency key, again until it is answered.

    Every twentieth job has a long environment and many replicas.

    `accepted` holds each job that was answered with 201, and when; each is written to `path` for the audit.
    """

    def __init__(self, gateways: Sequence[str], nodes: Sequence[str], seed: int, period_s: float, path: Path) -> None:
        self._gateways = list(gateways)
        self._nodes = list(nodes)
        self._random = random.Random(f"load {seed}")
        self._period_s = period_s
        self._path = path
        self._http: aiohttp.ClientSession | None = None
        self._count = 0
        self._numbers = itertools.count(1)
        self._submitting: set[asyncio.Task[str]] = set()
        self.accepted: dict[str, float] = {}
        self.refused: list[str] = []
        self.tried_again = 0
        self.cancelled = 0
        self.drains = 0

    async def __aenter__(self) -> Load:
        self._http = aiohttp.ClientSession(timeout=_TIMEOUT)
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._submitting:
            task.cancel()
        await asyncio.gather(*self._submitting, return_exceptions=True)
        if self._http is not None:
            await self._http.close()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_submitting())
            group.create_task(self._keep_draining())

    async def finish(self) -> None:
        """Wait for the answers to what was submitted."""
        while self._submitting:
            await asyncio.wait(set(self._submitting))

    async def probe(self) -> str:
        """Submit one small job now; its id when it was accepted."""
        return await self._submit(self._spec(replicas=1, cpu_mcpu=100, run_ms=500))

    async def state_of(self, job: str) -> str:
        """The state of a job; "" while nobody answers."""
        status, answer = await self._call("GET", f"/v1/jobs/{job}")
        return str(answer["summary"]["state"]) if status == 200 else ""

    async def why(self, job: str) -> str:
        """What the gateway says of a job that does not get on."""
        _, answer = await self._call("GET", f"/v1/jobs/{job}/explain")
        story = [line["what"] for line in answer.get("job", {}).get("story", ())]
        return f"{answer.get('wait_sentence', 'no explanation')} {'; '.join(story)[-600:]}"

    async def services(self) -> list[dict[str, Any]]:
        """What the gateway says of the services and their instances; nothing while nobody answers."""
        status, answer = await self._call("GET", "/v1/services")
        return list(answer["services"]) if status == 200 else []

    async def unfinished(self) -> list[str]:
        """The accepted jobs that have not ended, by what the gateway says now."""
        left = []
        for job in self.accepted:
            if await self.state_of(job) not in ENDED:
                left.append(job)
        return left

    async def lift_all(self) -> None:
        """End every drain."""
        for node in self._nodes:
            await self._call("DELETE", f"/v1/restrictions?scope=node&target={node}&by=chaos")

    async def _keep_submitting(self) -> None:
        while True:
            await asyncio.sleep(self._period_s * self._random.uniform(0.5, 1.5))
            if len(self._submitting) < _OUTSTANDING_MOST:
                task = asyncio.create_task(self._one())
                self._submitting.add(task)
                task.add_done_callback(self._submitting.discard)

    async def _one(self) -> str:
        chance = self._random.random()
        if next(self._numbers) % _LONG_EVERY == 0:
            spec = self._spec(replicas=_LONG_REPLICAS, cpu_mcpu=200, run_ms=1_000) | {"env": _LONG_ENV}
        elif chance < 0.06:
            spec = self._spec(replicas=1, cpu_mcpu=1_000 * self._random.randint(1, 2), run_ms=8_000) | {"qos": "LSR"}
        else:
            replicas = self._random.choice((1, 1, 1, 2, 3, 6))
            cpu_mcpu = self._random.choice((200, 500, 1_000, 2_000, 4_000))
            spec = self._spec(replicas=replicas, cpu_mcpu=cpu_mcpu, run_ms=self._random.choice((1_000, 4_000, 12_000)))
        is_cancelled, after_s = self._random.random() < 0.08, self._random.uniform(0.0, 6.0)
        job = await self._submit(spec)
        if job and is_cancelled:
            await asyncio.sleep(after_s)
            status, _ = await self._call("DELETE", f"/v1/jobs/{job}")
            self.cancelled += status == 200
        return job

    def _spec(self, *, replicas: int, cpu_mcpu: int, run_ms: int) -> dict[str, Any]:
        self._count += 1
        return {
            "name": f"chaos-{self._count}",
            "replicas": replicas,
            "cpu": f"{cpu_mcpu}m",
            "memory": "128Mi",
            "work": f"{cpu_mcpu * run_ms // 1_000} cpu-ms",
            "grace": "1s",
            "max_retry": 5,
        }

    async def _submit(self, spec: dict[str, Any]) -> str:
        while True:
            status, answer = await self._call("POST", "/v1/jobs", json=spec, headers={"Idempotency-Key": spec["name"]})
            if status in (200, 201):
                job = str(answer["job"])
                self.accepted[job] = time.monotonic()
                append(self._path, [Accepted(at_us=time.time_ns() // 1_000, job=job)])
                return job
            if status in (400, 413):
                self.refused.append(f"{spec['name']}: {answer}")
                return ""
            self.tried_again += 1
            await asyncio.sleep(_AGAIN_S)

    async def _keep_draining(self) -> None:
        while True:
            await asyncio.sleep(_DRAIN_EVERY_S - _DRAIN_S)
            node = self._random.choice(self._nodes)
            asked = {"kind": "drain", "scope": "node", "target": node, "by": "chaos", "reason": "chaos", "grace": "1s"}
            status, _ = await self._call("POST", "/v1/restrictions", json=asked)
            self.drains += status == 200
            await asyncio.sleep(_DRAIN_S)
            for _ in range(20):
                status, _ = await self._call("DELETE", f"/v1/restrictions?scope=node&target={node}&by=chaos")
                if status in (200, 404):
                    break
                await asyncio.sleep(_AGAIN_S)

    async def _call(self, method: str, path: str, **given: Any) -> tuple[int, dict[str, Any]]:
        """Status and body of the answer of any gateway; status 0 when none answered."""
        assert self._http is not None
        url = self._random.choice(self._gateways) + path
        try:
            async with self._http.request(method, url, **given) as response:
                body = await response.json(content_type=None)
                return response.status, body if isinstance(body, dict) else {}
        except (*_TIMES_OUT, ValueError):
            return 0, {}
