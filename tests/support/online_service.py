"""An online service for tests on a real kernel: a latency probe and a load, in a control group of their own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

from colo_common.model.cpuset import CpuSet
from colo_executor.cgroup import CgroupTree
from colo_executor.knob_table import Knob
from colo_executor.order import KnobWrite
from colo_executor.process.stall_reader import unified_root

__all__ = ["COPY", "CPUS", "RATE_HZ", "ROOT", "SPIN", "Work", "online_service", "per_mille", "rounds_of_1_ms"]

ROOT: Final = "/sys/fs/cgroup"
CPUS: Final = len(os.sched_getaffinity(0))
RATE_HZ: Final = 200
SPIN: Final = "while True:\n    pass\n"
COPY: Final = "held = bytearray(64 << 20)\nwhile True:\n    bytes(held)\n"

#: What a request does so many rounds of: count, or read memory that a shared cache holds and a core's own does not.
Work = Literal["count", "memory"]
WORK: Final[dict[Work, str]] = {
    "count": """
def work(rounds):
    for _ in range(rounds):
        pass
""",
    "memory": """
import itertools
held = memoryview(bytearray(16 << 20))
parts = itertools.cycle(range(0, len(held), 1 << 14))
def work(rounds):
    for _ in range(rounds):
        at = next(parts)
        bytes(held[at : at + (1 << 14)])
""",
}
#: Prints how many rounds are 1 ms of CPU time.
TRIAL: Final = """
import sys, time
rounds = 1
while True:
    begun = time.process_time_ns(); work(rounds); took = time.process_time_ns() - begun
    if took > 200_000_000:
        break
    rounds *= 2
print(max(1, rounds * 1_000_000 // took))
"""
#: Requests of so many rounds each, by an open loop; one that should have begun while another one ran waits for it. Prints when
#: each was due on the monotonic clock, and the us that it took from then.
PROBE: Final = """
import json, sys, time
rate, seconds, rounds = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
took, started = [], time.monotonic()
for index in range(int(rate * seconds)):
    due = started + index / rate
    if time.monotonic() > started + seconds:
        break
    time.sleep(max(0.0, due - time.monotonic()))
    work(rounds)
    took.append((due, round((time.monotonic() - due) * 1e6)))
print(json.dumps({"wanted": int(rate * seconds), "took_us": took}))
"""
#: Busy for a share of every ten milliseconds that steps between two values.
LOAD: Final = """
import sys, time
low, high, step_s = float(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
started = time.monotonic()
while True:
    now = time.monotonic()
    share = high if int((now - started) / step_s) % 2 else low
    while time.monotonic() < now + share * 0.01:
        pass
    time.sleep(max(0.0, now + 0.01 - time.monotonic()))
"""


class Online:
    """The control group of the online service, under the CPU controller and where the kernel counts pressure.

    With `cpus` it has these alone, for which it needs cgroup v2.
    """

    def __init__(self, name: str, cpus: CpuSet | None = None) -> None:
        second = ("cpu",) if cpus is None else ("cpu", "cpuset")
        self._tree = CgroupTree(ROOT, name, controllers={1: ("cpu", "cpuacct"), 2: second})
        self._tree.make("")
        if cpus is not None:
            self._tree.write(KnobWrite(path="", knob=Knob.CPUSET_CPUS, value=cpus.format()))
        root = unified_root(ROOT)
        self._pressure = None if root is None or self._tree.version == 2 else Path(root, name)
        if self._pressure is not None:
            self._pressure.mkdir()

    def attach(self, pid: int) -> None:
        """Move a process into the group."""
        self._tree.attach("", pid)
        if self._pressure is not None:
            (self._pressure / "cgroup.procs").write_text(str(pid))

    def remove(self) -> None:
        """Remove the group; its processes must have ended."""
        self._tree.remove("")
        if self._pressure is not None:
            self._pressure.rmdir()


def rounds_of_1_ms(work: Work) -> int:
    """How many rounds of the work are 1 ms of CPU time, here and now: measured where nothing else takes the memory."""
    return int(subprocess.run([sys.executable, "-c", WORK[work] + TRIAL], check=True, capture_output=True).stdout)


@contextlib.contextmanager
def online_service(
    name: str,
    seconds: float,
    *,
    low: float = 0.2,
    high: float = 0.7,
    step_s: float = 5.0,
    work: Work = "count",
    rounds: int = 0,
    rate_hz: int = RATE_HZ,
    cpus: CpuSet | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """The probe, and a load on each CPU that steps between two shares, in a group of their own; ended and removed at the end.

    A request is so many rounds of work; without a number, what 1 ms of CPU time holds now. The group runs on `cpus` alone, or on
    all.
    """
    rounds = rounds or rounds_of_1_ms(work)
    online = Online(name, cpus)
    started: list[subprocess.Popen[str]] = []
    try:
        for _ in range(CPUS if cpus is None else len(cpus)):
            started.append(subprocess.Popen([sys.executable, "-c", LOAD, str(low), str(high), str(step_s)], text=True))
            online.attach(started[-1].pid)
        words = [sys.executable, "-c", WORK[work] + PROBE, str(rate_hz), str(seconds), str(rounds)]
        started.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
        online.attach(started[-1].pid)
        yield started[-1]
    finally:
        for process in started:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        online.remove()


def per_mille(values: Sequence[int], rank: int) -> int:
    """The smallest value that at least `rank` thousandths of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * rank // 1_000) - 1)]
