"""Reads a job file (job.yaml, or the same as JSON) into a JobSpec.

    name: render
    queue: default            # optional, as is everything down to tasks
    tenant: default           # who the job is for
    qos: BE                   # SYSTEM LSE LSR LS BE
    band: batch               # prod mid batch free
    priority: 0
    labels: {team: films}
    tasks:
      - name: frames
        replicas: 3
        cpu: "2"              # or 1.5, "500m"
        memory: 4Gi           # 200Mi when left out, the amount that Kubernetes counts for such a pod
        limits: {cpu: 4, memory: 8Gi, disk: 20Gi}   # the most it may use; the request above is what is promised
        command: [render, --all]
        directory: /srv/films # where the command begins
        env: {LEVEL: "3"}
        work: 30 cpu-min      # what a simulated node does; or work_cpu_seconds: 1800
        grace: 10s            # between SIGTERM and SIGKILL
        attach: {unit: nginx.service}   # in place of a command: a group that runs already (attach_rules.py)
        max_retry: 2
        min_succeeded: 2
        max_failed: 1
        place:                # optional: what a place needs beside room
          node_labels: {disk: ssd}
          node_selector: [{key: rack, operator: NotIn, values: [r1]}]   # In NotIn Exists DoesNotExist Gt Lt
          tolerations: [{key: spot}]
          numa_policy: single-numa-node
          cpu_bind: full-pcpus
          huge_pages: {2Mi: 1Gi}
          devices: {gpu: 1, nic: {core_pct: 50}}
          spread: true

A job of one task may write the task's fields at the top level instead of `tasks`. A Kubernetes Pod or Deployment is read as well:
`pod_manifest.py`.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, NamedTuple

from msgspec import structs

from colo_common.model.attach_rules import attach_of
from colo_common.model.constraints import Constraints, CpuBind, CpuExclusive, CpuPolicy
from colo_common.model.duration import parse_duration_ms
from colo_common.model.invalid import InvalidInput
from colo_common.model.job_place import constraints_of
from colo_common.model.job_rules import LIMITS, check_job_id, check_job_name, check_name, validate_spec
from colo_common.model.nearest import hint
from colo_common.model.plain_values import mapping_of, text_of
from colo_common.model.pod_manifest import is_manifest, job_of_manifest
from colo_common.model.qos import QosClass, default_band, parse_band, parse_qos
from colo_common.model.quantity import format_bytes, parse_batch_mcpu, parse_bytes, parse_mcpu
from colo_common.model.workload import JobSpec, ResourceLimits, ResourceRequest, RunSpec, TaskSpec

__all__ = ["JobRead", "check_job_id", "job_from_mapping", "read_job", "validate_spec"]

# The name of the task that a job file writes at its top level.
SHORTHAND_TASK: Final = "main"

DEFAULT_MEMORY_BYTES: Final = 200 << 20
"""What a task requests that names no memory (kubernetes/kubernetes:pkg/scheduler/util/pod_resources.go:32)."""

_JOB_KEYS: Final = ("name", "queue", "tenant", "qos", "band", "priority", "labels", "tasks")
_TASK_KEYS: Final = (
    "name", "replicas", "cpu", "memory", "batch-cpu", "batch-memory", "limits", "command", "directory", "env", "attach", "work",
    "work_cpu_seconds", "grace", "max_retry", "min_succeeded", "max_failed", "place",
)  # fmt: skip
_SHORTHAND_KEYS: Final = tuple(key for key in _TASK_KEYS if key != "name")

_WORK: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?(?:cpu|CPU)[- ]?(ms|s|sec|min|m|h|hours|hour)")
_WORK_UNIT_MCPU_MS: Final = {
    "ms": 1_000, "s": 1_000_000, "sec": 1_000_000, "min": 60_000_000, "m": 60_000_000,
    "h": 3_600_000_000, "hour": 3_600_000_000, "hours": 3_600_000_000,
}  # fmt: skip
_WORK_RULE: Final = 'must be CPU time such as "30 cpu-min", "90 cpu-s" or "2 cpu-h"'
# A command in one string is split into words; these characters only have a meaning in a shell.
_SHELL_ONLY: Final = re.compile(r"[|&;<>$`*?~]")


class JobRead(NamedTuple):
    """A job, and what was taken otherwise than it was written, or not at all: lines such as "memory: 200Mi, because ..."."""

    spec: JobSpec
    notes: tuple[str, ...] = ()


def job_from_mapping(mapping: object) -> JobSpec:
    """Return the job that a mapping (from YAML or JSON) describes; see `read_job`."""
    return read_job(mapping).spec


def read_job(mapping: object) -> JobRead:
    """Return the job that a mapping (from YAML or JSON) describes, with notes. The mapping is a job file's, a Pod or a Deployment.

    Raises InvalidInput with the path ("tasks[0].cpu") and the rule; for an unknown key the rule names the nearest known
    key. The returned job keeps every rule of `validate_spec`.
    """
    job = mapping_of(mapping, "job")
    notes: list[tuple[str, str]] = []
    if not is_manifest(job):
        spec = _job(job, notes)
        return JobRead(spec, tuple(f"{field}: {text}" for field, text in notes))
    manifest = job_of_manifest(job)
    try:
        spec = _job(manifest.job, notes)
    except InvalidInput as error:
        # The person has written the manifest and never saw the paths of a job file.
        raise error.of(manifest.fields.get(error.field, error.field)) from error
    found = [(manifest.fields.get(field, field), text) for field, text in notes]
    return JobRead(spec, tuple(f"{field}: {text}" for field, text in [*found, *manifest.notes]))


def _job(job: Mapping[str, Any], notes: list[tuple[str, str]]) -> JobSpec:
    is_shorthand = "tasks" not in job
    known = (*_JOB_KEYS, *_SHORTHAND_KEYS)
    _only_known_keys(job, known, "")
    if not is_shorthand:
        for key in _SHORTHAND_KEYS:
            if key in job:
                raise InvalidInput(key, "belongs into a task: a job has either `tasks` or the fields of one task", key)
    if "name" not in job:
        raise InvalidInput("name", "is needed", None)
    qos = parse_qos(job["qos"], "qos") if "qos" in job else QosClass.BE
    spec = JobSpec(
        name=check_job_name(job["name"]),
        queue=check_name(job.get("queue", "default"), "queue"),
        tenant=check_name(job.get("tenant", "default"), "tenant"),
        qos=qos,
        band=parse_band(job["band"], "band") if "band" in job else default_band(qos),
        priority=_whole(job, "priority", "priority", 0),
        labels=_texts(job.get("labels"), "labels", LIMITS.LABELS_MAX),
        tasks=(_task(job, "", SHORTHAND_TASK, qos, notes),) if is_shorthand else _tasks(job["tasks"], qos, notes),
    )
    validate_spec(spec, is_shorthand=is_shorthand)
    return spec


def _tasks(value: object, qos: QosClass, notes: list[tuple[str, str]]) -> tuple[TaskSpec, ...]:
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise InvalidInput("tasks", "must be a list of tasks", value)
    if not 1 <= len(value) <= LIMITS.TASKS_MAX:
        raise InvalidInput("tasks", f"must be from 1 to {LIMITS.TASKS_MAX} tasks", len(value))
    tasks = []
    for index, item in enumerate(value):
        path = f"tasks[{index}]"
        task = mapping_of(item, path)
        _only_known_keys(task, _TASK_KEYS, f"{path}.")
        if "name" not in task:
            raise InvalidInput(f"{path}.name", "is needed", None)
        tasks.append(_task(task, f"{path}.", check_name(task["name"], f"{path}.name"), qos, notes))
    return tuple(tasks)


def _task(task: Mapping[str, Any], path: str, name: str, qos: QosClass, notes: list[tuple[str, str]]) -> TaskSpec:
    return TaskSpec(
        name=name,
        replicas=_whole(task, "replicas", f"{path}replicas", 1),
        request=ResourceRequest(cpu_mcpu=_cpu_mcpu(task, path), memory_bytes=_memory_bytes(task, path, notes)),
        run=RunSpec(
            command=_command(task.get("command"), f"{path}command"),
            env=_texts(task.get("env"), f"{path}env", LIMITS.ENV_MAX),
            work_mcpu_ms=_work_mcpu_ms(task, path),
            grace_ms=parse_duration_ms(task.get("grace", 10), f"{path}grace", max_ms=LIMITS.GRACE_MAX_MS),
            limits=_limits(task.get("limits"), f"{path}limits"),
            directory=text_of(task.get("directory", ""), f"{path}directory"),
            attach=attach_of(task.get("attach"), f"{path}attach"),
        ),
        max_retry=_whole(task, "max_retry", f"{path}max_retry", 0),
        min_succeeded=_whole_or_none(task, "min_succeeded", f"{path}min_succeeded"),
        max_failed=_whole_or_none(task, "max_failed", f"{path}max_failed"),
        constraints=_without_vain_wishes(constraints_of(task.get("place"), f"{path}place"), qos, f"{path}place", notes),
    )


def _without_vain_wishes(place: Constraints, qos: QosClass, where: str, notes: list[tuple[str, str]]) -> Constraints:
    """The constraints without preferences about own CPUs, where the class holds none; each is noted. A requirement stays."""
    if qos.has_own_cpus or place.cpu_policy in (CpuPolicy.EXCLUSIVE, CpuPolicy.IMMOVABLE) or place.cpu_bind_required:
        return place
    why = f"is ignored: it is a preference, and work of class {qos.value} binds no CPUs"
    if place.cpu_bind is not CpuBind.DEFAULT:
        notes.append((f"{where}.cpu_bind", why))
    if place.cpu_exclusive is not CpuExclusive.NONE:
        notes.append((f"{where}.cpu_exclusive", why))
    return structs.replace(place, cpu_bind=CpuBind.DEFAULT, cpu_exclusive=CpuExclusive.NONE)


def _cpu_mcpu(task: Mapping[str, Any], path: str) -> int:
    if "batch-cpu" in task:
        _not_both(task, "batch-cpu", "cpu", path)
        return parse_batch_mcpu(task["batch-cpu"], f"{path}batch-cpu")
    if "cpu" not in task:
        raise InvalidInput(f"{path}cpu", 'is needed, for example "2" or "500m"', None)
    return parse_mcpu(task["cpu"], f"{path}cpu")


def _memory_bytes(task: Mapping[str, Any], path: str, notes: list[tuple[str, str]]) -> int:
    if "batch-memory" in task:
        _not_both(task, "batch-memory", "memory", path)
        return parse_bytes(task["batch-memory"], f"{path}batch-memory")
    if task.get("memory") is None:
        notes.append((f"{path}memory", f"is not given; {format_bytes(DEFAULT_MEMORY_BYTES)} is requested"))
        return DEFAULT_MEMORY_BYTES
    return parse_bytes(task["memory"], f"{path}memory")


def _limits(value: object, field: str) -> ResourceLimits | None:
    if value is None:
        return None
    limits = mapping_of(value, field)
    _only_known_keys(limits, ("cpu", "memory", "disk"), f"{field}.")
    cpu, memory, disk = limits.get("cpu"), limits.get("memory"), limits.get("disk")
    return ResourceLimits(
        cpu_mcpu=0 if cpu is None else parse_mcpu(cpu, f"{field}.cpu"),
        memory_bytes=0 if memory is None else parse_bytes(memory, f"{field}.memory"),
        disk_bytes=0 if disk is None else parse_bytes(disk, f"{field}.disk"),
    )


def _command(value: object, field: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        if len(value) > LIMITS.COMMAND_MAX_BYTES:
            raise InvalidInput(field, "must be at most 64 KiB", value)
        if _SHELL_ONLY.search(value):
            raise InvalidInput(field, 'is run without a shell; write ["sh", "-c", "..."] if you want one', value)
        try:
            return tuple(shlex.split(value))
        except ValueError as error:
            raise InvalidInput(field, "has a quote that is not closed", value) from error
    if not isinstance(value, Sequence) or isinstance(value, (bytes, bytearray)):
        raise InvalidInput(field, "must be a list of words or one line of text", value)
    if len(value) > LIMITS.COMMAND_MAX:
        raise InvalidInput(field, f"must be at most {LIMITS.COMMAND_MAX} arguments", len(value))
    return tuple(text_of(word, f"{field}[{index}]") for index, word in enumerate(value))


def _work_mcpu_ms(task: Mapping[str, Any], path: str) -> int:
    if "work_cpu_seconds" in task:
        _not_both(task, "work_cpu_seconds", "work", path)
        field, value = f"{path}work_cpu_seconds", task["work_cpu_seconds"]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
            raise InvalidInput(field, "must be a number of CPU seconds, at least 0", value)
        return _whole_work(Fraction(repr(value)) * 1_000_000, field, value)
    value = task.get("work")
    if value is None:
        return 0
    match = _WORK.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise InvalidInput(f"{path}work", _WORK_RULE, value)
    return _whole_work(Fraction(match[1]) * _WORK_UNIT_MCPU_MS[match[2]], f"{path}work", value)


def _whole_work(exact: Fraction, field: str, value: object) -> int:
    if exact.denominator != 1:
        raise InvalidInput(field, "must be a whole number of milli-CPU x ms", value)
    if exact.numerator > LIMITS.WORK_MAX_MCPU_MS:
        raise InvalidInput(field, "must be at most a million CPU hours", value)
    return exact.numerator


def _whole(mapping: Mapping[str, Any], key: str, field: str, default: int) -> int:
    number = _whole_or_none(mapping, key, field)
    return default if number is None else number


def _whole_or_none(mapping: Mapping[str, Any], key: str, field: str) -> int | None:
    value = mapping.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(field, "must be a whole number", value)
    return value


def _texts(value: object, field: str, most: int) -> dict[str, str]:
    if value is None:
        return {}
    mapping = mapping_of(value, field)
    if len(mapping) > most:
        raise InvalidInput(field, f"must be at most {most}", len(mapping))
    return {key: text_of(text, f"{field}.{key}") for key, text in mapping.items()}


def _only_known_keys(mapping: Mapping[str, Any], known: tuple[str, ...], path: str) -> None:
    for key in mapping:
        if key in known:
            continue
        shown = key[: LIMITS.NAME_MAX]
        raise InvalidInput(f"{path}{shown}", f"is not a key of a job file; {hint(shown, known, 'known keys')}", key)


def _not_both(mapping: Mapping[str, Any], one: str, other: str, path: str) -> None:
    if other in mapping:
        raise InvalidInput(f"{path}{one}", f"must not stand beside `{other}`: they say the same", mapping[one])
