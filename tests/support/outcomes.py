"""What a run proved and what it did not: outcomes of several runs of pytest, kept in files and shown as one table.

    python -m tests.support.outcomes table DIRECTORY            the table of all files; 1 when a skip in them is not listed
    python -m tests.support.outcomes note FILE TESTS REASON     keep that these tests were not run; 1 when that is not listed
    python -m tests.support.outcomes keep FILE < OUTPUT         keep what a run elsewhere printed, found in its output

The list is tests/not_proved_here.toml: it names the tests that may be left out, the reason, and where they do run.
"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

__all__ = ["LIST", "LeftOut", "MayBeLeftOut", "Outcomes", "allowance", "main", "may_be_left_out", "table"]

LIST: Final = Path(__file__).parents[1] / "not_proved_here.toml"
PRINTED: Final = "outcomes: "
"""What begins the line of a run that cannot write a file."""
_WIDTH: Final = 52


class MayBeLeftOut(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of the list; `tests` and `reason` are patterns, `runs` is where these tests do run."""

    tests: str
    reason: str
    runs: str


class LeftOut(Struct, frozen=True, order=True):
    """A test that did not run, or several of them by one pattern, and why."""

    test: str
    reason: str


class Outcomes(Struct):
    """What one run of pytest came to: the tests that passed, those that failed, and those that it left out."""

    passed: list[str] = []
    failed: list[str] = []
    left_out: list[LeftOut] = []


def may_be_left_out(path: Path = LIST) -> tuple[MayBeLeftOut, ...]:
    """The entries of the list."""
    entries = tomllib.loads(path.read_text())["may_be_left_out"]
    return tuple(msgspec.convert(entries, list[MayBeLeftOut]))


def allowance(left: LeftOut, entries: Iterable[MayBeLeftOut]) -> MayBeLeftOut | None:
    """The first entry that allows it, None when it may not be left out."""
    for entry in entries:
        if fnmatchcase(left.test, entry.tests) and fnmatchcase(left.reason, entry.reason):
            return entry
    return None


def table(runs: Iterable[Outcomes], entries: Sequence[MayBeLeftOut]) -> tuple[list[str], int]:
    """The lines of the table, and how many tests were left out that may not be.

    What passed in one run is proved, whichever other run left it out.
    """
    runs = list(runs)
    passed = {test for run in runs for test in run.passed}
    failed = {test for run in runs for test in run.failed}
    left = sorted({one for run in runs for one in run.left_out if one.test not in passed})
    proved = Counter(_suite(test) for test in passed - failed)
    lines = [f"{'proved here':<{_WIDTH}} {'tests':>6}"]
    lines += [f"  {suite:<{_WIDTH - 2}} {proved[suite]:>6}" for suite in sorted(proved)]
    lines.append(f"{'not proved here':<{_WIDTH}} {'tests':>6}")
    lines += [f"  {test} failed" for test in sorted(failed)]
    together = Counter((_file(one.test), one.reason, allowance(one, entries)) for one in left)
    for (file, reason, entry), count in together.items():
        where = f"runs in: {entry.runs}" if entry else f"NOT LISTED in {LIST.name}: it may not be left out"
        lines += [f"  {file:<{_WIDTH - 2}} {count:>6}", f"      {reason}", f"      {where}"]
    if not (failed or left):
        lines.append("  nothing")
    return lines, sum(count for (*_, entry), count in together.items() if entry is None)


def _file(test: str) -> str:
    return test.partition("::")[0]


def _suite(test: str) -> str:
    """The folder below tests."""
    parts = test.split("/")
    return parts[1] if len(parts) > 2 else test


def _read(path: Path) -> Outcomes:
    return msgspec.json.decode(path.read_bytes(), type=Outcomes)


def _note(path: Path, tests: str, reason: str) -> int:
    left = LeftOut(test=tests, reason=reason)
    path.write_bytes(msgspec.json.encode(Outcomes(left_out=[left])))
    sys.stdout.write(f"NOT PROVED HERE: {tests}: {reason}\n")
    return 0 if allowance(left, may_be_left_out()) else 1


def _keep(path: Path, output: Iterable[str]) -> int:
    """Keep what the last line of its kind says; 1 when there is none."""
    reported = [line.removeprefix(PRINTED) for line in output if line.startswith(PRINTED)]
    if not reported:
        return 1
    path.write_bytes(msgspec.json.encode(msgspec.json.decode(reported[-1], type=Outcomes)))
    return 0


def main(arguments: Sequence[str]) -> int:
    match arguments:
        case ["table", directory]:
            lines, unlisted = table([_read(path) for path in sorted(Path(directory).glob("*.json"))], may_be_left_out())
            sys.stdout.write("\n".join(lines) + "\n")
            return 1 if unlisted else 0
        case ["note", file, tests, reason]:
            return _note(Path(file), tests, reason)
        case ["keep", file]:
            return _keep(Path(file), sys.stdin)
        case _:
            sys.stderr.write(__doc__ or "")
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
