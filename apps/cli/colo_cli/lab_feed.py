"""Submits jobs to the lab: as much work as a share of what may be promised, within a bound."""

import asyncio
import time
from typing import Final

from colo_cli.lab_observe import FINAL_STATES, LabObserver
from colo_common.events.requests import JobAccepted, SubmitJob
from colo_common.model.constraints import UNCONSTRAINED, Constraints
from colo_common.model.invalid import InvalidInput
from colo_common.model.node_selector import Operator, Requirement
from colo_common.model.workload import JobSpec, ResourceRequest, RunSpec, TaskSpec
from colo_common.ports import Bus, Clock, PortError
from colo_common.runtime.ask import ask
from colo_sim.job_source import JobFeeder, JobSource, SimJob
from colo_sim.machine_spec import DEVICE_LABEL

__all__ = ["LabFeed"]

_PERIOD_S: Final = 0.25
_WITHOUT_DEVICES: Final = Constraints(
    node_requirements=(Requirement(key=DEVICE_LABEL, operator=Operator.DOES_NOT_EXIST),)
)


class LabFeed:
    """Compares promised and outstanding CPU four times a second, and submits jobs for the difference."""

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        seen: LabObserver,
        source: JobSource,
        *,
        nodes: int,
        load_pct: int,
        avoids_devices: bool,
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._seen = seen
        # At most twenty jobs a node, so that a person can still read the backlog.
        self._max_jobs = 20 * nodes + 100
        self._feeder = JobFeeder(source, backlog_ratio_pct=load_pct, max_jobs=self._max_jobs, max_batch=20)
        self._avoids_devices = avoids_devices
        self._constraints = _WITHOUT_DEVICES if avoids_devices else UNCONSTRAINED
        self._capped_turns = self._turns = 0
        self._outstanding: dict[str, int] = {}
        # Job ids do not repeat, even when the servers outlive the lab.
        self._run = f"{clock.wall_us() // 1_000_000 % 16**6:06x}"
        self.submitted = 0
        self.replicas = 0
        self.refused: list[str] = []

    async def run(self) -> None:
        """Submit jobs until cancelled. A refused or failed submission goes to `refused`."""
        while True:
            await asyncio.sleep(_PERIOD_S)
            await self.turn()

    async def turn(self) -> None:
        """Submit once as many jobs as are missing now."""
        self._forget_ended()
        # The jobs are amounts of work, which only simulated machines can run.
        views = [view for view in self._seen.nodes.values() if view.simulated]
        if self._avoids_devices:
            views = [view for view in views if not view.has_devices]
        spare_mcpu = sum(view.allocatable_mcpu for view in views)
        if spare_mcpu <= 0:
            return
        jobs = self._feeder.feed(
            self._clock.now_ms(),
            spare_mcpu=spare_mcpu,
            outstanding_mcpu=sum(self._outstanding.values()),
            outstanding_jobs=len(self._outstanding),
        )
        self._turns += 1
        self._capped_turns += len(self._outstanding) + len(jobs) >= self._max_jobs
        for job in jobs:
            await self._submit(job)

    def notices(self) -> list[str]:
        """What the feeder did other than a reader of the verdict would think."""
        notices = ["nodes with devices are kept for jobs that people submit"] if self._avoids_devices else []
        if self._capped_turns * 10 <= self._turns:
            return notices
        share_pct = self._capped_turns * 100 // self._turns
        return [
            *notices,
            f"{share_pct} % of the time {self._max_jobs} jobs were outstanding, which is the most that the lab submits: "
            "with jobs this small the verdict measures the feeder",
        ]

    def _forget_ended(self) -> None:
        for job in [job for job in self._outstanding if self._seen.jobs.get(job) in FINAL_STATES]:
            del self._outstanding[job]

    async def _submit(self, job: SimJob) -> None:
        name = f"{job.name[:40]}-{self._run}-{self.submitted}"
        request = SubmitJob(job=name, spec=_spec(job, self._constraints))
        self._seen.submitted(name, time.time_ns() // 1000, job.replicas)
        self._outstanding[name] = job.total_cpu_mcpu
        self.submitted += 1
        self.replicas += job.replicas
        try:
            answer = await ask(self._bus, request, 5.0)
        except (PortError, InvalidInput) as error:
            self._give_up(name, str(error))
            return
        if not isinstance(answer, JobAccepted):
            self._give_up(name, str(answer))

    def _give_up(self, name: str, why: str) -> None:
        self._outstanding.pop(name, None)
        if len(self.refused) < 100:
            self.refused.append(f"{name}: {why}")


def _spec(job: SimJob, constraints: Constraints) -> JobSpec:
    return JobSpec(
        name=job.name[:50],
        tasks=(
            TaskSpec(
                name="main",
                replicas=job.replicas,
                request=ResourceRequest(cpu_mcpu=job.cpu_mcpu, memory_bytes=job.memory_bytes),
                run=RunSpec(work_mcpu_ms=job.work_mcpu_ms, grace_ms=10_000),
                max_retry=3,
                constraints=constraints,
            ),
        ),
    )
