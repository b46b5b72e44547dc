"""One simulated node: a machine with its own clock, and a collector and an executor process with their real shells."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Protocol, cast

from msgspec import Struct
from msgspec.structs import replace

from colo_collector.core import CollectorCore
from colo_collector.machine import Observation
from colo_collector.policy import CollectorPolicy
from colo_collector.readings import Skip, TopologyRead, Unreadable
from colo_collector.shell import CollectorShell
from colo_common.adapters.store_memory import MemoryStore
from colo_common.events.effects import Effect
from colo_common.events.enforcement import ZoneCeiling
from colo_common.events.node import NodeFactsWanted
from colo_common.model.placement import Attempt, Placement, attempt_key
from colo_common.runtime.core import Core, Subscription
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.service import Service
from colo_executor.core import Executor, ExecutorPolicy
from colo_executor.journal_lines import JournalState, Launched, compacted, decode, encode
from colo_executor.local import (
    Adopted,
    CeilingRefused,
    CeilingWritten,
    LaunchFailed,
    Remembered,
    RenewLease,
    ReplicaExited,
    ReplicaLaunched,
    ReplicasSuspended,
    SignalReplica,
    SuspendReplicas,
)
from colo_executor.reflex import Reflex
from colo_executor.reflex_policy import ReflexPolicy
from colo_executor.shell import ExecutorShell
from colo_executor.simulated import SimulatedRuntime
from colo_executor.subscriptions import executor_hears
from colo_sim.machine import SimMachine
from colo_sim.machine_reading import MachineCounters
from colo_sim.node_measure import measured_between
from colo_sim.world_boot import Boot
from colo_sim.world_connection import Connection
from colo_sim.world_process import SimProcess
from colo_sim.world_roles import Works, running

__all__ = ["ExecutorRole", "SimNode", "NodeWatcher", "collector", "executor"]


class NodeWatcher(Protocol):
    """Called with every launch and every tick of the reflex, to check invariants."""

    def launched(self, node: SimNode, replica: str, attempt: int) -> None: ...
    def ticked(self, node: SimNode, role: ExecutorRole) -> None: ...


class SimNode:
    """A machine, its operator's labels, its executor's journal and trials, which outlive the node's processes.

    `is_off`: the node has no power. `is_lost_for_good`: it stays so.
    """

    def __init__(self, name: str, machine: SimMachine) -> None:
        self.name = name
        self.machine = machine
        self.journal = JournalState()
        #: Where the executor notes which message ends it.
        self.trials = MemoryStore()
        #: What the control groups of attempts show: it is there however damaged the journal is.
        self.groups: dict[Attempt, Placement] = {}
        self.labels: dict[str, str] = {}
        self.is_off = False
        self.is_lost_for_good = False
        self.collector: SimProcess[CollectorCore]
        self.executor: SimProcess[ExecutorRole]

    def tear_journal(self, rng: Random) -> int:
        """Leave a journal as a crash or a bad disk does: without the end of its last line, or with one line that cannot be read.

        Returns how many of its entries are gone.
        """
        entries = compacted(self.journal)
        lines = [encode(entry) for entry in entries]
        damaged = rng.randrange(len(lines)) if rng.randrange(2) else len(lines) - 1
        cut = rng.randrange(len(lines[damaged]))
        lines[damaged] = lines[damaged][:cut] + (b"" if damaged == len(lines) - 1 else b"\n")
        kept, _, _ = decode(b"".join(lines))
        self.journal = JournalState(kept)
        return len(entries) - len(kept)

    @property
    def processes(self) -> tuple[SimProcess[CollectorCore], SimProcess[ExecutorRole]]:
        """The collector and the executor."""
        return self.collector, self.executor

    def advance(self) -> MachineCounters:
        """Run the machine until now by its own clock, and return its counters."""
        self.machine.advance(max(self.executor.clock.now_ms(), self.machine.at_ms))
        return self.machine.counters()


# ---------------------------------------------------------------- the collector


class _SimSampler:
    """Observes the simulated machine for the collector's shell, whose clock is `ahead_ms` ahead of the machine's."""

    def __init__(self, node: SimNode, ahead_ms: int) -> None:
        self._node = node
        self._ahead_ms = ahead_ms
        self._before: MachineCounters | None = None
        self._labels: dict[str, str] = {}

    def observe(self) -> Observation:
        """The topology at the first observation and when the labels differ; afterwards what happened since the last one."""
        before, self._before = self._before, self._node.advance()
        topology_read = None
        if before is None or self._labels != self._node.labels:
            spec, self._labels = self._node.machine.spec, self._node.labels
            topology_read = TopologyRead(
                topology=spec.topology(), capabilities=spec.capabilities(), labels=self._labels, simulated=True
            )
        found = None if before is None else measured_between(before, self._before)
        if found is None:
            return Observation(event=Unreadable(reason=Skip.FIRST), topology_read=topology_read)
        return Observation(event=replace(found, at_ms=found.at_ms + self._ahead_ms), topology_read=topology_read)


def collector(
    boot: Boot, connection: Connection, node: SimNode, metrics: Metrics, period_ms: int
) -> tuple[CollectorCore, Works]:
    """The collector of a node, which samples the machine every `period_ms`."""
    core = CollectorCore(node.name, CollectorPolicy())
    service = Service(
        name="collector",
        core=cast(Core, core),
        bus=connection,
        clock=boot.clock,
        subscriptions=(Subscription(type=NodeFactsWanted, parameters={"node": node.name}),),
        metrics=metrics,
        boot_id=boot.boot_id,
        seed=boot.seed,
        discoverable=False,
        never_waits=True,
    )
    shell = CollectorShell(
        _SimSampler(node, boot.clock.ahead_ms),
        inject=service.inject,
        skipped=core.skipped,
        clock=boot.clock,
        period_ms=period_ms,
        metrics=metrics,
    )

    async def sampling() -> None:
        await asyncio.sleep(boot.chance.rng.randint(1, period_ms) / 1_000)
        await shell.run()

    return core, (running(boot, service), sampling())


# ---------------------------------------------------------------- the executor


class _Runtime(SimulatedRuntime):
    """The simulated runtime of an executor: logs its calls, reports launches to the watcher, and is a step around each call."""

    def __init__(self, boot: Boot, node: SimNode, watcher: NodeWatcher) -> None:
        super().__init__(
            node.machine,
            capacity_mcpu=node.machine.spec.cpu_capacity_mcpu,
            journal=node.journal,
            topology=node.machine.spec.topology(),
            ahead_ms=boot.clock.ahead_ms,
        )
        self._process = boot
        self._node = node
        self._watcher = watcher

    async def adopt(self, now_ms: int) -> Adopted:
        """See Runtime.adopt. A replica that is not in the journal is adopted as its control group shows it.

        The control group of a replica that ended between two executors is still there.
        """
        self._catch_up(now_ms)
        self._note_exits()
        ended = [(exited.replica, exited.attempt) for exited in self._exits]
        running = [(one.replica, one.attempt) for one in self._node.machine.counters().replicas]
        for attempt in (*ended, *running):
            key = attempt_key(*attempt)
            if key not in self.journal.launched and key not in self.journal.ended:
                self._process.note(f"finds     {key}")
                shown = self._node.groups[attempt]
                self.journal.add(Launched(placement=shown, pid=0, start_ticks=0, at_ms=now_ms))
        return await super().adopt(now_ms)

    async def launch(self, placement: Placement, now_ms: int) -> ReplicaLaunched | LaunchFailed:
        """See Runtime.launch."""
        await self._process.step("launch")
        self._process.note(f"launches  {placement.replica}#{placement.attempt}")
        result = await super().launch(placement, now_ms)
        if isinstance(result, ReplicaLaunched):
            # A group shows neither where its place came from nor what it is worth.
            shown = replace(placement, priority=0, traceparent="", queue="")
            self._node.groups[placement.replica, placement.attempt] = shown
            self._watcher.launched(self._node, placement.replica, placement.attempt)
        await self._process.step("receive the launch")
        return result

    async def signal(self, effect: SignalReplica) -> None:
        """See Runtime.signal."""
        await self._process.step("signal")
        self._process.note(f"signals   {effect.replica}#{effect.attempt} {effect.signal}")
        await super().signal(effect)

    async def suspend(self, effect: SuspendReplicas) -> ReplicasSuspended:
        """See Runtime.suspend."""
        await self._process.step("suspend")
        for replica, attempt in effect.attempts:
            self._process.note(f"{'suspends' if effect.is_suspended else 'resumes '}  {replica}#{attempt}")
        return await super().suspend(effect)

    async def remember(self, effect: Remembered) -> None:
        """See Runtime.remember."""
        await self._process.step("remember")
        await super().remember(effect)

    def poll_exits(self) -> tuple[ReplicaExited, ...]:
        """See Runtime.poll_exits."""
        exits = super().poll_exits()
        for exited in exits:
            self._process.note(f"sees end  {exited.replica}#{exited.attempt} {exited.exit_code}")
        return exits

    def set_ceiling(
        self, ceiling_mcpu: int, zones: tuple[ZoneCeiling, ...] | None = None, *, has_whole_cores: bool = False
    ) -> CeilingWritten | CeilingRefused:
        """See Runtime.set_ceiling."""
        self._process.note(f"ceiling   {ceiling_mcpu}")
        return super().set_ceiling(ceiling_mcpu, zones, has_whole_cores=has_whole_cores)


class ExecutorRole:
    """An executor's core and shell. `renewed_at_ms`, `lease_ms`: the lease as its core last renewed it, for invariant checks."""

    def __init__(self, boot: Boot, node: SimNode, watcher: NodeWatcher, policy: ReflexPolicy, metrics: Metrics) -> None:
        self.core = Executor(node.name, ExecutorPolicy())
        self.policy = policy
        self.renewed_at_ms = boot.clock.now_ms()
        self.lease_ms = policy.lease.default_ms
        self.shell: ExecutorShell
        self.clock = boot.clock

    @property
    def reflex(self) -> Reflex | None:
        """The reflex; None until the machine is adopted."""
        return self.shell.reflex

    async def perform(self, effect: Effect) -> Sequence[Struct]:
        """Perform as the shell does, and note a renewed lease."""
        if isinstance(effect, RenewLease):
            self.renewed_at_ms = self.clock.now_ms()
            self.lease_ms = effect.lease_ms or self.lease_ms
        return await self.shell.perform(effect)


