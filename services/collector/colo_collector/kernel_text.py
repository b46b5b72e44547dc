"""Strict parsers of the kernel's numbers and lists: every error names the file, the line and the rule."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from colo_common.model.cpuset import CpuSet, InvalidCpuList
from colo_common.model.invalid import InvalidInput

__all__ = [
    "COUNTER_MAX",
    "cpu_list",
    "flat_keyed",
    "line_value",
    "numbered_lines",
    "single_count",
    "unsigned",
    "where",
]

"""The right by which a process may set PSI triggers that the kernel checks at once."""


COUNTER_MAX: Final = 2**64 - 1
"""The largest counter: the kernel's counters are at most a u64."""

_LINES_MAX: Final = 100_000
_LISTS_REMEMBERED: Final = 256
_PLAIN_DIGITS: Final = 19
"""Every number of so many digits is below 2**64."""


def where(path: str, line: int) -> str:
    """The field name of an error: the file and its line, counted from 1."""
    return f"{path} line {line}"


def numbered_lines(path: str, text: str) -> Iterator[tuple[int, str]]:
    """The non-empty lines with their numbers from 1. Raises InvalidInput beyond 100,000 lines."""
    for number, line in enumerate(text.split("\n"), start=1):
        if number > _LINES_MAX:
            raise InvalidInput(where(path, number), f"a file may have at most {_LINES_MAX} lines", number)
        if line:
            yield number, line


def unsigned(word: str, field: str) -> int:
    """The integer of a word of decimal digits, 0 to 2**64 - 1.

    Raises InvalidInput for anything else, signs and blanks too.
    """
    if not (word.isascii() and word.isdigit() and len(word) <= 20):
        raise InvalidInput(field, "must be an unsigned decimal number", word)
    number = int(word)
    if number > COUNTER_MAX:
        raise InvalidInput(field, "must be below 2**64", word)
    return number


def _is_plain(word: str) -> bool:
    """Whether the word is a number that needs no closer look: nearly all are, and naming the place of each costs more than it."""
    return len(word) <= _PLAIN_DIGITS and word.isdigit() and word.isascii()


def single_count(path: str, text: str) -> int:
    """The number of a file that holds one unsigned number, as cpuacct.usage does. Raises InvalidInput otherwise."""
    word = text.strip(" \t\n")
    return int(word) if _is_plain(word) else unsigned(word, where(path, 1))


def flat_keyed(path: str, text: str) -> dict[str, int]:
    """The numbers of a file with one "key value" a line (cpu.stat, memory.stat); unknown keys are kept.

    Raises InvalidInput for a line of another form or a key that comes twice.
    """
    found: dict[str, int] = {}
    for number, line in numbered_lines(path, text):
        words = line.split()
        if len(words) != 2:
            raise InvalidInput(where(path, number), 'must read "key value"', line)
        if words[0] in found:
            raise InvalidInput(where(path, number), "a key may come only once", words[0])
        found[words[0]] = unsigned(words[1], where(path, number))
    return found


def line_value(path: str, text: str, key: str) -> int | None:
    """The number of one key, None without it. Searches the text: parsing all forty lines of 250 groups a second costs more."""
    begin = 0
    if not (text.startswith(key) and text.startswith(" ", len(key))):
        begin = text.find(f"\n{key} ") + 1
        if begin == 0:
            return None
    end = text.find("\n", begin)
    word = text[begin + len(key) + 1 : len(text) if end < 0 else end]
    if _is_plain(word):
        return int(word)
    return unsigned(word, where(path, text.count("\n", 0, begin) + 1))


def cpu_list(path: str, text: str) -> CpuSet:
    """The CPUs (or zones) of a list file such as "0-3,8"; an empty file is the empty set.

    Raises InvalidInput that names the file, for text that CpuSet.parse refuses.
    """
    try:
        return _known_list(text.strip())
    except InvalidCpuList:
        return CpuSet.parse(text.strip(), where(path, 1))


@lru_cache(maxsize=_LISTS_REMEMBERED)
def _known_list(text: str) -> CpuSet:
    """The same few lists come for every group and zone, every period."""
    return CpuSet.parse(text)
