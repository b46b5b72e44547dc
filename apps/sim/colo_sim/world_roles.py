"""The cluster services of a simulated world: their real shells on simulated ports, with cores whose effects are checked."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, cast

from colo_common.adapters.store_memory import MemoryStore
from colo_common.events.effects import Effect, Publish
from colo_common.events.node import AllocatableChanged
from colo_common.model.invalid import InvariantBroken
from colo_common.model.placement import ZoneShare
from colo_common.runtime.core import Core
from colo_common.runtime.holds import list_holds
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.service import Service
from colo_evictor.core import EvictorCore
from colo_evictor.policy import EvictorPolicy
from colo_evictor.shell import evictor_service
from colo_gateway.restrictions.shell import restrictions_service
from colo_jobs.core import Event as JobsEvent
from colo_jobs.core import JobsCore
from colo_jobs.effects import LogRefused, LogUnreadable
from colo_jobs.policy import JobsPolicy
from colo_jobs.shell import JobsShell, jobs_service
from colo_overcommit.core import Event as OvercommitEvent
from colo_overcommit.core import OvercommitCore
from colo_overcommit.policy import OvercommitPolicy
from colo_overcommit.shell import overcommit_service
from colo_sim.world_boot import Boot
from colo_sim.world_connection import Connection
from colo_sim.world_store import StoreConnection

__all__ = [
    "JudgedJobs",
    "JudgedOvercommit",
    "Promises",
    "Works",
    "evictor",
    "jobs",
    "overcommit",
    "restrictions",
    "running",
]

#: The coroutines of a process.
Works = Sequence[Coroutine[Any, Any, None]]
#: Called with a published promise and with what is held of each zone.
Promises = Callable[[AllocatableChanged, Mapping[int, ZoneShare]], None]
# Small pages, so that lists change between two pages.
_PAGE: Final = 7


def running(boot: Boot, service: Service) -> Coroutine[Any, Any, None]:
    """Run the service until its process dies, with its core checked after every batch."""
    service.check_every_batch()
    return service.run(boot.stop)


class JudgedJobs(JobsCore):
    """The jobs core with the check that it can read every row that it wrote."""

    def __init__(self, policy: JobsPolicy, boot: Boot) -> None:
        super().__init__(policy)
        self._boot = boot

    def handle(self, event: JobsEvent, now_ms: int) -> list[Effect]:
        """Handle as the core does; raises InvariantBroken for a job row that the core cannot read."""
        effects = super().handle(event, now_ms)
        for effect in effects:
            if isinstance(effect, LogUnreadable):
                raise InvariantBroken("the jobs service cannot read what it wrote", why=effect.why)
            if isinstance(effect, LogRefused):
                self._boot.note(f"refuses   {effect.machine} {effect.state} {effect.event}")
        return effects


class JudgedOvercommit(OvercommitCore):
    """The overcommit core; `judge` is called with each promise and with what the core knows to be held then."""

    def __init__(self, policy: OvercommitPolicy, judge: Promises) -> None:
        super().__init__(policy)
        self._judge = judge

    def handle(self, event: OvercommitEvent, now_ms: int) -> list[Effect]:
        """Handle as the core does, and call `judge`."""
        effects = super().handle(event, now_ms)
        for effect in effects:
            if isinstance(effect, Publish) and isinstance(effect.fact, AllocatableChanged):
                self._judge(effect.fact, self.nodes[effect.fact.node].held.by_zone())
        return effects


def jobs(boot: Boot, connection: Connection, store: MemoryStore, metrics: Metrics) -> tuple[JobsCore, Works]:
    """The jobs service."""
    core = JudgedJobs(JobsPolicy(), boot)
    stored = StoreConnection(boot, store)
    shell = JobsShell(stored, boot.clock)
    service = jobs_service(
        core,
        bus=connection,
        store=stored,
        clock=boot.clock,
        metrics=metrics,
        boot_id=boot.boot_id,
        seed=boot.seed,
        shell=shell,
    )
    return core, (running(boot, service), list_holds(connection, boot.clock, service, _PAGE, shell.holds_due))


def overcommit(boot: Boot, connection: Connection, metrics: Metrics, judge: Promises) -> tuple[OvercommitCore, Works]:
    """The overcommit service. `judge` is called with every promise and with what is held of each zone."""
    core = JudgedOvercommit(OvercommitPolicy(), judge)
    service = overcommit_service(
        cast(Core, core), connection, boot.clock, metrics=metrics, boot_id=boot.boot_id, seed=boot.seed
    )
    return core, (running(boot, service), list_holds(connection, boot.clock, service, _PAGE))


def evictor(
    boot: Boot, connection: Connection, store: MemoryStore, metrics: Metrics, policy: EvictorPolicy
) -> tuple[EvictorCore, Works]:
    """The evictor."""
    core = EvictorCore(policy, needs_holds=True)
    service = evictor_service(
        cast(Core, core),
        connection,
        StoreConnection(boot, store),
        boot.clock,
        metrics=metrics,
        boot_id=boot.boot_id,
        seed=boot.seed,
    )
    return core, (running(boot, service), list_holds(connection, boot.clock, service, _PAGE))


def restrictions(boot: Boot, connection: Connection, store: MemoryStore, metrics: Metrics) -> tuple[Service, Works]:
    """The table of restrictions, which the gateway owns."""
    service = restrictions_service(
        connection,
        StoreConnection(boot, store),
        boot.clock,
        metrics=metrics,
        boot_id=boot.boot_id,
        seed=boot.seed,
    )
    return service, (running(boot, service),)
