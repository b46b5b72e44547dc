"""A fleet of machines that exist only as messages, and the control plane as processes beside real servers, for benchmarks."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct

from colo_cli.lab_processes import LabProcesses
from colo_common.adapters.bus_nats import NatsBus
from colo_common.adapters.clock import SystemClock
from colo_common.events.effects import Effect, Publish, Wake
from colo_common.events.enforcement import ReplicaEnded, ReplicaStarted
from colo_common.events.node import AllocatableChanged
from colo_common.events.placement import ApplyPlacements, PlacementsDecided
from colo_common.model.freshness import Freshness
from colo_common.model.placement import Placement
from colo_common.model.reasons import EndCause
from colo_common.runtime.core import Hearing
from colo_common.runtime.service import Service
from tests.support.builders import a_node, a_sample, a_topology
from tests.support.servers import NatsServer, RedisServer

__all__ = ["Cluster", "FleetCore", "SampleNodes", "running_cluster", "wait_until"]

SERVICES: Final = ("jobs", "scheduler", "overcommit")
#: How long a replica runs at least: short, so that the ledger does not fill.
RUN_MS: Final = 50
#: What the stand-in does it does in steps of this: thousands of machines are not one process that is woken every millisecond.
STEP_MS: Final = 10
FRESH_LIMIT_S: Final = 60
SLICE: Final = 100
TOPOLOGY: Final = a_topology(sockets=2, zones_per_socket=1, cpus=32, memory_gib=128)


class SampleNodes(Struct, frozen=True, kw_only=True):
    """These nodes say what they do; at `seq` 1 also what they are."""

    nodes: tuple[str, ...]
    seq: int


class FleetCore:
    """All collectors and executors of the fleet in one: replicas start within STEP_MS and end well after RUN_MS."""

    def __init__(self) -> None:
        self.decided_us: dict[str, tuple[int, int]] = {}
        self.placed_twice = 0
        self.fresh: set[str] = set()
        self.ended = 0
        self._running: deque[tuple[int, Placement]] = deque()
        self._known: set[tuple[str, int]] = set()

    def handle(self, event: Struct, now_ms: int) -> list[Effect]:
        match event:
            case SampleNodes():
                return self._sample(event)
            case ApplyPlacements():
                return self._start(event, now_ms)
            case PlacementsDecided():
                self._note(event)
            case AllocatableChanged(freshness=Freshness.FRESH):
                self.fresh.add(event.node)
            case Wake():
                return self._end(now_ms)
        return []

    def deadline_ms(self) -> int | None:
        return self._running[0][0] if self._running else None

    def check(self) -> None:
        """Nothing to check."""

    def _sample(self, event: SampleNodes) -> list[Effect]:
        facts: list[Effect] = []
        if event.seq == 1:
            facts += [Publish(fact=a_node(node, TOPOLOGY, simulated=True)) for node in event.nodes]
        return facts + [
            Publish(fact=a_sample(node, seq=event.seq, zones=((4_000, 8), (4_000, 8)))) for node in event.nodes
        ]

    def _note(self, event: PlacementsDecided) -> None:
        heard_us = time.time_ns() // 1_000
        for placement in event.placements:
            key = f"{placement.replica}#{placement.attempt}"
            self.placed_twice += key in self.decided_us
            self.decided_us[key] = event.sent_us, heard_us

    def _start(self, event: ApplyPlacements, now_ms: int) -> list[Effect]:
        started: list[Effect] = []
        end_ms = -(-(now_ms + RUN_MS) // STEP_MS) * STEP_MS
        for placement in event.placements:
            key = placement.replica, placement.attempt
            if key in self._known:
                continue
            self._known.add(key)
            self._running.append((end_ms, placement))
            fact = ReplicaStarted(
                node=placement.node, replica=placement.replica, job=placement.job, attempt=placement.attempt
            )
            started.append(Publish(fact=fact, id=f"fleet:started:{key}", traceparent=placement.traceparent))
        return started

    def _end(self, now_ms: int) -> list[Effect]:
        ended: list[Effect] = []
        while self._running and self._running[0][0] <= now_ms:
            placement = self._running.popleft()[1]
            fact = ReplicaEnded(
                node=placement.node,
                replica=placement.replica,
                job=placement.job,
                attempt=placement.attempt,
                cause=EndCause.EXITED,
                exit_code=0,
                ran_ms=RUN_MS,
            )
            ended.append(Publish(fact=fact, id=f"fleet:ended:{placement.replica}#{placement.attempt}"))
        self.ended += len(ended)
        return ended


class Cluster:
    """What a benchmark works with: the bus, what the fleet saw, the processes."""

    def __init__(self, bus: NatsBus, core: FleetCore, pids: Mapping[str, int], processes: LabProcesses) -> None:
        self.bus = bus
        self.core = core
        self.processes = processes
        self._pids = pids

    def costs(self) -> dict[str, tuple[float, float]]:
        """Process -> (CPU seconds used so far, resident MiB): services, servers, and the load itself."""
        return {name: _cost(pid) for name, pid in self._pids.items()}


def _cost(pid: int) -> tuple[float, float]:
    ticks = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[11:13]
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@asynccontextmanager
async def running_cluster(
    nats: NatsServer,
    redis: RedisServer,
    directory: Path,
    nodes: Sequence[str],
    period_s: float,
    trace_ratio: float = 1.0,
    *,
    schedulers: int = 1,
    core: FleetCore | None = None,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Cluster]:
    """The services of SERVICES, and nodes that are fresh and sampled every `period_s`. Everything is stopped at the end.

    Schedulers after the first are named scheduler-2 and so on.
    """
    processes = LabProcesses(
        directory,
        {
            "COLO_NATS_URL": nats.url,
            "COLO_REDIS_URL": redis.url,
            "COLO_LOG_LEVEL": "warning",
            "COLO_TRACE_RATIO": str(trace_ratio),
            "COLO_OVERCOMMIT_STALE_AFTER_MS": str(int(5_000 * period_s)),
            "COLO_OVERCOMMIT_LOST_AFTER_MS": str(int(20_000 * period_s)),
            "COLO_OVERCOMMIT_REFRESH_MS": "240000",
            **(environment or {}),
        },
    )
    bus = NatsBus(nats.url, name="bench-fleet")
    core = core or FleetCore()
    stop = asyncio.Event()
    tasks: list[asyncio.Task[None]] = []
    bus.start()
    try:
        await bus.connected(10)
        modules = {name: f"colo_{name}" for name in SERVICES}
        modules |= {f"scheduler-{number}": "colo_scheduler" for number in range(2, schedulers + 1)}
        for name, module in modules.items():
            # The address of the health page is said at level info.
            await processes.start(name, module, {"COLO_LOG_LEVEL": "info"})
        await processes.wait_ready(list(modules))
        hears = (
            Hearing(type=ApplyPlacements, may_wait_ms=STEP_MS),
            Hearing(type=PlacementsDecided, durable=False),
            Hearing(type=AllocatableChanged, durable=False, replay=True, may_wait_ms=STEP_MS),
        )
        fleet = Service(name="fleet", core=core, bus=bus, clock=SystemClock(), hears=hears, discoverable=False)
        tasks.append(asyncio.create_task(fleet.run(stop)))
        tasks.append(asyncio.create_task(_keep_sampling(fleet, core, nodes, period_s)))
        if not await wait_until(lambda: len(core.fresh) >= len(nodes), FRESH_LIMIT_S):
            raise SystemExit(f"only {len(core.fresh)} of {len(nodes)} nodes were fresh after {FRESH_LIMIT_S} s")
        pids = {name: child.process.pid for name, child in processes.running.items()}
        pids |= {"nats-server": nats.pid, "redis-server": redis.pid, "the load": os.getpid()}
        yield Cluster(bus, core, pids, processes)
    finally:
        stop.set()
        for task in tasks[1:]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await processes.stop()
        await bus.close()


async def wait_until(holds: Callable[[], bool], limit_s: float) -> bool:
    """Wait until it holds; whether it did within the limit."""
    deadline_s = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > deadline_s:
            return False
        await asyncio.sleep(0.05)
    return True


async def _keep_sampling(fleet: Service, core: FleetCore, nodes: Sequence[str], period_s: float) -> None:
    """Samples at once until all nodes are fresh, then one of every node each period, evenly spread."""
    slices = [tuple(nodes[start : start + SLICE]) for start in range(0, len(nodes), SLICE)]
    seq = 0
    while True:
        seq += 1
        for part in slices:
            await fleet.inject(SampleNodes(nodes=part, seq=seq))
            await asyncio.sleep(0.02 if len(core.fresh) < len(nodes) else period_s / len(slices))
