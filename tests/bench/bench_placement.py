"""Microseconds that a placement costs the scheduler, from the want of its replica to the release of its place. No servers.

Run: python -m tests.bench placement [--nodes 5000] [--replicas 10] [--jobs 600] [--open 100] [--redis] [--profile]

Each turn takes in what the bus would bring: one job of equal replicas that wants places, the ends of as many replicas of other
jobs, as their nodes tell them one by one, what the jobs service says of as many that started (of what has not ended ten seconds
after its decision; it is asked for more of them at once), and what the scheduler itself said of released places, which it hears as
all others do; no trace is sampled. Then the core is woken, and the shell does what it asks of the ledger. `encode`
is what the generic shell does with everything that is said: stamp, subject, bytes, headers. `ledger` is the shell's part and
the ledger in memory, which stands for another process and is not counted in the whole; with --redis it is the client of a
real server, which is counted, and still no more than this process's own CPU time. At most --open jobs are on their way at a
time; the best of several rounds is told.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import pstats
import random
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from colo_common.events.effects import Effect, Publish, Wake
from colo_common.events.enforcement import ReplicaEnded
from colo_common.events.job import PlacementsRequested
from colo_common.events.placement import ApplyPlacements, PlacementsDecided, PlacementsReleased
from colo_common.model.partition import PartitionsHeld
from colo_common.model.placement import Placement
from colo_common.model.reasons import EndCause
from colo_common.runtime.batch import outgoing_batches_from_effects
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.stamp import Stamp
from colo_scheduler.commit.jobs_asked import StartedKnown
from colo_scheduler.core import SchedulerCore
from colo_scheduler.figures import CoreFigures
from colo_scheduler.ledger.memory import MemoryLedger
from colo_scheduler.ledger.port import (
    CommitLedger,
    ConfirmHolds,
    HoldsReleased,
    Ledger,
    LedgerAnswered,
    LedgerLoaded,
    ReleaseHolds,
)
from colo_scheduler.ledger.redis import RedisLedger
from colo_scheduler.main import collect_rarely
from colo_scheduler.policy import SchedulerPolicy
from colo_scheduler.shell import SchedulerShell, StageTimes
from tests.bench.openb import MACHINE, ZONE_CPUS, ZONE_GIB
from tests.support.builders import GIB, a_node
from tests.support.bus_memory import MemoryBus
from tests.support.manual_clock import ManualClock
from tests.support.scheduler_story import WORK, a_placement_request, an_allocatable
from tests.support.servers import redis_server

BOOT: Final = "0123456789ab"
BEGUN_MS: Final = 1_700_000_000_000
SHARDS: Final = 16
LEASE_MS: Final = 600_000
ROUNDS: Final = 4
PARTS: Final = ("want", "decide", "answered", "started", "ended", "released", "heard", "encode")
HEAD: Final = {"at_ms": BEGUN_MS, "producer": "executor", "boot_id": BOOT, "seq": 1}
EXITED: Final = {"cause": EndCause.EXITED, "exit_code": 0}


def no_span(*_: object, **__: object) -> str:
    """A tracer that is turned off."""
    return ""


class Run:
    """One scheduler: its core, its shell and the encoding beside it."""

    def __init__(self, nodes: int, ledger: Ledger) -> None:
        self.clock = ManualClock(BEGUN_MS)
        stages = StageTimes(self.clock.wall_us, lambda at_ms: at_ms * 1000, no_span)
        self.core = SchedulerCore(SchedulerPolicy(), stages, shards=SHARDS, reserves=False)
        self.ledger = ledger
        metrics = Metrics()
        self.shell = SchedulerShell(
            ledger,
            MemoryBus(),
            self.clock,
            figures=CoreFigures(self.core.counts, self.core.queue, self.core.commits, self.core.cluster, metrics),
            stages=stages,
            shards=SHARDS,
            metrics=metrics,
            rng=random.Random(1),
            owner="bench",
            lease_ttl_ms=LEASE_MS,
        )
        self.stamp = Stamp("scheduler", BOOT, self.clock)
        self.seconds = dict.fromkeys((*PARTS, "ledger"), 0.0)
        self.placed = self.released = self.orders = self.calls = 0
        self._decided: list[Placement] = []
        self._echo: list[PlacementsReleased] = []
        self._learn(nodes)

    def _learn(self, nodes: int) -> None:
        zone = (ZONE_CPUS * 1_000, ZONE_GIB * GIB)
        for number in range(nodes):
            self.core.handle(a_node(f"node-{number:05}", MACHINE, simulated=True, at_ms=BEGUN_MS), BEGUN_MS)
            self.core.handle(an_allocatable(f"node-{number:05}", (zone, zone), at_ms=BEGUN_MS), BEGUN_MS)
        self.core.handle(LedgerLoaded(), BEGUN_MS)

    async def begin(self) -> None:
        """Take the shards, and the first turn, which is not measured."""
        fences = await self.ledger.leases.renew("bench", LEASE_MS, SHARDS)
        self.core.handle(PartitionsHeld(fences=fences), BEGUN_MS)
        self.core.handle(Wake(), BEGUN_MS)

    def take_decided(self) -> list[Placement]:
        """What was placed since this was last asked."""
        decided, self._decided = self._decided, []
        return decided

    async def turn(self, wanted: Sequence[Struct], started: Sequence[Struct], ended: Sequence[Struct]) -> None:
        """All of this, and what the scheduler heard of itself, then what comes of it."""
        self.clock.advance(6)
        echo, self._echo = self._echo, []
        effects: list[Effect] = []
        for part, events in (("want", wanted), ("started", started), ("ended", ended), ("heard", echo)):
            effects += self._handle(part, events)
        due_ms = self.core.deadline_ms()
        if due_ms is not None and due_ms <= self.clock.now_ms():
            effects += self._handle("decide", [Wake()])
        while effects:
            own = self._encode(effects)
            begun_s = time.process_time()
            events = await self.shell.perform_many(own) if own else ()
            self.seconds["ledger"] += time.process_time() - begun_s
            self.calls += len(own)
            effects = []
            for event in events:
                part = "answered" if isinstance(event, LedgerAnswered) else "released"
                effects += self._handle(part, [event])
                if isinstance(event, HoldsReleased):
                    self.released += sum(len(one.attempts) for one in event.released)

    def _handle(self, part: str, events: Sequence[Struct]) -> list[Effect]:
        handle, now_ms = self.core.handle, self.clock.now_ms()
        effects: list[Effect] = []
        begun_s = time.process_time()
        for event in events:
            effects += handle(event, now_ms)  # type: ignore[arg-type]
        self.seconds[part] += time.process_time() - begun_s
        return effects

    def _encode(self, effects: Sequence[Effect]) -> list[Effect]:
        """What is asked of the ledger; what is said is stamped and encoded."""
        begun_s = time.process_time()
        outgoing_batches = outgoing_batches_from_effects(effects, self.stamp)
        self.seconds["encode"] += time.process_time() - begun_s
        for effect in effects:
            match effect:
                case Publish(fact=PlacementsDecided() as fact):
                    self._decided += fact.placements
                    self.placed += len(fact.placements)
                case Publish(fact=PlacementsReleased() as fact):
                    self._echo.append(fact)
                case Publish(fact=ApplyPlacements()):
                    self.orders += 1
        return [
            each
            for outgoing_batch in outgoing_batches
            for each in outgoing_batch.own
            if isinstance(each, CommitLedger | ReleaseHolds | ConfirmHolds)
        ]


def wanted_of(number: int, replicas: int, at_ms: int) -> PlacementsRequested:
    """One job of equal replicas."""
    return PlacementsRequested(
        at_ms=at_ms,
        placement_requests=tuple(
            a_placement_request(
                f"full-{number}/main/{index}",
                mcpu=500,
                memory_bytes=GIB // 2,
                queued_at_ms=at_ms,
                run=WORK,
                traceparent=f"00-{number:024x}{index:08x}-{index + 1:016x}-00",
            )
            for index in range(replicas)
        ),
    )


def known_of(started: Sequence[Placement]) -> StartedKnown:
    """What the jobs service says of work that lives long."""
    return StartedKnown(started=tuple((placement.replica, placement.attempt) for placement in started))


async def life(run: Run, first: int, jobs: int, replicas: int, most_open: int) -> float:
    """So many jobs from want to release, mixed; the seconds of all that is counted."""
    seed = random.Random(first)
    before = sum(run.seconds[part] for part in PARTS)
    deciding: list[PlacementsRequested] = [wanted_of(first + number, replicas, BEGUN_MS) for number in range(jobs)]
    deciding.reverse()
    starting: deque[Placement] = deque()
    running: list[Placement] = []
    while deciding or starting or running or run.core.commits.held:
        started = [starting.popleft() for _ in range(min(len(starting), replicas))]
        ended: list[Placement] = []
        while running and len(ended) < replicas and (len(running) >= most_open * replicas or not deciding):
            at = seed.randrange(len(running))
            running[at], running[-1] = running[-1], running[at]
            ended.append(running.pop())
        await run.turn(
            [deciding.pop()] if deciding else [],
            [known_of(started)] if started else [],
            [
                ReplicaEnded(node=p.node, replica=p.replica, job=p.job, attempt=1, **EXITED, **HEAD)  # type: ignore[arg-type]
                for p in ended
            ],
        )
        running += started
        decided = run.take_decided()
        seed.shuffle(decided)
        starting += decided
    return sum(run.seconds[part] for part in PARTS) - before


async def measure(asked: argparse.Namespace, ledger: Ledger, *, is_real: bool) -> None:
    run = Run(asked.nodes, ledger)
    await run.begin()
    await life(run, 0, 2 * asked.open, asked.replicas, asked.open)
    gc.collect()
    gc.freeze()
    profile = cProfile.Profile() if asked.profile else None
    if profile is not None:
        profile.enable()
    rounds: list[dict[str, float]] = []
    count = asked.jobs * asked.replicas
    for number in range(ROUNDS):
        run.seconds = dict.fromkeys(run.seconds, 0.0)
        run.placed = run.released = run.orders = run.calls = 0
        await life(run, 10_000_000 * (number + 1), asked.jobs, asked.replicas, asked.open)
        if (run.placed, run.released) != (count, count):
            print(f"  of {count} only {run.placed} were placed and {run.released} released")
        rounds.append({part: seconds * 1e6 / count for part, seconds in run.seconds.items()})
    if profile is not None:
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(45)
    counted = (*PARTS, "ledger") if is_real else PARTS
    best = min(rounds, key=lambda each: sum(each[part] for part in counted))
    reported = ", ".join(f"{part} {best[part]:.1f}" for part in PARTS)
    print(
        f"{asked.nodes:,} nodes, {asked.replicas} replicas a job: {sum(best[part] for part in counted):.1f} us a placement"
        f" ({reported};"
        f" ledger {best['ledger']:.1f}{'' if is_real else ' more'}); {run.orders / count:.2f} orders and"
        f" {run.calls / count:.2f} calls a placement",
        flush=True,
    )


async def main_on_redis(asked: argparse.Namespace) -> None:
    with redis_server() as server:
        ledger = RedisLedger.of(server.url, name="bench")
        try:
            await measure(asked, ledger, is_real=True)
        finally:
            await ledger.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--replicas", type=int, default=10, help="of each job")
    parser.add_argument("--jobs", type=int, default=600, help="of each round")
    parser.add_argument("--open", type=int, default=100, help="jobs on their way at a time")
    parser.add_argument("--redis", action="store_true", help="a real server keeps the ledger")
    parser.add_argument("--profile", action="store_true", help="print where the time goes, which costs time itself")
    asked = parser.parse_args()
    collect_rarely()
    if asked.redis:
        asyncio.run(main_on_redis(asked))
    else:
        asyncio.run(measure(asked, MemoryLedger(), is_real=False))


if __name__ == "__main__":
    main()
