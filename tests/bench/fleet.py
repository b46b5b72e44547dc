"""The control plane as processes beside real servers and a fleet of machines that exist only as messages, for benchmarks."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from colo_cli.lab_processes import LabProcesses
from colo_common.adapters.bus_nats import NatsBus
from colo_common.adapters.nats_access import NatsAccess
from tests.bench.stand_in import Fleet, FleetCore
from tests.support.servers import NatsServer, RedisServer

__all__ = ["Cluster", "running_cluster", "wait_until"]

SERVICES: Final = ("jobs", "scheduler", "overcommit")
FRESH_LIMIT_S: Final = 60


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
    others: int = 1,
    core: FleetCore | None = None,
    environment: Mapping[str, str] | None = None,
    access: NatsAccess | None = None,
    environments: Mapping[str, Mapping[str, str]] | None = None,
    services: Sequence[str] = SERVICES,
    programs: Mapping[str, tuple[str, Mapping[str, str]]] | None = None,
) -> AsyncIterator[Cluster]:
    """The services, and nodes that are fresh and sampled every `period_s`. Everything is stopped at the end.

    `others`: instances of the other services. Those after the first are named scheduler-2, jobs-2 and so on. `access` is how the
    load reaches NATS where it lets in nobody who is nobody, `environments` what each service is told besides. `programs`: by the
    name of an instance, the module that runs in its place, and what it is told.
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
    bus = NatsBus(access or nats.url, name="bench-fleet")
    core = core or FleetCore()
    fleet: asyncio.Task[None] | None = None
    bus.start()
    try:
        await bus.connected(10)
        modules = {name: f"colo_{name}" for name in services}
        for name in services:
            count = schedulers if name == "scheduler" else others
            modules |= {f"{name}-{number}": f"colo_{name}" for number in range(2, count + 1)}
        for name, module in modules.items():
            # The address of the health page is said at level info.
            own = (environments or {}).get(module.removeprefix("colo_"), {})
            program, given = (programs or {}).get(name, (module, {}))
            await processes.start(name, program, {"COLO_LOG_LEVEL": "info", **own, **given})
        await processes.wait_ready(list(modules))
        fleet = asyncio.create_task(Fleet(bus, core, nodes, period_s).run())
        if not await wait_until(lambda: len(core.fresh) >= len(nodes), FRESH_LIMIT_S):
            raise SystemExit(f"only {len(core.fresh)} of {len(nodes)} nodes were fresh after {FRESH_LIMIT_S} s")
        pids = {name: child.process.pid for name, child in processes.running.items()}
        pids |= {"nats-server": nats.pid, "redis-server": redis.pid, "the load": os.getpid()}
        yield Cluster(bus, core, pids, processes)
    finally:
        if fleet is not None:
            fleet.cancel()
            await asyncio.wait((fleet,))
        await processes.stop()
        await bus.close()
    if not fleet.cancelled():
        fleet.result()


async def wait_until(holds: Callable[[], bool], limit_s: float) -> bool:
    """Wait until it holds; whether it did within the limit."""
    deadline_s = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > deadline_s:
            return False
        await asyncio.sleep(0.05)
    return True
