"""`python -m tests.sim --seeds FROM..TO [--jobs N]`

Lives one world for each seed from FROM up to and without TO, with settings drawn from the seed, in N processes. What breaks is made
smaller and kept in a file with the command that shows it. At the end stands what all worlds reached together. The exit code is 1
when anything broke.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from msgspec import json

from tests.sim.command import command_of
from tests.sim.coverage import Coverage
from tests.sim.lives import Life, life_of, lived
from tests.sim.shrink import shrunk

FAILURES = Path(__file__).parent / "failures"
_PROGRESS_EVERY_S = 30.0


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=_seeds, required=True, metavar="FROM..TO")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="worlds lived at once")
    parser.add_argument("--shrink", type=int, default=60, metavar="N", help="lives spent to make a failure smaller")
    parser.add_argument("--within", type=float, metavar="S", help="begin no new world after so many seconds")
    parser.add_argument("--failures", type=Path, default=FAILURES, metavar="DIR", help="where failures are kept")
    wanted = parser.parse_args(argv)
    coverage = Coverage()
    broken: list[Life] = []
    begun_s = progress_s = time.monotonic()
    spent_s = 0.0
    for life in _lives(wanted.seeds, wanted.jobs):
        coverage.add(life.outcome)
        spent_s += life.took_s
        if life.broken:
            broken.append(life)
            _print(f"seed {life.settings.seed} broke: {life.broken}")
        if time.monotonic() - progress_s > _PROGRESS_EVERY_S:
            progress_s = time.monotonic()
            _print(
                f"{coverage.worlds} of {len(wanted.seeds)} worlds, {len(broken)} broke, {progress_s - begun_s:.0f} s"
            )
        if wanted.within is not None and time.monotonic() - begun_s > wanted.within:
            _print("the time is over")
            break
    for life in broken:
        smallest = shrunk(life, lived, wanted.shrink)
        path = _keep(smallest, wanted.failures)
        _print(f"seed {smallest.settings.seed}: {smallest.broken}\n  {path}\n  {_command(smallest)}")
    for line in coverage.lines():
        _print(line)
    took_s = time.monotonic() - begun_s
    _print(f"{coverage.worlds} worlds, {len(broken)} broke; {spent_s:.0f} s of CPU, {took_s:.0f} s")
    return 1 if broken else 0


def _lives(seeds: Sequence[int], jobs: int) -> Iterator[Life]:
    """Worlds in the order in which they end. Those that have not begun are left out when nobody asks for more."""
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"))
    try:
        for done in as_completed([pool.submit(life_of, seed) for seed in seeds]):
            yield done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _command(life: Life) -> str:
    return command_of(life.settings, life.at_ms)


def _keep(life: Life, directory: Path) -> Path:
    """A file with the settings, which the tests live again, and the last lines before the break."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"seed-{life.settings.seed}.json"
    kept = {
        "broken": life.broken,
        "command": _command(life),
        "settings": life.settings,
        "last_lines": life.lines,
    }
    path.write_bytes(json.format(json.encode(kept), indent=1) + b"\n")
    return path


def _seeds(text: str) -> range:
    first, dots, last = text.partition("..")
    if not (dots and first.isdecimal() and last.isdecimal() and int(first) < int(last)):
        raise argparse.ArgumentTypeError("must be FROM..TO, such as 0..1000")
    return range(int(first), int(last))


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
