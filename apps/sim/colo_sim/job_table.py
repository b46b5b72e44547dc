"""Reads tables of batch jobs: the pod table of Alibaba's 2023 GPU trace ("openb"), one replica a pod, and the task table of 2017.

Columns of a pod table are found by name in the header; `name`, `cpu_milli` and `memory_mib` are needed. With `qos` its BE pods
are the jobs, without it all pods; `creation_time` and `deletion_time` (seconds) are a pod's run time, ten minutes without them.
Other columns are not read. GPUs are left aside: the CPU and memory of a pod is what is reclaimed.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, cast

from colo_common.model.invalid import InvalidInput
from colo_sim.batch_task_table import INSTANCES_MOST, MACHINE_BYTES, TASK_COLUMNS, is_batch_task, task_row
from colo_sim.job_source import MIB, JobShape, TableJobs, fit_shape
from colo_sim.trace_rows import whole_number_of

__all__ = ["MAX_JOB_ROWS", "JobTableRead", "parse_job_table", "read_job_table"]

MAX_JOB_ROWS: Final = 1_000_000
_COLUMNS: Final = ("name", "cpu_milli", "memory_mib")
_TIMES: Final = ("creation_time", "deletion_time")
_RUNTIME_S: Final = 600
"""The run time of a pod in a table without times."""
_GZIP_MAGIC: Final = b"\x1f\x8b"


class JobTableRead(NamedTuple):
    """The jobs of a table, and notices for the user: rows left out, and what is not taken from the table."""

    jobs: TableJobs
    notices: tuple[str, ...]


class _Limits(NamedTuple):
    max_cpu_mcpu: int
    max_memory_bytes: int
    speed_up: int


def read_job_table(path: Path, *, max_cpu_mcpu: int, max_memory_bytes: int, speed_up: int = 1) -> JobTableRead:
    """Return the jobs of a pod table, plain or gzip. Raises InvalidInput: one sentence with file, line and rule.

    Requests above the limits (of what a zone can host) shrink in proportion; run times are the pods' own, brought into
    1 to 30 minutes; arrivals are the creation times divided by `speed_up`.
    """
    if speed_up < 1:
        raise InvalidInput("speed_up", "must be at least 1", speed_up)
    limits = _Limits(max_cpu_mcpu, max_memory_bytes, speed_up)
    try:
        with path.open("rb") as probe:
            is_gzip = probe.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        # Closed with the text around it.
        raw = gzip.open(path) if is_gzip else path.open("rb")  # noqa: SIM115
        with io.TextIOWrapper(cast(BinaryIO, raw), encoding="utf-8-sig", newline="") as text:
            return parse_job_table(text, path.name, limits)
    except UnicodeDecodeError as error:
        raise InvalidInput(path.name, f"must be UTF-8 text ({error.reason} at byte {error.start})", path) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidInput(path.name, f"must be a whole gzip file ({error})", path) from None
    except OSError as error:
        raise InvalidInput(path.name, f"must be a readable file ({error.strerror or error})", path) from None


def parse_job_table(lines: Iterable[str], source: str, limits: _Limits) -> JobTableRead:
    """Return the jobs of the table's lines, ordered by arrival, then by name. Rows that break a rule are counted."""
    records = _records(lines, source)
    first, header = next(records, (1, []))
    if is_batch_task(header):
        return _tasks(chain([(first, header)], records), source, limits)
    columns = {name.strip(): position for position, name in enumerate(header)}
    missing = [name for name in _COLUMNS if name not in columns]
    if missing:
        raise InvalidInput(
            f"{source} line 1", f"the header must name the columns {', '.join(missing)}", ",".join(header)
        )
    has_qos, has_times = "qos" in columns, all(name in columns for name in _TIMES)
    read = (*_COLUMNS, *(_TIMES if has_times else ()))

    def row_of(record: list[str], where: str) -> tuple[str, JobShape, int] | None:
        if len(record) != len(header):
            raise InvalidInput(where, f"must have {len(header)} columns", ",".join(record))
        if has_qos and record[columns["qos"]] != "BE":
            return None
        return _job_row({name: record[columns[name]] for name in read}, where, limits)

    rows, others, refused = _rows(records, source, row_of)
    if not rows:
        raise InvalidInput(source, 'must have at least one pod with qos "BE"', 0)
    what = f"{len(rows)} BE pods are the jobs, {others} pods of other classes are left out" if has_qos else ""
    taken = (
        "their sizes and run times are used" if has_times else f"their sizes are used, each runs {_RUNTIME_S // 60} min"
    )
    return JobTableRead(
        TableJobs(rows), _notices(source, what or f"{len(rows)} pods without a class are the jobs", taken, refused)
    )


