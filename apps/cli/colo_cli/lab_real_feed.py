"""Submits small jobs for the real node of a lab: one command each, at most two outstanding."""

import asyncio
import time
from typing import Final

from colo_cli.lab_observe import FINAL_STATES, LabObserver
from colo_cli.lab_real import RealNode
from colo_common.events.requests import JobAccepted, SubmitJob
from colo_common.model.invalid import InvalidInput
from colo_common.model.workload import JobSpec, ResourceRequest, RunSpec, TaskSpec
from colo_common.ports import Bus, Clock, PortError
from colo_common.runtime.ask import ask

__all__ = ["RealFeed"]

_PERIOD_S: Final = 0.25
_OUTSTANDING_MAX: Final = 2
_REFUSED_MAX: Final = 20
_CPU_MCPU: Final = 100
_MEMORY_BYTES: Final = 64 << 20
# Counting takes about a second of one CPU, and longer when the kernel gives the job less.
_COMMAND: Final = ("sh", "-c", "i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done; echo counted to $i")


class RealFeed:
    """Submits a job whenever fewer than two are outstanding; `refused` has the reasons of the refused jobs."""

    def __init__(self, bus: Bus, clock: Clock, seen: LabObserver, real: RealNode) -> None:
        self._bus = bus
        self._seen = seen
        self._real = real
        self._outstanding: set[str] = set()
        self._run = f"{clock.wall_us() // 1_000_000 % 16**6:06x}"
        self.submitted = 0
        self.refused: list[str] = []

    async def run(self) -> None:
        """Submit jobs until cancelled, or until twenty were refused."""
        while True:
            self._outstanding = {job for job in self._outstanding if self._seen.jobs.get(job) not in FINAL_STATES}
            if self._real.runs and len(self._outstanding) < _OUTSTANDING_MAX and len(self.refused) < _REFUSED_MAX:
                await self._submit()
            await asyncio.sleep(_PERIOD_S)

    async def _submit(self) -> None:
        name = f"real-{self._run}-{self.submitted}"
        self.submitted += 1
        self._outstanding.add(name)
        self._seen.submitted(name, time.time_ns() // 1000)
        try:
            answer = await ask(self._bus, SubmitJob(job=name, spec=_spec(name)), 5.0)
        except (PortError, InvalidInput) as error:
            self._give_up(name, str(error))
            return
        if not isinstance(answer, JobAccepted):
            self._give_up(name, str(answer))

    def _give_up(self, name: str, why: str) -> None:
        self._outstanding.discard(name)
        self.refused.append(f"{name}: {why}")


def _spec(name: str) -> JobSpec:
    task = TaskSpec(
        name="main",
        replicas=1,
        request=ResourceRequest(cpu_mcpu=_CPU_MCPU, memory_bytes=_MEMORY_BYTES),
        run=RunSpec(command=_COMMAND, grace_ms=500),
        max_retry=3,
    )
    return JobSpec(name=name, tasks=(task,))
