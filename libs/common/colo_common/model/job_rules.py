"""The limits of every field of a job. The same check runs for a job file and for a submitted message."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from colo_common.model.attach_rules import check_attach
from colo_common.model.invalid import InvalidInput
from colo_common.model.place_rules import check_constraints
from colo_common.model.qos import QosClass, check_pair
from colo_common.model.quantity import format_bytes, format_mcpu
from colo_common.model.workload import JobSpec, RunSpec, TaskSpec

__all__ = ["LIMITS", "JobLimits", "check_job_id", "check_job_name", "check_name", "validate_spec"]


class JobLimits:
    """The smallest and largest value of each field. A request outside them is a mistake or an attack."""

    TASKS_MAX: Final = 100
    REPLICAS_MAX: Final = 10_000
    MCPU_MIN: Final = 10
    MCPU_MAX: Final = 1_024_000
    MEMORY_MIN_BYTES: Final = 1 << 20
    MEMORY_MAX_BYTES: Final = 16 << 40
    DISK_MIN_BYTES: Final = 1 << 20
    DISK_MAX_BYTES: Final = 1 << 50
    NAME_MAX: Final = 63
    # Of a job in a file: its id is the name, "-" and 8 hexadecimal digits, and is a label as well.
    JOB_NAME_MAX: Final = 54
    DIRECTORY_MAX: Final = 4_096
    ENV_MAX: Final = 100
    ENV_MAX_BYTES: Final = 64 << 10
    COMMAND_MAX: Final = 1_000
    COMMAND_MAX_BYTES: Final = 64 << 10
    # Commands and environments of all tasks together: a job travels in one message.
    TEXT_MAX_BYTES: Final = 256 << 10
    LABELS_MAX: Final = 64
    LABEL_MAX: Final = 253
    PRIORITY_MAX: Final = 1_000_000
    RETRY_MAX: Final = 100
    GRACE_MAX_MS: Final = 3_600_000
    # A million CPU hours.
    WORK_MAX_MCPU_MS: Final = 1_000_000 * 3_600 * 1_000_000


LIMITS: Final = JobLimits

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME_RULE: Final = (
    f"must be a DNS-1123 label: a-z, 0-9 and '-', at most {LIMITS.NAME_MAX} characters, no '-' at an end"
)


def check_name(name: object, field: str) -> str:
    """Return the name, or raise InvalidInput unless it is a DNS-1123 label of at most 63 characters."""
    if not isinstance(name, str) or len(name) > LIMITS.NAME_MAX or not _NAME.fullmatch(name):
        raise InvalidInput(field, _NAME_RULE, name)
    return name


def check_job_name(name: object, field: str = "name") -> str:
    """Return the name of a job that a person wrote, or raise InvalidInput: the job's id, which is longer, must be a label too."""
    if isinstance(name, str) and LIMITS.JOB_NAME_MAX < len(name) <= LIMITS.NAME_MAX:
        rule = f"must have at most {LIMITS.JOB_NAME_MAX} characters: the job's id adds '-' and 8 more"
        raise InvalidInput(field, rule, name)
    return check_name(name, field)


def check_job_id(job: object, field: str = "job") -> str:
    """Return the job's id, or raise InvalidInput unless it is a DNS-1123 label.

    A label holds no "/" and no ".", so "job/task/index" can be split again and can become part of a file name.
    """
    return check_name(job, field)