def _tasks(records: Iterable[tuple[int, list[str]]], source: str, limits: _Limits) -> JobTableRead:
    """The jobs of the task table of 2017."""

    def row_of(record: list[str], where: str) -> tuple[str, JobShape, int] | None:
        if len(record) != TASK_COLUMNS:
            raise InvalidInput(where, f"must have {TASK_COLUMNS} columns", ",".join(record))
        return task_row(
            record,
            where,
            max_cpu_mcpu=limits.max_cpu_mcpu,
            max_memory_bytes=limits.max_memory_bytes,
            speed_up=limits.speed_up,
        )

    rows, others, refused = _rows(records, source, row_of)
    if not rows:
        raise InvalidInput(source, "must have at least one terminated task with CPU and memory", 0)
    what = f"{len(rows)} tasks are the jobs, {others} that did not end or say no size are left out"
    taken = (
        f"at most {INSTANCES_MOST} instances are the replicas, a share of memory is of {MACHINE_BYTES >> 30} GiB, "
        "an instance runs as long as its task"
    )
    return JobTableRead(TableJobs(rows), _notices(source, what, taken, refused))


def _rows(
    records: Iterable[tuple[int, list[str]]],
    source: str,
    row_of: Callable[[list[str], str], tuple[str, JobShape, int] | None],
) -> tuple[list[tuple[str, JobShape, int]], int, list[InvalidInput]]:
    """The jobs in the order of their arrival, the number of rows that are none, and why rows were refused."""
    rows: list[tuple[str, JobShape, int]] = []
    names: set[str] = set()
    others = 0
    refused: list[InvalidInput] = []
    for line, record in records:
        try:
            row = row_of(record, f"{source} line {line}")
            if row is None:
                others += 1
                continue
            if row[0] in names:
                raise InvalidInput(f"{source} line {line} name", "must be unique", row[0])
        except InvalidInput as error:
            refused.append(error)
            continue
        names.add(row[0])
        rows.append(row)
        if len(rows) > MAX_JOB_ROWS:
            raise InvalidInput(f"{source} line {line}", f"a table may have at most {MAX_JOB_ROWS} jobs", len(rows))
    if refused and not rows:
        raise refused[0]
    rows.sort(key=lambda row: (row[2], row[0]))
    return rows, others, refused


def _notices(source: str, what: str, taken: str, refused: list[InvalidInput]) -> tuple[str, ...]:
    notices = [
        f"{source}: {what}; {taken}, their arrival times and GPUs are not: the lab submits as much as --load says"
    ]
    if refused:
        notices.append(f"{source}: {len(refused)} rows are left out, the first one because {refused[0]}")
    return tuple(notices)


def _records(lines: Iterable[str], source: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(lines)
    try:
        for record in reader:
            if record:
                yield reader.line_num, record
    except csv.Error as error:
        raise InvalidInput(f"{source} line {reader.line_num}", f"must be comma separated text ({error})", "") from None


def _times_of(fields: dict[str, str], where: str) -> tuple[int, int]:
    if "creation_time" not in fields:
        return 0, _RUNTIME_S
    created_s = whole_number_of(fields["creation_time"], f"{where} creation_time")
    # A pod that still ran when the trace ended has no deletion time in some versions of the table.
    return created_s, whole_number_of(fields["deletion_time"] or str(created_s), f"{where} deletion_time")


def _job_row(fields: dict[str, str], where: str, limits: _Limits) -> tuple[str, JobShape, int]:
    if not fields["name"]:
        raise InvalidInput(f"{where} name", "must not be empty", "")
    cpu_mcpu = whole_number_of(fields["cpu_milli"], f"{where} cpu_milli")
    memory_mib = whole_number_of(fields["memory_mib"], f"{where} memory_mib")
    created_s, deleted_s = _times_of(fields, where)
    if cpu_mcpu < 1 or memory_mib < 1:
        raise InvalidInput(f"{where} cpu_milli, memory_mib", "must be at least 1", (cpu_mcpu, memory_mib))
    if deleted_s < created_s:
        raise InvalidInput(f"{where} deletion_time", "must not be before creation_time", deleted_s)
    shape = JobShape(cpu_mcpu=cpu_mcpu, memory_bytes=memory_mib * MIB, runtime_ms=(deleted_s - created_s) * 1_000)
    fitted = fit_shape(shape, max_cpu_mcpu=limits.max_cpu_mcpu, max_memory_bytes=limits.max_memory_bytes)
    return fields["name"], fitted, created_s * 1_000 // limits.speed_up
