"""Simulated nodes in one process: each has a simulated machine and the real collector and executor services."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import structlog
from msgspec import Struct
from msgspec.structs import replace

from colo_collector.core import CollectorCore
from colo_collector.kernel_groups import GroupsRead, ReadGroups
from colo_collector.policy import CollectorPolicy
from colo_collector.readings import TopologyRead
from colo_common.events.effects import Effect
from colo_common.events.kernel import ListKernelGroups
from colo_common.events.node import NodeFactsWanted
from colo_common.model.invalid import InvariantBroken
from colo_common.ports import Bus, Clock
from colo_common.runtime.core import Subscription
from colo_common.runtime.process import ServiceProcess, run
from colo_common.runtime.service import Service
from colo_executor.core import Executor, ExecutorPolicy
from colo_executor.shell import ExecutorShell
from colo_executor.simulated import SimulatedRuntime
from colo_executor.subscriptions import executor_hears
from colo_sim.demand import MEMORY_SHARE_PPM, NodeDemand
from colo_sim.host_bus import NodesBus
from colo_sim.host_settings import HostSettings
from colo_sim.host_turns import take_turns
from colo_sim.machine import SimMachine
from colo_sim.machine_groups import groups_of
from colo_sim.machine_reading import MachineReport
from colo_sim.machine_spec import DEVICE_LABEL, MachineSpec
from colo_sim.node_measure import measured_between
from colo_sim.noise import PPM
from colo_sim.stepped_clock import SteppedClock
from colo_sim.trace_readers import default_trace, read_trace
from colo_sim.trace_rows import TraceRead

__all__ = ["SimulatedNode", "main"]

_REPORT_S = 1.0
_REPORTED_A_SECOND = 50
_SLICE_S = 0.25
_HUGE_PAGES_A_ZONE = 512
_DEVICE_NODE_CPU_PPM = 500_000
_DEVICE_NODE_MEMORY_PPM = MEMORY_SHARE_PPM // 2
"""ASSUMED: the services of a node with devices use half of the CPU and memory of others."""
_SYSTEM_MCPU = 1_000
"""Kept for the system in the baseline of plain requests, as much as colo keeps."""


class SimulatedNode:
    """A simulated machine, its collector and its executor."""

    def __init__(self, process: ServiceProcess, bus: Bus, settings: HostSettings, index: int, trace: TraceRead) -> None:
        self.name = node_name(settings, index)
        has_devices = _has_devices(settings, index)
        spec = _spec(settings, has_devices)
        self._labels = {"disk": "ssd", DEVICE_LABEL: "yes"} if has_devices else {}
        demand = NodeDemand(
            trace.trace,
            node=self.name,
            node_index=settings.first_node - 1 + index,
            seed=settings.seed,
            cpu_capacity_mcpu=spec.cpu_capacity_mcpu,
            memory_capacity_bytes=spec.memory_capacity_bytes,
            cpu_share_ppm=_DEVICE_NODE_CPU_PPM if has_devices else PPM,
            memory_share_ppm=_DEVICE_NODE_MEMORY_PPM if has_devices else MEMORY_SHARE_PPM,
        )
        # The node's clock follows the process's clock in steps, so that the reflex acts at exact times at any speed.
        self._step = SteppedClock(process.clock)
        self._origin_ms = self._step.now_ms()
        self._sub_step_ms = settings.sub_step_ms
        self._lived_ms = self._origin_ms
        self._reflex_ms = settings.reflex_ms
        room_mcpu = spec.cpu_capacity_mcpu - _SYSTEM_MCPU - demand.request_mcpu
        fill_pct = 0 if has_devices and settings.device_nodes < settings.nodes else settings.plain_fill_pct
        # The machine runs on the services' time; the trace starts with the lab.
        self.machine = SimMachine(
            spec,
            node=self.name,
            seed=settings.seed,
            demand=lambda at_ms: demand.at(max(at_ms - self._origin_ms, 0)),
            start_ms=self._origin_ms,
            plain_batch_mcpu=max(0, room_mcpu * fill_pct // 100),
        )
        self._spec = spec
        self._clock: Clock = process.clock
        self._sample_ms = settings.sample_ms
        self._phase_ms = settings.sample_ms * index // settings.nodes
        self.collector = Service(
            name="collector",
            core=CollectorCore(self.name, CollectorPolicy()),
            bus=bus,
            clock=process.clock,
            subscriptions=(Subscription(type=NodeFactsWanted, parameters={"node": self.name}),),
            answers=(ListKernelGroups,),
            answers_for={"node": self.name},
            perform=self._read_groups,
            metrics=process.metrics,
            discoverable=False,
            never_waits=True,
        )
        self.shell = ExecutorShell(
            SimulatedRuntime(self.machine, capacity_mcpu=spec.cpu_capacity_mcpu, topology=spec.topology()),
            self._step,
            # Some readings may be late before the node counts as blind.
            policy=replace(settings.reflex, blind_ms=max(settings.reflex.blind_ms, 10 * settings.sub_step_ms)),
            period_ms=settings.sub_step_ms,
            metrics=process.metrics,
            span=process.telemetry.span,
        )
        self.executor = Service(
            name="executor",
            core=Executor(self.name, ExecutorPolicy(publish_interval_ms=int(1_000 * process.common.clock_speed))),
            bus=bus,
            clock=process.clock,
            subscriptions=executor_hears(self.name, with_samples=False),
            perform=self.shell.perform,
            load=self.shell.load,
            metrics=process.metrics,
            discoverable=False,
            never_waits=True,
        )

    @property
    def replicas(self) -> int:
        """How many attempts are on the node."""
        core = self.executor.core
        return len(core.active) if isinstance(core, Executor) else 0

    async def _read_groups(self, effect: Effect) -> Sequence[Struct]:
        """Perform the collector's one effect on the simulated machine."""
        if not isinstance(effect, ReadGroups):
            raise InvariantBroken("the collector performs no such effect", effect=type(effect).__name__)
        return [GroupsRead(request=effect.request, groups=groups_of(self.machine), simulated=True)]

    def due_ms(self) -> int:
        """The end of the machine's next sub-step."""
        return self._lived_ms + self._sub_step_ms

    def step(self) -> None:
        """Advance the machine and its reflex by a sub-step.

        Load changes at its beginning; a reading there ends the old interval, the one `reflex_ms` later is the first that shows
        the new load, and what the reflex then does takes effect at that moment.
        """
        for moment_ms in (self._lived_ms + self._reflex_ms, self.due_ms()):
            self._step.step_to(moment_ms)
            self.machine.advance(max(moment_ms, self.machine.at_ms))
            self.shell.turn()
        self._lived_ms = self.due_ms()

    async def sample(self) -> None:
        """Report the topology, then a sample every period on an absolute schedule, until cancelled."""
        spec = self._spec
        await self.collector.inject(
            TopologyRead(
                topology=spec.topology(), capabilities=spec.capabilities(), labels=self._labels, simulated=True
            )
        )
        before = self.machine.counters()
        due_ms = self._clock.now_ms() + self._phase_ms
        while True:
            due_ms = max(due_ms + self._sample_ms, self._clock.now_ms())
            # In slices, because a lab's clock changes its speed.
            while (left_ms := due_ms - self._clock.now_ms()) > 0:  # noqa: ASYNC110 - a clock signals no event
                await asyncio.sleep(min(self._clock.real_s(left_ms), _SLICE_S))
            now = self.machine.counters()
            measured = measured_between(before, now)
            if measured is not None:
                await self.collector.inject(measured)
                before = now


