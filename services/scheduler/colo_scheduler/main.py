"""The scheduler's process: settings, adapters, core and shell put together."""

import gc
import random
import sys
from collections.abc import Mapping, Sequence

from colo_common.events.requests import ExplainPlacement, ListHolds, PlanJob
from colo_common.ports import Bus, Clock, SpanSink, Store
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.process import Process, run
from colo_common.runtime.service import Service
from colo_scheduler.core import SchedulerCore
from colo_scheduler.ledger import Ledger
from colo_scheduler.policy import Policy
from colo_scheduler.settings import Settings
from colo_scheduler.shell import HEARS, SchedulerShell
from colo_scheduler.stages import StageTimes

__all__ = ["NAME", "build", "collect_rarely", "main", "scheduler_service"]

NAME = "scheduler"


def scheduler_service(
    policy: Policy,
    ledger: Ledger,
    bus: Bus,
    clock: Clock,
    *,
    store: Store | None,
    span: SpanSink,
    metrics: Metrics,
    seed: int | None = None,
) -> tuple[Service, SchedulerShell]:
    """The service, and the shell whose `run` belongs beside it. `store` only tells whether writes are accepted."""
    stages = StageTimes(clock.wall_us, span)
    core = SchedulerCore(policy, stages)
    shell = SchedulerShell(core, ledger, bus, clock, stages=stages, metrics=metrics, rng=random.Random(seed))
    service = Service(
        name=NAME,
        core=core,
        bus=bus,
        clock=clock,
        store=store,
        hears=HEARS,
        answers=(ExplainPlacement, ListHolds, PlanJob),
        perform=shell.perform,
        load=shell.load,
        metrics=metrics,
        seed=seed,
    )
    return service, shell


async def build(process: Process, settings: Settings) -> None:
    """Add the scheduler to a process."""
    from colo_scheduler.ledger_redis import RedisLedger

    service, shell = scheduler_service(
        settings.policy,
        RedisLedger(process.redis),
        process.bus,
        process.clock,
        store=process.store,
        span=process.telemetry.span,
        metrics=process.metrics,
    )
    process.add(service)
    process.background(shell.run(process.stop, service.inject))


def collect_rarely() -> None:
    """Look for cyclic garbage among old objects a thousand times less often than Python does by itself.

    Holds live for hours and are in no cycles; with hundreds of thousands of them one look takes as long as a thousand decisions.
    """
    gc.set_threshold(10_000, 50, 200)


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> int:
    """Run until a signal comes; the exit code."""
    collect_rarely()
    return run(NAME, Settings, build, argv, environ)


if __name__ == "__main__":
    sys.exit(main())
