"""What the running collector costs: `python -m colo_collector` over a real NATS, one sample a second, 250 replicas.

Prints CPU and memory of its process, the size of a sample, and how late and how regular samples arrive. Where this process may make
control groups in the v1 hierarchies (root), it reads real ones and removes them; else, and with `--fake`, a fake machine's files.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from colo_common.adapters.bus_nats import NatsBus
from colo_common.events.node import NodeUsageSampled
from colo_common.events.wire import decode
from colo_common.model.placement import replica_token
from colo_common.ports import Delivery
from colo_common.runtime import logs
from colo_common.runtime.core import Subscription, source_of
from tests.support.machine_tree import V1_CONTROLLERS, FakeWorkload, MachineSpec, MachineTree
from tests.support.servers import nats_server

BUDGET_CORE_PCT = 2.0
BUDGET_RSS_BYTES = 64 * 2**20
BUDGET_AGE_MS = 50.0
NODE = "bench-node"
SUBTREE = f"colo-bench-{os.getpid()}"


@contextlib.contextmanager
def fake_machine(workloads: int) -> Iterator[str]:
    """Files of a machine of 2 sockets, 4 zones and 128 CPUs, with as many replicas; its root."""
    spec = MachineSpec(
        sockets=2,
        zones_per_socket=2,
        cores_per_zone=16,
        threads=2,
        workloads=tuple(
            FakeWorkload(f"w{n}", f"/{SUBTREE}/batch/{replica_token(f'job/main/{n}', 1)}", cpu_usage_ns=n, cpus="0-31")
            for n in range(workloads)
        ),
    )
    with tempfile.TemporaryDirectory() as root:
        MachineTree(spec, Path(root)).write()
        yield root


@contextlib.contextmanager
def real_groups(workloads: int) -> Iterator[str]:
    """Empty groups of this machine named as replicas, removed at the end."""
    points = [Path("/sys/fs/cgroup", name) for name in V1_CONTROLLERS]
    names = [SUBTREE, f"{SUBTREE}/batch"]
    names += [f"{SUBTREE}/batch/{replica_token(f'job/main/{n}', 1)}" for n in range(workloads)]
    made: list[Path] = []
    try:
        for point in points:
            for name in names:
                (point / name).mkdir()
                made.append(point / name)
        yield "/"
    finally:
        for directory in reversed(made):
            directory.rmdir()


class Arrivals:
    """Samples as they come: number, size, age when they were published and on arrival (us), time of arrival.

    The age on arrival has the way through the server and the turn of this process in it, which on a busy machine are most of it.
    """

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.ages_us: list[int] = []
        self.arrived_us: list[int] = []
        self.at_s: list[float] = []
        self.workloads = 0

    async def hear(self, delivery: Delivery) -> None:
        fact = decode(delivery.subject, delivery.data)
        if isinstance(fact, NodeUsageSampled):
            self.sizes.append(len(delivery.data))
            self.ages_us.append(fact.sent_us - fact.at_ms * 1000)
            self.arrived_us.append(time.time_ns() // 1000 - fact.at_ms * 1000)
            self.at_s.append(time.monotonic())
            self.workloads = len(fact.workloads)


def cpu_s(pid: int) -> float:
    """CPU time of a process, from the scheduler's own count in nanoseconds, all its threads."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def memory_bytes(pid: int) -> tuple[int, int]:
    """Resident memory of a process now and at its peak."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return tuple(int(lines[key].split()[0]) * 1024 for key in ("VmRSS", "VmHWM"))  # type: ignore[return-value]


async def measure(root: str, url: str, seconds: int, http: bool) -> bool:
    """Run the collector and print what it cost; whether the budgets are kept."""
    received = Arrivals()
    bus = NatsBus(url, name="bench")
    bus.start()
    await bus.connected(10)
    source = source_of("bench", Subscription(type=NodeUsageSampled, parameters={"node": NODE}))
    listening = asyncio.create_task(bus.listen(source, received.hear))
    arguments = ["--node", NODE, "--root", root, "--subtree", SUBTREE, "--nats-url", url, "--period-ms", "1000"]
    began_s = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "colo_collector", *arguments, "--http-port", "0" if http else "-1",
        "--log-level", "warning",
    )  # fmt: skip
    try:
        while len(received.at_s) < 3:
            await asyncio.sleep(0.01)
            if process.returncode is not None or time.monotonic() - began_s > 30:
                raise SystemExit("the collector did not come to three samples")
        first_s = received.at_s[0] - began_s
        count, used_s, from_s = len(received.at_s), cpu_s(process.pid), time.monotonic()
        await asyncio.sleep(seconds)
        core_pct = (cpu_s(process.pid) - used_s) / (time.monotonic() - from_s) * 100
        rss_bytes, peak_bytes = memory_bytes(process.pid)
        samples = len(received.at_s) - count
    finally:
        process.terminate()
        await process.wait()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await bus.close()
    gaps_ms = [(after - before) * 1000 for before, after in zip(received.at_s, received.at_s[1:], strict=False)]
    p99_ms, arrived_p99_ms = (
        sorted(ages)[-(len(ages) // 100 + 1)] / 1000 for ages in (received.ages_us, received.arrived_us)
    )
    kept = core_pct <= BUDGET_CORE_PCT and peak_bytes <= BUDGET_RSS_BYTES
    print(
        f"    {core_pct:.2f} % of a core (budget {BUDGET_CORE_PCT:g} %), RSS {rss_bytes / 2**20:.1f} MiB, peak"
        f" {peak_bytes / 2**20:.1f} MiB (budget {BUDGET_RSS_BYTES / 2**20:g} MiB)\n"
        f"    {samples} samples in {seconds} s with {received.workloads} workloads,"
        f" {statistics.median(received.sizes):.0f} bytes each;"
        f" age at publication p50 {statistics.median(received.ages_us) / 1000:.1f} ms, p99 {p99_ms:.1f} ms (budget"
        f" {BUDGET_AGE_MS:g} ms), max {max(received.ages_us) / 1000:.1f} ms;"
        f" on arrival p50 {statistics.median(received.arrived_us) / 1000:.1f} ms, p99 {arrived_p99_ms:.1f} ms;"
        f" gaps {min(gaps_ms):.0f} to {max(gaps_ms):.0f} ms; first sample {first_s:.2f} s after the start"
    )
    return kept


def main(arguments: list[str] | None = None) -> int:
    """0 when the budgets are kept, 1 when they are not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=int, default=250)
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument(
        "--fake", action="store_true", help="files of a fake machine, also where real groups can be made"
    )
    options = parser.parse_args(arguments)
    logs.configure("error")
    is_real = not options.fake and all(os.access(Path("/sys/fs/cgroup", name), os.W_OK) for name in V1_CONTROLLERS)
    machine = real_groups if is_real else fake_machine
    kept = True
    with nats_server() as server, machine(options.workloads) as root:
        kind = "real control groups" if is_real else "a fake machine"
        print(f"collector service: {options.workloads} replicas ({kind}), 1 s period")
        for http in (True, False):
            print(f"  {'with' if http else 'without'} its HTTP pages")
            kept = asyncio.run(measure(root, server.url, options.seconds, http)) and kept
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