def _has_devices(settings: HostSettings, index: int) -> bool:
    return settings.gpus_per_zone + settings.nics_per_zone > 0 and index >= settings.nodes - settings.device_nodes


def _spec(settings: HostSettings, has_devices: bool) -> MachineSpec:
    return MachineSpec(
        sockets=settings.sockets,
        zones_per_socket=settings.zones_per_socket,
        cpus_per_zone=settings.cpus_per_zone,
        memory_bytes_per_zone=settings.memory_gib_per_zone << 30,
        sub_step_ms=settings.sub_step_ms,
        gpus_per_zone=settings.gpus_per_zone if has_devices else 0,
        nics_per_zone=settings.nics_per_zone if has_devices else 0,
        huge_pages_per_zone=_HUGE_PAGES_A_ZONE if has_devices else 0,
    )


def node_name(settings: HostSettings, index: int) -> str:
    """node-01, node-02, ... with as many digits as the last one needs, at least two."""
    last = settings.first_node - 1 + settings.nodes
    return f"node-{settings.first_node + index:0{max(len(str(last)), 2)}d}"


async def build(process: ServiceProcess, settings: HostSettings) -> None:
    """Build all nodes and add their services to the process."""
    trace = await asyncio.to_thread(_trace, settings)
    log = structlog.get_logger("sim")
    for notice in trace.notices:
        log.info("trace", notice=notice)
    bus = NodesBus(process.bus)
    nodes = [SimulatedNode(process, bus, settings, index, trace) for index in range(settings.nodes)]
    for node in nodes:
        process.add(node.collector)
        process.add(node.executor)
        process.background(node.sample())
        process.background(node.shell.run_teller(node.executor.inject))
    process.background(take_turns(nodes, process.clock))
    replicas = process.metrics.gauge("colo_executor_replicas_count", "attempts on this node")
    replicas.set_function(lambda: float(sum(node.replicas for node in nodes)))
    # A simulated kernel has no core scheduling, so no replica should have a cookie.
    cookies = process.metrics.gauge(
        "colo_executor_core_cookies_count", "batch replicas that should have a core-scheduling cookie", ("cookie",)
    )
    for cookie in ("given", "missing"):
        cookies.labels(cookie).set(0)
    if settings.report:
        process.background(_report_regularly(nodes, Path(settings.report), process.clock))


async def _report_regularly(nodes: list[SimulatedNode], path: Path, clock: Clock) -> None:
    """Write the machines' ledgers regularly, every second for up to 50 of them, and once at the end."""
    origin_ms = clock.now_ms()
    try:
        while True:
            await asyncio.sleep(_REPORT_S * max(1.0, len(nodes) / _REPORTED_A_SECOND))
            _write_report(nodes, path, clock.now_ms() - origin_ms)
    finally:
        _write_report(nodes, path, clock.now_ms() - origin_ms)


def _write_report(nodes: list[SimulatedNode], path: Path, claimed_ms: int) -> None:
    report = MachineReport(
        claimed_ms=claimed_ms,
        delay_bound_pct=max(node.machine.delay_bound_permille for node in nodes) / 10,
        ledgers={node.name: node.machine.ledger() for node in nodes},
    )
    fresh = path.with_name(path.name + ".new")
    fresh.write_bytes(msgspec.json.encode(report))
    os.replace(fresh, path)


def _trace(settings: HostSettings) -> TraceRead:
    return read_trace(Path(settings.trace), skip_invalid=True) if settings.trace else default_trace(settings.seed)


def main() -> int:
    """Run until SIGTERM; returns the exit code."""
    return run("sim", HostSettings, build)


if __name__ == "__main__":
    sys.exit(main())
