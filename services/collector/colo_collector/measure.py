"""Turns two readings of the machine into one SampleRead, or into the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from colo_collector.discover import Workload
from colo_collector.kernel_text import cpu_list
from colo_collector.readings import SampleRead, Skip, Unreadable
from colo_collector.sample import Sample
from colo_collector.stall import pressure_readings, stalls_between
from colo_collector.usage import GroupRate, MachineRates, Rate, Unknown, rates_between
from colo_collector.workload_turns import WorkloadStall
from colo_common.events.node import (
    BusinessMetric,
    ClassUsage,
    MachineDetail,
    PressureReading,
    WorkloadDetail,
    WorkloadUsage,
    ZoneUsage,
)
from colo_common.model.qos import ONLINE_CLASSES, QosClass
from colo_common.model.stall import RunTimes, StallShare, stall_share, waited_share
from colo_common.model.topology import NodeTopology

__all__ = ["Measurement", "Turned", "measure"]

_NS_PER_MS = 1_000_000
_MISSING_MAX = 50
_SILENT_MS = 60_000


class Measurement(Struct, frozen=True, kw_only=True):
    """The outcome of one period. `left_out` has the workloads without a rate in this sample; their use counts as system use."""

    event: SampleRead | Unreadable
    left_out: tuple[tuple[str, Unknown], ...] = ()


class Turned(Struct, frozen=True, kw_only=True):
    """What the turns of this pass and the ones before it gave, by workload, and the detail of the node.

    `business` has what workloads say of themselves, by name or pod, with the monotonic time (ms) of its ages.
    """

    details: Mapping[str, WorkloadDetail] = {}
    stalls: Mapping[str, WorkloadStall] = {}
    node: MachineDetail | None = None
    business: Mapping[str, tuple[BusinessMetric, int]] = {}


def measure(
    previous: Sample | None,
    current: Sample,
    *,
    at_ms: int,
    topology: NodeTopology,
    workloads: Mapping[str, Workload],
    zones_of: Mapping[str, tuple[int, ...]],
    user_hz: int = 100,
    turned: Turned = Turned(),
) -> Measurement:
    """The sample between two readings. `workloads` are known by name, `zones_of` has the zones that the cpuset of each allows.

    A rate of the machine or a zone that is unknown makes the whole sample Unreadable: nothing in a sample is a guess. What is
    unknown beside them is named in `missing` and costs only itself: the stolen time, a workload without a rate (new, replaced), a
    resource without a stall.

    - The machine's CPU use is the sum of its zones, each rounded down.
    - system = the machine's use minus that of every listed workload, at least 0, for CPU and for memory (working sets).
    - `interval_ms` is rounded to the nearest millisecond, at least 1.
    """
    rates = rates_between(
        None if previous is None else previous.reading,
        current.reading,
        {zone.zone: cpu_list("topology.zones", zone.cpus) for zone in topology.zones},
        user_hz=user_hz,
    )
    unknown = _unknown(rates)
    if unknown is not None:
        return Measurement(event=Unreadable(reason=Skip(unknown.value)))
    listed, left_out, classes = _workloads(rates, current, workloads, zones_of, turned)
    zones = _zones(rates, current, topology, listed, turned)
    if zones is None:
        return Measurement(event=Unreadable(reason=Skip.ZONE_MEMORY, detail="the memory of a zone is unknown"))
    stalls = stalls_between(() if previous is None else previous.pressure, current.pressure, rates.interval_ns)
    # The sum line of /proc/stat is rounded separately, and node and zones of one sample must agree.
    used_mcpu = sum(zone.cpu_used_mcpu for zone in zones)
    pressure = pressure_readings(stalls, current.pressure)
    lacking = [*(["steal"] if rates.steal.mcpu is None else []), *_without_pressure(current, pressure)]
    lacking += [f"workload {name}" for name, _ in left_out]
    event = SampleRead(
        at_ms=at_ms,
        interval_ms=max((rates.interval_ns + _NS_PER_MS // 2) // _NS_PER_MS, 1),
        cpu_used_mcpu=used_mcpu,
        memory_used_bytes=current.memory_used_bytes,
        zones=zones,
        workloads=listed,
        pressure=pressure,
        system_cpu_used_mcpu=max(used_mcpu - sum(one.cpu_used_mcpu for one in listed), 0),
        system_memory_used_bytes=max(current.memory_used_bytes - sum(one.memory_used_bytes for one in listed), 0),
        steal_mcpu=_known(rates.steal),
        online_stall_us=_online_stall_us(rates.groups),
        monotonic_ms=current.reading.at_ns // _NS_PER_MS,
        missing=tuple(lacking[:_MISSING_MAX]),
        classes=classes,
        detail=turned.node,
    )
    return Measurement(event=event, left_out=left_out)


def _without_pressure(current: Sample, known: Sequence[PressureReading]) -> list[str]:
    """The resources whose pressure file was read and has no rate."""
    there = {reading.resource for reading in known}
    return [f"pressure-{resource}" for resource, _ in current.pressure if resource not in there]


def _online_stall_us(groups: Sequence[GroupRate]) -> int | None:
    """The longest CPU stall of all groups that have one, which are those of online work; None when none has."""
    return max((group.stalled_us for group in groups if group.stalled_us is not None), default=None)


def _unknown(rates: MachineRates) -> Unknown | None:
    """Why the machine has no sample, or None."""
    every = (rates.used, *(rate for _, rate in rates.zones))
    return next((rate.unknown for rate in every if rate.unknown is not None), None)


def _known(rate: Rate) -> int:
    return 0 if rate.mcpu is None else rate.mcpu


def _zones(
    rates: MachineRates, current: Sample, topology: NodeTopology, listed: Sequence[WorkloadUsage], turned: Turned
) -> tuple[ZoneUsage, ...] | None:
    """Use by zone; None when the used memory of a zone that has memory is unknown."""
    memory = dict(current.zone_memory_used_bytes)
    used, steals = dict(rates.zones), dict(rates.zone_steals)
    online: dict[int, _Sum] = {}
    for one in listed:
        if one.qos in ONLINE_CLASSES and len(one.zones) == 1:
            online.setdefault(one.zones[0], _Sum()).add(one, turned.stalls.get(one.workload))
    if any(zone.zone not in memory and zone.memory_bytes > 0 for zone in topology.zones):
        return None
    return tuple(
        ZoneUsage(
            zone=zone.zone,
            cpu_used_mcpu=_known(used[zone.zone]),
            memory_used_bytes=memory.get(zone.zone, 0),
            steal_mcpu=steals[zone.zone].mcpu if zone.zone in steals else None,
            stall_pct=online[zone.zone].stall_pct if zone.zone in online else None,
        )
        for zone in topology.zones
    )


class _Sum(Struct, kw_only=True):
    """What workloads add up to. `run_us` and `wait_us` are per second; `worst_pct` where only pressure is known.

    `got_us` and `wanted_us` are of all of them, also of those that a quota stopped, and count its stops as waiting.
    """

    workloads: int = 0
    cpu_used_mcpu: int = 0
    memory_used_bytes: int = 0
    throttled_us: int = 0
    run_us: int = 0
    wait_us: int = 0
    worst_pct: int | None = None
    has_times: bool = False
    got_us: int = 0
    wanted_us: int | None = None

    @property
    def stall_pct(self) -> int | None:
        if not self.has_times:
            return self.worst_pct
        return stall_share(RunTimes(span_us=1_000_000, run_us=self.run_us, wait_us=self.wait_us)).stall_pct

    @property
    def satisfaction_pct(self) -> int | None:
        if self.wanted_us is None:
            return None
        return self.got_us * 100 // self.wanted_us if self.wanted_us else 100

    def usage(self, qos: QosClass) -> ClassUsage:
        return ClassUsage(
            qos=qos,
            workloads=self.workloads,
            cpu_used_mcpu=self.cpu_used_mcpu,
            memory_used_bytes=self.memory_used_bytes,
            stall_pct=self.stall_pct,
            throttled_us=self.throttled_us,
            satisfaction_pct=self.satisfaction_pct if qos is QosClass.BE else None,
        )

    def add(self, usage: WorkloadUsage, stall: WorkloadStall | None) -> None:
        self.workloads += 1
        self.cpu_used_mcpu += usage.cpu_used_mcpu
        self.memory_used_bytes += usage.memory_used_bytes
        self.throttled_us += usage.throttled_us
        if stall is not None:
            times = stall.times
            got_us = times.run_us * 1_000_000 // times.span_us
            self.got_us += got_us
            self.wanted_us = (
                (self.wanted_us or 0) + got_us + (times.wait_us + times.steal_us) * 1_000_000 // times.span_us
            )
        if usage.stall_pct is None or usage.stall_gate == "self-throttled":
            return
        if stall is None:
            self.worst_pct = max(self.worst_pct or 0, usage.stall_pct)
            return
        times = stall.times
        self.has_times = True
        self.run_us += times.run_us * 1_000_000 // times.span_us
        waited_us = max(times.wait_us - times.throttled_us, 0) + times.steal_us
        self.wait_us += waited_us * 1_000_000 // times.span_us


def _workloads(
    rates: MachineRates,
    current: Sample,
    workloads: Mapping[str, Workload],
    zones_of: Mapping[str, tuple[int, ...]],
    turned: Turned,
) -> tuple[tuple[WorkloadUsage, ...], tuple[tuple[str, Unknown], ...], tuple[ClassUsage, ...]]:
    """The workloads whose rate is known, those left out, both in ascending name, and the sums of the classes."""
    listed: list[WorkloadUsage] = []
    left_out: list[tuple[str, Unknown]] = []
    sums: dict[QosClass, _Sum] = {}
    for rate in rates.groups:
        workload = workloads.get(rate.workload)
        if workload is None or rate.used.unknown is Unknown.ABSENT:
            continue
        if rate.used.mcpu is None:
            left_out.append((rate.workload, rate.used.unknown or Unknown.FIRST))
            continue
        stall = turned.stalls.get(workload.name)
        share = _share(rate, stall, rates.interval_ns)
        usage = WorkloadUsage(
            workload=workload.name,
            qos=workload.qos,
            band=workload.band,
            cpu_used_mcpu=rate.used.mcpu,
            memory_used_bytes=current.workload_memory_bytes[rate.workload],
            zones=zones_of.get(workload.name, ()),
            replica=workload.replica,
            attempt=workload.attempt,
            host_revision=workload.host_revision,
            host_since_ms=workload.host_since_ms,
            throttled_us=rate.throttled_us or 0,
            stall_pct=None if share is None else share.stall_pct,
            stall_gate="" if share is None else share.gate,
            stall_span_ms=0 if share is None else rates.interval_ns // _NS_PER_MS if stall is None else stall.span_ms,
            stall_age_ms=0 if stall is None else stall.age_ms(current.reading.at_ns),
            cpu_some_us=rate.stalled_us,
            detail=turned.details.get(workload.name),
            pod=workload.pod,
            business=_business(workload, turned.business, current.reading.at_ns // _NS_PER_MS),
        )
        listed.append(usage)
        sums.setdefault(workload.qos, _Sum()).add(usage, stall)
    return tuple(listed), tuple(left_out), tuple(sums[qos].usage(qos) for qos in QosClass if qos in sums)


def _business(
    workload: Workload, metrics: Mapping[str, tuple[BusinessMetric, int]], now_ms: int
) -> BusinessMetric | None:
    """What the workload said of itself, older by the time since; None after a minute without a word."""
    found = metrics.get(workload.pod) if workload.pod else None
    found = found or next((metrics[name] for name in (workload.name, workload.listed) if name in metrics), None)
    found = found or (metrics.get(workload.replica) if workload.replica else None)
    if found is None:
        return None
    metric, at_ms = found
    age_ms = metric.age_ms + max(now_ms - at_ms, 0)
    return structs.replace(metric, age_ms=age_ms) if age_ms <= _SILENT_MS else None


def _share(rate: GroupRate, stall: WorkloadStall | None, interval_ns: int) -> StallShare | None:
    """The stall by the run times of threads; where none could be read, by the pressure file of the group."""
    if stall is not None:
        return stall.share
    if rate.stalled_us is None:
        return None
    return waited_share(rate.stalled_us, rate.throttled_us or 0, interval_ns // 1_000)
