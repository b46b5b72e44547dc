"""Records today's lines of the executor's journal: python -m tests.contract.record_journal

A recording is never rewritten: an executor reads the journal that the one before it left, whichever version that was. An entry that
has none, or has grown fields that no recording shows, gets a further one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final, get_args

from colo_executor.journal_lines import Entry, encode
from tests.support.examples import example_of

__all__ = ["missing", "recordings"]

FOLDER: Final = Path(__file__).parent / "journal"


def recordings() -> list[Path]:
    """The recorded journals, oldest first."""
    return sorted(FOLDER.glob("*.lines"), key=lambda path: int(path.stem))


def missing() -> dict[str, bytes]:
    """By the tag of an entry its line, of the entries and fields that no recording shows."""
    shown = [json.loads(line.partition(b" ")[2]) for path in recordings() for line in path.read_bytes().splitlines()]
    wanted = {}
    for kind in get_args(Entry):
        line = encode(example_of(kind))
        now = json.loads(line.partition(b" ")[2])
        if not any(one["type"] == now["type"] and _keys(now) <= _keys(one) for one in shown):
            wanted[now["type"]] = line
    return wanted


def _keys(value: Any, above: str = "") -> set[str]:
    if isinstance(value, dict):
        return {f"{above}.{key}" for key in value}.union(
            *(_keys(each, f"{above}.{key}") for key, each in value.items())
        )
    if isinstance(value, list):
        return set().union(*(_keys(each, above) for each in value))
    return set()


def main() -> int:
    """Record what is missing. Returns the exit code."""
    wanted = missing()
    if wanted:
        path = FOLDER / f"{len(recordings()) + 1}.lines"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"".join(wanted.values()))
        sys.stdout.write(f"{path.name}: {', '.join(wanted)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
