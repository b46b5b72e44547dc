"""The text formats of load traces, recognised by their content and read line by line.

- `alibaba`: machine usage of Alibaba's 2018 trace, no header, 9 columns: machine, time (s), CPU %, memory %, then six
  that are not read. Its documentation marks invalid values as -1 or 101: they are left out and counted.
- `fleet`: header `cpu_util_percent,mem_util_percent,...` (Alibaba 2018), or `cpu_util,mem_util,...` in parts of 1 (Google 2019):
  the mean of a fleet on a fixed raster, no time column.
- `pairs`: no header, CPU % and memory % of one machine every 300 s, with a comma, semicolon, tab or spaces between: one file of the
  1,600 virtual machines that were made of Google's 2011 trace (GCD VMs). An archive (tar) of such files is one trace.
- `long`: header `time,node,cpu_pct,mem_pct`; time in seconds.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from typing import Final, Literal

from colo_common.model.invalid import InvalidInput
from colo_sim.trace_rows import TraceRead, TraceRows

__all__ = [
    "LONG_HEADER",
    "TextFormat",
    "add_pairs",
    "detect_text_format",
    "parse_alibaba",
    "parse_fleet",
    "parse_long",
    "parse_pairs",
]

TextFormat = Literal["alibaba", "fleet", "long", "pairs", "prometheus"]

LONG_HEADER: Final = ("time", "node", "cpu_pct", "mem_pct")
#: The first columns of a fleet mean, and what of a whole machine is written as.
_FLEET_HEADERS: Final = {("cpu_util_percent", "mem_util_percent"): 100, ("cpu_util", "mem_util"): 1}
_ALIBABA_COLUMNS: Final = 9
_ALIBABA_INVALID: Final = ("-1", "101")
_PAIR_STEP_MS: Final = 300_000
_PAIR: Final = re.compile(r"([0-9.+\-eE]+)\s*[,;\s]\s*([0-9.+\-eE]+)")


def detect_text_format(first_line: str, source: str) -> TextFormat:
    """Return the format of a trace from its first line that is not blank. Raises InvalidInput when it is none of them."""
    line = first_line.strip().lstrip("\ufeff")
    if not line:
        raise InvalidInput(source, "must not be empty", first_line)
    if line[0] in "{[":
        return "prometheus"
    columns = [column.strip() for column in line.split(",")]
    if tuple(columns) == LONG_HEADER:
        return "long"
    if tuple(columns[:2]) in _FLEET_HEADERS:
        return "fleet"
    if len(columns) == _ALIBABA_COLUMNS and columns[1].isascii() and columns[1].isdigit():
        return "alibaba"
    if _PAIR.fullmatch(line):
        return "pairs"
    known = " or ".join('"' + ",".join(each) + '"' for each in _FLEET_HEADERS)
    rule = (
        f'must be the header "{",".join(LONG_HEADER)}", a header that starts with {known}, '
        "a 9-column row of Alibaba machine usage, the CPU and memory percent of a Google VM, or a Prometheus answer in JSON; "
        "make one of them of any other trace"
    )
    raise InvalidInput(f"{source} line 1", rule, line)


def _records(
    lines: Iterable[str], rows: TraceRows, columns: int, *, first_line: int
) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, fields) of every line that is not blank and has the right count."""
    reader = csv.reader(lines)
    line = first_line - 1
    try:
        for record in reader:
            line = first_line - 1 + reader.line_num
            if not record or record == [""]:
                continue
            if len(record) != columns:
                rows.refuse(InvalidInput(rows.where(line), f"must have {columns} columns", ",".join(record)))
                continue
            yield line, record
    except csv.Error as error:
        raise InvalidInput(rows.where(line + 1), f"must be comma separated text ({error})", "") from None


def parse_alibaba(lines: Iterable[str], rows: TraceRows) -> TraceRead:
    """Return the trace of Alibaba machine usage rows."""
    for line, record in _records(lines, rows, _ALIBABA_COLUMNS, first_line=1):
        with rows.one():
            name, time_text, cpu_text, mem_text = record[:4]
            if not name:
                raise InvalidInput(rows.where(line, "machine_id"), "must not be empty", name)
            if cpu_text.strip() in _ALIBABA_INVALID or mem_text.strip() in _ALIBABA_INVALID:
                rows.skipped["marked invalid"] += 1
                continue
            t_ms = rows.time_ms(time_text, line, "time_stamp")
            cpu_ppm = rows.share_ppm(cpu_text, line, "cpu_util_percent")
            mem_ppm = rows.share_ppm(mem_text, line, "mem_util_percent")
            if cpu_ppm is not None and mem_ppm is not None:
                rows.add(name, t_ms, cpu_ppm, mem_ppm, line)
    return rows.finish("alibaba")


def parse_fleet(header: str, lines: Iterable[str], rows: TraceRows, *, step_ms: int) -> TraceRead:
    """Return the one series of a fleet mean; `lines` follow the header, sample i is at i x `step_ms`."""
    if step_ms < 1:
        raise InvalidInput("step_ms", "must be at least 1", step_ms)
    names = [name.strip() for name in header.lstrip("\ufeff").split(",")]
    columns, whole = len(names), _FLEET_HEADERS[(names[0], names[1])]
    for index, (line, record) in enumerate(_records(lines, rows, columns, first_line=2)):
        with rows.one():
            cpu_ppm = rows.share_ppm(record[0], line, names[0], whole=whole)
            mem_ppm = rows.share_ppm(record[1], line, names[1], whole=whole)
            if cpu_ppm is not None and mem_ppm is not None:
                rows.add("fleet-mean", index * step_ms, cpu_ppm, mem_ppm, line)
    return rows.finish("fleet", is_fleet_mean=True)


def parse_long(lines: Iterable[str], rows: TraceRows) -> TraceRead:
    """Return the trace of `time,node,cpu_pct,mem_pct` rows; `lines` follow the header."""
    for line, (time_text, name, cpu_text, mem_text) in _records(lines, rows, len(LONG_HEADER), first_line=2):
        with rows.one():
            name = name.strip()
            if not name:
                raise InvalidInput(rows.where(line, "node"), "must not be empty", name)
            t_ms = rows.time_ms(time_text, line, "time")
            cpu_ppm = rows.share_ppm(cpu_text, line, "cpu_pct")
            mem_ppm = rows.share_ppm(mem_text, line, "mem_pct")
            if cpu_ppm is not None and mem_ppm is not None:
                rows.add(name, t_ms, cpu_ppm, mem_ppm, line)
    return rows.finish("long")


def parse_pairs(lines: Iterable[str], rows: TraceRows, name: str) -> TraceRead:
    """Return the trace of one machine."""
    add_pairs(lines, rows, name)
    return rows.finish("pairs")


def add_pairs(lines: Iterable[str], rows: TraceRows, name: str) -> None:
    """Add the series of one machine: line i is at i x 300 s."""
    index = 0
    for line, text in enumerate(lines, start=1):
        text = text.strip()
        if not text:
            continue
        with rows.one():
            found = _PAIR.fullmatch(text)
            if found is None:
                raise InvalidInput(rows.where(line), "must be CPU percent and memory percent", text)
            cpu_ppm = rows.share_ppm(found[1], line, "CPU percent")
            mem_ppm = rows.share_ppm(found[2], line, "memory percent")
            if cpu_ppm is not None and mem_ppm is not None:
                rows.add(name, index * _PAIR_STEP_MS, cpu_ppm, mem_ppm, line)
        index += 1
