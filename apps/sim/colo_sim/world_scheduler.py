"""A scheduler of a simulated world, alone or one of several: its real shell on simulated ports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

from colo_common.runtime.metrics import Metrics
from colo_executor.shell import no_span
from colo_scheduler.core import SchedulerCore
from colo_scheduler.ledger.port import NodeAnswer
from colo_scheduler.main import scheduler_service
from colo_scheduler.policy import SchedulerPolicy
from colo_sim.world_boot import Boot
from colo_sim.world_bus import WorldBus
from colo_sim.world_connection import Connection
from colo_sim.world_ledger import LedgerConnection, WorldLedger
from colo_sim.world_replay import SimReplay
from colo_sim.world_roles import Works, running

__all__ = ["Committed", "scheduler"]

#: Called with the core and the ledger's answers to a commit, before the core gets them or they are lost.
Committed = Callable[[SchedulerCore, Sequence[NodeAnswer]], None]
# Small pages, so that lists change between two pages.
_PAGE: Final = 7
_LEASE_MS: Final = 5_000


def scheduler(
    boot: Boot,
    connection: Connection,
    ledger: WorldLedger,
    metrics: Metrics,
    committed: Committed,
    shards: int,
    bus: WorldBus,
) -> tuple[SchedulerCore, Works]:
    """The scheduler. With `shards` above 0 it leases some of the shards, under a new owner name at each start.

    The ledger is compared with the streams of `bus`.
    """

    def written(answers: Sequence[NodeAnswer]) -> None:
        committed(core, answers)

    service, shell = scheduler_service(
        SchedulerPolicy(),
        LedgerConnection(boot, ledger, written),
        connection,
        boot.clock,
        store=None,
        span=no_span,
        metrics=metrics,
        seed=boot.seed,
        shards=shards,
        lease_ttl_ms=_LEASE_MS,
        page=_PAGE,
        replay=SimReplay(boot, bus),
    )
    core = cast(SchedulerCore, service.core)
    return core, (running(boot, service), shell.run(boot.stop, service.inject))
