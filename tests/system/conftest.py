"""Kernel suites need a CPU that nobody else wants, and suites that break nothing share one cluster a worker."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from tests.support.quiet import wait_until_quiet
from tests.support.running import RunningColo, running_colo

WAIT_S: Final = 600.0
"""How long all tests of a run together wait for a quiet machine: one that stays busy fails the rest of them soon."""
LEAST_S: Final = 2.0
MOST_S: Final = 180.0
"""What one test waits stays below the time that it may take in all."""
TRUSTED_S: Final = 10.0
"""So long after the machine was quiet it is not looked at again: looking takes most of a second."""


class QuietMachine:
    """What the tests of this worker have waited for a quiet machine, and when it was one last."""

    def __init__(self) -> None:
        self._waited_s = 0.0
        self._quiet_at_s = float("-inf")

    def wait(self) -> None:
        """Return when the machine is quiet, or was a moment ago; raise NeverQuiet at the limit."""
        begun_s = time.monotonic()
        if begun_s - self._quiet_at_s < TRUSTED_S:
            return
        try:
            wait_until_quiet(limit_s=min(MOST_S, max(LEAST_S, WAIT_S - self._waited_s)))
            self._quiet_at_s = time.monotonic()
        finally:
            self._waited_s += time.monotonic() - begun_s


@pytest.fixture(scope="session")
def quiet_machine() -> QuietMachine:
    """One for all tests of this worker, so that they share the limit."""
    return QuietMachine()


@pytest.fixture(autouse=True)
def _others_leave_room(request: pytest.FixtureRequest, quiet_machine: QuietMachine) -> None:
    """Wait until batch work has a CPU: it yields to everything, so that on a busy machine it would neither run nor end."""
    if request.node.get_closest_marker("kernel") is not None:
        quiet_machine.wait()


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def shared_colo(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningColo]:
    """Two nodes and a small queue beside the default one, for every suite of this worker that kills and breaks nothing.

    It ends when the worker goes on to another folder: processes that nobody asks anything cost a tenth of a CPU.
    """
    directory: Path = tmp_path_factory.mktemp("colo")
    async with running_colo(directory, nodes=2, environment={"COLO_JOBS_QUEUES": "default=1000,tiny=2"}) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def colo(shared_colo: RunningColo) -> AsyncIterator[RunningColo]:
    """The shared cluster, in which every job of the suites before has ended. A suite with settings of its own has its own."""
    await shared_colo.cancel_all()
    yield shared_colo
