"""Placements per second of the scheduler's core alone: no bus, no store, the ledger answers yes at once.

`python -m tests.bench.bench_scheduler [--nodes 1000 5000 10000 20000] [--placements 4000] [--quick]` prints, for each number of
nodes of two zones, empty and 90 % full: the rate for the 103 request classes of a real cluster and for requests that are all
different, and how long one decision (one turn of a class, 1 to 100 replicas) takes. Then the ratios that must hold whatever the
machine, what it costs to say who would have to leave for whom (`--proposals` for that alone), the peer's own scenario, and the
memory at 20,000 nodes with 400,000 replicas.

Seconds are of CPU, so that other work on the machine counts less; everything that the core does counts: taking the wants in, the
decision, the reservation, the answer of the ledger and what is said. The best of several rounds is printed.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from colo_common.events.effects import Effect, Publish, Wake
from colo_common.events.job import PlacementRequest, PlacementsRequested, ReplicasWithdrawn
from colo_common.events.placement import PlacementsDecided
from colo_common.model.reasons import Reason
from colo_scheduler.cluster.pool import PoolName
from colo_scheduler.core import SchedulerCore
from colo_scheduler.ledger.port import (
    CommitLedger,
    HoldsReleased,
    LedgerAnswered,
    LedgerLoaded,
    NodeAnswer,
    Released,
    ReleaseHolds,
)
from colo_scheduler.main import collect_rarely
from colo_scheduler.placement.report import Report
from colo_scheduler.policy import SchedulerPolicy
from colo_scheduler.requests.request_class import RequestClass
from tests.bench.openb import MACHINE, MIB, ZONE_CPUS, ZONE_GIB, all_different, real_mix
from tests.support.builders import GIB, a_node
from tests.support.scheduler_story import a_placement_request, an_allocatable

BATCH = 1_000
ROUNDS = 4
#: What the field publishes: 100 nodes, 1,000 pods.
PEER_RATE, PEER_P99_S = 45.6, 13
#: So many importances in the cluster in which some might leave for others.
PRIORITIES = 10
REPLICAS_OF_MEMORY, NODES_OF_MEMORY = 400_000, 20_000


class Turns:
    """Times every decision of a core."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._begun = 0.0

    def mark(self, stage: str) -> None:
        if stage == "filter":
            self._begun = time.process_time()
        elif stage == "done":
            self.seconds.append(time.process_time() - self._begun)

    def decided(self, placement_requests: Sequence[PlacementRequest]) -> None:
        """Nothing."""


