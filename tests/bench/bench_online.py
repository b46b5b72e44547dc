"""What online work feels beside batch work in real control groups (root): `python -m tests.bench.bench_online`.

The online service is a probe: requests of one millisecond of CPU at a fixed rate, each timed from when it should have begun, beside
a load of its own that steps between 20 and 70 % of the machine. Batch work are a spinning loop for each CPU and one that copies
memory.

With `--work memory` a request reads memory that the cache shared by all CPUs holds and a core's own does not, and all batch
work copies memory: what it costs that no rule for CPUs sees. With `--zone` the online service runs in one NUMA zone alone (cgroup
v2), and batch work everywhere but by the way `own-cpus`, which is `auto` with batch work kept off the CPUs of that zone.

Printed for each way of running them side by side: p50, p99 and p99.9
of the probe, p50 and p99 against the probe alone, the share of requests served, the CPU time of batch work, and how often its
ceiling turned. The ways take turns, so that what else the machine does
meets all of them alike. After each run its row is printed with the medians so far, at the end, also one before its time, all rows.
By default it takes half an hour.

In the kernel lab, two zones of one core with two threads each; the reflex is slower there, or it would be most of the load:

    just kernel-lab --offline 2-7,10-15 --share-cores --timeout 900 python -m tests.bench.bench_online --seconds 24 --step 3
    --rate 50 --load 0.1 0.3 --period 500 --zone 0 --ways alone,plain,low-shares,idle,auto,own-cpus
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from colo_common.adapters.clock import SystemClock
from colo_common.events.enforcement import ZoneCeiling
from colo_common.model.cpuset import CpuSet
from colo_common.model.workload import RunSpec
from colo_common.runtime.metrics import Metrics
from colo_executor.cgroup import CgroupTree
from colo_executor.desired import DesiredPolicy
from colo_executor.kept_cpus import KeptCpus
from colo_executor.knob_table import Knob
from colo_executor.lease import LeasePolicy
from colo_executor.local import CeilingRefused, CeilingWritten, ReplicaLaunched
from colo_executor.order import KnobWrite
from colo_executor.process.machine import online_cpus, zones_of
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from colo_executor.reflex_policy import ReflexPolicy
from colo_executor.shell import ExecutorShell
from tests.bench import termination
from tests.support.adopted import AS_ROOT
from tests.support.builders import a_placement
from tests.support.online_service import (
    COPY,
    CPUS,
    RATE_HZ,
    ROOT,
    SPIN,
    Work,
    online_service,
    per_mille,
    rounds_of_1_ms,
)

LEASE_MS: Final = 3_600_000

Way = Literal[
    "alone", "plain", "low-shares", "idle", "reflex-off", "usage", "auto", "own-cpus", "no-idle-usage", "no-idle-auto"
]
WAYS: Final[tuple[Way, ...]] = ("alone", "plain", "low-shares", "idle", "reflex-off", "usage", "auto")
#: What batch work runs, by what a request does.
BATCH: Final[dict[Work, tuple[str, ...]]] = {"count": (*[SPIN] * CPUS, COPY), "memory": (COPY,) * (CPUS + 1)}
NO_IDLE: Final[tuple[Way, ...]] = ("no-idle-usage", "no-idle-auto")


class Asked(Struct, frozen=True, kw_only=True):
    """What every way is run with: `load` are the two shares of the online load, `cpus` the CPUs that online work has alone."""

    seconds: float
    step_s: float
    work: Work
    load: tuple[float, float]
    rate_hz: int
    period_ms: int
    cpus: CpuSet | None


class Felt(Struct, frozen=True):
    """One run of one way."""

    took_us: list[int]
    wanted: int
    batch_cpu_s: float
    turns: int


class CountedRuntime(ProcessRuntime):
    """Notes every ceiling that was written."""

    def __init__(self, policy: ProcessPolicy) -> None:
        super().__init__(policy)
        self.ceilings_mcpu: list[int] = []

    def set_ceiling(
        self, ceiling_mcpu: int, zones: tuple[ZoneCeiling, ...] | None = None, *, has_whole_cores: bool = False
    ) -> CeilingWritten | CeilingRefused:
        self.ceilings_mcpu.append(ceiling_mcpu)
        return super().set_ceiling(ceiling_mcpu, zones, has_whole_cores=has_whole_cores)

    def turns(self) -> int:
        """How often the ceiling rose after it had fallen."""
        moves = [later > first for first, later in itertools.pairwise(self.ceilings_mcpu)]
        return sum(not first and later for first, later in itertools.pairwise(moves))


@contextlib.contextmanager
def bare_batch(way: Way, name: str, scripts: Sequence[str]) -> Iterator[CgroupTree]:
    """Batch work as other programs would run it: in a group with the usual weight, the least weight, or idle."""
    tree = CgroupTree(ROOT, name, controllers={1: ("cpu", "cpuacct"), 2: ("cpu",)})
    tree.make("")
    if way == "low-shares":
        tree.write(KnobWrite(path="", knob=Knob.CPU_WEIGHT, value=2))
    if way == "idle":
        tree.write(KnobWrite(path="", knob=Knob.CPU_IDLE, value=1))
    started = []
    try:
        for script in scripts:
            started.append(subprocess.Popen([sys.executable, "-c", script]))
            tree.attach("", started[-1].pid)
        yield tree
    finally:
        for process in started:
            process.kill()
            process.wait()
        tree.remove("")


@contextlib.asynccontextmanager
async def colo_batch(
    way: Way, name: str, directory: Path, scripts: Sequence[str], period_ms: int, own: CpuSet
) -> AsyncIterator[CountedRuntime]:
    """Batch work off the CPUs `own`, under an executor's runtime and, but for `reflex-off`, its reflex."""
    desired = DesiredPolicy(idle=not way.startswith("no-idle"))
    runtime = CountedRuntime(ProcessPolicy(users=AS_ROOT, state_dir=str(directory), subtree=name, desired=desired))
    lease = LeasePolicy(default_ms=LEASE_MS, most_ms=LEASE_MS)
    policy = ReflexPolicy(rule="usage" if way.endswith("usage") else "auto", lease=lease)
    shell = ExecutorShell(runtime, SystemClock(), policy=policy, period_ms=period_ms, metrics=Metrics())
    await shell.load()
    loop = None
    try:
        if own and (refusal := await runtime.keep_cpus(KeptCpus(withheld=own))):
            raise SystemExit(refusal)
        for number, script in enumerate(scripts):
            run = RunSpec(command=(sys.executable, "-c", script))
            # In no zone, so that it runs everywhere, as what other ways run does.
            placement = replace(a_placement(f"job/main/{number}"), run=run, memory_bytes=256 << 20, zones=())
            launched = await runtime.launch(placement, 1)
            if not isinstance(launched, ReplicaLaunched):
                raise SystemExit(launched.detail)
        if way != "reflex-off":
            loop = asyncio.create_task(shell.run_reflex())
        yield runtime
    finally:
        if loop is not None:
            loop.cancel()
            await asyncio.gather(loop, return_exceptions=True)
        await runtime.restore()
        await runtime.close()