def validate_spec(spec: JobSpec, *, is_shorthand: bool = False) -> None:
    """Raise InvalidInput, with the path as a job file spells it, when a job breaks a rule.

    `is_shorthand`: the job file has its only task at the top level, so paths have no "tasks[0].".
    """
    check_name(spec.name, "name")
    check_name(spec.queue, "queue")
    check_name(spec.tenant, "tenant")
    if spec.qos is QosClass.SYSTEM:
        rule = "must be LSE, LSR, LS or BE: SYSTEM is the node's own work, which is not placed"
        raise InvalidInput("qos", rule, spec.qos.value)
    check_pair(spec.qos, spec.band, "band")
    _check_range(spec.priority, "priority", -LIMITS.PRIORITY_MAX, LIMITS.PRIORITY_MAX)
    _check_labels(spec.labels)
    if not 1 <= len(spec.tasks) <= LIMITS.TASKS_MAX:
        raise InvalidInput("tasks", f"must be from 1 to {LIMITS.TASKS_MAX} tasks", len(spec.tasks))
    names: set[str] = set()
    for index, task in enumerate(spec.tasks):
        path = "" if is_shorthand else f"tasks[{index}]."
        _check_task(task, path)
        check_constraints(task.constraints, spec.qos, task.request, path)
        _check_limits(task, spec.qos, f"{path}limits")
        check_attach(task, spec.qos, spec.band, path)
        if task.name in names:
            raise InvalidInput(f"{path}name", "must differ from the names of the other tasks", task.name)
        names.add(task.name)
    size_bytes = sum(command_bytes(task.run) + env_bytes(task.run) for task in spec.tasks)
    if size_bytes > LIMITS.TEXT_MAX_BYTES:
        raise InvalidInput("tasks", "must have at most 256 KiB of commands and environments in sum", size_bytes)
    if spec.replica_count > LIMITS.REPLICAS_MAX:
        raise InvalidInput("tasks", f"must sum to at most {LIMITS.REPLICAS_MAX} replicas", spec.replica_count)


def command_bytes(run: RunSpec) -> int:
    """The size of a command as the kernel counts it: UTF-8, one NUL after each argument."""
    return sum(len(argument.encode()) + 1 for argument in run.command)


def env_bytes(run: RunSpec) -> int:
    """The size of an environment as the kernel counts it: UTF-8, "=" and NUL with each variable."""
    return sum(len(name.encode()) + len(value.encode()) + 2 for name, value in run.env.items())


def _check_task(task: TaskSpec, path: str) -> None:
    check_name(task.name, f"{path}name")
    _check_range(task.replicas, f"{path}replicas", 1, LIMITS.REPLICAS_MAX)
    _check_cpu(task.request.cpu_mcpu, f"{path}cpu")
    memory_bytes = task.request.memory_bytes
    if not LIMITS.MEMORY_MIN_BYTES <= memory_bytes <= LIMITS.MEMORY_MAX_BYTES:
        raise InvalidInput(f"{path}memory", "must be from 1Mi to 16Ti", _shown_bytes(memory_bytes))
    _check_range(task.max_retry, f"{path}max_retry", 0, LIMITS.RETRY_MAX)
    if task.min_succeeded is not None:
        _check_range(task.min_succeeded, f"{path}min_succeeded", 1, task.replicas)
    if task.max_failed is not None:
        _check_range(task.max_failed, f"{path}max_failed", 1, task.replicas)
    _check_run(task.run, path)


def _check_limits(task: TaskSpec, qos: QosClass, field: str) -> None:
    """A limit is at least the request; for work with CPUs of its own it is the request."""
    if (limits := task.run.limits) is None:
        return
    for name, limit, asked, most, shown in (
        ("cpu", limits.cpu_mcpu, task.request.cpu_mcpu, LIMITS.MCPU_MAX, format_mcpu),
        ("memory", limits.memory_bytes, task.request.memory_bytes, LIMITS.MEMORY_MAX_BYTES, _shown_bytes),
    ):
        if limit and qos.has_own_cpus and limit != asked:
            rule = f"must equal the request, {shown(asked)}: work of class {qos.value} holds what it requests"
            raise InvalidInput(f"{field}.{name}", rule, shown(limit))
        if limit and not asked <= limit <= most:
            rule = f"must be from the request, {shown(asked)}, to {shown(most)}"
            raise InvalidInput(f"{field}.{name}", rule, shown(limit))
    if limits.disk_bytes and not LIMITS.DISK_MIN_BYTES <= limits.disk_bytes <= LIMITS.DISK_MAX_BYTES:
        raise InvalidInput(f"{field}.disk", "must be from 1Mi to 1Pi", _shown_bytes(limits.disk_bytes))


