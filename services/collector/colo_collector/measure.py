"""Turns two readings of the machine into one SampleRead, or into the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from colo_collector.discover import Workload
from colo_collector.readings import SampleRead, Skip, Unreadable
from colo_collector.sample import Sample
from colo_collector.stall import Stall, stalls_between
from colo_collector.usage import GroupRate, MachineRates, Rate, Unknown, rates_between
from colo_common.events.node import PressureReading, WorkloadUsage, ZoneUsage
from colo_common.model.cpuset import CpuSet
from colo_common.model.topology import NodeTopology

__all__ = ["Measurement", "measure"]

_NS_PER_MS = 1_000_000


class Measurement(Struct, frozen=True, kw_only=True):
    """The outcome of one period. `left_out` has the workloads without a rate in this sample; their use counts as system use."""

    event: SampleRead | Unreadable
    left_out: tuple[tuple[str, Unknown], ...] = ()


def measure(
    previous: Sample | None,
    current: Sample,
    *,
    at_ms: int,
    topology: NodeTopology,
    workloads: Sequence[Workload],
    zones_of: Mapping[str, tuple[int, ...]],
    user_hz: int = 100,
) -> Measurement:
    """The sample between two readings. `zones_of` has the zones that the cpuset of each workload allows.

    A rate of the machine or a zone that is unknown makes the whole sample Unreadable: nothing in a sample is a guess. A workload
    without a rate (new, replaced) and a stall without one are left out.

    - The machine's CPU use is the sum of its zones, each rounded down.
    - system = the machine's use minus that of every listed workload, at least 0, for CPU and for memory (working sets).
    - `interval_ms` is rounded to the nearest millisecond, at least 1.
    """
    rates = rates_between(
        None if previous is None else previous.reading,
        current.reading,
        {zone.zone: CpuSet.parse(zone.cpus) for zone in topology.zones},
        user_hz=user_hz,
    )
    unknown = _unknown(rates)
    if unknown is not None:
        return Measurement(event=Unreadable(reason=Skip(unknown.value)))
    zones = _zones(rates, current, topology)
    if zones is None:
        return Measurement(event=Unreadable(reason=Skip.ZONE_MEMORY, detail="the memory of a zone is unknown"))
    listed, left_out = _workloads(rates.groups, current, workloads, zones_of)
    stalls = stalls_between(() if previous is None else previous.pressure, current.pressure, rates.interval_ns)
    # The sum line of /proc/stat is rounded separately, and node and zones of one sample must agree.
    used_mcpu = sum(zone.cpu_used_mcpu for zone in zones)
    event = SampleRead(
        at_ms=at_ms,
        interval_ms=max((rates.interval_ns + _NS_PER_MS // 2) // _NS_PER_MS, 1),
        cpu_used_mcpu=used_mcpu,
        memory_used_bytes=current.memory_used_bytes,
        zones=zones,
        workloads=listed,
        pressure=_pressure(stalls),
        system_cpu_used_mcpu=max(used_mcpu - sum(one.cpu_used_mcpu for one in listed), 0),
        system_memory_used_bytes=max(current.memory_used_bytes - sum(one.memory_used_bytes for one in listed), 0),
        steal_mcpu=_known(rates.steal),
        online_stall_us=_online_stall_us(rates.groups),
    )
    return Measurement(event=event, left_out=left_out)


def _pressure(stalls: Sequence[Stall]) -> tuple[PressureReading, ...]:
    """The stalls that have a rate."""
    return tuple(
        PressureReading(
            resource=stall.resource,
            some_us=stall.some_us,
            full_us=stall.full_us,
            some_avg10_centipct=stall.some_avg10_centipct,
            full_avg10_centipct=stall.full_avg10_centipct,
        )
        for stall in stalls
        if stall.some_us is not None and stall.full_us is not None
    )


def _online_stall_us(groups: Sequence[GroupRate]) -> int | None:
    """The longest CPU stall of all groups that have one, which are those of online work; None when none has."""
    return max((group.stalled_us for group in groups if group.stalled_us is not None), default=None)


def _unknown(rates: MachineRates) -> Unknown | None:
    """Why the machine has no sample, or None."""
    every = (rates.used, rates.steal, *(rate for _, rate in rates.zones))
    return next((rate.unknown for rate in every if rate.unknown is not None), None)


def _known(rate: Rate) -> int:
    return 0 if rate.mcpu is None else rate.mcpu


def _zones(rates: MachineRates, current: Sample, topology: NodeTopology) -> tuple[ZoneUsage, ...] | None:
    """Use by zone; None when the used memory of a zone that has memory is unknown."""
    memory = dict(current.zone_memory_used_bytes)
    used = dict(rates.zones)
    if any(zone.zone not in memory and zone.memory_bytes > 0 for zone in topology.zones):
        return None
    return tuple(
        ZoneUsage(zone=zone.zone, cpu_used_mcpu=_known(used[zone.zone]), memory_used_bytes=memory.get(zone.zone, 0))
        for zone in topology.zones
    )


def _workloads(
    rates: Sequence[GroupRate], current: Sample, workloads: Sequence[Workload], zones_of: Mapping[str, tuple[int, ...]]
) -> tuple[tuple[WorkloadUsage, ...], tuple[tuple[str, Unknown], ...]]:
    """The workloads whose rate is known, and those left out, both in ascending name."""
    by_name = {workload.name: workload for workload in workloads}
    listed: list[WorkloadUsage] = []
    left_out: list[tuple[str, Unknown]] = []
    for rate in rates:
        workload = by_name.get(rate.workload)
        if workload is None or rate.used.unknown is Unknown.ABSENT:
            continue
        if rate.used.mcpu is None:
            left_out.append((rate.workload, rate.used.unknown or Unknown.FIRST))
            continue
        listed.append(
            WorkloadUsage(
                workload=workload.name,
                qos=workload.qos,
                band=workload.band,
                cpu_used_mcpu=rate.used.mcpu,
                memory_used_bytes=current.workload_memory_bytes[rate.workload],
                zones=zones_of.get(workload.name, ()),
                replica=workload.replica,
                attempt=workload.attempt,
                throttled_us=rate.throttled_us or 0,
            )
        )
    return tuple(listed), tuple(left_out)
