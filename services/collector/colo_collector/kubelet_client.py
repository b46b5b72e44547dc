"""Asks the kubelet of this node for its pods, over its own port and never over the API server: 10250 with a token, or 10255."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

import aiohttp
import structlog

from colo_collector.kubelet_access import KubeletAccess
from colo_collector.kubelet_pods import ANSWER_MAX_BYTES, read_pods
from colo_collector.pods import Pod
from colo_common.model.invalid import InvalidInput
from colo_common.runtime.metrics import Metrics

__all__ = ["KubeletClient"]

_TIMEOUT_S: Final = 5.0
_CHUNK_BYTES: Final = 65_536
_TOKEN_MAX: Final = 65_536


class KubeletClient:
    """Fetches the pods once a period and hands them on; while the kubelet does not answer, the last ones stay."""

    def __init__(self, access: KubeletAccess, take: Callable[[dict[str, Pod]], None], metrics: Metrics) -> None:
        self._access = access
        self._take = take
        self._log = structlog.get_logger("collector")
        self._problem = ""
        self._failures = metrics.counter(
            "colo_collector_kubelet_failures_total", "questions for pods that the kubelet did not answer"
        )

    async def run(self) -> None:
        """Ask until cancelled. Never raises for what a kubelet does."""
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                await self._ask(session)
                await asyncio.sleep(self._access.period_ms / 1_000)

    async def _ask(self, session: aiohttp.ClientSession) -> None:
        try:
            answer = await self._fetch(session)
            # A node with hundreds of pods has megabytes of them.
            pods, malformed = await asyncio.to_thread(read_pods, answer)
        except (aiohttp.ClientError, TimeoutError, OSError, InvalidInput, ssl.SSLError) as error:
            self._failures.inc()
            self._note(f"{type(error).__name__}: {error}")
            return
        self._take(pods)
        self._note(f"{malformed} pods are malformed or too many" if malformed else "")

    async def _fetch(self, session: aiohttp.ClientSession) -> bytes:
        access = self._access
        # Token and CA are read each time: a projected token lives for an hour.
        token, context = await asyncio.to_thread(_secrets, access)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"{access.url.rstrip('/')}/pods"
        async with session.get(url, headers=headers, ssl=context, allow_redirects=False) as response:
            if response.status != 200:
                raise InvalidInput("kubelet_url", "must answer /pods with 200", response.status)
            pieces = []
            size = 0
            async for piece in response.content.iter_chunked(_CHUNK_BYTES):
                size += len(piece)
                if size > ANSWER_MAX_BYTES:
                    raise InvalidInput("kubelet_url", f"must answer with at most {ANSWER_MAX_BYTES} bytes", size)
                pieces.append(piece)
            return b"".join(pieces)

    def _note(self, problem: str) -> None:
        """Log when the kubelet began or ceased to answer, and when the reason changed."""
        if problem == self._problem:
            return
        if problem:
            self._log.warning("kubelet-silent", reason=problem)
        else:
            self._log.info("kubelet-answers")
        self._problem = problem


def _secrets(access: KubeletAccess) -> tuple[str, ssl.SSLContext | bool]:
    token = ""
    if access.token_file:
        with open(access.token_file, encoding="utf-8") as file:
            token = file.read(_TOKEN_MAX).strip()
    if not access.url.startswith("https://"):
        return token, True
    context = ssl.create_default_context(cafile=access.ca_file or None)
    if access.ca_file and not Path(access.ca_file).is_file():
        raise InvalidInput("kubelet_ca_file", "must be a file", access.ca_file)
    return token, context
