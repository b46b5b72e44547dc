"""What overcommit costs: one sample of one node through the core, and what each estimator adds for one value.

`python -m tests.bench.bench_overcommit [--nodes 10000] [--quick]`. Every node has two zones and ten workloads, six of them batch.
"""

from __future__ import annotations

import argparse
import gc
import math
import sys
import time
from collections.abc import Sequence
from typing import Final

from colo_common.events.effects import Publish
from colo_common.events.node import AllocatableChanged, NodeUsageSampled, WorkloadUsage
from colo_common.model.qos import PriorityBand, QosClass
from colo_overcommit.core import OvercommitCore
from colo_overcommit.estimators.estimator import ESTIMATORS, estimator_of
from colo_overcommit.estimators.steps import STEP_MS
from colo_overcommit.policy import OvercommitPolicy
from tests.support.builders import GIB, a_batch_workload, a_node, a_placement, a_sample, a_topology, decided

PERIOD_MS: Final = 1_000
BUDGET_NODE_US: Final = 50
BUDGET_ESTIMATOR_US: Final = 5
#: A week of steps, then a sample a second for an hour.
LEARNT_STEPS: Final = 7 * 288
VALUES: Final = 3_600
TOPOLOGY: Final = a_topology(sockets=2, zones_per_socket=1, cpus=32, memory_gib=128)
#: Batch work that runs, then online services.
WORKLOADS: Final = (
    *(a_batch_workload(f"job/main/{index}", mcpu=1_500, gib=2, zones=(index % 2,)) for index in range(6)),
    *(
        WorkloadUsage(
            workload=f"service-{index}",
            qos=QosClass.LS,
            band=PriorityBand.PROD,
            cpu_used_mcpu=2_000,
            memory_used_bytes=4 * GIB,
        )
        for index in range(4)
    ),
)


def samples(nodes: Sequence[str], seq: int, used_mcpu: int) -> list[NodeUsageSampled]:
    """One sample of every node."""
    zones = ((used_mcpu, 20), (used_mcpu, 20))
    return [a_sample(node, seq=seq, zones=zones, workloads=WORKLOADS, at_ms=seq * PERIOD_MS) for node in nodes]


def a_fleet(nodes: Sequence[str]) -> OvercommitCore:
    """A core that knows the nodes and what six replicas hold on each, and finds their facts fresh."""
    core = OvercommitCore(OvercommitPolicy())
    for node in nodes:
        core.handle(a_node(node, TOPOLOGY), 0)
        core.handle(decided(*(a_placement(f"{node}/main/{index}", node=node, zone=index % 2) for index in range(6))), 0)
    for seq in range(1, 6):
        feed(core, samples(nodes, seq, 12_000), seq)
    return core


def feed(core: OvercommitCore, facts: Sequence[NodeUsageSampled], seq: int) -> tuple[list[float], int]:
    """Microseconds of each sample, ascending, and how many new numbers were said."""
    spent_us, reported = [], 0
    for fact in facts:
        started_s = time.perf_counter()
        effects = core.handle(fact, seq * PERIOD_MS)
        spent_us.append((time.perf_counter() - started_s) * 1e6)
        reported += any(
            isinstance(effect, Publish) and isinstance(effect.fact, AllocatableChanged) for effect in effects
        )
    return sorted(spent_us), reported


def estimators() -> None:
    """A line for each estimator: the CPU of taking a value and saying what to expect, with what it does at the end of a step."""
    for name in ESTIMATORS:
        estimator = estimator_of(name)
        assert estimator is not None
        for step in range(LEARNT_STEPS):
            estimator.add(step * STEP_MS, _use_at(step * STEP_MS))
        first_ms = LEARNT_STEPS * STEP_MS
        started_s = time.process_time()
        for second in range(VALUES):
            at_ms = first_ms + second * PERIOD_MS
            estimator.add(at_ms, _use_at(at_ms))
            estimator.expected()
        spent_us = (time.process_time() - started_s) * 1e6 / VALUES
        print(f"  estimator {name:<36} mean {spent_us:6.1f} us of CPU a value   budget {BUDGET_ESTIMATOR_US} us")


def _use_at(at_ms: int) -> int:
    """A day that repeats itself, with noise."""
    return int(20_000 - 8_000 * math.cos(2 * math.pi * at_ms / 86_400_000)) + at_ms // PERIOD_MS * 7_919 % 3_000


def tell(name: str, spent_us: Sequence[float], reported: int) -> None:
    """One line of the result."""
    mean_us = sum(spent_us) / len(spent_us)
    p50_us, p99_us = (spent_us[len(spent_us) * pct // 100] for pct in (50, 99))
    print(
        f"  {name:<46} mean {mean_us:6.1f} us  p50 {p50_us:6.1f}  p99 {p99_us:6.1f}   budget {BUDGET_NODE_US} us"
        f"   {reported} numbers said"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--quick", action="store_true", help="2,000 nodes")
    options = parser.parse_args(arguments)
    count = 2_000 if options.quick else options.nodes
    nodes = [f"node-{index:05}" for index in range(count)]
    core = a_fleet(nodes)
    gc.freeze()
    print(f"overcommit, {count:,} nodes x 2 zones, {len(WORKLOADS)} workloads each")
    tell("one sample, its number is as it was", *feed(core, samples(nodes, 10, 12_000), 10))
    tell("one sample, its number fell and is said", *feed(core, samples(nodes, 11, 20_000), 11))
    estimators()
    return 0


if __name__ == "__main__":
    sys.exit(main())
