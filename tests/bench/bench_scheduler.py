"""Placements per second of the scheduler's core alone: no bus, no store, the ledger answers yes at once.

`python -m tests.bench.bench_scheduler [--nodes 1000 10000] [--placements 5000]` prints, for each cluster size, the rate for a
mix of requests as a real cluster of machine-learning jobs has it and for requests that are all different; then the ratios that
must hold whatever the machine: larger cluster to smaller one, and 90 % full to empty.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator

from colo_common.events.effects import Publish, Wake
from colo_common.events.job import ReplicasWanted, ReplicaWant
from colo_common.events.placement import PlacementsDecided
from colo_scheduler.core import SchedulerCore
from colo_scheduler.ledger import CommitLedger, LedgerAnswered, LedgerLoaded, NodeAnswer
from colo_scheduler.policy import Policy
from colo_scheduler.pool import PoolName
from tests.support.builders import GIB, a_node, a_topology
from tests.support.scheduler_story import a_want, an_allocatable

MIB = 1 << 20
#: (times seen, mcpu, MiB): the best-effort and latency-sensitive shapes most often asked for in the openb pod table.
REAL_MIX = (
    (1592, 3152, 5600),
    (857, 11300, 49152),
    (646, 8000, 30517),
    (625, 11908, 47104),
    (534, 11400, 48128),
    (364, 12500, 57344),
    (284, 32000, 49152),
    (255, 18708, 64512),
    (195, 9810, 41560),
    (189, 4000, 22888),
    (181, 4000, 15258),
    (158, 15700, 58368),
    (152, 4152, 10600),
    (136, 4000, 30517),
    (120, 15400, 51200),
    (108, 16000, 32768),
    (104, 12000, 24576),
    (102, 8000, 16384),
    (95, 16500, 51200),
    (51, 6000, 6144),
)


def real_mix(seed: int) -> Iterator[ReplicaWant]:
    """Wants without end, drawn from the real mix."""
    rng = random.Random(seed)
    weights = [times for times, _, _ in REAL_MIX]
    number = 0
    while True:
        _, mcpu, mib = rng.choices(REAL_MIX, weights)[0]
        yield a_want(f"j{number // 50}/t/{number}", mcpu=mcpu, memory_bytes=mib * MIB, queued_at_ms=number)
        number += 1


def all_different(seed: int) -> Iterator[ReplicaWant]:
    """Wants without end, no two alike."""
    rng = random.Random(seed)
    number = 0
    while True:
        mcpu, memory = rng.randrange(500, 16_000), rng.randrange(GIB, 48 * GIB)
        yield a_want(f"j{number // 50}/t/{number}", mcpu=mcpu, memory_bytes=memory, queued_at_ms=number)
        number += 1


def cluster(nodes: int) -> SchedulerCore:
    """A core that knows `nodes` machines of 2 zones x 32 CPUs x 128 GiB, all of it allocatable."""
    core = SchedulerCore(Policy(facts_max_age_ms=0, ledger_refresh_ms=0))
    core.handle(LedgerLoaded(), 0)
    topology = a_topology(sockets=2, zones_per_socket=1, cpus=32, memory_gib=128)
    for number in range(nodes):
        core.handle(a_node(f"node-{number:05}", topology), 0)
        core.handle(an_allocatable(f"node-{number:05}", ((32_000, 128 * GIB), (32_000, 128 * GIB))), 0)
    core.handle(Wake(), 0)
    return core


def place(core: SchedulerCore, wants: Iterator[ReplicaWant], count: int, batch: int) -> tuple[int, float, list[float]]:
    """Offer `count` wants in batches; placements, seconds in the core, and the seconds of each batch."""
    placed, seconds, batches = 0, 0.0, []
    for begin in range(0, count, batch):
        messages = []
        for _ in range(min(batch, count - begin) // 100):
            messages.append(ReplicasWanted(wants=tuple(next(wants) for _ in range(100))))
        started = time.perf_counter()
        effects = []
        for message in messages:
            core.handle(message, 1)
        effects += core.handle(Wake(), 1)
        for effect in effects:
            if isinstance(effect, CommitLedger):
                answers = tuple(
                    NodeAnswer(
                        node=reserve.node,
                        revision=reserve.expect + 1,
                        changes=reserve.expect + 1,
                        accepted=tuple(reservation.attempt for reservation in reserve.reservations),
                    )
                    for reserve in effect.reserves
                )
                for said in core.handle(LedgerAnswered(answers=answers), 1):
                    if isinstance(said, Publish) and isinstance(said.fact, PlacementsDecided):
                        placed += len(said.fact.placements)
        batches.append(time.perf_counter() - started)
        seconds += batches[-1]
    return placed, seconds, batches


def fill(core: SchedulerCore, wants: Iterator[ReplicaWant], share: float) -> None:
    """Place until `share` of the CPU is held."""
    while True:
        pool = core.cluster.view(0).pool(PoolName.BATCH)
        if int(pool.free_cpu.sum()) <= (1 - share) * int(pool.allocatable_cpu.sum()):
            return
        place(core, wants, 500, 500)


def rate(name: str, core: SchedulerCore, wants: Iterator[ReplicaWant], count: int, batch: int) -> float:
    """Measure once and print one line."""
    placed, seconds, batches = place(core, wants, count, batch)
    batches.sort()
    p99_ms = 1000 * batches[min(len(batches) - 1, len(batches) * 99 // 100)]
    print(f"{name:44} {placed:7} placed  {placed / seconds:9.0f} /s  p99 of a batch of {batch}: {p99_ms:.1f} ms")
    return placed / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--placements", type=int, default=4_000)
    parser.add_argument("--batch", type=int, default=1_000)
    parser.add_argument("--full", action="store_true", help="also fill the largest cluster to 90 % (takes a while)")
    args = parser.parse_args()
    rates: dict[tuple[str, int], float] = {}
    for nodes in args.nodes:
        for name, wants in (("real mix", real_mix), ("all different", all_different)):
            core = cluster(nodes)
            count = min(args.placements, nodes * 3)
            rates[name, nodes] = rate(f"{name}, {nodes} nodes x 2 zones", core, wants(1), count, args.batch)
    small, large = min(args.nodes), max(args.nodes)
    for name in ("real mix", "all different"):
        print(f"{name}: rate({large}) / rate({small}) = {rates[name, large] / rates[name, small]:.2f}")
    if args.full:
        core = cluster(large)
        more = real_mix(2)
        fill(core, more, 0.9)
        full = rate(f"real mix, {large} nodes, 90 % held", core, more, min(args.placements, large // 5), args.batch)
        print(f"real mix: rate(90 % full) / rate(empty) = {full / rates['real mix', large]:.2f}")


if __name__ == "__main__":
    main()