async def felt(way: Way, asked: Asked, rounds: int) -> Felt:
    """Run one way once, each request so many rounds of the work."""
    name, scripts = f"bench-online-{os.getpid()}", BATCH[asked.work]
    with tempfile.TemporaryDirectory() as directory:
        async with contextlib.AsyncExitStack() as stack:
            used_us: Callable[[], int] = int
            turns: Callable[[], int] = int
            if way in ("plain", "low-shares", "idle"):
                tree = stack.enter_context(bare_batch(way, f"{name}-batch", scripts))
                used_us = partial(tree.cpu_used_us, "")
            elif way != "alone":
                own = asked.cpus if way == "own-cpus" and asked.cpus is not None else CpuSet()
                batch_here = colo_batch(way, f"{name}-colo", Path(directory), scripts, asked.period_ms, own)
                runtime = await stack.enter_async_context(batch_here)
                batch = CgroupTree(ROOT, f"{name}-colo")
                used_us, turns = partial(batch.cpu_used_us, "batch"), runtime.turns
            low, high = asked.load
            online = online_service(
                name,
                asked.seconds,
                low=low,
                high=high,
                step_s=asked.step_s,
                work=asked.work,
                rounds=rounds,
                rate_hz=asked.rate_hz,
                cpus=asked.cpus,
            )
            probe = stack.enter_context(online)
            before_us, before_turns = used_us(), turns()
            output, _ = await asyncio.to_thread(probe.communicate)
            batch_cpu_s = (used_us() - before_us) / 1e6
            counted = turns() - before_turns
    found = json.loads(output)
    return Felt(
        took_us=[took_us for _, took_us in found["took_us"]],
        wanted=found["wanted"],
        batch_cpu_s=batch_cpu_s,
        turns=counted,
    )


