"""Runs benchmarks, each in a process of its own: python -m tests.bench [NAME...] [-- ARGUMENTS]

NAME is what follows bench_ in the file's name, or its beginning (codec, loop finds service_loop); none: all of them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
LIMIT_S: Final = 600


def names() -> list[str]:
    """Every benchmark in order of its name."""
    return sorted(path.stem.removeprefix("bench_") for path in FOLDER.glob("bench_*.py"))


def chosen(wanted: Sequence[str]) -> list[str]:
    """The benchmarks that are asked for, all of them for none. Raises LookupError for a name that fits none."""
    known = names()
    found: list[str] = []
    for name in wanted:
        exact = name.removeprefix("bench_")
        fitting = [exact] if exact in known else [each for each in known if exact in each.split("_")]
        fitting = fitting or [each for each in known if each.startswith(exact)]
        if not fitting:
            raise LookupError(f"{name}: there is no such benchmark, only {', '.join(known)}")
        found += [each for each in fitting if each not in found]
    return found or known


def main() -> int:
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    wanted, arguments = words[:cut], words[cut + 1 :]
    try:
        todo = chosen(wanted)
    except LookupError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    failed: list[str] = []
    for name in todo:
        print(f"\n== {name}", flush=True)
        command = [sys.executable, "-m", f"tests.bench.bench_{name}", *arguments]
        try:
            status = subprocess.run(command, cwd=FOLDER.parent.parent, timeout=LIMIT_S, check=False).returncode
        except subprocess.TimeoutExpired:
            status = -1
            print(f"{name}: not done within {LIMIT_S} s")
        if status != 0:
            failed.append(name)
    if failed:
        print(f"\nfailed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
