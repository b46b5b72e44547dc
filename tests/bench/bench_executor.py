"""What the executor needs of this machine's kernel (root): `python -m tests.bench.bench_executor`.

Prints the time from SIGKILL until a replica's end is told, its group removed, while other work wants every CPU and batch work is at
its floor (budget: eviction decided -> cgroup empty, beyond grace, p99 <= 1 s).
"""

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec.structs import replace

from colo_common.model.reasons import EndCause, Reason
from colo_common.model.workload import RunSpec
from colo_executor.cgroup import CgroupTree
from colo_executor.local import ReplicaLaunched, SignalReplica, StopIntent
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from tests.bench.bench_reflex import percentile
from tests.support.builders import a_placement

ROOT = "/sys/fs/cgroup"
FLOOR_MCPU = 200
HOGS_PER_CPU = 2
INTENT = StopIntent(cause=EndCause.EVICTED, reason=Reason.PRESSURE, kill_at_ms=0)
#: A parent and four children, each with memory of its own, that never rest and do not listen.
CROWD = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(4):
    if os.fork() == 0:
        break
held = bytearray(16 << 20)
for at in range(0, len(held), 4096):
    held[at] = 1
open(sys.argv[1] + str(os.getpid()), "w").close()
while True:
    pass
"""


@contextlib.contextmanager
def hogs(name: str) -> Iterator[None]:
    """Loops in a control group of their own that want more than all CPUs."""
    tree = CgroupTree(ROOT, name, controllers={1: ("cpu",), 2: ("cpu",)})
    tree.make("")
    started = []
    try:
        for _ in range(HOGS_PER_CPU * len(os.sched_getaffinity(0))):
            started.append(subprocess.Popen(["sh", "-c", "while :; do :; done"]))
            tree.attach("", started[-1].pid)
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()
        tree.remove("")


async def until(what: str, done: Callable[[], object], limit_s: float = 60.0) -> None:
    """Wait until `done` says so."""
    begun_s = time.monotonic()
    while not done():
        if time.monotonic() - begun_s > limit_s:
            raise SystemExit(f"{what} took more than {limit_s:.0f} s")
        await asyncio.sleep(0.002)


async def kills(runtime: ProcessRuntime, directory: Path, rounds: int, name: str) -> list[float]:
    """Seconds from SIGKILL to the end told, one replica after the other."""
    times = []
    for index in range(rounds):
        here = directory / f"up{index}-"
        run = RunSpec(command=(sys.executable, "-c", CROWD, str(here)))
        replica = f"job/main/{index}"
        runtime.set_ceiling(runtime.capacity_mcpu)
        launched = await runtime.launch(replace(a_placement(replica, mcpu=500), run=run), 1)
        if not isinstance(launched, ReplicaLaunched):
            raise SystemExit(launched.detail)
        await until("five processes", lambda here=here: len(list(here.parent.glob(f"{here.name}*"))) == 5)
        runtime.set_ceiling(FLOOR_MCPU)
        with hogs(name):
            await asyncio.sleep(0.3)
            begun_s = time.monotonic()
            await runtime.signal(SignalReplica(replica=replica, attempt=1, signal="kill", intent=INTENT))
            await until("an end", runtime.poll_exits)
            times.append(time.monotonic() - begun_s)
    return times


async def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory(prefix="colo-bench-") as text:
        directory = Path(text)
        subtree = f"colo-bench-{os.getpid()}"
        runtime = ProcessRuntime(ProcessPolicy(state_dir=str(directory / "state"), subtree=subtree))
        await runtime.adopt(1)
        try:
            for how in ("out of the idle group", "where it is"):
                if how == "where it is":
                    # What it would be without the way out: for the comparison only.
                    runtime._tier._leaving._take_out = lambda *_: None  # type: ignore[method-assign]
                times = await kills(runtime, directory, rounds, f"{subtree}-hogs")
                for path in directory.glob("up*"):
                    path.unlink()
                print(  # noqa: T201
                    f"killed {how}, {len(times)} replicas of 5 processes, {HOGS_PER_CPU} loops a CPU beside: "
                    f"p50 {percentile(times, 50) * 1e3:.0f} ms, p99 {percentile(times, 99) * 1e3:.0f} ms (budget 1000 ms)"
                )
        finally:
            await runtime.restore()
            await runtime.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    asyncio.run(main(parser.parse_args().rounds))
