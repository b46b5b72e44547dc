"""The collector's shell: reads the machine once a period, in a thread, and hands the readings to the core."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

import structlog
from msgspec import Struct

from colo_collector.attached_groups import SetAttachedGroups
from colo_collector.host_applications import SetHostApplications
from colo_collector.kernel_groups import GroupsRead, ReadGroups
from colo_collector.latency_slo import SetLatencySlo
from colo_collector.machine import Observation
from colo_collector.pushed import TakePushed
from colo_collector.readings import SampleRead, Skip, TopologyRead, Unreadable
from colo_common.events.effects import Effect
from colo_common.events.enforcement import AttachedGroupsChanged
from colo_common.events.node import NodeFactsWanted
from colo_common.events.policy import PolicyChanged
from colo_common.model.invalid import InvariantBroken
from colo_common.model.slo import worst_online_violation
from colo_common.ports import Clock
from colo_common.runtime.core import Performer, Subscription
from colo_common.runtime.metrics import Metrics

__all__ = ["CollectorShell", "GroupSource", "MetricDesk", "Sampler", "collector_hears", "collector_performer"]

_PERIOD_S_MIN: Final = 0.1
"""The shortest real period under a fast clock, because /proc/stat counts in hundredths of a second."""
_FAULTS_LOGGED: Final = 20
_WAKE_GAP_S: Final = 0.05
"""What the kernel tells is handed on at most so late, and a tenth of a second is promised."""


class Sampler(Protocol):
    """The port to a machine."""

    def observe(self) -> Observation:
        """Read the machine once. Blocks, and never raises for an unreadable file."""
        ...


class KernelSource(Protocol):
    """The port to what the kernel tells of between two observations."""

    @property
    def hangs(self) -> int:
        """Reads that were given up since the start."""
        ...

    def named(self, names: Sequence[str]) -> tuple[Struct, ...]:
        """What the kernel told of, as events. Blocks, and never raises for an unreadable file."""
        ...


class TriggerSource(Protocol):
    """The port to the files of which the kernel tells by itself."""

    def watch(self, files: Mapping[str, tuple[str, str]]) -> None:
        """Watch exactly these: name -> path and trigger."""
        ...


class GroupSource(Protocol):
    """The port to the control groups of a machine."""

    def set_host_applications(self, declared: SetHostApplications) -> None:
        """Watch these host applications from the next observation on."""
        ...

    def set_attached_groups(self, attached: SetAttachedGroups) -> None:
        """Measure these groups as replicas from the next observation on."""
        ...

    def kernel_groups(self, request: str) -> GroupsRead:
        """Read all control groups. Blocks, and never raises for an unreadable file."""
        ...


class MetricDesk(Protocol):
    """The port to the metrics that workloads say of themselves."""

    def take_pushed(self, pushed: TakePushed) -> None:
        """Take values that a workload sent."""
        ...

    def set_latency_slo(self, slo: SetLatencySlo) -> None:
        """Judge latencies that declare no SLO by this one."""
        ...


def collector_hears(node: str) -> tuple[Subscription, ...]:
    """The subscriptions of one node's collector: the colocation policy, and what its executor attached, each with the last word.

    And what is asked of the node when the bus has lost its topology.
    """
    return (
        Subscription(type=NodeFactsWanted, parameters={"node": node}),
        Subscription(type=PolicyChanged, durable=False, replay=True),
        Subscription(type=AttachedGroupsChanged, parameters={"node": node}, durable=False, replay=True),
    )


def collector_performer(machine: GroupSource, metrics: MetricDesk) -> Performer:
    """Return the performer: ReadGroups reads in a thread, because a machine may have thousands of groups."""

    async def perform(effect: Effect) -> Sequence[Struct]:
        match effect:
            case ReadGroups():
                return [await asyncio.to_thread(machine.kernel_groups, effect.request)]
            case TakePushed():
                metrics.take_pushed(effect)
                return []
            case SetHostApplications():
                machine.set_host_applications(effect)
                return []
            case SetAttachedGroups():
                machine.set_attached_groups(effect)
                return []
            case SetLatencySlo():
                metrics.set_latency_slo(effect)
                return []
            case _:
                raise InvariantBroken("the collector performs no such effect", effect=type(effect).__name__)

    return perform


class CollectorShell:
    """Observes on an absolute schedule: a late reading does not move the next one, and missed periods are not made up for."""

    def __init__(
        self,
        machine: Sampler,
        *,
        inject: Callable[[Struct], Awaitable[None]],
        skipped: Mapping[Skip, int],
        clock: Clock,
        period_ms: int,
        metrics: Metrics,
        triggers: TriggerSource | None = None,
        kernel: KernelSource | None = None,
    ) -> None:
        """`skipped` is the core's count, exported as it grows. `triggers` tell `wake` what the kernel tells them."""
        self._triggers = triggers
        self._event_files: Mapping[str, tuple[str, str]] | None = None
        self._kernel = kernel
        self._woken = asyncio.Event()
        self._named: set[str] = set()
        self._wakes = metrics.counter(
            "colo_collector_kernel_wakes_total", "times that the kernel told of pressure or memory events by itself"
        )
        self._violations = metrics.gauge(
            "openfuyao_qos_violation_rate",
            "share of the values of an online workload's own latency that broke its SLO in five minutes, the worst of all"
            " workloads; NaN while no online workload says it",
        )
        self._violations.set(math.nan)
        self._hangs = metrics.gauge("colo_collector_hung_reads", "reads that were given up since the start")
        self._machine = machine
        self._inject = inject
        self._skipped = skipped
        self._exported: dict[Skip, int] = {}
        self._period_s = max(clock.real_s(period_ms), _PERIOD_S_MIN)
        self._log = structlog.get_logger("collector")
        self._problem = "has not been read yet"
        self._faults: frozenset[str] = frozenset()
        self._observation_seconds = metrics.histogram(
            "colo_collector_observation_seconds", "time of one reading of the machine"
        )
        self._spread_seconds = metrics.gauge(
            "colo_collector_spread_seconds", "how far apart the first and the last file of a sample were read"
        )
        self._missed = metrics.counter(
            "colo_collector_periods_missed_total", "periods without a reading, because an earlier one took too long"
        )
        self._skips = metrics.counter("colo_collector_samples_skipped_total", "periods without a sample", ("reason",))
        self._left_out = metrics.counter(
            "colo_collector_workloads_left_out_total", "workloads whose rate was unknown in a sample", ("reason",)
        )
        self._workloads = metrics.gauge("colo_collector_workloads", "workloads that are watched")
        self._fault_count = metrics.gauge("colo_collector_faults", "files or groups that cannot be read now")

    def problem(self) -> str:
        """Empty, or one sentence with the reason why there is no sample of this machine."""
        return self._problem

    async def run(self) -> None:
        """Observe once a period until cancelled. Raises only errors of the service."""
        loop = asyncio.get_running_loop()
        origin_s = loop.time()
        turn = 0
        while True:
            await asyncio.sleep(max(origin_s + turn * self._period_s - loop.time(), 0))
            began_s = loop.time()
            observation = await asyncio.to_thread(self._machine.observe)
            self._observation_seconds.observe(loop.time() - began_s)
            await self._deliver(observation)
            if self._triggers is not None and observation.event_files != self._event_files:
                self._event_files = observation.event_files
                await asyncio.to_thread(self._triggers.watch, observation.event_files)
            due = int((loop.time() - origin_s) / self._period_s) + 1
            if due > turn + 1:
                self._missed.inc(due - turn - 1)
            turn = max(due, turn + 1)

    def wake(self, names: tuple[str, ...]) -> None:
        """The kernel told of these. Called on the loop's thread."""
        self._named.update(names)
        self._woken.set()

    async def hear_kernel(self) -> None:
        """Hand on what the kernel tells between two samples, at most twenty times a second, until cancelled."""
        while self._kernel is not None:
            await self._woken.wait()
            self._woken.clear()
            names, self._named = tuple(sorted(self._named)), set()
            self._wakes.inc()
            for event in await asyncio.to_thread(self._kernel.named, names):
                await self._inject(event)
            await asyncio.sleep(_WAKE_GAP_S)

    async def _deliver(self, observation: Observation) -> None:
        if observation.topology_read is not None:
            self._log_topology(observation.topology_read, observation.assumed)
            await self._inject(observation.topology_read)
        await self._inject(observation.event)
        for grown in observation.memory_events:
            await self._inject(grown)
        self._log_readable(observation)
        if isinstance(observation.event, SampleRead):
            worst = worst_online_violation(observation.event.workloads)
            self._violations.set(math.nan if worst is None else worst.violation_ratio)
        self._log_faults(frozenset(observation.faults))
        self._workloads.set(observation.workloads)
        self._spread_seconds.set(observation.spread_ns / 1e9)
        for _, reason in observation.left_out:
            self._left_out.labels(reason.value).inc()
        for skip, count in self._skipped.items():
            self._skips.labels(skip.value).inc(count - self._exported.get(skip, 0))
            self._exported[skip] = count

    def _log_topology(self, topology_read: TopologyRead, assumed: tuple[str, ...]) -> None:
        topology = topology_read.topology
        self._log.info(
            "topology-read",
            cpus=len(topology.cpus),
            zones=len(topology.zones),
            memory_bytes=topology.memory_capacity_bytes,
            assumed=list(assumed),
        )

    def _log_readable(self, observation: Observation) -> None:
        """Log when the machine became readable or unreadable, and when the reason changed."""
        problem = ""
        if isinstance(observation.event, Unreadable):
            if observation.event.reason is Skip.FIRST:
                # A rate needs two readings; this is no failure.
                return
            problem = observation.event.detail or observation.event.reason.value
        if problem == self._problem:
            return
        if problem:
            self._log.warning("machine-unreadable", reason=problem)
        else:
            self._log.info("machine-readable")
        self._problem = problem

    def _log_faults(self, faults: frozenset[str]) -> None:
        self._fault_count.set(len(faults))
        if self._kernel is not None:
            self._hangs.set(self._kernel.hangs)
        new = sorted(faults - self._faults)
        healed = sorted(self._faults - faults)
        for fault in new[:_FAULTS_LOGGED]:
            self._log.warning("file-fault", fault=fault)
        if len(new) > _FAULTS_LOGGED:
            self._log.warning("file-faults-not-logged", count=len(new) - _FAULTS_LOGGED)
        if healed:
            self._log.info("file-faults-over", count=len(healed))
        self._faults = faults
