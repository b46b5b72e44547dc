"""What the running executor costs (root): `python -m colo_executor` over a real NATS, with sleeping replicas in real groups.

`python -m tests.bench executor_service [--workloads 250] [--period-ms 50] [--seconds 30]`. Every replica is a process of its own in
a group of its own, so that the reflex looks every period, and all written values are read again every ten seconds. Printed: CPU and
memory of the executor's process and of its watchdog, how long the first start took, and what a restart takes that adopts them all.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from colo_common.adapters.bus_nats import NatsBus
from colo_common.adapters.clock import SystemClock
from colo_common.events.effects import Publish
from colo_common.events.enforcement import NodeRecovered, ReplicaStarted
from colo_common.events.placement import ApplyPlacements
from colo_common.events.wire import decode
from colo_common.model.workload import RunSpec
from colo_common.ports import Delivery
from colo_common.runtime.core import Subscription, source_of
from colo_common.runtime.stamp import Stamp
from tests.bench import termination
from tests.bench.bench_collector_service import cpu_s, memory_bytes
from tests.support.builders import a_placement
from tests.support.servers import nats_server

BUDGET_CORE_PCT: Final = 2.0
BUDGET_RSS_BYTES: Final = 64 << 20
NODE: Final = "bench-node"
SUBTREE: Final = f"colo-bench-{os.getpid()}"
START_LIMIT_S: Final = 120.0
MIB: Final = 1 << 20


class Started:
    """The replicas that the executor said it has started, and those that a restart found."""

    def __init__(self) -> None:
        self.replicas: set[str] = set()
        self.recovered = -1

    async def hear(self, delivery: Delivery) -> None:
        fact = decode(delivery.subject, delivery.data)
        if isinstance(fact, ReplicaStarted):
            self.replicas.add(fact.replica)
        if isinstance(fact, NodeRecovered):
            self.recovered = len(fact.running)
        await delivery.ack()


class Executor:
    """An executor's process with its settings, started and stopped."""

    def __init__(self, url: str, directory: str, period_ms: int) -> None:
        self._arguments = (
            *("--node", NODE, "--nats-url", url, "--period-ms", str(period_ms), "--http-port", "-1"),
            *("--process-subtree", SUBTREE, "--process-state-dir", directory, "--log-level", "warning"),
        )

    async def start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(sys.executable, "-m", "colo_executor", *self._arguments)

    async def restore(self) -> None:
        """End what it left running, and put the kernel back."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "colo_executor", "restore", *self._arguments, stdout=asyncio.subprocess.DEVNULL
        )
        if await process.wait() != 0:
            raise SystemExit("control groups are left")


def watchdog_of(pid: int) -> int | None:
    """The executor's second process."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return next((int(each) for each in children if b"watchdog" in Path(f"/proc/{each}/cmdline").read_bytes()), None)


async def until(is_so: Callable[[], bool], what: str, process: asyncio.subprocess.Process) -> float:
    """The seconds until it is so."""
    begun_s = time.monotonic()
    while not is_so():
        if process.returncode is not None or time.monotonic() - begun_s > START_LIMIT_S:
            raise SystemExit(f"never came: {what}")
        await asyncio.sleep(0.02)
    return time.monotonic() - begun_s


async def measure(url: str, directory: str, workloads: int, period_ms: int, seconds: float) -> None:
    started = Started()
    bus = NatsBus(url, name="bench")
    bus.start()
    await bus.connected(10)
    sources = [source_of("jobs", Subscription(type=kind)) for kind in (ReplicaStarted, NodeRecovered)]
    listening = [asyncio.create_task(bus.listen(source, started.hear)) for source in sources]
    stamp = Stamp("scheduler", "0123456789ab", SystemClock())
    run = RunSpec(command=("sleep", "3600"))
    placements = tuple(
        replace(a_placement(f"job/main/{number}", node=NODE, mcpu=10), memory_bytes=16 * MIB, run=run)
        for number in range(workloads)
    )
    executor = Executor(url, directory, period_ms)
    process = await executor.start()
    try:
        order = ApplyPlacements(node=NODE, generation=1, placements=placements)
        await bus.publish([stamp.outgoing(Publish(fact=order))])
        first_s = await until(lambda: len(started.replicas) == workloads, "the start of all replicas", process)
        await asyncio.sleep(3)
        watchdog = watchdog_of(process.pid)
        pids = [pid for pid in (process.pid, watchdog) if pid is not None]
        before, from_s = [cpu_s(pid) for pid in pids], time.monotonic()
        await asyncio.sleep(seconds)
        lived_s = time.monotonic() - from_s
        shares = [(cpu_s(pid) - used_s) / lived_s * 100 for pid, used_s in zip(pids, before, strict=True)]
        memory = [memory_bytes(pid) for pid in pids]
        process.terminate()
        await process.wait()
        started.recovered = -1
        process = await executor.start()
        again_s = await until(lambda: started.recovered == workloads, "the report of a restart", process)
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
        await executor.restore()
        for task in listening:
            task.cancel()
        await asyncio.gather(*listening, return_exceptions=True)
        await bus.close()
    print(f"executor, {workloads} replicas, a reading every {period_ms} ms, {seconds:.0f} s")
    for name, share, (now_bytes, peak_bytes) in zip(("executor", "watchdog"), shares, memory, strict=False):
        print(
            f"  {name:<10} {share:5.2f} % of a core (budget {BUDGET_CORE_PCT:g})"
            f"   RSS {now_bytes / MIB:.0f} MiB, at its peak {peak_bytes / MIB:.0f} (budget {BUDGET_RSS_BYTES // MIB})"
        )
    print(f"  all started after {first_s:.2f} s; a restart has adopted and reported all after {again_s:.2f} s")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=int, default=250, help="replicas (default 250)")
    parser.add_argument("--period-ms", type=int, default=50, help="between two readings of the reflex (default 50)")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of the measurement (default 30)")
    options = parser.parse_args(arguments)
    with nats_server() as nats, tempfile.TemporaryDirectory(prefix="colo-bench-") as directory:
        termination.run(measure(nats.url, directory, options.workloads, options.period_ms, options.seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
