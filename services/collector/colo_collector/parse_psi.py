"""Parses the kernel's pressure files (PSI): /proc/pressure/{cpu,memory,io,irq} and a cgroup's *.pressure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from colo_common.model.invalid import InvalidInput

MAX_TOTAL_US: Final = 2**64 - 1
MAX_AVG_CENTIPCT: Final = 100_00
_MAX_CHARACTERS: Final = 4096

_AVERAGE: Final = re.compile(r"([0-9]{1,3})\.([0-9]{2})")
_WHOLE: Final = re.compile(r"[0-9]{1,20}")
_LINES: Final = ("some", "full")
_FIELDS: Final = ("avg10", "avg60", "avg300", "total")


@dataclass(frozen=True, slots=True)
class PressureLine:
    """One line: averages over 10, 60 and 300 s in hundredths of a percent, and the stall since boot in microseconds."""

    avg10_centipct: int
    avg60_centipct: int
    avg300_centipct: int
    total_us: int


@dataclass(frozen=True, slots=True)
class Pressure:
    """A pressure file. A line that the kernel does not print is None: irq has only `full`, an old cpu file only `some`."""

    some: PressureLine | None
    full: PressureLine | None


def parse_pressure(text: str, field: str = "pressure") -> Pressure:
    """Return the lines of a pressure file.

    Raises InvalidInput for a cut or repeated line, a line that is neither `some` nor `full`, a malformed number, and a file without
    lines. Fields that a later kernel may add at the end of a line are skipped.
    """
    lines: dict[str, PressureLine] = {}
    for words in _rows(text, field):
        name = _line_name(words, lines, field)
        numbers: dict[str, int] = {}
        for word in words[1:]:
            key, equals, value = word.partition("=")
            if not equals or key in numbers:
                raise InvalidInput(f"{field}.{name}", "every field must be name=value and occur once", word)
            if key in _FIELDS:
                numbers[key] = _number(key, value, f"{field}.{name}.{key}")
        missing = [key for key in _FIELDS if key not in numbers]
        if missing:
            raise InvalidInput(f"{field}.{name}", f"must have the field {missing[0]}", " ".join(words))
        lines[name] = PressureLine(numbers["avg10"], numbers["avg60"], numbers["avg300"], numbers["total"])
    if not lines:
        raise InvalidInput(field, "must have a some or a full line", text)
    return Pressure(lines.get("some"), lines.get("full"))


def _rows(text: str, field: str) -> list[list[str]]:
    if len(text) > _MAX_CHARACTERS:
        raise InvalidInput(field, f"must be at most {_MAX_CHARACTERS} characters", text)
    return [line.split() for line in text.splitlines() if line.strip()]


def _line_name(words: list[str], seen: dict[str, PressureLine], field: str) -> str:
    name = words[0]
    if name not in _LINES:
        raise InvalidInput(field, "every line must start with some or full", " ".join(words))
    if name in seen:
        raise InvalidInput(f"{field}.{name}", "must occur once", " ".join(words))
    return name


def _number(key: str, text: str, field: str) -> int:
    """Return a total in microseconds or an average in hundredths of a percent."""
    if key == "total":
        if _WHOLE.fullmatch(text) is None or int(text) > MAX_TOTAL_US:
            raise InvalidInput(field, "must be whole microseconds that fit in 64 bits", text)
        return int(text)
    match = _AVERAGE.fullmatch(text)
    if match is None:
        raise InvalidInput(field, "must be a percentage with two decimals", text)
    centipct = int(match[1]) * 100 + int(match[2])
    if centipct > MAX_AVG_CENTIPCT:
        raise InvalidInput(field, "must be at most 100.00", text)
    return centipct