def _check_cpu(cpu_mcpu: int, field: str) -> None:
    if 0 < cpu_mcpu < LIMITS.MCPU_MIN:
        hint = f'write "{cpu_mcpu}" if you mean {cpu_mcpu} CPUs'
        raise InvalidInput(field, f"must be at least {LIMITS.MCPU_MIN}m; {hint}", format_mcpu(cpu_mcpu))
    if not LIMITS.MCPU_MIN <= cpu_mcpu <= LIMITS.MCPU_MAX:
        raise InvalidInput(field, "must be from 10m to 1024 CPUs", format_mcpu(cpu_mcpu))


def _check_run(run: RunSpec, path: str) -> None:
    if not run.command and not run.work_mcpu_ms and run.attach is None:
        rule = "is needed, unless `attach` names what runs already or `work` says what a simulated node does"
        raise InvalidInput(f"{path}command", rule, run.command)
    if len(run.command) > LIMITS.COMMAND_MAX:
        raise InvalidInput(f"{path}command", f"must be at most {LIMITS.COMMAND_MAX} arguments", len(run.command))
    if run.command and not run.command[0]:
        raise InvalidInput(f"{path}command[0]", "must name a program", run.command[0])
    for index, argument in enumerate(run.command):
        _check_text(argument, f"{path}command[{index}]")
    if command_bytes(run) > LIMITS.COMMAND_MAX_BYTES:
        raise InvalidInput(f"{path}command", "must be at most 64 KiB in sum", command_bytes(run))
    if run.directory and (not run.directory.startswith("/") or len(run.directory) > LIMITS.DIRECTORY_MAX):
        rule = f"must be an absolute path of at most {LIMITS.DIRECTORY_MAX} characters"
        raise InvalidInput(f"{path}directory", rule, run.directory)
    _check_text(run.directory, f"{path}directory")
    _check_env(run.env, f"{path}env")
    if env_bytes(run) > LIMITS.ENV_MAX_BYTES:
        raise InvalidInput(f"{path}env", "must be at most 64 KiB in sum", env_bytes(run))
    _check_range(run.work_mcpu_ms, f"{path}work", 0, LIMITS.WORK_MAX_MCPU_MS)
    _check_range(run.grace_ms, f"{path}grace", 0, LIMITS.GRACE_MAX_MS)


def _check_env(env: Mapping[str, str], field: str) -> None:
    if len(env) > LIMITS.ENV_MAX:
        raise InvalidInput(field, f"must be at most {LIMITS.ENV_MAX} variables", len(env))
    for name, value in env.items():
        if len(name) > LIMITS.LABEL_MAX or not _ENV_NAME.fullmatch(name):
            raise InvalidInput(field, "names are letters, digits and '_', and do not begin with a digit", name)
        _check_text(value, f"{field}.{name}")


def _check_labels(labels: Mapping[str, str]) -> None:
    if len(labels) > LIMITS.LABELS_MAX:
        raise InvalidInput("labels", f"must be at most {LIMITS.LABELS_MAX}", len(labels))
    for name, value in labels.items():
        if not 1 <= len(name) <= LIMITS.LABEL_MAX or len(value) > LIMITS.LABEL_MAX:
            raise InvalidInput("labels", f"names and values are at most {LIMITS.LABEL_MAX} characters", name or value)
        _check_text(name, "labels")
        _check_text(value, f"labels.{name}")


def _check_text(text: str, field: str) -> None:
    if "\0" in text:
        raise InvalidInput(field, "must not hold a NUL character", text)
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidInput(field, "must be text that UTF-8 can write", ascii(text))


def _check_range(number: int, field: str, least: int, most: int) -> None:
    if isinstance(number, bool) or not least <= number <= most:
        raise InvalidInput(field, f"must be a whole number from {least} to {most}", number)


def _shown_bytes(size_bytes: int) -> str:
    return format_bytes(size_bytes) if size_bytes > 0 else str(size_bytes)
