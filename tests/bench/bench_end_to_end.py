"""From submission to decision over a real NATS and a real Redis: jobs, scheduler and overcommit as processes of their own.

`python -m tests.bench end_to_end [--nodes 5000] [--seconds 10] [--trace-ratio 0.01] [--sync-always] [--quick]`. First 200 jobs a
second on 100 nodes; then as many placements as go through, on few nodes and on many, and the latency at half that load: the same
jobs, of 50 equal replicas each, half as many of them. On few nodes all ask for half a CPU. On many the jobs ask for what those of a
real cluster asked for (`openb.py`; of its classes the ones that fit the fleet's machines), and then each for something else. Last
comes the half load once more in smaller jobs, of which there are five times as many.

Nodes are messages only: a stand-in answers every order with started and, after 50 to 60 ms, ended, so that the ledger does not
fill. It and the load share the machine's cores with what is measured. The stand-in is one client: what it tells goes in batches
where each machine's executor would send a message at a time. Work that lives so shortly is over before the scheduler asks which of
it was started, ten seconds after the decision; with --run-s it lives longer, as far as the fleet has room.

Without --sync-always NATS syncs its disk now and then and Redis keeps nothing on it. With it the largest cluster is measured again
beside a NATS server that syncs before it acknowledges, and a Redis that syncs its append-only file as --appendfsync says.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import Final, NamedTuple

from colo_common.events.requests import JobAccepted, ListQueues, QueueList, SubmitJob
from colo_common.model.percentile import percentile
from colo_common.model.workload import JobSpec, ResourceRequest, RunSpec, TaskSpec
from colo_common.ports import PortError
from colo_common.runtime import logs
from colo_common.runtime.ask import ask
from tests.bench.fleet import Cluster, running_cluster, wait_until
from tests.bench.openb import different_requests, real_requests
from tests.bench.stand_in import RUN_S, FleetCore
from tests.support.builders import GIB
from tests.support.servers import nats_server, redis_server

JOBS_A_S: Final = 200
#: Replicas that may be submitted and not yet decided while the cluster is driven as hard as it goes.
OPEN_REPLICAS: Final = 2_000
SUBMITTERS: Final = 8
REPLICAS: Final = 50
SMALL_REPLICAS: Final = 10
SETTLE_S: Final = 20
BUDGET_A_S: Final = 3_000
#: The share of placements that are traced, as in a large cluster.
TRACE_RATIO: Final = 0.01
#: Of the load's own objects: what it keeps is looked through seldom, as in the services.
COLLECT_AFTER: Final = (10_000, 10, 1_000)
EQUAL: Final = ResourceRequest(cpu_mcpu=500, memory_bytes=GIB // 2)
RATE_BUDGET: Final = f"budget {BUDGET_A_S:,} /s at 5,000 nodes"
LATENCY_BUDGET: Final = "budget p50 20 ms, p99 250 ms at half that load"
SEED: Final = 7
#: So long the cluster is driven before what goes through is counted: batches grow, and what is used again and again is met first.
WARM_S: Final = 2.0
FIELD: Final = (
    "the field: kube-scheduler's CI floor 680 to 810 /s at 5,000 nodes; Koordinator 45.6 /s with p99 13 s at 100 nodes;"
    " Godel about 1,000 /s on 96 threads"
)


class Load:
    """Submits jobs of equal replicas and knows when each was handed in."""

    def __init__(self, cluster: Cluster, name: str, requests: Iterator[ResourceRequest] | None = None) -> None:
        """`requests` gives each job what its replicas ask for; None: all jobs ask for the same."""
        self._cluster = cluster
        self._name = name
        self._requests = requests or repeat(EQUAL)
        self._count = 0
        self.submitted_us: dict[str, int] = {}
        self.refused: list[str] = []

    async def submit(self, replicas: int) -> None:
        """One job; a refusal is noted."""
        self._count += 1
        job = f"{self._name}-{self._count}"
        task = TaskSpec(
            name="main",
            replicas=replicas,
            request=next(self._requests),
            run=RunSpec(work_mcpu_ms=1_000),
        )
        handed_in_us = time.time_ns() // 1_000
        keys = [f"{job}/main/{index}#1" for index in range(replicas)]
        self.submitted_us.update(dict.fromkeys(keys, handed_in_us))
        try:
            answer = await ask(self._cluster.bus, SubmitJob(job=job, spec=JobSpec(name=job, tasks=(task,))), 30)
        except PortError as error:
            self._refuse(keys, str(error))
            return
        if not isinstance(answer, JobAccepted):
            self._refuse(keys, str(answer))

    def open_replicas(self) -> int:
        """Handed in, not yet decided."""
        return sum(key not in self._cluster.core.decided_us for key in self.submitted_us)

    async def settled(self) -> int:
        """Wait until everything is decided and has ended; how many replicas are not decided even so."""
        core = self._cluster.core
        limit_s = SETTLE_S + core.run_ms / 1_000
        await wait_until(lambda: not self.open_replicas() and core.ended >= len(core.decided_us), limit_s)
        return self.open_replicas()

    def tell_latency(self, what: str) -> str:
        """One line: submit -> decided as the scheduler stamps it, and until a listener hears it. The former once more, short."""
        decided = self._cluster.core.decided_us
        pairs = [(decided[key], at_us) for key, at_us in self.submitted_us.items() if key in decided]
        reported = sorted((sent_us - at_us) / 1e3 for (sent_us, _), at_us in pairs)
        received = sorted((received_us - at_us) / 1e3 for (_, received_us), at_us in pairs)
        if not reported:
            print(f"  {what}: nothing was decided")
            return "nothing decided"
        decided_in = f"p50 {percentile(reported, 50):.1f} ms, p99 {percentile(reported, 99):.1f} ms"
        print(
            f"  {what}: submit -> decided {decided_in};"
            f" -> received by others p50 {percentile(received, 50):.1f} ms, p99 {percentile(received, 99):.1f} ms"
            f" ({len(reported)} replicas)"
        )
        return decided_in

    def _refuse(self, keys: Sequence[str], why: str) -> None:
        self.refused.append(why)
        for key in keys:
            del self.submitted_us[key]


async def steady(
    cluster: Cluster,
    name: str,
    jobs_a_s: float,
    replicas: int,
    seconds: float,
    requests: Iterator[ResourceRequest] | None = None,
) -> Load:
    """Hand in jobs at a fixed rate whatever becomes of them."""
    load = Load(cluster, name, requests)
    tasks = set()
    begun_s = time.monotonic()
    for number in range(int(jobs_a_s * seconds)):
        wait_s = begun_s + number / jobs_a_s - time.monotonic()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        task = asyncio.create_task(load.submit(replicas))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    return load


async def full_speed(
    cluster: Cluster, name: str, seconds: float, requests: Iterator[ResourceRequest] | None = None
) -> tuple[float, Load, dict[str, float]]:
    """Placements a second, with at most OPEN_REPLICAS undecided all the time; the first WARM_S do not count.

    Also the CPU microseconds of each process a placement.
    """
    load = Load(cluster, name, requests)
    core = cluster.core
    end_s = time.monotonic() + seconds + WARM_S
    before = len(core.decided_us)
    handed_in = 0
    looking = asyncio.Lock()

    async def may_submit() -> bool:
        """Whether there is room before the end. One submitter looks for it at a time."""
        nonlocal handed_in
        async with looking:
            while time.monotonic() < end_s:
                if handed_in - (len(core.decided_us) - before) < OPEN_REPLICAS:
                    handed_in += REPLICAS
                    return True
                await asyncio.sleep(0.005)
        return False

    async def submitter() -> None:
        while await may_submit():
            await load.submit(REPLICAS)

    submitters = [asyncio.create_task(submitter()) for _ in range(SUBMITTERS)]
    await asyncio.sleep(WARM_S)
    from_s, from_count, from_costs = time.monotonic(), len(core.decided_us), cluster.costs()
    await asyncio.sleep(max(0.0, end_s - time.monotonic()))
    count = len(core.decided_us) - from_count
    rate = count / (time.monotonic() - from_s)
    spent = {name: (cpu_s - from_costs[name][0]) * 1e6 / max(1, count) for name, (cpu_s, _) in cluster.costs().items()}
    await asyncio.gather(*submitters)
    return rate, load, spent


class Mix(NamedTuple):
    """What the jobs of a load ask for, and what is said of it; None: all for the same. `label` begins their names."""

    label: str
    name: str
    requests: Iterator[ResourceRequest] | None


def mixes_of(cluster: Cluster, is_large: bool) -> list[Mix]:
    """The loads that a cluster is measured with; the first one is course. Of the real requests those that fit a node."""
    if not is_large:
        return [Mix("equal", "half a CPU each", None)]
    core = cluster.core
    real = real_requests(SEED, core.most_mcpu, core.most_bytes)
    return [Mix("real", "requests of the openb trace", real), Mix("other", "all different", different_requests(SEED))]


class Course:
    """What one cluster went through, one mix after the other."""

    def __init__(self, cluster: Cluster, seconds: float) -> None:
        self._cluster = cluster
        self._seconds = seconds
        self.half_a_s = 0.0
        self.undecided = 0
        self.refused: list[str] = []

    async def full_and_half(self, mix: Mix) -> str:
        """As many of these as go through, then half as many; the figures, and in short. `half_a_s` is how many those were."""
        rate, load, spent = await full_speed(self._cluster, f"full-{mix.label}", self._seconds, mix.requests)
        await self._over(load)
        print(f"  sustained, durable, end to end, {mix.name}: {rate:,.0f} placements/s   {RATE_BUDGET}")
        rows = [f"{name} {us:.0f}" for name, us in spent.items()]
        print(f"    CPU us a placement: {', '.join(rows)}; together {sum(spent.values()):.0f}")
        self.half_a_s = min(rate, BUDGET_A_S) / 2
        return f"{rate:,.0f} placements/s, {await self.steadily(mix, self.half_a_s, REPLICAS)} at half"

    async def steadily(self, mix: Mix, replicas_a_s: float, replicas: int) -> str:
        """So many a second, in jobs of so many; the latency in short."""
        name = f"half-{mix.label}-{replicas}"
        load = await steady(self._cluster, name, replicas_a_s / replicas, replicas, self._seconds, mix.requests)
        await self._over(load)
        return load.tell_latency(f"half of that or of the budget, {replicas_a_s:,.0f}/s in jobs of {replicas}")

    async def _over(self, load: Load) -> None:
        self.undecided += await load.settled()
        self.refused += load.refused
        await all_published(self._cluster)


async def measure(
    count: int, seconds: float, is_large: bool, trace_ratio: float = TRACE_RATIO, *, appendfsync: str = "", run_s: float
) -> str:
    """Print the figures of one cluster; the main ones in a sentence. `appendfsync`: NATS syncs always, and Redis as it says."""
    nodes = [f"node-{index:05}" for index in range(count)]
    with (
        nats_server(sync_always=bool(appendfsync)) as nats,
        redis_server(appendfsync=appendfsync) as redis,
        tempfile.TemporaryDirectory(prefix="colo-bench-") as directory,
    ):
        began_s = time.monotonic()
        core = FleetCore(round(run_s * 1_000))
        async with running_cluster(
            nats, redis, Path(directory), nodes, max(2.0, count / 250), trace_ratio, core=core
        ) as cluster:
            fresh_s = time.monotonic() - began_s
            print(
                f"  {count:,} nodes: known and fresh {fresh_s:.1f} s after the start; {trace_ratio:.0%} traced;"
                f" {f'NATS syncs always, Redis {appendfsync}' if appendfsync else 'NATS syncs now and then, Redis never'};"
                f" a replica runs {run_s} s",
                flush=True,
            )
            gc.freeze()
            await (await steady(cluster, "warm-up", 20, 1, 0.5)).settled()
            course = Course(cluster, seconds)
            if not is_large:
                load = await steady(cluster, "steady", JOBS_A_S, 1, seconds)
                await load.settled()
                load.tell_latency(f"{JOBS_A_S} jobs/s of one replica")
            first, *others = mixes_of(cluster, is_large)
            delivered = await course.full_and_half(first)
            half_a_s = course.half_a_s
            print(f"    {LATENCY_BUDGET}")
            print(f"    {FIELD}")
            for mix in others:
                await course.full_and_half(mix)
            await course.steadily(first, half_a_s, SMALL_REPLICAS)
            tell_costs(cluster)
            print(
                f"  placed twice: {cluster.core.placed_twice}; undecided at the end: {course.undecided};"
                f" refused: {len(course.refused)} {course.refused[:1] or ''}",
                flush=True,
            )
            return delivered


async def all_published(cluster: Cluster) -> None:
    """Wait until the jobs service heard of every end: what is on its way would delay what is measured next."""

    async def running() -> int:
        answer = await ask(cluster.bus, ListQueues(), 30)
        return sum(queue.running for queue in answer.queues) if isinstance(answer, QueueList) else 0

    end_s = time.monotonic() + SETTLE_S
    while await running() and time.monotonic() < end_s:  # noqa: ASYNC110 - the service says it only when asked
        await asyncio.sleep(0.1)


def tell_costs(cluster: Cluster) -> None:
    """CPU so far and memory of every process."""
    rows = [f"{name} {rss:.0f} MiB, {cpu_s:.1f} s" for name, (cpu_s, rss) in cluster.costs().items()]
    print(f"    resident memory and CPU time so far: {'; '.join(rows)}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5_000, help="nodes of the second, large cluster (default 5000)")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each measurement (default 10)")
    parser.add_argument("--trace-ratio", type=float, default=TRACE_RATIO, help="share of placements that are traced")
    parser.add_argument("--run-s", type=float, default=RUN_S, help=f"how long a replica runs (default {RUN_S})")
    parser.add_argument("--sync-always", action="store_true", help="measure again with servers that sync their disks")
    parser.add_argument(
        "--appendfsync", choices=("everysec", "always"), default="everysec", help="of Redis then (default everysec)"
    )
    parser.add_argument("--quick", action="store_true", help="100 nodes only, 3 s each")
    options = parser.parse_args(arguments)
    logs.configure("error")
    gc.set_threshold(*COLLECT_AFTER)
    seconds = 3.0 if options.quick else options.seconds
    print(f"end to end on {os.cpu_count()} CPUs, shared with the servers and the load")
    count = 100
    run_s = options.run_s
    delivered = asyncio.run(measure(count, seconds, False, options.trace_ratio, run_s=run_s))
    if not options.quick:
        count = options.nodes
        delivered = asyncio.run(measure(count, seconds, True, options.trace_ratio, run_s=run_s))
    if options.sync_always:
        fsync, is_large = options.appendfsync, not options.quick
        synced = asyncio.run(measure(count, seconds, is_large, options.trace_ratio, appendfsync=fsync, run_s=run_s))
        print(f"  {count:,} nodes, NATS syncs now and then, Redis never: {delivered}")
        print(f"  {count:,} nodes, NATS syncs always, Redis {fsync}: {synced}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
