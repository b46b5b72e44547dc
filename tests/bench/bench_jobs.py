"""Microseconds and bytes that the jobs core costs a replica, from the submission of its job to its end. No servers.

Run: python -m tests.bench jobs [--replicas 1 10 50] [--total 6000] [--open 400] [--batch 64 | --small]
     [--rate 1500] [--repeat 1] [--profile]

Jobs go through submit, one PlacementsDecided for all replicas of a job, ReplicaStarted and ReplicaEnded for each. At most --open
replicas are on their way at a time, and what comes of different jobs comes mixed, as from many nodes. --small takes each submission
and each decision alone and 30 to 80 reports together, as they come while little is to be done. After each batch of events
the core is woken when its deadline has come, and what it says is sorted, stamped and encoded as the generic shell does; the clock
runs as if --rate replicas came a second. `handle` and `wake` hold the encoding of the job's own rows, which the core does. Times
are CPU times, and the garbage collector is set as in a service, so that other work on the machine disturbs little.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from colo_common.events.effects import Effect, RequestReceived, Wake, Write
from colo_common.events.enforcement import ReplicaEnded, ReplicaStarted
from colo_common.events.placement import PlacementsDecided
from colo_common.events.requests import SubmitJob
from colo_common.events.started import StartedReplicas
from colo_common.model.placement import Placement, ZoneShare
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import EndCause
from colo_common.model.workload import JobSpec, ResourceRequest, RunSpec, TaskSpec
from colo_common.runtime.batch import outgoing_batches_from_effects, unit_of
from colo_common.runtime.outgoing import OutgoingBatch
from colo_common.runtime.stamp import Stamp
from colo_jobs.core import JobsCore
from colo_jobs.policy import JobsPolicy
from tests.support.manual_clock import ManualClock

GIB: Final = 1 << 30
BOOT: Final = "0123456789ab"
NODES: Final = 5_000
BEGUN_MS: Final = 1_700_000_000_000
#: Reports that come together in a small turn.
REPORTS: Final = (30, 80)
_REPORT: Final = (ReplicaStarted, ReplicaEnded)
#: As every service sets it.
COLLECT_AFTER: Final = (10_000, 10, 1_000)


class Spent:
    """Seconds and bytes by what they were spent on."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys(("handle", "wake", "encode"), 0.0)
        self.bytes: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()


class Run:
    """One core and the shell's encoding beside it."""

    def __init__(self) -> None:
        self.core = JobsCore(JobsPolicy(trace_ratio=0.01))
        self.clock = ManualClock(BEGUN_MS)
        self.stamp = Stamp("jobs", BOOT, self.clock)
        self.spent = Spent()
        self._outbox = 0

    def batch(self, events: Sequence[Struct], at_ms: int) -> None:
        """Handle, wake when due, encode: what one turn of the shell costs without its servers."""
        self.clock.advance(at_ms - self.clock.now_ms())
        began_s = time.process_time()
        reported = [effects for event in events if (effects := self.core.handle(event, at_ms))]  # type: ignore[arg-type]
        handled_s = time.process_time()
        due_ms = self.core.deadline_ms()
        if due_ms is not None and due_ms <= at_ms:
            reported.append(self.core.handle(Wake(), at_ms))
        woken_s = time.process_time()
        done = [each for effects in reported for each in self._encoded(effects)]
        ended_s = time.process_time()
        seconds = self.spent.seconds
        seconds["handle"] += handled_s - began_s
        seconds["wake"] += woken_s - handled_s
        seconds["encode"] += ended_s - woken_s
        for outgoing_batch, unit in done:
            self._count(outgoing_batch, unit)

    def _encoded(self, effects: Sequence[Effect]) -> list[tuple[OutgoingBatch, tuple[Write, ...]]]:
        return [
            (outgoing_batch, self._unit(outgoing_batch))
            for outgoing_batch in outgoing_batches_from_effects(effects, self.stamp)
        ]

    def _unit(self, outgoing_batch: OutgoingBatch) -> tuple[Write, ...]:
        self._outbox += 1
        return unit_of(outgoing_batch, "outbox-jobs", f"{self._outbox:020d}-{BOOT}")

    def _count(self, outgoing_batch: OutgoingBatch, unit: Sequence[Write]) -> None:
        for write in unit:
            self.spent.bytes[write.kind] += len(write.value or b"")
            self.spent.counts["rows"] += 1
        self.spent.bytes["messages"] += sum(len(message.data) for message in outgoing_batch.messages)
        self.spent.counts["messages"] += len(outgoing_batch.messages)


