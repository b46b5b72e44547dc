"""All parts of a simulated world: the processes of all services, machines, bus, store, ledger and invariant checker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from colo_common.adapters.leases_memory import MemoryLeases
from colo_common.adapters.store_memory import MemoryStore
from colo_common.model.colocation import COLOCATION_LABEL
from colo_common.runtime.metrics import Metrics
from colo_evictor.core import EvictorCore
from colo_evictor.policy import EvictorPolicy
from colo_executor.core import Executor
from colo_executor.reflex_policy import ReflexPolicy
from colo_jobs.core import JobsCore
from colo_jobs.job import Job
from colo_overcommit.core import OvercommitCore
from colo_scheduler.core import SchedulerCore
from colo_sim import world_node, world_roles
from colo_sim.chance import Chance
from colo_sim.demand import NodeDemand, Spike
from colo_sim.event_queue import EventQueue, LocalClock
from colo_sim.invariants import InvariantChecker
from colo_sim.machine import SimMachine
from colo_sim.noise import PPM
from colo_sim.synthetic import synthetic_day
from colo_sim.wire_filter import WireFilter
from colo_sim.world_boot import Boot
from colo_sim.world_bus import WorldBus
from colo_sim.world_client import SimClient, plan_jobs, plan_online_jobs
from colo_sim.world_connection import Connection
from colo_sim.world_ledger import WorldLedger
from colo_sim.world_log import WorldLog
from colo_sim.world_node import SimNode
from colo_sim.world_operator import SimOperator, plan_restrictions
from colo_sim.world_process import SimProcess
from colo_sim.world_requests import RequestRouter
from colo_sim.world_roles import JobsRole, Sharing, Works
from colo_sim.world_scheduler import scheduler
from colo_sim.world_settings import WorldSettings

__all__ = ["START_MS", "SimCluster"]

START_MS: Final = 1_700_000_000_000
"""Unix milliseconds at which every world starts."""

Role = TypeVar("Role")


class SimCluster:
    """The parts of a world, built from a seed and not started. `on_line` gets every line of the world log."""

    def __init__(self, settings: WorldSettings, on_line: Callable[[str], None] | None = None) -> None:
        self.settings = settings
        self.chance = Chance(settings.seed)
        self.rng = self.chance.rng
        #: By the key of a process what its version knows, from its next start on; those that are missing know everything.
        self.wires: dict[str, WireFilter] = {}
        self.event_queue = EventQueue(START_MS)
        self.world_log = WorldLog(START_MS, on_line)
        self.bus = WorldBus(self.event_queue, self.chance, self.world_log)
        self.store = MemoryStore()
        self.ledger = WorldLedger(self.event_queue)
        self.nodes: dict[str, SimNode] = {}
        evictor_policy = EvictorPolicy()
        self.invariant_checker = InvariantChecker(self.nodes, self.ledger, evictor_policy)
        self.bus.stored = self.invariant_checker.stored
        self._router = RequestRouter(self.event_queue, self.chance)
        judge, store = self.invariant_checker, self.store
        #: The number of partitions, by service; an instance takes it at its start. 0: the service is not shared.
        self.partitions = {
            "scheduler": settings.shards,
            "overcommit": settings.partitions,
            "evictor": settings.partitions,
            "jobs": settings.job_partitions,
        }
        self.all_jobs = self._all_jobs()
        #: The process of the jobs service, or the first one of those that share it.
        self.jobs = self.all_jobs[0]
        self.schedulers = tuple(
            self._process(
                key,
                lambda boot, connection, metrics: scheduler(
                    boot, connection, self.ledger, metrics, judge.committed, self.partitions["scheduler"], self.bus
                ),
            )
            for key in _names("scheduler", settings.schedulers)
        )
        self.overcommits = self._overcommits()
        self.evictors = self._evictors(evictor_policy)
        self.services: tuple[SimProcess[Any], ...] = (
            *self.all_jobs,
            *self.schedulers,
            *self.overcommits,
            *self.evictors,
        )
        if settings.restrictions:
            #: The gateway, of which only the table of restrictions is simulated.
            self.gateway = self._process(
                "gateway", lambda boot, connection, metrics: world_roles.restrictions(boot, connection, store, metrics)
            )
            self.services += (self.gateway,)
        for number in range(settings.nodes):
            self._add_node(f"node-{number + 1:02d}", number)
        plans = plan_jobs(self.rng, settings.jobs, settings.jobs_within_ms)
        plans += plan_online_jobs(self.rng, settings.online_jobs, settings.jobs_within_ms)
        self.client = client = SimClient(plans)
        restricted = plan_restrictions(
            self.rng, settings.restrictions, list(self.nodes), [plan.job for plan in plans], settings.jobs_within_ms
        )
        self.operator = operator = SimOperator(
            restricted, self.set_label, lambda node: self.nodes[node].is_lost_for_good
        )
        #: The users' process, which no fault strikes.
        self.submitter = self._process(
            "client",
            lambda boot, connection, _: (
                client,
                (*client.works(boot, connection), *operator.works(boot, connection)),
            ),
        )

    # ------------------------------------------------------------ parts

    def processes(self) -> list[SimProcess[Any]]:
        """All processes that should be up: not those of nodes that are lost for good."""
        nodes = [process for node in self.nodes.values() if not node.is_lost_for_good for process in node.processes]
        return [*self.services, *nodes]

    @property
    def jobs_core(self) -> JobsCore:
        """The jobs core of the running process, where the jobs are not divided."""
        (core,) = self.jobs.role.cores
        return core

    @property
    def jobs_cores(self) -> list[JobsCore]:
        """The jobs cores of all running processes."""
        return [core for process in self.all_jobs for core in process.role.cores if process.is_up]

    def job(self, id_: str) -> Job | None:
        """A job as its core knows it."""
        return next((core.index.jobs[id_] for core in self.jobs_cores if id_ in core.index.jobs), None)

    @property
    def scheduler_cores(self) -> dict[str, SchedulerCore]:
        """The scheduler cores of the running processes, by process key."""
        return {process.key: process.role for process in self.schedulers}

    @property
    def overcommit_cores(self) -> dict[str, OvercommitCore]:
        """The overcommit cores of the running processes, by process key."""
        return {process.key: process.role for process in self.overcommits}

    @property
    def evictor_cores(self) -> dict[str, EvictorCore]:
        """The evictor cores of the running processes, by process key."""
        return {process.key: process.role for process in self.evictors}

    @staticmethod
    def executor_core(node: SimNode) -> Executor:
        """The executor core of a node's running process."""
        return node.executor.role.core

    def note(self, what: str) -> None:
        """Add a line about the world itself to the world log."""
        self.world_log.add(self.event_queue.now_ms, "world", what)

    def set_label(self, node: str, colocation: str) -> None:
        """Set the colocation label of a node, or with "" take it away. Its collector reports that with its next sample."""
        self.note(f"{node} has the label {COLOCATION_LABEL}={colocation}")
        self.nodes[node].labels = {COLOCATION_LABEL: colocation} if colocation else {}

    # ------------------------------------------------------------ construction

    def _process(
        self, key: str, make: Callable[[Boot, Connection, Metrics], tuple[Role, Works]], clock: LocalClock | None = None
    ) -> SimProcess[Role]:
        # One registry for all runs of a process: it is not read, and making one takes longer than a short run.
        metrics = Metrics()

        def made(boot: Boot) -> tuple[Role, Works]:
            return make(boot, Connection(boot, self.bus, self._router, self.wires.get(key)), metrics)

        return SimProcess(
            key,
            made,
            event_queue=self.event_queue,
            bus=self.bus,
            clock=clock or LocalClock(self.event_queue),
            chance=self.chance,
            world_log=self.world_log,
        )

    def _all_jobs(self) -> tuple[SimProcess[JobsRole], ...]:
        store, leases = self.store, self._leases("jobs")
        return tuple(
            self._process(
                key,
                lambda boot, connection, metrics: world_roles.jobs(
                    boot, connection, store, metrics, self.bus, self._sharing("jobs", leases)
                ),
            )
            for key in _names("jobs", self.settings.job_sharers)
        )

    def _overcommits(self) -> tuple[SimProcess[OvercommitCore], ...]:
        judge, leases = self.invariant_checker, self._leases("overcommit")
        return tuple(
            self._process(
                key,
                lambda boot, connection, metrics: world_roles.overcommit(
                    boot, connection, metrics, judge.promised, self._sharing("overcommit", leases)
                ),
            )
            for key in _names("overcommit", self.settings.sharers)
        )

    def _evictors(self, policy: EvictorPolicy) -> tuple[SimProcess[EvictorCore], ...]:
        store, leases = self.store, self._leases("evictor")
        return tuple(
            self._process(
                key,
                lambda boot, connection, metrics: world_roles.evictor(
                    boot, connection, store, metrics, policy, self._sharing("evictor", leases)
                ),
            )
            for key in _names("evictor", self.settings.sharers)
        )

    def _leases(self, service: str) -> MemoryLeases:
        leases = MemoryLeases(lambda: self.event_queue.now_ms)
        if self.partitions[service]:
            self.store.leases[service] = leases
        return leases

    def _sharing(self, service: str, leases: MemoryLeases) -> Sharing | None:
        """How an instance that starts now shares the work of its service; None for one that is alone."""
        partitions = self.partitions[service]
        return Sharing(partitions, leases, self.store) if partitions else None

    def _add_node(self, name: str, number: int) -> None:
        settings, spec, judge = self.settings, self.settings.spec, self.invariant_checker
        skew_ms = self.rng.randint(-settings.skew_most_ms, settings.skew_most_ms)
        clock = LocalClock(self.event_queue, skew_ms)
        origin_ms = clock.now_ms()
        demand = NodeDemand(
            synthetic_day(settings.seed),
            node=name,
            node_index=number,
            seed=settings.seed,
            cpu_capacity_mcpu=spec.cpu_capacity_mcpu,
            memory_capacity_bytes=spec.memory_capacity_bytes,
            spikes=self._spikes(),
        )
        machine = SimMachine(
            spec,
            node=name,
            seed=settings.seed,
            demand=lambda at_ms: demand.at(max(at_ms - origin_ms, 0)),
            start_ms=origin_ms,
        )
        node = SimNode(name, machine)
        policy = ReflexPolicy(blind_ms=10 * settings.reflex_ms)
        node.collector = self._process(
            f"collector@{name}",
            lambda boot, connection, metrics: world_node.collector(boot, connection, node, metrics, settings.sample_ms),
            clock,
        )
        node.executor = self._process(
            f"executor@{name}",
            lambda boot, connection, metrics: world_node.executor(
                boot, connection, node, judge, policy, metrics, settings.reflex_ms
            ),
            clock,
        )
        self.nodes[name] = node

    def _spikes(self) -> tuple[Spike, ...]:
        """Spikes in which online work needs up to the whole machine, so that evictions happen."""
        rng = self.rng
        return tuple(
            Spike(
                start_ms=rng.randint(0, self.settings.jobs_within_ms),
                length_ms=rng.randint(5_000, 40_000),
                cpu_ppm=rng.choice((0, PPM // 2, PPM)),
                mem_ppm=rng.choice((0, PPM // 2)),
            )
            for _ in range(self.settings.spikes)
        )


def _names(service: str, count: int) -> list[str]:
    return [service] if count == 1 else [f"{service}-{number + 1}" for number in range(count)]
