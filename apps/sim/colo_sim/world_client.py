"""The users of a simulated world: they submit jobs until they are accepted, and cancel some."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

from msgspec import Struct

from colo_common.events.requests import CancelJob, JobAccepted, Refusal, SubmitJob
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.workload import JobSpec, ResourceRequest, RunSpec, TaskSpec
from colo_sim.world_asking import ask_until_done
from colo_sim.world_boot import Boot
from colo_sim.world_connection import Connection
from colo_sim.world_roles import Works

__all__ = ["SimClient", "JobPlan", "plan_jobs", "plan_online_jobs"]

_AGAIN: Final = frozenset({429})
_MIB: Final = 1 << 20


class JobPlan(Struct, frozen=True, kw_only=True):
    """A job to submit at `at_ms` and to cancel `cancel_after_ms` after its acceptance (None: never)."""

    job: str
    spec: JobSpec
    at_ms: int
    cancel_after_ms: int | None = None


def plan_jobs(rng: Random, count: int, within_ms: int) -> tuple[JobPlan, ...]:
    """Jobs of one or two tasks with one to four replicas each, most of them short, one of eight long, one of eight cancelled."""
    plans = []
    for number in range(count):
        is_long = rng.randrange(8) == 0
        tasks = tuple(_plan_task(rng, index, is_long) for index in range(rng.randint(1, 2)))
        name = f"job-{number + 1:03d}"
        cancel_after_ms = rng.randint(1, 60_000) if rng.randrange(8) == 0 else None
        spec = JobSpec(name=name, tasks=tasks, priority=rng.randrange(3))
        at_ms = rng.randint(1_000, within_ms)
        plans.append(JobPlan(job=name, spec=spec, at_ms=at_ms, cancel_after_ms=cancel_after_ms))
    return tuple(plans)


def _plan_task(rng: Random, index: int, is_long: bool) -> TaskSpec:
    cpu_mcpu = rng.choice((250, 500, 1_000, 2_000))
    length_ms = rng.randint(200_000, 400_000) if is_long else rng.randint(3_000, 90_000)
    return TaskSpec(
        name=f"t{index}",
        replicas=rng.randint(1, 4),
        request=ResourceRequest(cpu_mcpu=cpu_mcpu, memory_bytes=rng.choice((256, 512, 1_024)) * _MIB),
        run=RunSpec(work_mcpu_ms=cpu_mcpu * length_ms, grace_ms=rng.choice((500, 2_000, 8_000))),
        # A failed replica is retried, so that every job that fits completes.
        max_retry=100,
    )


def plan_online_jobs(rng: Random, count: int, within_ms: int) -> tuple[JobPlan, ...]:
    """Jobs of online work, one or two replicas of one class each; LSE and LSR have one or two whole CPUs a replica."""
    plans = []
    for number in range(count):
        qos = rng.choice((QosClass.LSE, QosClass.LSR, QosClass.LS))
        cpu_mcpu = rng.choice((1_000, 2_000)) if qos.has_own_cpus else rng.choice((250, 500, 1_500))
        task = TaskSpec(
            name="t0",
            replicas=rng.randint(1, 2),
            request=ResourceRequest(cpu_mcpu=cpu_mcpu, memory_bytes=rng.choice((256, 512)) * _MIB),
            run=RunSpec(work_mcpu_ms=cpu_mcpu * rng.randint(10_000, 120_000), grace_ms=2_000),
            max_retry=100,
        )
        name = f"online-{number + 1:03d}"
        cancel_after_ms = rng.randint(1, 60_000) if rng.randrange(8) == 0 else None
        spec = JobSpec(name=name, tasks=(task,), qos=qos, band=PriorityBand.PROD, priority=rng.randrange(3))
        at_ms = rng.randint(1_000, within_ms)
        plans.append(JobPlan(job=name, spec=spec, at_ms=at_ms, cancel_after_ms=cancel_after_ms))
    return tuple(plans)


class SimClient:
    """Submits and cancels the planned jobs. `accepted` and `cancelled` name the jobs accepted and those asked to be cancelled."""

    def __init__(self, plans: tuple[JobPlan, ...]) -> None:
        self.plans = plans
        self.accepted: set[str] = set()
        self.cancelled: set[str] = set()

    def works(self, boot: Boot, connection: Connection) -> Works:
        """One coroutine for each planned job."""
        return tuple(self._submit(plan, boot, connection) for plan in self.plans)

    async def _submit(self, plan: JobPlan, boot: Boot, connection: Connection) -> None:
        await asyncio.sleep(plan.at_ms / 1_000)
        await _until_accepted(SubmitJob(job=plan.job, spec=plan.spec), boot, connection)
        self.accepted.add(plan.job)
        if plan.cancel_after_ms is not None:
            await asyncio.sleep(plan.cancel_after_ms / 1_000)
            self.cancelled.add(plan.job)
            await _until_accepted(CancelJob(job=plan.job), boot, connection)


async def _until_accepted(body: SubmitJob | CancelJob, boot: Boot, connection: Connection) -> None:
    def is_done(answer: Struct) -> bool:
        # A job that ended before it was cancelled is cancelled.
        has_ended = isinstance(body, CancelJob) and isinstance(answer, Refusal) and answer.code == 409
        return has_ended or isinstance(answer, JobAccepted)

    await ask_until_done(body, boot, connection, is_done=is_done, again=_AGAIN)
