"""How many node-seconds of simulated machines one core works through in a second.

Run: python -m tests.bench.bench_machine [--nodes 20] [--seconds 3600]
"""

import argparse
import time

from colo_sim.demand import NodeDemand
from colo_sim.machine import SimMachine
from colo_sim.machine_spec import GIB, MachineSpec
from colo_sim.synthetic import synthetic_day


def a_machine(index: int, sub_step_ms: int) -> SimMachine:
    spec = MachineSpec(sub_step_ms=sub_step_ms)
    demand = NodeDemand(
        synthetic_day(1),
        node=f"n-{index}",
        node_index=index,
        seed=1,
        cpu_capacity_mcpu=spec.cpu_capacity_mcpu,
        memory_capacity_bytes=spec.memory_capacity_bytes,
    )
    return SimMachine(spec, node=f"n-{index}", seed=1, demand=demand.at)


def measure(name: str, *, nodes: int, seconds: int, replicas: int, cpu_mcpu: int, sub_step_ms: int) -> None:
    """Run the machines, read their counters once a minute, print the rate."""
    machines = [a_machine(index, sub_step_ms) for index in range(nodes)]
    for machine in machines:
        for number in range(replicas):
            machine.start_replica(f"r-{number}", 1, (number % 4,), cpu_mcpu, GIB, 10**15)
    started_s = time.perf_counter()
    for minute in range(1, seconds // 60 + 1):
        for machine in machines:
            machine.advance(minute * 60_000)
            machine.counters()
    spent_s = time.perf_counter() - started_s
    node_seconds = nodes * (seconds // 60) * 60
    steps = node_seconds * 1_000 // sub_step_ms
    day_s = spent_s / node_seconds * 86_400_000
    print(
        f"{name:<48} {node_seconds / spent_s:>12,.0f} node-s/s  {spent_s / steps * 1e6:>6.1f} us a sub-step"
        f"  1,000 nodes x 1 day in {day_s:,.0f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--seconds", type=int, default=3_600)
    asked = parser.parse_args()
    sizes = {"nodes": asked.nodes, "seconds": asked.seconds}
    measure("no batch, 1 s sub-steps", replicas=0, cpu_mcpu=1, sub_step_ms=1_000, **sizes)
    measure("8 replicas with room, 1 s sub-steps", replicas=8, cpu_mcpu=1_000, sub_step_ms=1_000, **sizes)
    measure("8 replicas without room, 1 s sub-steps", replicas=8, cpu_mcpu=8_000, sub_step_ms=1_000, **sizes)
    measure("8 replicas with room, 10 s sub-steps", replicas=8, cpu_mcpu=1_000, sub_step_ms=10_000, **sizes)
    measure("8 replicas without room, 30 s sub-steps", replicas=8, cpu_mcpu=8_000, sub_step_ms=30_000, **sizes)


if __name__ == "__main__":
    main()
