"""One node of a simulated world: a machine with its own clock, its collector and its executor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, cast

from msgspec import Struct

from colo_collector.core import CollectorCore
from colo_collector.policy import CollectorPolicy
from colo_collector.readings import TopologyRead
from colo_common.events.effects import Effect, Wake
from colo_common.model.invalid import InvariantBroken
from colo_common.runtime.core import Core, Subscription
from colo_executor.core import Executor, ExecutorPolicy
from colo_executor.journal_lines import JournalState
from colo_executor.local import (
    CeilingMoved,
    LaunchReplica,
    RememberEnd,
    RememberPlacement,
    RenewLease,
    ReplicaLaunched,
    SetCeiling,
    SignalReplica,
)
from colo_executor.reflex import Reflex, ReflexEvent, ReflexPolicy
from colo_executor.simulated import SimulatedRuntime
from colo_executor.subscriptions import executor_hears
from colo_sim.event_queue import Work, at_once
from colo_sim.machine import SimMachine
from colo_sim.machine_reading import MachineCounters
from colo_sim.node_measure import measured_between
from colo_sim.world_process import SimProcess

__all__ = ["CollectorRole", "ExecutorRole", "SimNode", "NodeWatcher"]

_STOP_STEPS: Final = 64


class NodeWatcher(Protocol):
    """Is shown what nodes do."""

    def launched(self, node: SimNode, replica: str, attempt: int) -> None: ...
    def ticked(self, node: SimNode, role: ExecutorRole) -> None: ...


class SimNode:
    """What outlives processes: the machine and the executor's journal. `is_off`: it has no power."""

    def __init__(self, name: str, machine: SimMachine) -> None:
        self.name = name
        self.machine = machine
        self.journal = JournalState()
        self.is_off = False
        self.is_gone = False
        self.collector: SimProcess
        self.executor: SimProcess

    @property
    def processes(self) -> tuple[SimProcess, SimProcess]:
        """Both, the collector first."""
        return self.collector, self.executor

    def advance(self) -> MachineCounters:
        """Let the machine run until now by its own clock, and read it."""
        self.machine.advance(max(self.executor.clock.now_ms(), self.machine.at_ms))
        return self.machine.counters()


class CollectorRole:
    """Measures the machine every period."""

    hears: Sequence[Subscription] = ()

    def __init__(self, process: SimProcess, node: SimNode, period_ms: int) -> None:
        self.core = cast(Core, CollectorCore(node.name, CollectorPolicy()))
        self._process = process
        self._node = node
        self._period_ms = period_ms

    def load(self) -> list[Struct]:
        """What the machine is."""
        spec = self._node.machine.spec
        return [TopologyRead(topology=spec.topology(), capabilities=spec.capabilities(), simulated=True)]

    def perform(self, effect: Effect) -> Sequence[Struct]:
        """There are no effects of its own."""
        raise InvariantBroken("the collector performs no such effect", effect=type(effect).__name__)

    def begin(self) -> Sequence[Work]:
        """Samples."""
        return (self._sample(),)

    def _sample(self) -> Work:
        before = self._node.advance()
        yield self._process.bus.rng.randint(1, self._period_ms)
        while True:
            now = self._node.advance()
            measured = measured_between(before, now)
            before = now
            if measured is not None:
                self._process.inject(measured)
            yield self._period_ms


class ExecutorRole:
    """The executor core, the reflex and the runtime, joined as the executor's shell joins them."""

    def __init__(
        self, process: SimProcess, node: SimNode, watcher: NodeWatcher, policy: ReflexPolicy, period_ms: int
    ) -> None:
        self.executor = Executor(node.name, ExecutorPolicy())
        self.core = cast(Core, self.executor)
        self.hears: Sequence[Subscription] = executor_hears(node.name)
        self.node = node
        self.policy = policy
        self.runtime = SimulatedRuntime(
            node.machine,
            capacity_mcpu=node.machine.spec.cpu_capacity_mcpu,
            journal=node.journal,
            topology=node.machine.spec.topology(),
        )
        self.reflex: Reflex | None = None
        self.renewed_at_ms = 0
        self.lease_ms = policy.lease.default_ms
        self._process = process
        self._watcher = watcher
        self._period_ms = period_ms
        self._renewals: list[RenewLease] = []

    def load(self) -> list[Struct]:
        """Adopt what runs."""
        now_ms = self._process.clock.now_ms()
        adopted = at_once(self.runtime.adopt(now_ms))
        self.reflex = Reflex(
            self.policy,
            capacity_mcpu=self.runtime.capacity_mcpu,
            now_ms=now_ms,
            ceiling_mcpu=self.runtime.ceiling_mcpu,
        )
        self.renewed_at_ms = now_ms
        return [adopted]

    def perform(self, effect: Effect) -> Sequence[Struct]:
        """Act on the machine."""
        match effect:
            case LaunchReplica(placement=placement):
                self._process.note(f"launches  {placement.replica}#{placement.attempt}")
                result = at_once(self.runtime.launch(placement, self._process.clock.now_ms()))
                if isinstance(result, ReplicaLaunched):
                    self._watcher.launched(self.node, placement.replica, placement.attempt)
                return [result]
            case SignalReplica():
                self._process.note(f"signals   {effect.replica}#{effect.attempt} {effect.signal}")
                at_once(self.runtime.signal(effect))
            case RememberPlacement() | RememberEnd():
                at_once(self.runtime.remember(effect))
            case RenewLease():
                self._renewals.append(effect)
                self.renewed_at_ms = self._process.clock.now_ms()
                self.lease_ms = effect.lease_ms or self.lease_ms
            case _:
                raise InvariantBroken("the executor performs no such effect", effect=type(effect).__name__)
        return []

    def begin(self) -> Sequence[Work]:
        """The reflex."""
        return (self._turn(),)

    def _turn(self) -> Work:
        yield self._process.bus.rng.randint(1, self._period_ms)
        while True:
            self._tick()
            yield self._period_ms

    def _tick(self) -> None:
        reflex, now_ms = self.reflex, self._process.clock.now_ms()
        if reflex is None:
            return
        while self._renewals:
            self._step(reflex, self._renewals.pop(0), now_ms)
        reading = self.runtime.read_fast(now_ms)
        if reading is not None:
            self._step(reflex, reading, now_ms)
        else:
            due_ms = reflex.deadline_ms()
            if due_ms is not None and due_ms <= now_ms:
                self._step(reflex, Wake(), now_ms)
        for exited in self.runtime.poll_exits():
            self._process.note(f"sees end  {exited.replica}#{exited.attempt} {exited.exit_code}")
            self._process.inject(exited)
        reflex.check()
        self._watcher.ticked(self.node, self)

    def _step(self, reflex: Reflex, event: ReflexEvent, now_ms: int) -> None:
        effects = reflex.handle(event, now_ms)
        steps = 0
        while effects:
            steps += 1
            if steps > _STOP_STEPS:
                raise InvariantBroken("the reflex does not come to an end", node=self.node.name)
            effect = effects.pop(0)
            match effect:
                case SetCeiling():
                    self._process.note(f"ceiling   {effect.ceiling_mcpu}")
                    effects += reflex.handle(self.runtime.set_ceiling(effect.ceiling_mcpu), now_ms)
                case CeilingMoved():
                    self._process.inject(effect)