class Bench:
    """A core that knows `nodes` machines of 2 zones, all of which is allocatable, and the ledger that says yes."""

    def __init__(self, nodes: int) -> None:
        self.turns = Turns()
        self.core = SchedulerCore(SchedulerPolicy(facts_max_age_ms=0, ledger_refresh_ms=0), self.turns)
        self.nodes = nodes
        self.held: list[tuple[str, int]] = []
        self._on: dict[tuple[str, int], str] = {}
        self._rng = random.Random(nodes)
        self.core.handle(LedgerLoaded(), 0)
        zone = (ZONE_CPUS * 1_000, ZONE_GIB * GIB)
        for number in range(nodes):
            self.core.handle(a_node(f"node-{number:05}", MACHINE), 0)
            self.core.handle(an_allocatable(f"node-{number:05}", (zone, zone)), 0)
        self.core.handle(Wake(), 0)

    def place(self, placement_requests: Sequence[PlacementRequest]) -> tuple[int, float]:
        """Offer these wants; how many found a place, and the seconds in the core."""
        messages = [
            PlacementsRequested(placement_requests=tuple(placement_requests[at : at + 100]))
            for at in range(0, len(placement_requests), 100)
        ]
        begun = time.process_time()
        for message in messages:
            self.core.handle(message, 1)
        effects = self.core.handle(Wake(), 1)
        seconds = time.process_time() - begun
        placed: list[Publish] = []
        for effect in effects:
            if isinstance(effect, CommitLedger):
                answered = LedgerAnswered(answers=tuple(_yes(effect)))
                begun = time.process_time()
                reported = self.core.handle(answered, 1)
                seconds += time.process_time() - begun
                placed += [each for each in reported if isinstance(each, Publish)]
        before = len(self.held)
        for each in placed:
            if isinstance(each.fact, PlacementsDecided):
                for placement in each.fact.placements:
                    self.held.append((placement.replica, placement.attempt))
                    self._on[self.held[-1]] = placement.node
        return len(self.held) - before, seconds

    def held_share(self) -> float:
        """How much of the CPU is held."""
        pool = self.core.cluster.view(0).pool(PoolName.BATCH)
        return 1 - int(pool.node_free_cpu.sum()) / int(pool.allocatable_cpu.sum())

    def fill(self, placement_requests: Iterator[PlacementRequest], share: float) -> None:
        """Place until `share` of the CPU is held."""
        while self.held_share() < share:
            self.place(list(islice(placement_requests, BATCH)))
            self.withdraw_waiting()

    def drain(self, share: float) -> None:
        """End replicas, any of them, until no more than `share` of the CPU is held."""
        while self.held and (now := self.held_share()) > share:
            attempts = []
            # Nearly as many as are too many, and the last ones a few at a time.
            surplus = int(len(self.held) * (now - share) / now * 0.9)
            for _ in range(min(len(self.held), max(20, min(surplus, 1_000)))):
                at = self._rng.randrange(len(self.held))
                self.held[at], self.held[-1] = self.held[-1], self.held[at]
                attempts.append(self.held.pop())
            self._end(attempts)

    def withdraw_waiting(self) -> None:
        """Nobody waits any more."""
        waiting = [
            (placement_request.replica, placement_request.attempt)
            for placement_request in self.core.queue._placement_requests.values()
        ]
        self._end(waiting)

    def _end(self, attempts: list[tuple[str, int]]) -> None:
        if not attempts:
            return
        self.core.handle(ReplicasWithdrawn(attempts=tuple(attempts), reason=Reason.CANCELLED), 1)
        deleted = [
            Released(node=self._on.pop(attempt), changes=0, attempts=(attempt,))
            for attempt in attempts
            if attempt in self._on
        ]
        effects: list[Effect] = self.core.handle(Wake(), 1)
        if any(isinstance(effect, ReleaseHolds) for effect in effects):
            self.core.handle(HoldsReleased(released=tuple(deleted)), 1)
        self.core.handle(Wake(), 1)

    def rate(self, placement_requests: Iterator[PlacementRequest], count: int, share: float) -> tuple[float, float]:
        """Placements per second (best of several rounds), and the 99th percentile of one decision in ms."""
        rates = []
        self.turns.seconds.clear()
        for _ in range(ROUNDS):
            placed, seconds = 0, 0.0
            for at in range(0, count // ROUNDS, BATCH):
                self.drain(share)
                batch = list(islice(placement_requests, min(BATCH, count // ROUNDS - at)))
                more, took = self.place(batch)
                placed, seconds = placed + more, seconds + took
                self.withdraw_waiting()
            rates.append(placed / seconds)
        turns = sorted(self.turns.seconds)
        return max(rates), 1_000 * turns[min(len(turns) - 1, len(turns) * 99 // 100)]


def _yes(effect: CommitLedger) -> Iterator[NodeAnswer]:
    for reserve in effect.reserves:
        yield NodeAnswer(
            node=reserve.node,
            revision=reserve.expect + 1,
            changes=reserve.expect + 1,
            accepted=tuple(reservation.attempt for reservation in reserve.holds),
        )


def growth_with_size(sizes: Sequence[int], placements: int) -> None:
    """The table, and the ratios that have a budget."""
    rates: dict[tuple[str, int, str], float] = {}
    print(f"{'nodes':>6} {'held':>6} {'requests':>14} {'placements/s':>13} {'p99 of a decision':>18}")
    for nodes in sizes:
        bench = Bench(nodes)
        # The same process full and then empty again: memory is as scattered and records are as many as they are in a long life.
        bench.fill(real_mix(2, "f"), 0.9)
        # At 90 % there is room for so many of the large ones only.
        count = min(placements, nodes)
        for held, share in (("90 %", 0.9), ("empty", 0.0)):
            bench.drain(share)
            for name, mix in (("real mix", real_mix), ("all different", all_different)):
                rate, p99_ms = bench.rate(mix(1, f"{name[0]}{held[0]}"), count, share)
                rates[name, nodes, held] = rate
                print(f"{nodes:6} {held:>6} {name:>14} {rate:13.0f} {p99_ms:15.2f} ms", flush=True)
    small, large = min(sizes), max(sizes)
    for name in ("real mix", "all different"):
        ratio = rates[name, large, "empty"] / rates[name, small, "empty"]
        print(
            f"{name}: rate({large}) / rate({small}) = {ratio:.2f} (budget for the real mix of 20,000 to 1,000: >= 0.5)"
        )
        for nodes in sizes:
            ratio = rates[name, nodes, "90 %"] / rates[name, nodes, "empty"]
            print(
                f"{name}, {nodes} nodes: rate(90 % full) / rate(empty) = {ratio:.2f} (budget for the real mix: >= 0.8)"
            )


class Searching(Bench):
    """The same with several priorities; `says`: whether it is searched who would have to leave for the rejected ones."""

    says = True

    def __init__(self, nodes: int) -> None:
        super().__init__(nodes)
        self.wakes: list[float] = []
        note = self.core._proposals.note

        def noted(request: RequestClass, reported: list[Effect], report: Report) -> None:
            if self.says:
                note(request, reported, report)

        setattr(self.core._proposals, "note", noted)  # noqa: B010 - the core has no setting that turns it off

    def place(self, placement_requests: Sequence[PlacementRequest]) -> tuple[int, float]:
        """Offer these wants and let every search come to its end; the seconds of all of it."""
        placed, seconds = super().place(placement_requests)
        while len(self.core._proposals):
            begun = time.process_time()
            self.core.handle(Wake(), 1)
            self.wakes.append(time.process_time() - begun)
            seconds += self.wakes[-1]
        return placed, seconds


def proposals(nodes: int, placements: int) -> None:
    """What it costs to search who would have to leave, on a cluster that is 90 % full of several priorities."""
    bench = Searching(nodes)
    bench.says = False
    bench.fill(real_mix(2, "f", PRIORITIES), 0.9)
    rates: dict[bool, list[float]] = {True: [], False: []}
    for number in range(ROUNDS):
        for says in (True, False):
            bench.says = says
            placement_requests = real_mix(number, f"p{number}{says}", PRIORITIES)
            rate, _ = bench.rate(placement_requests, placements, 0.9)
            rates[says].append(rate)
    counts = bench.core.counts
    wakes = sorted(1_000 * seconds for seconds in bench.wakes)
    on, off = max(rates[True]), max(rates[False])
    print(
        f"{nodes} nodes, 90 % held at {PRIORITIES} priorities, searches for victims: {counts['preemptions_proposed']} proposed, "
        f"{len(wakes)} more Wakes of p50 {wakes[len(wakes) // 2]:.2f}, p99 {wakes[len(wakes) * 99 // 100]:.2f}, "
        f"most {wakes[-1]:.2f} ms (budget p99: <= 2 ms); {on:.0f} placements/s with them, {off:.0f} without: {on / off:.2f}",
        flush=True,
    )


def peer() -> None:
    """The scenario that a peer published: 100 nodes, 1,000 pods at once."""
    bench = Bench(100)
    placement_requests = [
        a_placement_request(f"k{n}/t/0", mcpu=500, memory_bytes=512 * MIB, queued_at_ms=n) for n in range(1_000)
    ]
    placed, seconds = bench.place(placement_requests)
    print(
        f"100 nodes, 1,000 pods at once: {placed} placed at {placed / seconds:.0f} /s, the last after {1_000 * seconds:.0f} ms "
        f"(core alone; published of Koordinator, whole system: {PEER_RATE} /s, p99 {PEER_P99_S} s)"
    )


def memory() -> None:
    """Resident memory of a core that holds 400,000 replicas on 20,000 nodes; run in a process of its own."""
    bench = Bench(NODES_OF_MEMORY)
    status = Path("/proc/self/status")

    def resident_mib() -> int:
        return next(int(line.split()[1]) for line in status.read_text("ascii").splitlines() if "VmRSS" in line) >> 10

    begin = resident_mib()
    for at in range(0, REPLICAS_OF_MEMORY, BATCH):
        numbers = range(at, at + BATCH)
        bench.place(
            [
                a_placement_request(f"m{n // 50}/t/{n}", mcpu=4_000, memory_bytes=12 * GIB, queued_at_ms=n)
                for n in numbers
            ]
        )
        bench.held.clear()
        bench._on.clear()
    held = len(bench.core.commits.held)
    print(
        f"{NODES_OF_MEMORY} nodes: {begin} MiB resident; with {held} replicas held: {resident_mib()} MiB (budget: <= 1024)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1_000, 5_000, 10_000, 20_000])
    parser.add_argument("--placements", type=int, default=4_000)
    parser.add_argument("--quick", action="store_true", help="1,000 nodes, no memory")
    parser.add_argument("--memory", action="store_true", help="the memory alone")
    parser.add_argument(
        "--proposals", action="store_true", help="the searches for victims alone, with the first of --nodes"
    )
    args = parser.parse_args()
    collect_rarely()
    if args.memory:
        memory()
        return
    if args.proposals:
        proposals(args.nodes[0], args.placements)
        return
    growth_with_size([1_000] if args.quick else args.nodes, args.placements)
    proposals(1_000 if args.quick else 10_000, args.placements)
    peer()
    if not args.quick:
        subprocess.run([sys.executable, "-m", "tests.bench.bench_scheduler", "--memory"], check=True)


if __name__ == "__main__":
    main()
