"""The collector core: turns readings of one machine into facts about its topology, its usage and its pressure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, assert_never

import msgspec

from colo_collector.attached_groups import FollowedAttachedGroups
from colo_collector.business import MetricRule
from colo_collector.crossing import Crossing, Gauge
from colo_collector.host_applications import FollowedHostApplications
from colo_collector.kernel_groups import GroupsRead, ReadGroups
from colo_collector.latency_slo import FollowedLatencySlo
from colo_collector.memory_events import MemoryEventsRead
from colo_collector.policy import CollectorPolicy
from colo_collector.pushed import PushDesk
from colo_collector.readings import PressureRaised, SampleRead, Skip, TopologyRead, Unreadable
from colo_common.events.effects import Effect, Publish, Reply, RequestReceived, Wake
from colo_common.events.enforcement import AttachedGroupsChanged
from colo_common.events.kernel import ListKernelGroups, NodeKernelGroups
from colo_common.events.metric import PushMetric
from colo_common.events.node import (
    MemoryEventsGrew,
    NodeFactsWanted,
    NodeTopologyReported,
    NodeUsageSampled,
    PressureCrossed,
    PressureReading,
)
from colo_common.events.policy import PolicyChanged
from colo_common.events.requests import Refusal
from colo_common.events.subjects import encode_node
from colo_common.model.invalid import InvalidInput, InvariantBroken
from colo_common.model.units import check_units

__all__ = ["CollectorCore", "Event", "content_hash"]

Event = (
    TopologyRead
    | SampleRead
    | PressureRaised
    | MemoryEventsRead
    | Unreadable
    | GroupsRead
    | PolicyChanged
    | AttachedGroupsChanged
    | NodeFactsWanted
    | RequestReceived
    | Wake
)

_WORKLOADS_MAX: Final = 10_000
_HASH_CHARACTERS: Final = 16


def content_hash(topology_read: TopologyRead) -> str:
    """Sixteen hex digits that are equal for equal content, whatever the order of the labels."""
    content = msgspec.json.encode(topology_read, order="sorted")
    return hashlib.sha256(content).hexdigest()[:_HASH_CHARACTERS]


class CollectorCore:
    """The state of one node: the topology published last, the number of the last sample and the pressure windows.

    `skipped` counts periods without a sample by reason; the shell exports it.
    """

    def __init__(self, node: str, policy: CollectorPolicy, metric_rules: Sequence[MetricRule] = ()) -> None:
        """`metric_rules` say which workloads may push what. Raises InvalidInput for a bad node name or policy."""
        encode_node(node)
        policy.validate()
        self.node = node
        self.policy = policy
        self.skipped: dict[Skip, int] = {}
        self._pushes = PushDesk(metric_rules)
        self._latency_slo = FollowedLatencySlo(policy.online_latency_slo_ms)
        self._host_applications = FollowedHostApplications()
        self._attached = FollowedAttachedGroups(node)
        self.sample_seq = 0
        self.topology_read: TopologyRead | None = None
        self._published_ms = 0
        self._memory_facts = 0
        self._gauges = tuple(Gauge(threshold, policy.window_ms) for threshold in policy.thresholds)

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """The only way in. Raises InvalidInput, before anything changed, for an event that contradicts itself."""
        match event:
            case SampleRead():
                return self._on_sample(event, now_ms)
            case TopologyRead():
                return self._on_topology(event, now_ms)
            case PressureRaised():
                return self._raised(event, now_ms)
            case MemoryEventsRead():
                return [self._memory_events(event, now_ms)]
            case Unreadable():
                self._skip(event.reason)
                return []
            case RequestReceived():
                return self._asked(event, now_ms)
            case GroupsRead():
                return [self._groups(event, now_ms)]
            case PolicyChanged():
                self._latency_slo.follow(event)
                self._host_applications.follow(event)
                return self._follow_policy(now_ms)
            case AttachedGroupsChanged():
                attached = self._attached.changed(event)
                return [] if attached is None else [attached]
            case NodeFactsWanted():
                return self._published_again(event, now_ms)
            case Wake():
                return []
            case _:
                assert_never(event)

    def deadline_ms(self) -> int | None:
        """None: the machine's readings are the only clock."""
        return None

    def check(self) -> None:
        """Raise InvariantBroken when a window and its state disagree, or a sample came before the first topology."""
        if self.sample_seq > 0 and self.topology_read is None:
            raise InvariantBroken("a sample was published before the first topology", node=self.node)
        for gauge in self._gauges:
            gauge.check()

    def _asked(self, event: RequestReceived, now_ms: int) -> list[Effect]:
        """Have the groups read, or take what a workload says of itself; what else is asked is refused."""
        match event.body:
            case ListKernelGroups():
                return [ReadGroups(request=event.request)]
            case PushMetric():
                take, answer = self._pushes.judge(event.body, self.node, now_ms)
                reply = Reply(request=event.request, body=answer)
                return [reply] if take is None else [take, reply]
            case _:
                name = type(event.body).__name__
                refusal = Refusal(code=404, field="request", rule="is not answered here", got=name)
                return [Reply(request=event.request, body=refusal)]

    def _groups(self, event: GroupsRead, now_ms: int) -> Reply:
        """The answer to the question for which the groups were read."""
        found = NodeKernelGroups(
            node=self.node,
            at_ms=now_ms,
            groups=event.groups,
            left_out=event.left_out,
            simulated=event.simulated,
            faults=event.faults,
        )
        return Reply(request=event.request, body=found)

    def _on_topology(self, event: TopologyRead, now_ms: int) -> list[Effect]:
        check_units(event, "topology_read")
        event.topology.validate()
        event.rules.validate(event.topology)
        if event == self.topology_read:
            return []
        self.topology_read = event
        return [self._publish_topology(event, now_ms), *self._follow_policy(now_ms)]

    def _follow_policy(self, now_ms: int) -> list[Effect]:
        """Judge latencies by another SLO, and watch other host applications, when the policy gives them for the node's labels,
        which come with its topology.
        """
        if self.topology_read is None:
            return []
        labels = self.topology_read.labels
        followed = (self._latency_slo.changed(labels, now_ms), self._host_applications.changed(labels, now_ms))
        return [effect for effect in followed if effect is not None]

    def _published_again(self, event: NodeFactsWanted, now_ms: int) -> list[Effect]:
        """Publish the topology once more, at once: whoever asks spreads its questions over the nodes."""
        if event.node != self.node or self.topology_read is None:
            return []
        return [self._publish_topology(self.topology_read, now_ms)]

    def _publish_topology(self, event: TopologyRead, now_ms: int) -> Publish:
        self._published_ms = now_ms
        fact = NodeTopologyReported(
            at_ms=now_ms,
            node=self.node,
            topology=event.topology,
            capabilities=event.capabilities,
            labels=event.labels,
            simulated=event.simulated,
            taints=event.taints,
            rules=event.rules,
        )
        # The id has the time, because a machine may return to an earlier topology within the bus's window for duplicates.
        return Publish(fact=fact, id=f"collector:topology:{self.node}:{content_hash(event)}:{now_ms}")

    def _on_sample(self, event: SampleRead, now_ms: int) -> list[Effect]:
        if self.topology_read is None:
            self._skip(Skip.NO_TOPOLOGY)
            return []
        _check(event, self.topology_read)
        self.sample_seq += 1
        effects: list[Effect] = list(self._crossings(event))
        if now_ms - self._published_ms >= self.policy.topology_again_ms:
            effects.append(self._publish_topology(self.topology_read, now_ms))
        sample = NodeUsageSampled(
            at_ms=event.at_ms,
            node=self.node,
            sample_seq=self.sample_seq,
            interval_ms=event.interval_ms,
            cpu_used_mcpu=event.cpu_used_mcpu,
            memory_used_bytes=event.memory_used_bytes,
            zones=event.zones,
            workloads=event.workloads,
            pressure=event.pressure,
            system_cpu_used_mcpu=event.system_cpu_used_mcpu,
            system_memory_used_bytes=event.system_memory_used_bytes,
            steal_mcpu=event.steal_mcpu,
            online_stall_us=event.online_stall_us,
            monotonic_ms=event.monotonic_ms,
            missing=event.missing,
            classes=event.classes,
            detail=event.detail,
            windows=event.windows,
        )
        effects.append(Publish(fact=sample))
        return effects

    def _crossings(self, event: SampleRead) -> list[Publish]:
        """Feed every watched signal. A signal whose resource the sample lacks keeps its state: unknown is not zero."""
        found: list[Publish] = []
        readings = {reading.resource: reading for reading in event.pressure}
        interval_us = event.interval_ms * 1_000
        for gauge in self._gauges:
            resource, _, line = gauge.threshold.signal.partition("_")
            reading = next((one for name, one in readings.items() if name == resource), None)
            if reading is None:
                continue
            stall_us = reading.some_us if line == "some" else reading.full_us
            crossing = gauge.take(interval_us, min(stall_us, interval_us))
            if crossing is None:
                continue
            found.append(self._crossed(gauge, crossing, event.at_ms))
        return found

    def _raised(self, event: PressureRaised, now_ms: int) -> list[Effect]:
        """The kernel was faster than the samples. A signal that nobody watches, or that is above already, changes nothing."""
        gauge = next((one for one in self._gauges if one.threshold.signal == event.signal), None)
        crossing = None if gauge is None or self.topology_read is None else gauge.raised()
        return [] if gauge is None or crossing is None else [self._crossed(gauge, crossing, now_ms)]

    def _crossed(self, gauge: Gauge, crossing: Crossing, at_ms: int) -> Publish:
        fact = PressureCrossed(
            at_ms=at_ms,
            node=self.node,
            signal=gauge.threshold.signal,
            above=crossing.above,
            value_pct=crossing.value_pct,
            threshold_pct=crossing.mark_pct,
            window_ms=self.policy.window_ms,
            sample_seq=self.sample_seq,
        )
        # Sample numbers start again at every start, so the number alone would name two facts.
        identity = f"collector:pressure:{self.node}:{gauge.threshold.signal}:{at_ms}:{self.sample_seq}"
        return Publish(fact=fact, id=identity)

    def _memory_events(self, event: MemoryEventsRead, now_ms: int) -> Publish:
        self._memory_facts += 1
        fact = MemoryEventsGrew(
            at_ms=now_ms,
            node=self.node,
            workload=event.workload,
            replica=event.replica,
            attempt=event.attempt,
            high_events=event.high_events,
            max_events=event.max_events,
            oom_events=event.oom_events,
            oom_kill_events=event.oom_kill_events,
            sample_seq=self.sample_seq,
        )
        return Publish(fact=fact, id=f"collector:memory:{self.node}:{event.workload}:{now_ms}:{self._memory_facts}")

    def _skip(self, reason: Skip) -> None:
        self.skipped[reason] = self.skipped.get(reason, 0) + 1


