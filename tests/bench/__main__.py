"""Runs benchmarks, each in a process of its own: python -m tests.bench [--quick] [NAME...] [-- ARGUMENTS]

NAME is what follows bench_ in the file's name, or its beginning (codec, loop finds service_loop, e2e is end_to_end); none: all of
them. --quick measures less of everything, in two minutes. `executor` measures the service, the reflex and what online work feels as
well, in some 45 minutes, of which online takes 30 and reflex 10, or in two with --quick; so do all together, and some minutes more.
Figures are printed beside their budgets; nothing fails because of them. One that takes much longer than it should is asked to end
(SIGTERM), so that it removes its control groups, and a minute later killed.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
#: How long a benchmark may take that does not say (`length_s`) how long that is, and how much longer than they say the others.
LIMIT_S: Final = 600.0
MARGIN: Final = 1.5
#: From SIGTERM to SIGKILL: ends of replicas, and groups that the kernel gives up one after the other.
GRACE_S: Final = 60.0
#: What --quick adds to the arguments.
QUICK: Final[dict[str, tuple[str, ...]]] = {
    "collector": ("--samples", "4"),
    "collector_service": ("--seconds", "3"),
    "end_to_end": ("--quick",),
    "executor": ("--rounds", "3"),
    "executor_service": ("--workloads", "25", "--seconds", "5"),
    "idle": ("--quick",),
    "instances": ("--quick",),
    "jobs": ("--total", "1500"),
    "machine": ("--seconds", "600"),
    "online": ("--rounds", "1", "--seconds", "5", "--step", "1"),
    "overcommit": ("--quick",),
    "placement": ("--jobs", "200"),
    "reflex": ("--rounds", "10"),
    "scheduler": ("--quick",),
    "secured": ("--quick",),
    "store": ("--seconds", "0.5"),
}
#: How people call a benchmark besides.
SHORT: Final = {"e2e": "end_to_end"}
#: What is measured with a benchmark, although its name is another one: what reading costs, and what the service does.
WITH: Final = {"collector": ("collector_service",), "executor": ("executor_service", "reflex", "online")}
#: Those that take so long, or so little, as they are told, and have a `length_s` of their arguments.
SAY_HOW_LONG: Final = ("instances", "online", "reflex")
NEEDS_ROOT: Final = ("executor", "executor_service", "online", "reflex")


def names() -> list[str]:
    """Every benchmark in order of its name."""
    return sorted(path.stem.removeprefix("bench_") for path in FOLDER.glob("bench_*.py"))


def chosen(wanted: Sequence[str], *, has_company: bool = True) -> list[str]:
    """The benchmarks that are asked for, all of them for none; `has_company`: with those of WITH.

    Raises LookupError for a name that fits none.
    """
    known = names()
    found: list[str] = []
    for name in wanted:
        exact = SHORT.get(name, name.removeprefix("bench_"))
        fitting = [exact] if exact in known else [each for each in known if exact in each.split("_")]
        fitting = fitting or [each for each in known if each.startswith(exact)]
        if not fitting:
            raise LookupError(f"{name}: there is no such benchmark, only {', '.join(known)}")
        if has_company:
            fitting += [each for name in fitting for each in WITH.get(name, ())]
        found += [each for each in fitting if each not in found]
    return found or known


def limit_s(name: str, arguments: Sequence[str]) -> float:
    """How long the benchmark may take with these arguments."""
    if name not in SAY_HOW_LONG:
        return LIMIT_S
    says: float = importlib.import_module(f"tests.bench.bench_{name}").length_s(arguments)
    return max(LIMIT_S, MARGIN * says)


def run(command: Sequence[str], most_s: float, grace_s: float = GRACE_S) -> int | None:
    """The exit code of the command, None where it was not done in time; it is ended with this process, too."""
    with subprocess.Popen(command, cwd=FOLDER.parent.parent) as process:
        try:
            return process.wait(most_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(grace_s)
                except subprocess.TimeoutExpired:
                    process.kill()


def _end(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def main() -> int:
    signal.signal(signal.SIGTERM, _end)
    words = sys.argv[1:]
    if words[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    quick = "--quick" in words
    words = [word for word in words if word != "--quick"]
    cut = words.index("--") if "--" in words else len(words)
    wanted, arguments = words[:cut], words[cut + 1 :]
    try:
        # Arguments are those of one benchmark.
        todo = chosen(wanted, has_company=not arguments)
    except LookupError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    load, cpus = os.getloadavg()[0], os.cpu_count() or 1
    if load > cpus / 4:
        print(
            f"other work is on this machine (load {load:.1f} on {cpus} CPUs): the figures are lower than they could be"
        )
    failed: list[str] = []
    for name in todo:
        print(f"\n== {name}", flush=True)
        if name in NEEDS_ROOT and os.geteuid() != 0:
            print("left out: it writes control groups, which needs root")
            continue
        more = QUICK.get(name, ()) if quick else ()
        command = [sys.executable, "-m", f"tests.bench.bench_{name}", *more, *arguments]
        try:
            most_s = limit_s(name, (*more, *arguments))
        except SystemExit:
            # The parser has said what is wrong with the arguments.
            failed.append(name)
            continue
        status = run(command, most_s)
        if status is None:
            print(f"{name}: not done within {most_s:.0f} s, and ended")
        if status != 0:
            failed.append(name)
    if failed:
        print(f"\nfailed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
