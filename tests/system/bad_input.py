"""Services as processes with their logs and numbers, for tests that look at what a person sees when something is wrong."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import nats
from nats.aio.client import Client

from colo_common.events import requests as rq
from colo_common.events import wire
from colo_common.events.registry import request_spec_of
from tests.support.jobs_world import a_spec, a_task
from tests.support.waiting import eventually

__all__ = ["RunningService", "Servers", "ask", "refused_start", "submission"]

_STOP_LIMIT_S = 60.0
_HTTP_LIMIT_S = 30.0


def refused_start(module: str, environment: Mapping[str, str], arguments: Sequence[str] = ()) -> list[str]:
    """The lines that a process printed which must end by itself with code 2; log lines are left out.

    Without a port in `environment` the process takes a free one, which no other process has.
    """
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, "COLO_HTTP_PORT": "0", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    return [line for line in done.stderr.splitlines() if not line.startswith("{")]


class RunningService:
    """`python -m colo_<name>`, ended on exit; its log must be JSON lines without a traceback to the end."""

    def __init__(self, name: str, directory: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self._log = directory / f"{name}.log"
        self._environment = {**os.environ, "COLO_HTTP_PORT": "0", **environment}
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""

    async def __aenter__(self) -> Self:
        self._start()
        try:
            listening = await eventually(lambda: self._listening(self._process), f"{self.name} listens")
        except BaseException:
            self._end()
            raise
        self.address = f"http://{listening['host']}:{listening['port']}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            code = await asyncio.to_thread(self._process.wait, _STOP_LIMIT_S)
        finally:
            self._end()
        if error is None:
            assert code == 0
            assert "Traceback" not in self._log.read_text(), self._log.read_text()
            assert len(self.log()) == len(self._log.read_text().splitlines())

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _start(self) -> None:
        with self._log.open("wb") as log:
            command = [sys.executable, "-m", f"colo_{self.name}"]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log, env=self._environment)

    def log(self, event: str = "", **wanted: str) -> list[dict[str, Any]]:
        """Lines of the log, of one event when it is named, with these words in these fields."""
        lines = [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]
        return [
            line
            for line in lines
            if event in ("", line["event"]) and all(part in line.get(key, "") for key, part in wanted.items())
        ]

    async def get(self, path: str) -> tuple[int, str]:
        """Status and text of a page."""
        return await asyncio.to_thread(self._get, path)

    async def post(self, path: str, body: bytes) -> tuple[int, Mapping[str, str], str]:
        """Status, headers and text of the answer to a JSON body."""
        headers = {"Content-Type": "application/json"}
        return await asyncio.to_thread(self._read, urllib.request.Request(self.address + path, body, headers))

    async def number(self, metric: str) -> float:
        """The sum of a metric over its labels."""
        _, text = await self.get("/metrics")
        name, _, label = metric.partition("{")
        pattern = re.compile(
            rf"^{re.escape(name)}(\{{.*{re.escape(label.rstrip('}'))}.*\}})? ([0-9.e+-]+)$", re.MULTILINE
        )
        return sum(float(found[1]) for found in pattern.findall(text))

    async def reaches(self, metric: str, least: float) -> None:
        """Wait until the metric is at least this."""

        async def there() -> bool:
            return await self.number(metric) >= least

        await eventually(there, f"{metric} of {self.name} reaches {least:g}")

    async def ready(self) -> None:
        """Wait until it is ready."""

        async def there() -> bool:
            return (await self.get("/readyz"))[0] == 200

        await eventually(there, f"{self.name} is ready")

    async def not_ready(self, *parts: str) -> str:
        """Wait until it says that it is not ready, with these words in it; what it says."""

        async def there() -> str:
            status, text = await self.get("/readyz?verbose")
            return text if status == 503 and all(part in text for part in parts) else ""

        return await eventually(there, f"{self.name} is not ready: {' '.join(parts)}")

    async def logged(self, event: str, **wanted: str) -> dict[str, Any]:
        """Wait for such a line."""

        async def there() -> dict[str, Any] | None:
            found = self.log(event, **wanted)
            return found[-1] if found else None

        found = await eventually(there, f"{self.name} logs {event} {wanted}")
        assert found is not None
        return found

    async def _listening(self, process: subprocess.Popen[bytes] | None) -> dict[str, Any]:
        assert process is not None
        assert process.poll() is None, self._log.read_text()
        found = self.log("http-listening")
        return found[0] if found else {}

    def _get(self, path: str) -> tuple[int, str]:
        status, _headers, text = self._read(urllib.request.Request(self.address + path))
        return status, text

    def _read(self, request: urllib.request.Request) -> tuple[int, Mapping[str, str], str]:
        try:
            with urllib.request.urlopen(request, timeout=_HTTP_LIMIT_S) as reply:
                return reply.status, dict(reply.headers), reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), error.read().decode()


class Servers:
    """Addresses for services, as environment."""

    def __init__(self, nats_url: str, redis_url: str, directory: Path) -> None:
        self.nats_url = nats_url
        self.redis_url = redis_url
        self.directory = directory
        self.environment = {"COLO_NATS_URL": nats_url, "COLO_REDIS_URL": redis_url}

    def service(self, name: str, **environment: str) -> RunningService:
        return RunningService(name, self.directory, {**self.environment, **environment})

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        client = await nats.connect(self.nats_url)
        try:
            yield client
        finally:
            await client.close()


async def ask(client: Client, body: msgspec.Struct, timeout_s: float = 10) -> Any:
    """The service's answer to a request that did not come through the gateway."""
    request_spec = request_spec_of(type(body))
    reply = await client.request(request_spec.subject.of(), wire.encode_request(body), timeout=timeout_s)
    return wire.decode_reply(type(body), reply.data)


def submission(name: str, **task: Any) -> rq.SubmitJob:
    return rq.SubmitJob(job=name, spec=a_spec(a_task("main", **task)))