def _check(event: SampleRead, machine: TopologyRead) -> None:
    """Raise InvalidInput for other zones than the machine's, a negative or absurd number, or a name that comes twice."""
    if event.interval_ms < 1:
        raise InvalidInput("sample.interval_ms", "must be at least 1", event.interval_ms)
    zones = [zone.zone for zone in event.zones]
    if zones != [zone.zone for zone in machine.topology.zones]:
        raise InvalidInput("sample.zones", "must be exactly the zones of the topology, in its order", zones)
    numbers = (event.cpu_used_mcpu, event.memory_used_bytes, event.steal_mcpu, event.online_stall_us or 0)
    if min(*numbers, event.system_cpu_used_mcpu, event.system_memory_used_bytes) < 0:
        raise InvalidInput("sample", "no number may be negative", numbers)
    if any(min(zone.cpu_used_mcpu, zone.memory_used_bytes) < 0 for zone in event.zones):
        raise InvalidInput("sample.zones", "no number may be negative", zones)
    if len(event.workloads) > _WORKLOADS_MAX:
        raise InvalidInput("sample.workloads", f"may be at most {_WORKLOADS_MAX}", len(event.workloads))
    names = {one.workload for one in event.workloads}
    if len(names) != len(event.workloads):
        raise InvalidInput("sample.workloads", "each may be listed once", len(event.workloads))
    for one in event.workloads:
        if min(one.cpu_used_mcpu, one.memory_used_bytes, one.throttled_us) < 0:
            raise InvalidInput(f"sample.workloads[{one.workload}]", "no number may be negative", one.cpu_used_mcpu)
    _check_pressure(event.pressure)
    check_units(event, "sample")


def _check_pressure(readings: tuple[PressureReading, ...]) -> None:
    names = [reading.resource for reading in readings]
    if len(set(names)) != len(names):
        raise InvalidInput("sample.pressure", "each resource may be listed once", names)
    for reading in readings:
        if min(reading.some_us, reading.full_us) < 0:
            raise InvalidInput(f"sample.pressure[{reading.resource}]", "no stall may be negative", reading.some_us)
