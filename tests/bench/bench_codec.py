"""Events a second through the codec, encode and decode together, as the wire module does it."""

from __future__ import annotations

import time
from typing import Any, Final

from colo_common.events.fact import Fact
from colo_common.events.job import JobStateChanged
from colo_common.events.node import NodeUsageSampled, WorkloadUsage, ZoneUsage
from colo_common.events.placement import PlacementsDecided
from colo_common.events.registry import subject_of
from colo_common.events.wire import decode, encode
from colo_common.model.placement import Placement, ZoneShare
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.workload import RunSpec
from tests.support.examples import example_of

SECONDS_EACH: Final = 0.5
GIB: Final = 1 << 30


def a_sample() -> NodeUsageSampled:
    """Two zones and twenty workloads, as a busy node says it every second."""
    return NodeUsageSampled(
        node="rack-1-node-7",
        at_ms=1_700_000_000_000,
        producer="collector",
        boot_id="0123456789ab",
        seq=123_456,
        sent_us=1_700_000_000_000_000,
        sample_seq=123_456,
        interval_ms=1_000,
        cpu_used_mcpu=43_210,
        memory_used_bytes=123 * GIB,
        zones=tuple(ZoneUsage(zone=zone, cpu_used_mcpu=21_605, memory_used_bytes=61 * GIB) for zone in range(2)),
        workloads=tuple(
            WorkloadUsage(
                workload=f"training-{index}/main/{index}",
                qos=QosClass.BE,
                band=PriorityBand.BATCH,
                cpu_used_mcpu=1_234,
                memory_used_bytes=3 * GIB,
                zones=(index % 2,),
                replica=f"training-{index}/main/{index}",
                attempt=1,
            )
            for index in range(20)
        ),
    )


def placements(count: int) -> PlacementsDecided:
    """One message of the scheduler."""
    return PlacementsDecided(
        placements=tuple(
            Placement(
                replica=f"training/main/{index}",
                job="training",
                attempt=1,
                node=f"rack-1-node-{index}",
                zones=(ZoneShare(zone=0, cpu_mcpu=2_000, memory_bytes=4 * GIB),),
                cpu_mcpu=2_000,
                memory_bytes=4 * GIB,
                qos=QosClass.BE,
                band=PriorityBand.BATCH,
                run=RunSpec(work_mcpu_ms=60_000_000),
                traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01",
            )
            for index in range(count)
        )
    )


def rate(fact: Fact) -> tuple[float, int]:
    """Encode and decode pairs a second, and the size of one message."""
    subject, data = subject_of(fact), encode(fact)
    done = 0
    start_s = time.perf_counter()
    while (spent_s := time.perf_counter() - start_s) < SECONDS_EACH:
        for _ in range(100):
            decode(subject, encode(fact))
        done += 100
    return done / spent_s, len(data)


def main() -> None:
    rows: list[tuple[str, Any]] = [
        ("usage sample, 2 zones, 20 workloads (MessagePack)", a_sample()),
        ("placements decided, 1 placement (JSON)", placements(1)),
        ("placements decided, 50 placements (JSON)", placements(50)),
        ("job state changed (JSON)", example_of(JobStateChanged)),
    ]
    for name, fact in rows:
        pairs, size = rate(fact)
        print(f"{name:52} {pairs:10,.0f} events/s  {1e6 / pairs:8.1f} us  {size:7,} bytes")


if __name__ == "__main__":
    main()