def executor(
    boot: Boot,
    connection: Connection,
    node: SimNode,
    watcher: NodeWatcher,
    policy: ReflexPolicy,
    metrics: Metrics,
    period_ms: int,
) -> tuple[ExecutorRole, Works]:
    """The executor of a node. Its reflex runs on the process's event loop instead of in a thread of its own."""
    role = ExecutorRole(boot, node, watcher, policy, metrics)
    shell = role.shell = ExecutorShell(
        _Runtime(boot, node, watcher), boot.clock, policy=policy, period_ms=period_ms, metrics=metrics
    )
    service = Service(
        name="executor",
        core=role.core,
        bus=connection,
        clock=boot.clock,
        subscriptions=executor_hears(node.name, with_samples=False),
        perform=role.perform,
        load=shell.load,
        leave=shell.leave,
        metrics=metrics,
        boot_id=boot.boot_id,
        seed=boot.seed,
        discoverable=False,
        never_waits=True,
        trials=node.trials,
    )

    async def reflex() -> None:
        await asyncio.sleep(boot.chance.rng.randint(1, period_ms) / 1_000)
        while True:
            shell.turn()
            if role.reflex is not None:
                role.reflex.check()
            watcher.ticked(node, role)
            await asyncio.sleep(period_ms / 1_000)

    works = (
        running(boot, service),
        shell.run_teller(service.inject),
        shell.run_reconcile(service.inject),
        reflex(),
    )
    return role, works
