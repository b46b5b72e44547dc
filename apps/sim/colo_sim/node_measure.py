"""Turns two counter readings of a simulated machine into the sample that a collector would make of a real one."""

from colo_collector.readings import SampleRead
from colo_common.events.node import PressureReading, WorkloadUsage, ZoneUsage
from colo_common.model.qos import PriorityBand, QosClass, default_band
from colo_sim.machine_reading import MachineCounters, ReplicaCounters

__all__ = ["measured_between"]


def measured_between(before: MachineCounters, now: MachineCounters) -> SampleRead | None:
    """Rates over the time between the readings, rounded down; None when no time passed or the machine rebooted.

    CPU time of replicas that ended in between belongs to batch work too: what the zones' batch counters show beyond the listed
    replicas is one more batch workload in each zone. It must not look like online use for one sample.
    """
    interval_ms = now.at_ms - before.at_ms
    if interval_ms < 1 or now.boot != before.boot:
        return None
    interval_us = interval_ms * 1_000
    earlier = {(r.replica, r.attempt): r.usage_ns for r in before.replicas}
    zones_before = {zone.zone: zone for zone in before.zones}
    zones = tuple(
        ZoneUsage(
            zone=zone.zone,
            cpu_used_mcpu=(zone.usage_ns - zones_before[zone.zone].usage_ns) // interval_us,
            memory_used_bytes=zone.memory_bytes,
        )
        for zone in now.zones
    )
    listed = tuple(
        _replica_usage(r, (r.usage_ns - earlier.get((r.replica, r.attempt), 0)) // interval_us) for r in now.replicas
    )
    return SampleRead(
        at_ms=now.at_ms,
        interval_ms=interval_ms,
        cpu_used_mcpu=sum(zone.cpu_used_mcpu for zone in zones),
        memory_used_bytes=sum(zone.memory_used_bytes for zone in zones),
        zones=zones,
        workloads=(*listed, *_ended(before, now, listed, interval_us)),
        pressure=(
            _pressure("cpu", before.cpu_some_us, now.cpu_some_us, before.cpu_full_us, now.cpu_full_us),
            _pressure("memory", before.memory_some_us, now.memory_some_us, before.memory_full_us, now.memory_full_us),
        ),
        online_stall_us=now.online_cpu_some_us - before.online_cpu_some_us,
    )


def _replica_usage(replica: ReplicaCounters, mcpu: int) -> WorkloadUsage:
    return WorkloadUsage(
        workload=replica.replica,
        qos=replica.qos,
        band=default_band(replica.qos),
        cpu_used_mcpu=mcpu,
        memory_used_bytes=replica.memory_bytes,
        zones=replica.zones,
        replica=replica.replica,
        attempt=replica.attempt,
    )


def _ended(
    before: MachineCounters, now: MachineCounters, listed: tuple[WorkloadUsage, ...], interval_us: int
) -> tuple[WorkloadUsage, ...]:
    shown: dict[int, int] = {}
    for workload in listed:
        if workload.band is PriorityBand.PROD:
            continue
        for zone in workload.zones:
            shown[zone] = shown.get(zone, 0) + workload.cpu_used_mcpu // len(workload.zones)
    batch_before = {counters.zone: counters.batch_usage_ns for counters in before.zones}
    rest = []
    for counters in now.zones:
        used_ns = counters.batch_usage_ns - batch_before[counters.zone]
        mcpu = used_ns // interval_us - shown.get(counters.zone, 0)
        if mcpu > 0:
            rest.append(
                WorkloadUsage(
                    workload=f"batch-ended-{counters.zone}",
                    qos=QosClass.BE,
                    band=PriorityBand.BATCH,
                    cpu_used_mcpu=mcpu,
                    memory_used_bytes=0,
                    zones=(counters.zone,),
                )
            )
    return tuple(rest)


def _pressure(resource: str, some_before: int, some: int, full_before: int, full: int) -> PressureReading:
    return PressureReading(
        resource="cpu" if resource == "cpu" else "memory", some_us=some - some_before, full_us=full - full_before
    )
