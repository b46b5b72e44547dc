"""Collects the samples of a trace while a format is read, with one rule for each way a sample can be wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite, isnan
from typing import Final

from colo_common.model.invalid import InvalidInput
from colo_sim.trace import DEFAULT_GAP_LIMIT_MS, LoadSeries, LoadTrace, series_from_rows

__all__ = ["MAX_ROWS", "MAX_SERIES", "TraceRead", "TraceRows", "number_of", "whole_number_of"]

MAX_ROWS: Final = 20_000_000
MAX_SERIES: Final = 100_000
_MAX_SECONDS: Final = 10**12


@dataclass(frozen=True)
class TraceRead:
    """A trace, its format, its number of samples, the skipped ones by reason, and notices for the user."""

    trace: LoadTrace
    format_name: str
    rows: int
    skipped: dict[str, int]
    notices: tuple[str, ...]


def number_of(text: str, where: str) -> float:
    """Return a finite number. Raises InvalidInput for NaN, infinity and anything that is no number."""
    try:
        number = float(text)
    except ValueError:
        raise InvalidInput(where, "must be a number", text) from None
    if isnan(number):
        raise InvalidInput(where, "must be a number, NaN is refused", text)
    if not isfinite(number):
        raise InvalidInput(where, "must be finite", text)
    return number


def whole_number_of(text: str, where: str) -> int:
    """Return a whole number of at least 0 with plain ASCII digits. Raises InvalidInput otherwise."""
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidInput(where, "must be a whole number of at least 0", text)
    return int(text)


@dataclass
class TraceRows:
    """Samples by series in the order read. `source` names the file in every error.

    With `skip_invalid`, rows that break a rule are left out and counted; without, and when no row is left, the first one raises
    InvalidInput. Missing values (an empty field) are always left out and counted.
    `blank_lines` were dropped before the first line and still count in line numbers.
    """

    source: str
    gap_limit_ms: int = DEFAULT_GAP_LIMIT_MS
    skip_invalid: bool = False
    blank_lines: int = 0
    rows: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    _first_refused: InvalidInput | None = None
    _samples: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)

    def where(self, line: int, column: str = "") -> str:
        """Return "FILE line N COLUMN", the `field` of an error."""
        return f"{self.source} line {line + self.blank_lines} {column}".rstrip()

    def refuse(self, error: InvalidInput) -> None:
        """Count a row that breaks a rule, or raise the error where none may."""
        if not self.skip_invalid:
            raise error
        self.skipped["invalid"] += 1
        self._first_refused = self._first_refused or error

    @contextmanager
    def one(self) -> Iterator[None]:
        """Read one row in this context: it is refused as a whole."""
        try:
            yield
        except InvalidInput as error:
            self.refuse(error)

    def time_ms(self, text: str, line: int, column: str) -> int:
        """Return a time in milliseconds from seconds (rounded to the nearest), at least 0."""
        seconds = number_of(text, self.where(line, column))
        if not 0 <= seconds <= _MAX_SECONDS:
            raise InvalidInput(self.where(line, column), f"must be seconds from 0 to {_MAX_SECONDS}", text)
        return round(seconds * 1000)

    def share_ppm(self, text: str, line: int, column: str, *, whole: int = 100) -> int | None:
        """Return a share of `whole` (100: percent, 1: ratio) in ppm, rounded to the nearest; None when it is left out."""
        text = text.strip()
        if not text:
            self.skipped["missing"] += 1
            return None
        where = self.where(line, column)
        try:
            share = number_of(text, where)
            if not 0 <= share <= whole:
                raise InvalidInput(where, f"must be from 0 to {whole}", text)
        except InvalidInput as error:
            self.refuse(error)
            return None
        return round(share * (1_000_000 // whole))

    def add(self, name: str, t_ms: int, cpu_ppm: int, mem_ppm: int, line: int) -> None:
        """Keep one sample. Raises InvalidInput when its time does not follow the last one of its series, or at a limit."""
        samples = self._samples.get(name)
        if samples is None:
            if len(self._samples) >= MAX_SERIES:
                raise InvalidInput(self.where(line, "node"), f"a trace may have at most {MAX_SERIES} nodes", name)
            samples = self._samples[name] = []
        if samples and t_ms <= samples[-1][0]:
            rule = f"times of {name} must ascend, the one before is {samples[-1][0] / 1000:g} s"
            raise InvalidInput(self.where(line, "time"), rule, t_ms / 1000)
        self.rows += 1
        if self.rows > MAX_ROWS:
            raise InvalidInput(self.where(line), f"a trace may have at most {MAX_ROWS} samples", self.rows)
        samples.append((t_ms, cpu_ppm, mem_ppm))

    def finish(self, format_name: str, *, is_fleet_mean: bool = False, notices: tuple[str, ...] = ()) -> TraceRead:
        """Return the trace. Times start at the earliest sample of all. Raises InvalidInput when no sample was left."""
        if not self._samples:
            if self._first_refused is not None:
                raise self._first_refused
            raise InvalidInput(
                self.source, "must hold at least one sample with a CPU share", dict(self.skipped) or "none"
            )
        origin_ms = min(samples[0][0] for samples in self._samples.values())
        series = tuple(
            series_from_rows(name, [(t - origin_ms, cpu, mem) for t, cpu, mem in samples], self.gap_limit_ms)
            for name, samples in sorted(self._samples.items())
        )
        trace = LoadTrace(series, self.source, is_fleet_mean=is_fleet_mean)
        notices = (*notices, *self._skip_notices(), *_gap_notices(self.source, series, self.gap_limit_ms))
        return TraceRead(trace, format_name, self.rows, dict(sorted(self.skipped.items())), notices)

    def _skip_notices(self) -> tuple[str, ...]:
        first = f", the first one because {self._first_refused}" if self._first_refused is not None else ""
        return tuple(
            f"{self.source}: {count} values left out because they are {reason}{first if reason == 'invalid' else ''}"
            for reason, count in sorted(self.skipped.items())
        )


def _gap_notices(source: str, series: tuple[LoadSeries, ...], gap_limit_ms: int) -> tuple[str, ...]:
    numbers = [one.statistics() for one in series]
    gaps = sum(one.gaps for one in numbers)
    if not gaps:
        return ()
    longest_s = max(one.longest_gap_ms for one in numbers) // 1000
    return (
        f"{source}: {gaps} gaps are longer than {gap_limit_ms // 1000} s (the longest {longest_s} s); "
        "the load is held over them",
    )
