"""Pressure files in the format that kernels had before Linux 4.20; colo reads the one that came after it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from colo_collector.parse_psi import MAX_AVG_CENTIPCT, MAX_TOTAL_US
from colo_common.model.invalid import InvalidInput

_MAX_CHARACTERS: Final = 4096
_AVERAGE: Final = re.compile(r"([0-9]{1,3})\.([0-9]{2})")
_WHOLE: Final = re.compile(r"[0-9]{1,20}")
_LINES: Final = ("some", "full")


@dataclass(frozen=True, slots=True)
class OldPressureLine:
    """One line: averages over 10, 60 and 300 s in hundredths of a percent. It has no total of its own."""

    avg10_centipct: int
    avg60_centipct: int
    avg300_centipct: int


@dataclass(frozen=True, slots=True)
class OldPressure:
    """A pressure file; `aggregate_us` is the stall of the some line."""

    aggregate_us: int
    some: OldPressureLine | None
    full: OldPressureLine | None


def parse_old_pressure(text: str, field: str = "pressure") -> OldPressure:
    """Return the lines "aggr TOTAL", then "some A B C" and "full A B C". Raises InvalidInput for any other text."""
    rows = [line.split() for line in text.splitlines() if line.strip()]
    if len(text) > _MAX_CHARACTERS or not rows or len(rows[0]) != 2 or rows[0][0] != "aggr":
        raise InvalidInput(field, "must start with the line aggr TOTAL", text)
    total = rows[0][1]
    if _WHOLE.fullmatch(total) is None or int(total) > MAX_TOTAL_US:
        raise InvalidInput(f"{field}.aggr", "must be whole microseconds that fit in 64 bits", total)
    lines: dict[str, OldPressureLine] = {}
    for words in rows[1:]:
        if words[0] not in _LINES or words[0] in lines or len(words) != 4:
            raise InvalidInput(field, "must be a some and a full line at most, of three averages", " ".join(words))
        lines[words[0]] = OldPressureLine(*(_centipct(word, f"{field}.{words[0]}") for word in words[1:]))
    if not lines:
        raise InvalidInput(field, "must have a some or a full line", text)
    return OldPressure(int(total), lines.get("some"), lines.get("full"))


def _centipct(text: str, field: str) -> int:
    match = _AVERAGE.fullmatch(text)
    centipct = int(match[1]) * 100 + int(match[2]) if match is not None else MAX_AVG_CENTIPCT + 1
    if centipct > MAX_AVG_CENTIPCT:
        raise InvalidInput(field, "must be a percentage up to 100.00 with two decimals", text)
    return centipct