def life_of(number: int, replicas: int, at_ms: int, seed: random.Random) -> Iterator[list[Struct]]:
    """The stages of one job: each a list of events that follow from the stage before it."""
    job = f"full-{number}"
    request = ResourceRequest(cpu_mcpu=500, memory_bytes=GIB // 2)
    run = RunSpec(work_mcpu_ms=1_000)
    spec = JobSpec(name=job, tasks=(TaskSpec(name="main", replicas=replicas, request=request, run=run),))
    yield [RequestReceived(request=f"r{number}", body=SubmitJob(job=job, spec=spec))]
    names = [f"{job}/main/{index}" for index in range(replicas)]
    nodes = [f"node-{seed.randrange(NODES):05}" for _ in names]
    head = {"at_ms": at_ms, "producer": "executor", "boot_id": BOOT, "seq": 1}
    share = ZoneShare(zone=0, cpu_mcpu=500, memory_bytes=GIB // 2)
    yield [
        PlacementsDecided(
            at_ms=at_ms,
            placements=tuple(
                Placement(
                    replica=name,
                    job=job,
                    attempt=1,
                    node=node,
                    zones=(share,),
                    cpu_mcpu=500,
                    memory_bytes=GIB // 2,
                    qos=QosClass.BE,
                    band=PriorityBand.BATCH,
                    run=run,
                )
                for name, node in zip(names, nodes, strict=True)
            ),
        )
    ]
    yield [
        ReplicaStarted(node=node, replica=name, job=job, attempt=1, **head)  # type: ignore[arg-type]
        for name, node in zip(names, nodes, strict=True)
    ]
    yield [
        ReplicaEnded(node=node, replica=name, job=job, attempt=1, cause=EndCause.EXITED, exit_code=0, **head)  # type: ignore[arg-type]
        for name, node in zip(names, nodes, strict=True)
    ]


class Stories:
    """The lives of many jobs, mixed. A stage of a job comes in some batch after the stage before it was all taken."""

    def __init__(self, replicas: int, total: int, open_replicas: int) -> None:
        self.seed = random.Random(1)
        self._replicas = replicas
        self._jobs = max(1, total // replicas)
        self._most = max(1, open_replicas // replicas)
        self._begun = 0
        self._left: dict[int, list[Struct]] = {}
        self._lives: dict[int, Iterator[list[Struct]]] = {}

    def go_on(self) -> bool:
        """Begin jobs and stages that may begin now; False when all jobs are over."""
        for number in [number for number, left in self._left.items() if not left]:
            stage = next(self._lives[number], None)
            if stage is None:
                del self._lives[number], self._left[number]
            else:
                self._left[number] = stage
        while self._begun < self._jobs and len(self._lives) < self._most:
            self._lives[self._begun] = life_of(self._begun, self._replicas, BEGUN_MS, self.seed)
            self._left[self._begun] = next(self._lives[self._begun])
            self._begun += 1
        return bool(self._lives)

    def count(self, kinds: tuple[type[Struct], ...]) -> int:
        """How many events of these kinds may come now."""
        return sum(len(left) for left in self._left.values() if left and isinstance(left[-1], kinds))

    def take(self, most: int, kinds: tuple[type[Struct], ...]) -> list[Struct]:
        """Up to that many of the events of these kinds that may come now, mixed."""
        taken: list[Struct] = []
        while len(taken) < most:
            ready = [number for number, left in self._left.items() if left and isinstance(left[-1], kinds)]
            if not ready:
                break
            chosen = self.seed.sample(ready, min(len(ready), most - len(taken)))
            taken += [self._left[number].pop() for number in chosen]
        return taken


def batches_of(replicas: int, total: int, open_replicas: int, batch: int) -> Iterator[list[Struct]]:
    """Events of all kinds in batches of that many."""
    stories = Stories(replicas, total, open_replicas)
    while stories.go_on():
        yield stories.take(batch, (Struct,))


def small_turns_of(replicas: int, total: int, open_replicas: int) -> Iterator[list[Struct]]:
    """Each submission and each decision by itself, between batches of reports."""
    stories = Stories(replicas, total, open_replicas)
    while stories.go_on():
        size = stories.seed.randint(*REPORTS)
        if stories.count(_REPORT) < size and (alone := stories.take(1, (RequestReceived, PlacementsDecided))):
            yield alone
        elif reports := stories.take(size, _REPORT):
            yield reports


def look_up_us(core: JobsCore, at_ms: int) -> float:
    """What an attempt costs when a scheduler asks for 500 at a time which of them were started."""
    attempts = [
        (job.name(index), record.attempt) for job in core.index.jobs.values() for index, record in job.replicas()
    ]
    parts = [tuple(attempts[at : at + 500]) for at in range(0, len(attempts), 500)]
    begun_s = time.process_time()
    for part in parts:
        core.handle(RequestReceived(request="r", body=StartedReplicas(attempts=part)), at_ms)
    return (time.process_time() - begun_s) * 1e6 / len(attempts)


def measure(replicas: int, asked: argparse.Namespace) -> None:
    """Print what a replica costs in jobs of that many."""
    if asked.small:
        batches = list(small_turns_of(replicas, asked.total, asked.open))
    else:
        batches = list(batches_of(replicas, asked.total, asked.open, asked.batch))
    count = max(1, asked.total // replicas) * replicas
    events = sum(len(batch) for batch in batches)
    run = Run()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
    profile = cProfile.Profile() if asked.profile else None
    if profile is not None:
        profile.enable()
    handled = 0
    for batch in batches:
        handled += len(batch)
        # The clock goes on as the whole run takes as long as its replicas do at that rate.
        run.batch(batch, BEGUN_MS + handled * count * 1_000 // (events * asked.rate))
    if profile is not None:
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(35)
    ended = sum(run.core.counters.jobs_ended.values())
    if run.core.counters.jobs_ended != {"Completed": count // replicas}:
        print(f"  not all jobs were completed: {run.core.counters.jobs_ended}")
    spent = run.spent
    us = {name: seconds * 1e6 / count for name, seconds in spent.seconds.items()}
    row_bytes = sum(size for kind, size in spent.bytes.items() if kind not in ("messages", "outbox-jobs"))
    pages = spent.bytes["replica-page"]
    print(
        f"{replicas:>3} replicas a job, {events / len(batches):3.0f} events a batch: {sum(us.values()):6.1f} us a replica"
        f" (handle {us['handle']:5.1f}, wake {us['wake']:5.1f}, encode {us['encode']:5.1f});"
        f" bytes: rows {row_bytes / count:,.0f} (pages {pages / count:,.0f}), outbox {spent.bytes['outbox-jobs'] / count:,.0f},"
        f" messages {spent.bytes['messages'] / count:,.0f};"
        f" {spent.counts['rows'] / count:.2f} rows and {spent.counts['messages'] / count:.2f} messages; {ended} jobs;"
        f" look-up of a start {look_up_us(run.core, BEGUN_MS):.2f} us",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 10, 50], help="of each job")
    parser.add_argument("--total", type=int, default=6_000, help="replicas of each measurement")
    parser.add_argument("--open", type=int, default=400, help="replicas on their way at a time")
    parser.add_argument("--batch", type=int, default=64, help="events before the core is woken")
    parser.add_argument(
        "--small", action="store_true", help="small turns: submissions and decisions alone, 30 to 80 reports"
    )
    parser.add_argument("--rate", type=int, default=1_500, help="replicas a second by the core's clock")
    parser.add_argument(
        "--repeat", type=int, default=1, help="measure so often: the least is what other work disturbed least"
    )
    parser.add_argument("--profile", action="store_true", help="print where the time goes, which costs time itself")
    asked = parser.parse_args()
    for replicas in asked.replicas:
        for _ in range(asked.repeat):
            measure(replicas, asked)


if __name__ == "__main__":
    main()
