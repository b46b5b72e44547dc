"""What the executor needs of this machine's kernel (root): `python -m tests.bench.bench_executor`.

Prints what one look at everything that was written costs with 250 workloads (budget: <= 100 ms, no write when nothing changed),
also with a tenth of them changed by somebody else; and the time from SIGKILL until a replica's end is told, its group removed,
while other work wants every CPU and batch work is at its floor (budget: eviction decided -> cgroup empty, beyond grace, p99 within
a second).
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
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from colo_common.events.enforcement import KnobValue
from colo_common.model.percentile import percentile
from colo_common.model.placement import replica_token
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.workload import RunSpec
from colo_executor.cgroup import CgroupTree
from colo_executor.journal import JournalFile
from colo_executor.knob_table import Knob
from colo_executor.local import ReplicaLaunched, SignalReplica, StopIntent
from colo_executor.order import KnobWrite
from colo_executor.process.kill_tier import KillTier
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from colo_executor.process.tier import Tier, group_of
from tests.bench import termination
from tests.support.adopted import AS_ROOT
from tests.support.builders import a_placement

ROOT = "/sys/fs/cgroup"
FLOOR_MCPU = 200
HOGS_PER_CPU = 2
WORKLOADS = 250
INTENT = StopIntent(cause=EndCause.EVICTED, reason=Reason.CPU_WATERMARK, kill_at_ms=0)
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


def is_up(here: Path, processes: int) -> bool:
    """Whether so many have said that they hold their memory."""
    return len(list(here.parent.glob(f"{here.name}*"))) == processes


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
        await until("five processes", partial(is_up, here, 5))
        runtime.set_ceiling(FLOOR_MCPU)
        with hogs(name):
            await asyncio.sleep(0.3)
            begun_s = time.monotonic()
            await runtime.signal(SignalReplica(replica=replica, attempt=1, signal="kill", intent=INTENT))
            await until("an end", runtime.poll_exits)
            times.append(time.monotonic() - begun_s)
    return times


def counted(write: Callable[[KnobWrite], KnobValue], writes: list[int], wanted: KnobWrite) -> KnobValue:
    """A write, noted."""
    writes[0] += 1
    return write(wanted)


def looks(tier: Tier, rounds: int) -> None:
    """Groups of 250 replicas without processes: nothing but their files counts here."""
    tokens = [replica_token(f"job/many/{index}", 1) for index in range(WORKLOADS)]
    for index, token in enumerate(tokens):
        tier.add(token, a_placement(f"job/many/{index}", mcpu=100))
    files = sum(len(tier.tree.kept(knob)) for knob in Knob)
    try:
        for share, title in ((0, "nothing changed"), (WORKLOADS // 10, f"{WORKLOADS // 10} replicas changed")):
            times, writes = [], [0]
            tier.tree.write = partial(counted, tier.tree.write, writes)  # type: ignore[method-assign]
            for _ in range(rounds):
                for token in tokens[:share]:
                    other = CgroupTree(ROOT, tier.tree.name)
                    other.write(KnobWrite(path=group_of(token), knob=Knob.CPU_WEIGHT, value=999))
                begun_s = time.perf_counter()
                drift = tier.reconcile()
                times.append(time.perf_counter() - begun_s)
                if len(drift.knobs) != share:
                    raise SystemExit(f"{drift} is not what was changed")
            del tier.tree.write
            print(
                f"a look at {files} files of {WORKLOADS} workloads, {title}: p50 {percentile(times, 50) * 1e3:.0f} ms, "
                f"p99 {percentile(times, 99) * 1e3:.0f} ms (budget 100 ms), {writes[0] // rounds} writes a look"
            )
    finally:
        for token in tokens:
            tier.drop(token)


async def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory(prefix="colo-bench-") as text:
        directory = Path(text)
        subtree = f"colo-bench-{os.getpid()}"
        policy = ProcessPolicy(state_dir=str(directory / "looks"), subtree=f"{subtree}-looks")
        journal = JournalFile(directory / "looks")
        tier = Tier(policy, journal)
        try:
            tier.prepare()
            looks(tier, rounds)
        finally:
            tier.restore()
            journal.close()
        runtime = ProcessRuntime(ProcessPolicy(users=AS_ROOT, state_dir=str(directory / "state"), subtree=subtree))
        await runtime.adopt(1)
        try:
            for how in ("out of the idle group", "where it is"):
                if how == "where it is":
                    # What it would be without the way out: for the comparison only.
                    KillTier.move_out = lambda *_: None  # type: ignore[assignment, method-assign]
                times = await kills(runtime, directory, rounds, f"{subtree}-hogs")
                for path in directory.glob("up*"):
                    path.unlink()
                print(
                    f"killed {how}, {len(times)} replicas of 5 processes, {HOGS_PER_CPU} loops a CPU beside: "
                    f"p50 {percentile(times, 50) * 1e3:.0f} ms, p99 {percentile(times, 99) * 1e3:.0f} ms (budget 1000 ms)"
                )
        finally:
            await runtime.restore()
            await runtime.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    termination.run(main(parser.parse_args().rounds))