def row(way: Way, runs: Sequence[Felt], alone: Sequence[Felt]) -> str:
    """The medians over the runs of a way; its p50 and p99 against those of the run alone in the same round, and their ranges.

    There are at least as many runs alone.
    """
    shown = [statistics.median(per_mille(run.took_us, rank) for run in runs) / 1e3 for rank in (500, 990, 999)]
    pairs = list(zip(runs, alone[: len(runs)], strict=True))
    ratios = {
        rank: [per_mille(run.took_us, rank) / per_mille(base.took_us, rank) for run, base in pairs]
        for rank in (500, 990)
    }
    served = statistics.median(len(run.took_us) / run.wanted for run in runs)
    batch_s = statistics.median(run.batch_cpu_s for run in runs)
    turns = max(run.turns for run in runs)
    return (
        f"{way:<14} p50 {shown[0]:7.2f}  p99 {shown[1]:8.2f}  p99.9 {shown[2]:8.2f} ms   against alone "
        f"p50 {statistics.median(ratios[500]):5.2f} ({min(ratios[500]):.2f}-{max(ratios[500]):.2f})  "
        f"p99 {statistics.median(ratios[990]):5.2f} ({min(ratios[990]):.2f}-{max(ratios[990]):.2f})   served {served:6.1%}   "
        f"batch {batch_s:6.1f} CPU s   turns {turns}"
    )


async def main(ways: Sequence[Way], rounds: int, asked: Asked) -> None:
    """Every way once a round, each with its row so far, and then the table, of what there is when it ends before its time."""
    of_1_ms = rounds_of_1_ms(asked.work)
    runs: dict[Way, list[Felt]] = {way: [] for way in ways}
    low, high = asked.load
    print(
        f"{rounds} rounds of {asked.seconds:.0f} s on {CPUS} CPUs, {asked.rate_hz} requests/s of 1 ms ({asked.work}),"
        f" the online load steps between {low:.0%} and {high:.0%} every {asked.step_s:.0f} s",
        flush=True,
    )
    try:
        for number in range(rounds):
            for way in ways:
                begun_s = time.monotonic()
                runs[way].append(await felt(way, asked, of_1_ms))
                took_s, so_far = time.monotonic() - begun_s, row(way, runs[way], runs["alone"])
                print(f"round {number + 1}, {took_s:3.0f} s: {so_far}", flush=True)
    finally:
        print("all rounds:" if len(runs[ways[-1]]) == rounds else "what was measured before it was ended:")
        for way in ways:
            if runs[way]:
                print(row(way, runs[way], runs["alone"]), flush=True)


def share(text: str) -> float:
    """A share of a CPU."""
    found = float(text)
    if not 0 <= found <= 1:
        raise argparse.ArgumentTypeError(f"a share between 0 and 1, not {text}")
    return found


def options(arguments: Sequence[str] | None = None) -> tuple[tuple[Way, ...], int, Asked]:
    """The ways, the rounds, and what each is run with."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--step", type=float, default=5.0, help="seconds between two steps of the online load")
    parser.add_argument(
        "--ways", default=",".join((*WAYS, *NO_IDLE)), help="alone must be among them; own-cpus is another one"
    )
    parser.add_argument("--work", choices=tuple(BATCH), default="count", help="what a request does")
    parser.add_argument("--load", type=share, nargs=2, default=(0.2, 0.7), help="the two shares of the online load")
    parser.add_argument("--rate", type=int, default=RATE_HZ, help="requests a second")
    parser.add_argument("--period", type=int, default=20, help="ms between two readings of the reflex")
    parser.add_argument("--zone", type=int, help="the NUMA zone in which all online work runs (default: all)")
    args = parser.parse_args(arguments)
    chosen: tuple[Way, ...] = tuple(way for way in (*WAYS, "own-cpus", *NO_IDLE) if way in args.ways.split(","))
    if "alone" not in chosen or args.rounds < 1:
        parser.error("--ways: alone must be among them, and --rounds at least 1")
    zones = zones_of("/sys", online_cpus("/sys"))
    if args.zone is not None and args.zone not in zones:
        parser.error(f"--zone: there is no zone {args.zone} here, only {', '.join(map(str, zones))}")
    if "own-cpus" in chosen and args.zone is None:
        parser.error("--ways: own-cpus needs a --zone, whose CPUs are online work's own")
    asked = Asked(
        seconds=args.seconds,
        step_s=args.step,
        work=args.work,
        load=tuple(args.load),
        rate_hz=args.rate,
        period_ms=args.period,
        cpus=zones[args.zone] if args.zone is not None else None,
    )
    return chosen, args.rounds, asked


def length_s(arguments: Sequence[str]) -> float:
    """How long it takes: the runs, and for each some seconds to start, and to end what spins."""
    ways, rounds, asked = options(arguments)
    return len(ways) * rounds * (asked.seconds + 4) + 5


if __name__ == "__main__":
    termination.run(main(*options()))
