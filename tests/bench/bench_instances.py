"""What leases with fences, and a second instance of everything, cost end to end: rounds of four clusters on the same machine.

`python -m tests.bench instances [--nodes 1000] [--seconds 8] [--rounds 3] [--quick]`. One instance of each service without leases,
so that nothing is fenced; one of each with leases; two of each, of which the schedulers share the shards, overcommit shares the
nodes and one of jobs stands by; two of each that share the jobs too. The order changes from round to round, so that a machine that
slows down slows all of them. Run it where nobody else works: the second instances use the same cores as the first.

Printed: placements a second of each, the median cost beside its budget, and the CPU of each process a placement.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from colo_common.runtime import logs
from tests.bench.bench_end_to_end import all_published, full_speed, steady
from tests.bench.fleet import SERVICES, running_cluster
from tests.bench.stand_in import FleetCore
from tests.support.servers import nats_server, redis_server

BUDGET_PCT: Final = 10
TRACE_RATIO: Final = 0.01
JOB_PARTITIONS: Final = 4


class Kind(NamedTuple):
    """One way to run the services."""

    name: str
    instances: int
    environment: Mapping[str, str]


ALONE: Final = Kind(
    "one of each, no leases",
    1,
    {"COLO_SCHEDULER_SHARDS": "0", "COLO_JOBS_LEASE_TTL_MS": "0", "COLO_OVERCOMMIT_LEASE_TTL_MS": "0"},
)
FENCED: Final = Kind("one of each, leased", 1, {})
TWO: Final = Kind("two of each", 2, {"COLO_OVERCOMMIT_PARTITIONS": "16"})
SHARED: Final = Kind(
    "two of each, jobs shared", 2, {"COLO_OVERCOMMIT_PARTITIONS": "16", "COLO_JOBS_PARTITIONS": str(JOB_PARTITIONS)}
)
KINDS: Final = (ALONE, FENCED, TWO, SHARED)


class Measured(NamedTuple):
    """Placements a second, and the CPU microseconds a placement of each process. `doubled` replicas were placed twice."""

    rate: float
    spent_us: Mapping[str, float]
    doubled: int

    @property
    def service_us(self) -> float:
        """The CPU of all services together."""
        return sum(us for name, us in self.spent_us.items() if name.startswith(SERVICES))


async def measure(kind: Kind, nodes: int, seconds: float) -> Measured:
    """What goes through one cluster."""
    names = [f"node-{index:05}" for index in range(nodes)]
    with (
        nats_server() as nats,
        redis_server() as redis,
        tempfile.TemporaryDirectory(prefix="colo-bench-") as directory,
    ):
        async with running_cluster(
            nats,
            redis,
            Path(directory),
            names,
            max(2.0, nodes / 250),
            TRACE_RATIO,
            schedulers=kind.instances,
            others=kind.instances,
            core=FleetCore(),
            environment=kind.environment,
        ) as cluster:
            gc.freeze()
            await (await steady(cluster, "warm-up", 20, 1, 0.5)).settled()
            rate, load, spent = await full_speed(cluster, "full", seconds)
            undecided = await load.settled()
            await all_published(cluster)
            if undecided or load.refused:
                print(f"    {kind.name}: undecided {undecided}, refused {len(load.refused)} {load.refused[:1] or ''}")
            return Measured(rate, spent, cluster.core.placed_twice)


def options_of(arguments: Sequence[str] | None = None) -> tuple[int, float, int]:
    """Nodes, seconds of a measurement, rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000, help="nodes of each cluster (default 1000)")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of each measurement (default 8)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of all four (default 3)")
    parser.add_argument("--quick", action="store_true", help="one round of 100 nodes, 3 s each")
    options = parser.parse_args(arguments)
    return (100, 3.0, 1) if options.quick else (options.nodes, options.seconds, options.rounds)


def length_s(arguments: Sequence[str]) -> float:
    """How long it takes: the measurements, and for each what starts, warms up and settles a cluster."""
    nodes, seconds, rounds = options_of(arguments)
    return rounds * len(KINDS) * (seconds + 15 + nodes / 100)


def main(arguments: Sequence[str] | None = None) -> int:
    nodes, seconds, rounds = options_of(arguments)
    logs.configure("error")
    print(f"{rounds} rounds of {nodes:,} nodes on {os.cpu_count()} CPUs, shared with the servers and the load")
    ratios: dict[str, list[float]] = {kind.name: [] for kind in KINDS}
    doubled = 0
    for number in range(rounds):
        found: dict[str, Measured] = {}
        for kind in KINDS if number % 2 == 0 else KINDS[::-1]:
            found[kind.name] = asyncio.run(measure(kind, nodes, seconds))
        doubled += sum(each.doubled for each in found.values())
        for name, each in found.items():
            ratios[name].append(each.rate / found[ALONE.name].rate)
        shown = [
            f"{kind.name} {found[kind.name].rate:,.0f}/s, {found[kind.name].service_us:.0f} us of service CPU a placement"
            for kind in KINDS
        ]
        print(f"  round {number + 1}: {'; '.join(shown)}", flush=True)
        for kind in KINDS:
            each_us = ", ".join(f"{name} {us:.0f}" for name, us in sorted(found[kind.name].spent_us.items()))
            print(f"    {kind.name}, us a placement: {each_us}", flush=True)
    for kind in KINDS[1:]:
        cost_pct = 100 * (1 - statistics.median(ratios[kind.name]))
        print(f"  {kind.name}: costs {cost_pct:.1f} % of the rate (median of {rounds})   budget {BUDGET_PCT} %")
    print(f"  placed twice: {doubled}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
