"""Compares a planned job with the job of the same name that runs: what differs, and what a change would ask of the replicas."""

from collections.abc import Iterator
from typing import Final

import msgspec

from colo_common.events.requests import JobDetail
from colo_common.model.quantity import bytes_text, cpu_text, format_mcpu
from colo_common.model.workload import AttachSpec, JobSpec, ResourceLimits, TaskSpec
from colo_gateway.replies import FieldChange, RunningJob, TaskDiff, Update

__all__ = ["compare"]

_TEXT_MOST: Final = 200
# A field of this list is read by the control plane only; every other one is fixed when a process starts.
_IN_PLACE: Final = frozenset(
    {"queue", "tenant", "priority", "labels", "grace", "max_retry", "min_succeeded", "max_failed", "replicas"}
)


def compare(running: JobDetail, planned: JobSpec, others: int) -> RunningJob:
    """The difference from the running job to the planned one. `others`: unfinished jobs of the name beside it."""
    before = {task.name: task for task in running.spec.tasks}
    after = {task.name: task for task in planned.tasks}
    names = [*after, *(name for name in before if name not in after)]
    tasks = tuple(_task(name, before.get(name), after.get(name)) for name in names)
    changes = tuple(_changes(_fields(running.spec), _fields(planned)))
    updates = [*(change.update for change in changes), *(task.update for task in tasks)]
    return RunningJob(
        job=running.summary.job,
        state=running.summary.state,
        others=others,
        update=_worst(updates),
        changes=changes,
        tasks=tasks,
    )


def _task(name: str, before: TaskSpec | None, after: TaskSpec | None) -> TaskDiff:
    changes = () if before is None or after is None else tuple(_changes(_task_fields(before), _task_fields(after)))
    is_whole = before is None or after is None
    return TaskDiff(
        task=name,
        replicas_now=before.replicas if before else 0,
        replicas_planned=after.replicas if after else 0,
        update=("destructive" if after is None else "in-place") if is_whole else _worst([c.update for c in changes]),
        changes=changes,
    )


def _worst(updates: list[Update]) -> Update:
    order: tuple[Update, ...] = ("destructive", "in-place")
    return next((update for update in order if update in updates), "none")


def _changes(before: dict[str, str], after: dict[str, str]) -> Iterator[FieldChange]:
    for field, text in before.items():
        if after[field] != text:
            update: Update = "in-place" if field in _IN_PLACE else "destructive"
            yield FieldChange(field=field, now=text[:_TEXT_MOST], planned=after[field][:_TEXT_MOST], update=update)


def _fields(spec: JobSpec) -> dict[str, str]:
    return {
        "queue": spec.queue,
        "tenant": spec.tenant,
        "qos": spec.qos.value,
        "band": spec.band.value,
        "priority": str(spec.priority),
        "labels": _json(dict(sorted(spec.labels.items()))),
    }


def _task_fields(task: TaskSpec) -> dict[str, str]:
    return {
        "replicas": str(task.replicas),
        "cpu": cpu_text(task.request.cpu_mcpu),
        "memory": bytes_text(task.request.memory_bytes),
        "command": _json(task.run.command),
        "env": _json(dict(sorted(task.run.env.items()))),
        "limits": _limits_text(task.run.limits),
        "directory": task.run.directory or "-",
        "attach": _attach_text(task.run.attach),
        "work": f"{format_mcpu(task.run.work_mcpu_ms // 1_000)} cpu-s",
        "grace": f"{task.run.grace_ms} ms",
        "max_retry": str(task.max_retry),
        "min_succeeded": str(task.min_succeeded or task.replicas),
        "max_failed": str(task.max_failed or 1),
        "place": _json(task.constraints),
    }


def _limits_text(limits: ResourceLimits | None) -> str:
    if limits is None or limits == ResourceLimits():
        return "-"
    cpu = cpu_text(limits.cpu_mcpu) if limits.cpu_mcpu else "-"
    disk = f", disk {bytes_text(limits.disk_bytes)}" if limits.disk_bytes else ""
    return f"cpu {cpu}, memory {bytes_text(limits.memory_bytes) if limits.memory_bytes else '-'}{disk}"


def _attach_text(attach: AttachSpec | None) -> str:
    if attach is None:
        return "-"
    return f"{attach.unit or attach.cgroup}{', killed by a stop' if attach.kill_on_stop else ''}"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
