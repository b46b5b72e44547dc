"""The scheduler's process: settings, adapters, core and shell put together."""

import gc
import random
import sys
import zlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from msgspec import structs

from colo_common.events.requests import ExplainPlacement, ListHolds, PlanJob
from colo_common.model.freshness import FORGET_NODE_MS
from colo_common.ports import Bus, Clock, Replay, SpanSink, Store
from colo_common.runtime.bus_watch import BusWatch
from colo_common.runtime.lease_keeper import LEASE_TTL_MS
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.process import ServiceProcess, run
from colo_common.runtime.service import Service
from colo_common.runtime.wall_time import wall_us_at
from colo_scheduler.commit.pending import PAGE
from colo_scheduler.core import SchedulerCore
from colo_scheduler.figures import CoreFigures
from colo_scheduler.ledger.port import Ledger
from colo_scheduler.policy import SchedulerPolicy
from colo_scheduler.reservations.api import QUESTIONS
from colo_scheduler.settings import SchedulerSettings
from colo_scheduler.shell import HEARS, HEARS_SHARED, SchedulerShell, StageTimes

__all__ = ["NAME", "build", "collect_rarely", "main", "scheduler_service"]

NAME = "scheduler"

_TIE_ROTATIONS: Final = 1_000_000


def scheduler_service(
    policy: SchedulerPolicy,
    ledger: Ledger,
    bus: Bus,
    clock: Clock,
    *,
    store: Store | None,
    span: SpanSink,
    metrics: Metrics,
    seed: int | None = None,
    shards: int = 0,
    lease_ttl_ms: int = LEASE_TTL_MS,
    forget_node_ms: int = FORGET_NODE_MS,
    replay: Replay | None = None,
    page: int = PAGE,
    bus_watch: BusWatch | None = None,
) -> tuple[Service, SchedulerShell]:
    """The service, and the shell whose `run` belongs beside it. `store` keeps reservations; without a store they are refused.

    With `shards` above 0 it shares the work with all schedulers on the same ledger: each begins its search at another node.
    `replay`, `page` and `bus_watch`: as of SchedulerShell.
    """
    stages = StageTimes(clock.wall_us, partial(wall_us_at, clock), span)
    rng = random.Random(seed)
    owner = f"{rng.getrandbits(64):016x}"
    if shards and not policy.tie_rotation:
        policy = structs.replace(policy, tie_rotation=1 + zlib.crc32(owner.encode()) % _TIE_ROTATIONS)
    core = SchedulerCore(policy, stages, shards=shards, reserves=store is not None, forget_node_ms=forget_node_ms)
    shell = SchedulerShell(
        ledger,
        bus,
        clock,
        figures=CoreFigures(core.counts, core.queue, core.commits, core.cluster, metrics),
        stages=stages,
        shards=shards,
        metrics=metrics,
        rng=rng,
        owner=owner,
        lease_ttl_ms=lease_ttl_ms,
        store=store,
        replay=replay,
        page=page,
        bus_watch=bus_watch,
    )
    service = Service(
        asks_for_missed=True,
        name=NAME,
        core=core,
        bus=bus,
        clock=clock,
        store=store,
        subscriptions=HEARS_SHARED if shards else HEARS,
        answers=(ExplainPlacement, ListHolds, PlanJob, *QUESTIONS),
        perform_many=shell.perform_many,
        load=shell.load,
        leave=shell.leave,
        more_problems=shell.problems,
        metrics=metrics,
        seed=seed,
        leases=shell.leases,
    )
    return service, shell


def _by_clock(policy: SchedulerPolicy, speed: float) -> SchedulerPolicy:
    """The policy with the times that stand for real ones, on a clock that may be faster."""
    return structs.replace(policy, over_after_ms=round(policy.over_after_ms * max(1.0, speed)))


async def build(process: ServiceProcess, settings: SchedulerSettings) -> None:
    """Add the scheduler to a process."""
    from colo_scheduler.ledger.redis import RedisLedger

    service, shell = scheduler_service(
        _by_clock(settings.policy, process.common.clock_speed),
        RedisLedger(process.redis, min_replicas=process.min_replicas),
        process.bus,
        process.clock,
        store=process.store,
        span=process.telemetry.span,
        metrics=process.metrics,
        shards=settings.shards,
        lease_ttl_ms=settings.lease_ttl_ms,
        forget_node_ms=settings.common.forget_node_ms,
        replay=process.replay,
        bus_watch=process.bus_watch(),
    )
    process.add(service)
    process.background(shell.run(process.stop, service.inject))


def collect_rarely() -> None:
    """Collect cyclic garbage among old objects a thousand times less often than Python does by default.

    Holds live for hours and are in no cycles; with hundreds of thousands of holds one collection takes as long as a thousand
    decisions. Younger objects are collected a hundred thousand at a time: a million stopped the process for a tenth of a second.
    """
    gc.set_threshold(20_000, 5, 2_000)


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> int:
    """Run until a signal comes, and return the exit code."""
    collect_rarely()
    return run(NAME, SchedulerSettings, build, argv, environ, is_sched_batch=True)


if __name__ == "__main__":
    sys.exit(main())
