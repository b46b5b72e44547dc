"""Decisions a second of the NUMA fit, one node at a time, as it is called for a node that cannot be decided with all others."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final

from colo_common.model.node_rules import NodeRules
from colo_common.model.resource_list import CPU, MEMORY
from colo_scheduler.numa.amounts import ZoneAmounts
from colo_scheduler.numa.policies import Hint, TopologyPolicy
from colo_scheduler.numa.rule import FitContext, ZoneAssignment, fit_zones
from colo_scheduler.peers.registry import NUMA_MANAGERS

SECONDS_EACH: Final = 0.5
MACHINES: Final = 200
GIB: Final = 1 << 30
GPU: Final = "example.com/gpu"
CPU_IN_ZONE: Final = 32_000


def machines(count: int, zones: int) -> list[list[ZoneAmounts]]:
    """Half-used two-socket machines with a GPU in every other zone."""
    rng = random.Random(7)
    found = []
    for _ in range(count):
        machine = []
        for zone in range(zones):
            capacity = {CPU: CPU_IN_ZONE, MEMORY: 128 * GIB, GPU: zone % 2}
            free = {CPU: rng.randrange(0, CPU_IN_ZONE, 500), MEMORY: rng.randrange(0, 128) * GIB, GPU: zone % 2}
            machine.append(ZoneAmounts(zone, zone * 2 // zones, free, capacity))
        found.append(machine)
    return found


def rate(decide: Callable[[list[ZoneAmounts]], object], fleet: list[list[ZoneAmounts]]) -> tuple[float, int]:
    """Decisions a second, and how many of 100 fit."""
    fitting = sum(isinstance(decide(machine), ZoneAssignment) for machine in fleet)
    done = 0
    start_s = time.perf_counter()
    while (spent_s := time.perf_counter() - start_s) < SECONDS_EACH:
        decide(fleet[done % len(fleet)])
        done += 1
    return done / spent_s, 100 * fitting // len(fleet)


def main() -> None:
    small = {CPU: 4_000, MEMORY: 8 * GIB}
    device = FitContext(providers=({GPU: tuple(Hint(1 << zone, True, 500) for zone in (1,))},))
    for zones in (2, 8):
        fleet = machines(MACHINES, zones)
        wide = {CPU: 10_000 * zones, MEMORY: 32 * zones * GIB}
        cases: list[tuple[str, Callable[[list[ZoneAmounts]], object]]] = [
            ("best-effort, fits one zone", lambda at: fit_zones(TopologyPolicy.BEST_EFFORT, at, small)),
            ("best-effort, many zones", lambda at, wide=wide: fit_zones(TopologyPolicy.BEST_EFFORT, at, wide)),  # type: ignore[misc]
            ("single-numa-node, with a GPU", lambda at: fit_zones(TopologyPolicy.SINGLE, at, {**small, GPU: 1})),
            ("restricted, a device's hints", lambda at: fit_zones(TopologyPolicy.RESTRICTED, at, small, device)),
            (
                "restricted, as Koordinator",
                lambda at: NUMA_MANAGERS["koordinator"].fit_zones(
                    TopologyPolicy.RESTRICTED, at, small, FitContext(), NodeRules()
                ),
            ),
            (
                "restricted, as the kubelet",
                lambda at: NUMA_MANAGERS["kubelet"].fit_zones(
                    TopologyPolicy.RESTRICTED, at, small, FitContext(), NodeRules()
                ),
            ),
        ]
        for name, decide in cases:
            decisions, fitting = rate(decide, fleet)
            delivered = f"{decisions:10,.0f} decisions/s  {1e6 / decisions:8.1f} us  {fitting:3d} % fit"
            print(f"{zones} zones, {name:32} {delivered}")


if __name__ == "__main__":
    main()
