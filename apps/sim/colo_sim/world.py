"""A whole cluster in one thread and in virtual time: the real cores of all services, machines, bus, store, ledger, and faults.

One seed gives one history, to the byte. The world is judged all the time (`Referee`) and at its end (`rest`).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, cast

from msgspec import Struct

from colo_common.adapters.store_memory import MemoryStore
from colo_common.model.invalid import InvariantBroken
from colo_evictor.core import EvictorCore
from colo_evictor.policy import Policy as EvictorPolicy
from colo_executor.core import Executor
from colo_executor.reflex import ReflexPolicy
from colo_jobs.core import JobsCore
from colo_jobs.policy import JobsPolicy
from colo_overcommit.core import OvercommitCore
from colo_overcommit.policy import Policy as OvercommitPolicy
from colo_scheduler.core import SchedulerCore
from colo_scheduler.policy import Policy as SchedulerPolicy
from colo_sim.demand import NodeDemand, Spike
from colo_sim.event_queue import Agenda
from colo_sim.fault_injector import Havoc
from colo_sim.faults import FaultPlan
from colo_sim.invariants import Referee
from colo_sim.machine import SimMachine
from colo_sim.machine_spec import GIB, MachineSpec
from colo_sim.noise import PPM
from colo_sim.quiescence import differences, unrest
from colo_sim.synthetic import synthetic_day
from colo_sim.world_bus import WorldBus
from colo_sim.world_client import Client, plan_jobs, plan_online_jobs
from colo_sim.world_ledger import WorldLedger
from colo_sim.world_log import Chronicle
from colo_sim.world_node import CollectorRole, ExecutorRole, Node
from colo_sim.world_process import Process
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
    """What a world came to. `events` were done in `simulated_ms`; `judged` says how often the referee looked at what."""

    seed: int
    digest: str
    events: int
    lines: int
    messages: int
    simulated_ms: int
    judged: dict[str, int]


class World:
    """Built from a seed; `run` lives it to its end. `tell` gets every line of the chronicle."""

    def __init__(self, settings: WorldSettings, tell: Callable[[str], None] | None = None) -> None:
        self.settings = settings
        self.rng = Random(settings.seed)
        self.agenda = Agenda(START_MS)
        self.chronicle = Chronicle(START_MS, tell)
        self.bus = WorldBus(self.agenda, self.rng, self.chronicle)
        self.store = MemoryStore()
        self.ledger = WorldLedger(self.bus)
        self.nodes: dict[str, Node] = {}
        evictor_policy = EvictorPolicy()
        self.referee = Referee(self.nodes, self.ledger, evictor_policy)
        self.bus.stored = self.referee.stored
        self.jobs = self._service("jobs", lambda p: JobsRole(p, self.store, JobsPolicy()), self.store)
        self.schedulers = tuple(
            self._process(key, "scheduler", self._scheduler_role, LocalClock(self.agenda))
            for key in _names("scheduler", settings.schedulers)
        )
        self.overcommit = self._service(
            "overcommit",
            lambda p: OvercommitRole(p, self.schedulers, self.referee.promised, OvercommitPolicy()),
            None,
        )
        self.evictor = self._service("evictor", lambda _: EvictorRole(self.store, evictor_policy), self.store)
        self.services = (self.jobs, *self.schedulers, self.overcommit, self.evictor)
        for number in range(settings.nodes):
            self._add_node(f"node-{number + 1:02d}", number)
        plans = plan_jobs(self.rng, settings.jobs, settings.jobs_within_ms)
        plans += plan_online_jobs(self.rng, settings.online_jobs, settings.jobs_within_ms)
        self.client = Client(self.bus, self.jobs, plans)
        for process in self.processes():
            self.agenda.after(self.rng.randint(0, 2_000), self._begin, process)
        self.havoc = Havoc(self, settings.faults, may_lose_for_good=settings.seed % 4 == 0)

    def _begin(self, process: Process) -> None:
        """A node may have lost its power before its processes began."""
        self.havoc.revive(process)

    # ------------------------------------------------------------ parts

    def processes(self) -> list[Process]:
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
    def executor_core(node: Node) -> Executor:
        """The executor core of a node's present process."""
        return cast(ExecutorRole, node.executor.role).executor

    def _scheduler_role(self, process: Process) -> SchedulerRole:
        judge, shards = self.referee.committed, self.settings.shards
        return SchedulerRole(process, self.ledger, self.jobs, judge, SchedulerPolicy(), shards)

    def _service(self, name: str, make: Callable[[Process], Role], store: MemoryStore | None) -> Process:
        return self._process(name, name, make, LocalClock(self.agenda), store)

    def _process(
        self, key: str, name: str, make: Callable[[Process], Role], clock: LocalClock, store: MemoryStore | None = None
    ) -> Process:
        return Process(
            key=key,
            name=name,
            make=make,
            agenda=self.agenda,
            bus=self.bus,
            store=store,
            clock=clock,
            chronicle=self.chronicle,
            watcher=self.referee,
        )

    def _add_node(self, name: str, number: int) -> None:
        settings, spec = self.settings, self.settings.spec
        skew_ms = self.rng.randint(-settings.skew_most_ms, settings.skew_most_ms)
        clock = LocalClock(self.agenda, skew_ms)
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
        node = Node(name, machine)
        reflex = ReflexPolicy(blind_ms=10 * settings.reflex_ms)
        node.collector = self._process(
            f"collector@{name}", "collector", lambda p: CollectorRole(p, node, settings.sample_ms), clock
        )
        node.executor = self._process(
            f"executor@{name}",
            "executor",
            lambda p: ExecutorRole(p, node, self.referee, reflex, settings.reflex_ms),
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
        self.chronicle.add(self.agenda.now_ms, "world", what)

    @property
    def elapsed_ms(self) -> int:
        """Time since the beginning."""
        return self.agenda.now_ms - START_MS

    def run_until(self, elapsed_ms: int) -> None:
        """Live to this moment, counted from the beginning."""
        while self.agenda.step(START_MS + elapsed_ms):
            pass

    def run(self) -> Outcome:
        """Live until everything is done. Raises InvariantBroken for whatever is broken on the way or never comes to an end."""
        quiet_ms = self.settings.faults.quiet_after_ms
        self.run_until(quiet_ms)
        self.note("settling")
        self._run_while(differences, quiet_ms + self.settings.settle_most_ms, "the views never agree")
        self.note("settled")
        self._run_while(unrest, self.elapsed_ms + self.settings.rest_most_ms, "the world does not come to rest")
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
            digest=self.chronicle.digest(),
            events=self.agenda.done,
            lines=self.chronicle.lines,
            messages=self.bus.messages,
            simulated_ms=self.elapsed_ms,
            judged=dict(sorted(self.referee.counts.items())),
        )


def _names(service: str, count: int) -> list[str]:
    return [service] if count == 1 else [f"{service}-{number + 1}" for number in range(count)]
