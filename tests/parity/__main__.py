"""Replay parity files: `python -m tests.parity FILE...` prints `FILE passed/total` and the failing cases below it.

Cases that no service's code answers are counted with the others and named `reference only` in a line of their own.

Exit code 0 when every case of every file passes, 1 when a case fails or a table is unknown, 2 when a file cannot be
read or is no parity file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.parity.table import one_line, results_of
from tests.parity.tables import find_table

_MAX_FILE_BYTES = 64 * 2**20


class Unreadable(Exception):
    """A file that cannot be replayed at all, with the reason in one sentence."""


def load(path: Path) -> dict[str, Any]:
    """Return the document in a parity file. Raises Unreadable with the file's name and what is wrong with it."""
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise Unreadable(f"{path}: larger than {_MAX_FILE_BYTES} bytes")
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Unreadable(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Unreadable(f"{path}: is not UTF-8 text") from error
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{path}: is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise Unreadable(f"{path}: must hold one JSON object, holds a {type(document).__name__}")
    for key in ("cases", "machines"):
        if key in document and not isinstance(document[key], list):
            raise Unreadable(f"{path}: {key} must be a list, is a {type(document[key]).__name__}")
    if not ("cases" in document or "machines" in document):
        raise Unreadable(f"{path}: has neither cases nor machines")
    return document


def replay(path: Path) -> bool:
    """Replay one file, print its line and its failures, and say whether everything passed."""
    document = load(path)
    table = find_table(path.stem, document)
    if table is None:
        print(f"{path}: unknown table")
        return False
    results = results_of(table, document)
    replayed = [result for result in results if result.is_replayed]
    failed = [result for result in replayed if result.failure is not None]
    print(f"{path} {len(replayed) - len(failed)}/{len(replayed)}")
    for result in failed:
        print(f"  {one_line(result.name)}: {one_line(result.failure or '')}")
    reference = sum(result.is_reference for result in replayed)
    if reference:
        print(f"  reference only: {'all' if reference == len(replayed) else reference} of {len(replayed)}")
    skipped = [result.name for result in results if not result.is_replayed]
    if skipped:
        print(f"  not replayed, timing only: {len(skipped)} ({one_line('; '.join(skipped))})")
    if not replayed:
        print("  the file holds no case to replay")
    return bool(replayed) and not failed


def main(arguments: Sequence[str]) -> int:
    """Replay every file named and return the exit code."""
    if not arguments:
        print("usage: python -m tests.parity FILE...", file=sys.stderr)
        return 2
    code = 0
    for argument in arguments:
        try:
            if not replay(Path(argument)):
                code = max(code, 1)
        except Unreadable as unreadable:
            print(unreadable, file=sys.stderr)
            code = 2
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
