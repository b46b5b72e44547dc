"""A whole cluster in one thread and in virtual time: the real cores of all services, machines, bus, store, ledger, and faults.

One seed gives one history, to the byte. The world is judged all the time (`InvariantChecker`) and at its end (`rest`).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, cast

from msgspec import Struct

from colo_common.adapters.store_memory import MemoryStore
from colo_common.model.invalid import InvariantBroken
from colo_evictor.core import EvictorCore
from colo_evictor.policy import EvictorPolicy
from colo_executor.core import Executor
from colo_executor.reflex import ReflexPolicy
from colo_jobs.core import JobsCore
from colo_jobs.policy import JobsPolicy
from colo_overcommit.core import OvercommitCore
from colo_overcommit.policy import OvercommitPolicy
from colo_scheduler.core import SchedulerCore
from colo_scheduler.policy import SchedulerPolicy
from colo_sim.demand import NodeDemand, Spike
from colo_sim.event_queue import EventQueue
from colo_sim.fault_injector import FaultInjector
from colo_sim.faults import FaultPlan
from colo_sim.invariants import InvariantChecker
from colo_sim.machine import SimMachine
from colo_sim.machine_spec import GIB, MachineSpec
from colo_sim.noise import PPM
from colo_sim.quiescence import differences, pending_work
from colo_sim.synthetic import synthetic_day
from colo_sim.world_bus import WorldBus
from colo_sim.world_client import SimClient, plan_jobs, plan_online_jobs
from colo_sim.world_ledger import WorldLedger
from colo_sim.world_log import WorldLog
from colo_sim.world_node import CollectorRole, ExecutorRole, SimNode
from colo_sim.world_process import SimProcess
from colo_sim.world_role import LocalClock, Role
from colo_sim.world_roles import EvictorRole, JobsRole, OvercommitRole
from colo_sim.world_scheduler import SchedulerRole

__all__ = ["START_MS", "Outcome", "World", "WorldSettings"]

START_MS: Final = 1_700_000_000_000
"""When every world begins."""
_LOOK_MS: Final = 1_000


class WorldSettings(Struct, frozen=True, kw_only=True):
    """Size and length of a world. `skew_most_ms`: node clocks differ from the services' by at most this, either way.
    `schedulers` share the work, which falls into `shards`; with 0 shards there is one, and it is alone.
    `spikes`: how often online work of a node wants nearly the whole machine. `online_jobs` are placed beside the batch jobs.

    After the faults ended the views must agree within `settle_most_ms`, and everything must be done within `rest_most_ms`.
    """

    seed: int
    nodes: int = 4
    jobs: int = 16
    online_jobs: int = 0
    schedulers: int = 1
    shards: int = 0
    jobs_within_ms: int = 360_000
    sample_ms: int = 1_000
    reflex_ms: int = 500
    skew_most_ms: int = 5_000
    spikes: int = 4
    settle_most_ms: int = 600_000
    rest_most_ms: int = 3_600_000
    spec: MachineSpec = MachineSpec(
        sockets=1, zones_per_socket=2, cpus_per_zone=4, memory_bytes_per_zone=8 * GIB, sub_step_ms=1_000
    )
    faults: FaultPlan = FaultPlan()


class Outcome(Struct, frozen=True, kw_only=True):
    """What a world came to. `events` were done in `simulated_ms`; `judged` says how often the invariant_checker looked at what."""

    seed: int
    digest: str
    events: int
    lines: int
    messages: int
    simulated_ms: int
    judged: dict[str, int]


class World:
    """Built from a seed; `run` lives it to its end. `tell` gets every line of the world_log."""

    def __init__(self, settings: WorldSettings, tell: Callable[[str], None] | None = None) -> None:
        self.settings = settings
        self.rng = Random(settings.seed)
        self.event_queue = EventQueue(START_MS)
        self.world_log = WorldLog(START_MS, tell)
        self.bus = WorldBus(self.event_queue, self.rng, self.world_log)
        self.store = MemoryStore()
        self.ledger = WorldLedger(self.bus)
        self.nodes: dict[str, SimNode] = {}
        evictor_policy = EvictorPolicy()
        self.invariant_checker = InvariantChecker(self.nodes, self.ledger, evictor_policy)
        self.bus.stored = self.invariant_checker.stored
        self.jobs = self._service("jobs", lambda p: JobsRole(p, self.store, JobsPolicy()), self.store)
        self.schedulers = tuple(
            self._process(key, "scheduler", self._scheduler_role, LocalClock(self.event_queue))
            for key in _names("scheduler", settings.schedulers)
        )
        self.overcommit = self._service(
            "overcommit",
            lambda p: OvercommitRole(p, self.schedulers, self.invariant_checker.promised, OvercommitPolicy()),
            None,
        )
        self.evictor = self._service("evictor", lambda _: EvictorRole(self.store, evictor_policy), self.store)
        self.services = (self.jobs, *self.schedulers, self.overcommit, self.evictor)
        for number in range(settings.nodes):
            self._add_node(f"node-{number + 1:02d}", number)
        plans = plan_jobs(self.rng, settings.jobs, settings.jobs_within_ms)
        plans += plan_online_jobs(self.rng, settings.online_jobs, settings.jobs_within_ms)
        self.client = SimClient(self.bus, self.jobs, plans)
        for process in self.processes():
            self.event_queue.after(self.rng.randint(0, 2_000), self._begin, process)
        self.fault_injector = FaultInjector(self, settings.faults, may_lose_for_good=settings.seed % 4 == 0)

    def _begin(self, process: SimProcess) -> None:
        """A node may have lost its power before its processes began."""
        self.fault_injector.revive(process)

    # ------------------------------------------------------------ parts

    def processes(self) -> list[SimProcess]:
        """All that should be up: those of nodes that are gone for good are not."""
        nodes = [process for node in self.nodes.values() if not node.is_gone for process in node.processes]
        return [*self.services, *nodes]

    @property
    def jobs_core(self) -> JobsCore:
        """The jobs core of the present process."""
        return cast(JobsRole, self.jobs.role).jobs

    @property
    def scheduler_cores(self) -> dict[str, SchedulerCore]:
        """The scheduler cores of the present processes, by their keys."""
        return {process.key: cast(SchedulerRole, process.role).scheduler for process in self.schedulers}

    @property
    def overcommit_core(self) -> OvercommitCore:
        """The overcommit core of the present process."""
        return cast(OvercommitRole, self.overcommit.role).overcommit

    @property
    def evictor_core(self) -> EvictorCore:
        """The evictor core of the present process."""
        return cast(EvictorRole, self.evictor.role).evictor

    @staticmethod
    def executor_core(node: SimNode) -> Executor:
        """The executor core of a node's present process."""
        return cast(ExecutorRole, node.executor.role).executor

    def _scheduler_role(self, process: SimProcess) -> SchedulerRole:
        judge, shards = self.invariant_checker.committed, self.settings.shards
        return SchedulerRole(process, self.ledger, self.jobs, judge, SchedulerPolicy(), shards)

    def _service(self, name: str, make: Callable[[SimProcess], Role], store: MemoryStore | None) -> SimProcess:
        return self._process(name, name, make, LocalClock(self.event_queue), store)

    def _process(
        self,
        key: str,
        name: str,
        make: Callable[[SimProcess], Role],
        clock: LocalClock,
        store: MemoryStore | None = None,
    ) -> SimProcess:
        return SimProcess(
            key=key,
            name=name,
            make=make,
            event_queue=self.event_queue,
            bus=self.bus,
            store=store,
            clock=clock,
            world_log=self.world_log,
            watcher=self.invariant_checker,
        )

    def _add_node(self, name: str, number: int) -> None:
        settings, spec = self.settings, self.settings.spec
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
        reflex = ReflexPolicy(blind_ms=10 * settings.reflex_ms)
        node.collector = self._process(
            f"collector@{name}", "collector", lambda p: CollectorRole(p, node, settings.sample_ms), clock
        )
        node.executor = self._process(
            f"executor@{name}",
            "executor",
            lambda p: ExecutorRole(p, node, self.invariant_checker, reflex, settings.reflex_ms),
            clock,
        )
        self.nodes[name] = node

    def _spikes(self) -> tuple[Spike, ...]:
        """Now and then online work wants nearly the whole machine: this is what evictions are for."""
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

    # ------------------------------------------------------------ life

    def note(self, what: str) -> None:
        """A line about the world itself."""
        self.world_log.add(self.event_queue.now_ms, "world", what)

    @property
    def elapsed_ms(self) -> int:
        """Time since the beginning."""
        return self.event_queue.now_ms - START_MS

    def run_until(self, elapsed_ms: int) -> None:
        """Live to this moment, counted from the beginning."""
        while self.event_queue.step(START_MS + elapsed_ms):
            pass

    def run(self) -> Outcome:
        """Live until everything is done. Raises InvariantBroken for whatever is broken on the way or never comes to an end."""
        quiet_ms = self.settings.faults.quiet_after_ms
        self.run_until(quiet_ms)
        self.note("settling")
        self._run_while(differences, quiet_ms + self.settings.settle_most_ms, "the views never agree")
        self.note("settled")
        self._run_while(pending_work, self.elapsed_ms + self.settings.rest_most_ms, "the world does not come to rest")
        self.note("at rest")
        return self.outcome()

    def _run_while(self, problems: Callable[[World], list[str]], until_ms: int, message: str) -> None:
        while found := problems(self):
            if self.elapsed_ms >= until_ms:
                raise InvariantBroken(message, found=found[:12], seed=self.settings.seed)
            self.run_until(self.elapsed_ms + _LOOK_MS)

    def outcome(self) -> Outcome:
        """What the world came to so far."""
        return Outcome(
            seed=self.settings.seed,
            digest=self.world_log.digest(),
            events=self.event_queue.done,
            lines=self.world_log.lines,
            messages=self.bus.messages,
            simulated_ms=self.elapsed_ms,
            judged=dict(sorted(self.invariant_checker.counts.items())),
        )


def _names(service: str, count: int) -> list[str]:
    return [service] if count == 1 else [f"{service}-{number + 1}" for number in range(count)]
