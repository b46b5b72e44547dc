"""The cluster services of a simulated world: their real shells on simulated ports, with cores whose effects are checked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from itertools import count
from typing import Any, Final, cast

from msgspec import Struct

from colo_common.adapters.leases_memory import MemoryLeases
from colo_common.adapters.store_memory import MemoryStore
from colo_common.events.effects import Effect, Publish
from colo_common.events.node import AllocatableChanged
from colo_common.model.invalid import InvariantBroken
from colo_common.model.partition import WHOLE, Share
from colo_common.model.placement import ZoneShare
from colo_common.ports import Advisory, Backlog, Fenced, Store
from colo_common.runtime.core import Core
from colo_common.runtime.holds import list_holds
from colo_common.runtime.lease_keeper import LEASE_TTL_MS, HeldTerm, LeaseKeeper
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.partition_services import PartitionService, PartitionServices
from colo_common.runtime.service import Service
from colo_common.runtime.shares import ServiceShares
from colo_common.runtime.term import HeldStore
from colo_evictor.core import EvictorCore
from colo_evictor.policy import EvictorPolicy
from colo_evictor.shell import evictor_service
from colo_evictor.stored import ROW_KIND
from colo_gateway.restrictions.shell import restrictions_service
from colo_jobs.core import Event as JobsEvent
from colo_jobs.core import JobsCore
from colo_jobs.effects import LogRefused, LogUnreadable
from colo_jobs.policy import JobsPolicy
from colo_jobs.shell import ANSWERS, JobsShell, jobs_service
from colo_overcommit.core import Event as OvercommitEvent
from colo_overcommit.core import OvercommitCore
from colo_overcommit.policy import OvercommitPolicy
from colo_overcommit.shell import overcommit_service
from colo_sim.world_boot import Boot
from colo_sim.world_bus import WorldBus
from colo_sim.world_connection import Connection
from colo_sim.world_ledger import LeaseConnection
from colo_sim.world_replay import SimReplay
from colo_sim.world_store import StoreConnection

__all__ = [
    "JobsRole",
    "JudgedJobs",
    "JudgedOvercommit",
    "Promises",
    "Sharing",
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


class Sharing(Struct, frozen=True):
    """How several instances share the work of a service: by so many partitions, whose leases the store has."""

    partitions: int
    leases: MemoryLeases
    store: MemoryStore

    def keeper(self, boot: Boot) -> LeaseKeeper:
        """The leases of one start of an instance."""
        connection = LeaseConnection(boot, self.leases, lambda: self.store.fault)
        return LeaseKeeper(connection, boot.boot_id, self.partitions, LEASE_TTL_MS, stays_when_away=True)


class _NobodyAnswers:
    """The Survey of a world in which an instance that cannot reach the store reaches nobody."""

    async def ask_all(self, subject: str, data: bytes, timeout_s: float) -> Sequence[bytes]:
        """No answers."""
        return ()

    async def backlogs(self, streams: Sequence[str], timeout_s: float) -> Sequence[Backlog]:
        """No backlogs."""
        return ()

    async def advisories(self, sink: Callable[[Advisory], Awaitable[None]]) -> None:
        """Nothing is said."""


def _sharing(boot: Boot, service: Service, keeper: LeaseKeeper | None) -> Works:
    """The service alone, or with its share of the work. A service that was fenced begins again."""
    if keeper is None:
        return (running(boot, service),)

    shares = ServiceShares(service.name, keeper, _NobodyAnswers())
    return _until_fenced(boot, running(boot, service)), _until_fenced(boot, shares.run(service))


async def _until_fenced(boot: Boot, work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Fenced:
        boot.begin_again()


def running(boot: Boot, service: Service) -> Coroutine[Any, Any, None]:
    """Run the service until its process dies, with its core checked after every batch."""
    service.check_every_batch()
    return service.run(boot.stop)


class JobsRole:
    """What a process of the jobs service has: a core, or one for each partition that it holds now."""

    def __init__(self, cores: Sequence[JobsCore] = ()) -> None:
        self.cores = list(cores)


class JudgedJobs(JobsCore):
    """The jobs core with the check that it can read every row that it wrote."""

    def __init__(self, policy: JobsPolicy, boot: Boot, share: Share = WHOLE) -> None:
        super().__init__(policy, share)
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

    def __init__(self, policy: OvercommitPolicy, judge: Promises, partitions: int) -> None:
        super().__init__(policy, partitions=partitions)
        self._judge = judge

    def handle(self, event: OvercommitEvent, now_ms: int) -> list[Effect]:
        """Handle as the core does, and call `judge`."""
        effects = super().handle(event, now_ms)
        for effect in effects:
            if isinstance(effect, Publish) and isinstance(effect.fact, AllocatableChanged):
                self._judge(effect.fact, self.nodes[effect.fact.node].held.by_zone())
        return effects


def jobs(
    boot: Boot,
    connection: Connection,
    store: MemoryStore,
    metrics: Metrics,
    bus: WorldBus,
    sharing: Sharing | None = None,
) -> tuple[JobsRole, Works]:
    """The jobs service, or its share of the partitions. What its store lost it looks for in the streams of `bus`."""
    stored = StoreConnection(boot, store)
    if sharing is not None:
        return _hosted_jobs(boot, connection, stored, metrics, bus, sharing)
    core, service, holds = _jobs(boot, connection, stored, metrics, bus, boot.boot_id)
    return JobsRole([core]), (running(boot, service), holds)


def _jobs(
    boot: Boot,
    connection: Connection,
    stored: Store,
    metrics: Metrics,
    bus: WorldBus,
    boot_id: str,
    term: HeldTerm | None = None,
) -> tuple[JobsCore, Service, Coroutine[Any, Any, None]]:
    """A core, its service, and what lists the holds for it: of the whole work, or of the partition of a term."""
    share = WHOLE if term is None else term.share
    core = JudgedJobs(JobsPolicy(), boot, share)
    shell = JobsShell(stored, boot.clock, replay=SimReplay(boot, bus), share=share)
    service = jobs_service(
        core,
        bus=connection,
        store=stored,
        clock=boot.clock,
        metrics=metrics,
        boot_id=boot_id,
        seed=boot.seed + share.partition,
        term=term,
        shell=shell,
    )
    return core, service, list_holds(connection, boot.clock, service, _PAGE, shell.holds_due)


def _hosted_jobs(
    boot: Boot,
    connection: Connection,
    stored: StoreConnection,
    metrics: Metrics,
    bus: WorldBus,
    sharing: Sharing,
) -> tuple[JobsRole, Works]:
    role = JobsRole()
    starts = count(1)

    def make(term: HeldTerm) -> PartitionService:
        boot_id = f"{boot.boot_id}-{term.share.partition}-{next(starts)}"
        held = HeldStore(stored, "jobs", term)
        core, service, holds = _jobs(boot, connection, held, metrics, bus, boot_id, term)
        service.check_every_batch()
        role.cores.append(core)
        return PartitionService(service, (holds,), lambda: role.cores.remove(core))

    connection.answers_alone = True
    services = PartitionServices(
        "jobs",
        sharing.keeper(boot),
        bus=connection,
        survey=_NobodyAnswers(),
        clock=boot.clock,
        metrics=metrics,
        answers=ANSWERS,
        make=make,
    )
    return role, (_until_fenced(boot, services.run(boot.stop)),)


def overcommit(
    boot: Boot, connection: Connection, metrics: Metrics, judge: Promises, sharing: Sharing | None
) -> tuple[OvercommitCore, Works]:
    """The overcommit service. `judge` is called with every promise and with what is held of each zone."""
    core = JudgedOvercommit(OvercommitPolicy(), judge, 0 if sharing is None else sharing.partitions)
    keeper = None if sharing is None else sharing.keeper(boot)
    service = overcommit_service(
        cast(Core, core),
        connection,
        boot.clock,
        metrics=metrics,
        boot_id=boot.boot_id,
        seed=boot.seed,
        leases=keeper,
        is_shared=keeper is not None,
    )
    return core, (*_sharing(boot, service, keeper), list_holds(connection, boot.clock, service, _PAGE))


def evictor(
    boot: Boot,
    connection: Connection,
    store: MemoryStore,
    metrics: Metrics,
    policy: EvictorPolicy,
    sharing: Sharing | None,
) -> tuple[EvictorCore, Works]:
    """The evictor."""
    core = EvictorCore(policy, needs_holds=True, partitions=0 if sharing is None else sharing.partitions)
    keeper = None if sharing is None else sharing.keeper(boot)
    stored = StoreConnection(boot, store)
    service = evictor_service(
        cast(Core, core),
        connection,
        stored if keeper is None else HeldStore(stored, "evictor", keeper, (ROW_KIND,)),
        boot.clock,
        metrics=metrics,
        boot_id=boot.boot_id,
        seed=boot.seed,
        leases=keeper,
        is_shared=keeper is not None,
    )
    return core, (*_sharing(boot, service, keeper), list_holds(connection, boot.clock, service, _PAGE))


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
