"""What would fit now: reads the question, a job file or a bare shape, and makes the answer from the scheduler's plans."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import structs

from colo_common.events.fleet import FleetTotals
from colo_common.events.requests import JobPlanned, PlanJob
from colo_common.model.invalid import InvalidInput
from colo_common.model.job_file import JobRead, read_job
from colo_common.model.pod_manifest import is_manifest
from colo_common.model.workload import JobSpec
from colo_gateway.state_replies import FitsReply, TaskFits

__all__ = ["FITS_MOST", "fits_reply", "mid_note", "questions_of", "read_question"]

FITS_MOST: Final = 1_000
"""So many replicas of a task are tried unless the question says how many."""
_NOTHING_RUN: Final = ("command", "work", "work_cpu_seconds")
_TASKS_MOST: Final = 20


def read_question(mapping: Mapping[str, Any]) -> JobRead:
    """The job that is asked about, with notes. A bare shape (`cpu`, `memory`, `qos`, a place) needs no name and nothing to run;
    without `memory` only the CPU decides. Raises InvalidInput as a job file does.
    """
    if is_manifest(mapping):
        return _checked(read_job(mapping))
    asked = dict(mapping)
    asked.setdefault("name", "fits")
    if "tasks" not in asked:
        asked = _runnable(asked)
        if not {"memory", "batch-memory"} & asked.keys():
            asked["memory"] = "1Mi"
    elif isinstance(asked["tasks"], list):
        asked["tasks"] = [_runnable(dict(task)) if isinstance(task, Mapping) else task for task in asked["tasks"]]
    return _checked(read_job(asked))


def _checked(read: JobRead) -> JobRead:
    if len(read.spec.tasks) > _TASKS_MOST:
        raise InvalidInput("tasks", f"must be at most {_TASKS_MOST} in this question", len(read.spec.tasks))
    return read


def questions_of(spec: JobSpec, most: int) -> tuple[PlanJob, ...]:
    """One plan for each task, with `most` replicas of it and of nothing else."""
    return tuple(
        PlanJob(
            spec=structs.replace(
                spec, tasks=(structs.replace(task, replicas=most, min_succeeded=None, max_failed=None),)
            ),
            most=0,
        )
        for task in spec.tasks
    )


def fits_reply(read: JobRead, most: int, plans: Sequence[JobPlanned]) -> FitsReply:
    """The answer from the plans of all tasks, in their order."""
    spec = read.spec
    tasks = []
    for task, plan in zip(spec.tasks, plans, strict=True):
        (planned,) = plan.tasks
        tasks.append(
            TaskFits(
                task=task.name,
                cpu_mcpu=task.request.cpu_mcpu,
                memory_bytes=task.request.memory_bytes,
                wanted=task.replicas,
                fits=planned.placed,
                most=most,
                nodes=planned.nodes,
                counts=planned.counts,
                nearest=planned.nearest,
                never=planned.never,
            )
        )
    first = plans[0]
    return FitsReply(
        at_ms=first.at_ms,
        qos=spec.qos.value,
        nodes=first.nodes,
        waiting=first.waiting,
        tasks=tuple(tasks),
        notes=read.notes,
    )


def mid_note(fleet: FleetTotals | None) -> str:
    """What the tier has that work of the band mid is placed in; `fleet` None: overcommit does not answer."""
    if fleet is None:
        tier = "what that has is not known: overcommit does not answer"
    elif not fleet.mid_nodes:
        tier = "that is off (mid_mode of the colocation policy), so it waits"
    else:
        memory_gib = fleet.mid_memory_bytes // (1 << 30)
        tier = f"that has {fleet.mid_cpu_mcpu}m of CPU and {memory_gib}Gi of memory on {fleet.mid_nodes} nodes"
    return f"band: mid is placed in the mid tier; {tier}"


def _runnable(task: dict[str, Any]) -> dict[str, Any]:
    """The task with something to run, which no place depends on."""
    if not any(key in task for key in _NOTHING_RUN):
        task["work"] = "1 cpu-s"
    return task
