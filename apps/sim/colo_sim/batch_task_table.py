"""Reads the task table of Alibaba's 2017 trace (batch_task.csv) as batch jobs: one job a task, its instances are the replicas.

No header, 8 columns: creation and modification time (s), job, task, instances, status, CPU of an instance in percent of a
core, its memory as a share of a machine's. A row without a plan for CPU or memory is left out, and one that is not `Terminated`.
"""

from __future__ import annotations

import math
from typing import Final

from colo_common.model.invalid import InvalidInput
from colo_sim.job_source import JobShape, fit_shape
from colo_sim.trace_rows import number_of, whole_number_of

__all__ = ["INSTANCES_MOST", "MACHINE_BYTES", "TASK_COLUMNS", "is_batch_task", "task_row"]

TASK_COLUMNS: Final = 8
INSTANCES_MOST: Final = 100
"""More instances than that are this many replicas: a task of thousands would fill a small lab alone."""
MACHINE_BYTES: Final = 96 << 30
"""What a share of memory is of: the trace does not say how large its machines are; this is assumed."""
_DONE: Final = "Terminated"
_MCPU_PER_PCT: Final = 10


def is_batch_task(record: list[str]) -> bool:
    """Whether this first row is one of the task table: 8 columns without a header, the status a word."""
    return len(record) == TASK_COLUMNS and record[0].lstrip("-").isdigit() and record[5].isalpha()


def task_row(
    record: list[str], where: str, *, max_cpu_mcpu: int, max_memory_bytes: int, speed_up: int
) -> tuple[str, JobShape, int] | None:
    """Name, shape and arrival of a row; None for one that is left out. Raises InvalidInput for a row that breaks a rule.

    An instance is taken to run as long as its task, which is at least as long as it did.
    """
    begin, end, job, task, instances, status, cpu, memory = (text.strip() for text in record)
    if status != _DONE or not cpu or not memory:
        return None
    # Tasks from before the trace began have negative times.
    begin_s, end_s = (round(number_of(text, f"{where} time")) for text in (begin, end))
    if end_s < begin_s:
        raise InvalidInput(f"{where} modify_timestamp", "must not be before create_timestamp", end)
    count = whole_number_of(instances, f"{where} instance_num")
    cpu_mcpu = math.floor(number_of(cpu, f"{where} plan_cpu") * _MCPU_PER_PCT)
    memory_bytes = math.floor(number_of(memory, f"{where} plan_mem") * MACHINE_BYTES)
    if count < 1 or cpu_mcpu < 1 or memory_bytes < 1:
        raise InvalidInput(where, "instances, CPU and memory must be above 0", (instances, cpu, memory))
    shape = JobShape(
        replicas=min(count, INSTANCES_MOST),
        cpu_mcpu=cpu_mcpu,
        memory_bytes=memory_bytes,
        runtime_ms=(end_s - begin_s) * 1_000,
    )
    fitted = fit_shape(shape, max_cpu_mcpu=max_cpu_mcpu, max_memory_bytes=max_memory_bytes)
    return f"task-{job}-{task.replace('-', 'm')}", fitted, max(begin_s, 0) * 1_000 // speed_up
