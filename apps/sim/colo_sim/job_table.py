"""Reads the pod table of Alibaba's 2023 GPU trace ("openb") as batch jobs: its BE pods, one replica each.

Columns are found by name in the header; `name`, `cpu_milli`, `memory_mib`, `qos`, `creation_time` and `deletion_time`
(seconds) are needed, others are not read. GPUs are left aside: the CPU and memory of a pod is what is reclaimed.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, cast

from colo_common.model.invalid import InvalidInput
from colo_sim.job_source import MIB, JobShape, TableJobs, fit_shape
from colo_sim.trace_rows import whole_number_of

__all__ = ["MAX_JOB_ROWS", "JobTableRead", "parse_job_table", "read_job_table"]

MAX_JOB_ROWS: Final = 1_000_000
_COLUMNS: Final = ("name", "cpu_milli", "memory_mib", "qos", "creation_time", "deletion_time")
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
    """Return the BE pods of the table's lines, ordered by arrival, then by name. Rows that break a rule are counted."""
    records = _records(lines, source)
    _, header = next(records, (1, []))
    columns = {name.strip(): position for position, name in enumerate(header)}
    missing = [name for name in _COLUMNS if name not in columns]
    if missing:
        raise InvalidInput(
            f"{source} line 1", f"the header must name the columns {', '.join(missing)}", ",".join(header)
        )
    rows: list[tuple[str, JobShape, int]] = []
    names: set[str] = set()
    others = 0
    refused: list[InvalidInput] = []
    for line, record in records:
        try:
            if len(record) != len(header):
                raise InvalidInput(f"{source} line {line}", f"must have {len(header)} columns", ",".join(record))
            if record[columns["qos"]] != "BE":
                others += 1
                continue
            row = _job_row({name: record[columns[name]] for name in _COLUMNS}, f"{source} line {line}", limits)
            if row[0] in names:
                raise InvalidInput(f"{source} line {line} name", "must be unique", row[0])
        except InvalidInput as error:
            refused.append(error)
            continue
        names.add(row[0])
        rows.append(row)
        if len(rows) > MAX_JOB_ROWS:
            raise InvalidInput(f"{source} line {line}", f"a table may have at most {MAX_JOB_ROWS} BE pods", len(rows))
    if not rows:
        if refused:
            raise refused[0]
        raise InvalidInput(source, 'must have at least one pod with qos "BE"', 0)
    rows.sort(key=lambda row: (row[2], row[0]))
    return JobTableRead(TableJobs(rows), _notices(source, len(rows), others, refused))


def _notices(source: str, jobs: int, others: int, refused: list[InvalidInput]) -> tuple[str, ...]:
    notices = [
        f"{source}: {jobs} BE pods are the jobs, {others} pods of other classes are left out; their sizes and run times are used, "
        "their arrival times and GPUs are not: the lab submits as much as --load says"
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


def _job_row(fields: dict[str, str], where: str, limits: _Limits) -> tuple[str, JobShape, int]:
    if not fields["name"]:
        raise InvalidInput(f"{where} name", "must not be empty", "")
    cpu_mcpu = whole_number_of(fields["cpu_milli"], f"{where} cpu_milli")
    memory_mib = whole_number_of(fields["memory_mib"], f"{where} memory_mib")
    created_s = whole_number_of(fields["creation_time"], f"{where} creation_time")
    # A pod that still ran when the trace ended has no deletion time in some versions of the table.
    deleted_s = whole_number_of(fields["deletion_time"] or str(created_s), f"{where} deletion_time")
    if cpu_mcpu < 1 or memory_mib < 1:
        raise InvalidInput(f"{where} cpu_milli, memory_mib", "must be at least 1", (cpu_mcpu, memory_mib))
    if deleted_s < created_s:
        raise InvalidInput(f"{where} deletion_time", "must not be before creation_time", deleted_s)
    shape = JobShape(cpu_mcpu=cpu_mcpu, memory_bytes=memory_mib * MIB, runtime_ms=(deleted_s - created_s) * 1_000)
    fitted = fit_shape(shape, max_cpu_mcpu=limits.max_cpu_mcpu, max_memory_bytes=limits.max_memory_bytes)
    return fields["name"], fitted, created_s * 1_000 // limits.speed_up
