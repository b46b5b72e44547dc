"""What the control services cost while nobody asks anything of them: CPU, wake-ups and memory of each.

`python -m tests.bench idle [--nodes 12] [--period 1] [--seconds 30] [--quick]`. Nodes are as many as the labs have, each sampled
every period, as a collector does; there is no job. Metrics are fetched every 15 s, as Prometheus does, and readiness is asked every
5 s, as Compose and the kubelet do. Wake-ups are voluntary context switches of the process. Run it where nobody else works.

Printed: each service in percent of one core, its wake-ups a second and its resident memory, beside the budget.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from colo_common.runtime import logs
from tests.bench.fleet import Cluster, running_cluster
from tests.support.servers import nats_server, redis_server

BUDGET_PCT: Final = 0.5
BUDGET_MIB: Final = 80
SERVICES: Final = ("jobs", "scheduler", "overcommit", "evictor", "gateway")
SCRAPE_S: Final = 15.0
PROBE_S: Final = 5.0
SETTLE_S: Final = 10.0


async def measure(nodes: int, period_s: float, seconds: float) -> None:
    names = [f"node-{index:05}" for index in range(nodes)]
    with nats_server() as nats, redis_server() as redis, tempfile.TemporaryDirectory(prefix="colo-bench-") as directory:
        async with running_cluster(nats, redis, Path(directory), names, period_s, services=SERVICES) as cluster:
            asking = [
                asyncio.create_task(_ask(cluster, "metrics", SCRAPE_S)),
                asyncio.create_task(_ask(cluster, "readyz", PROBE_S)),
            ]
            # What a service does once after its start is not what it costs at rest.
            await asyncio.sleep(SETTLE_S)
            before, woken = cluster.costs(), _wakes(cluster)
            await asyncio.sleep(seconds)
            after, again = cluster.costs(), _wakes(cluster)
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
    for name in SERVICES:
        cpu_pct = 100 * (after[name][0] - before[name][0]) / seconds
        print(
            f"  {name:<12} {cpu_pct:5.2f} % of a core   budget {BUDGET_PCT} %"
            f"   {(again[name] - woken[name]) / seconds:6.1f} wake-ups/s"
            f"   {after[name][1]:5.1f} MiB   budget {BUDGET_MIB} MiB"
        )


async def _ask(cluster: Cluster, page: str, every_s: float) -> None:
    while True:
        for name in SERVICES:
            address = cluster.processes.running[name].address
            await asyncio.to_thread(_read, f"http://{address}/{page}")
        await asyncio.sleep(every_s)


def _read(url: str) -> None:
    with urllib.request.urlopen(url, timeout=10) as answer:
        answer.read()


def _wakes(cluster: Cluster) -> dict[str, int]:
    """Process -> how often it went to sleep so far, which is how often it was woken."""
    found: dict[str, int] = {}
    for name, child in cluster.processes.running.items():
        lines = Path(f"/proc/{child.process.pid}/status").read_text("ascii").splitlines()
        found[name] = next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=12, help="nodes that report (default 12)")
    parser.add_argument("--period", type=float, default=1.0, help="seconds between two samples of a node (default 1)")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of the measurement (default 30)")
    parser.add_argument("--quick", action="store_true", help="10 s")
    options = parser.parse_args(arguments)
    logs.configure("error")
    print(f"{options.nodes} nodes, sampled every {options.period:g} s, no jobs, on {os.cpu_count()} CPUs")
    asyncio.run(measure(options.nodes, options.period, 10.0 if options.quick else options.seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
