"""What each online workload uses of each zone, and of what it asked for: what an estimator by workload learns from."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from colo_common.events.node import WorkloadUsage
from colo_common.model.placement import attempt_key
from colo_common.model.qos import PriorityBand
from colo_overcommit.allocatable import ZoneInputs
from colo_overcommit.estimators.rc_like import WorkPart
from colo_overcommit.held_by_batch import HeldByBatch

__all__ = ["parts_by_zone"]

_RECLAIMED: Final = (PriorityBand.BATCH, PriorityBand.FREE)


def parts_by_zone(
    inputs: Sequence[ZoneInputs], workloads: Iterable[WorkloadUsage], held: HeldByBatch
) -> Mapping[int, tuple[list[WorkPart], list[WorkPart]]]:
    """Zone -> the CPU and the memory of each online workload of a sample, in its order.

    The use of a workload is divided evenly over the zones that it may use, all when it names none, rounded down. What it may use is
    what its placement holds there; of work that colo did not place nobody knows it, and it is what the zone has.
    """
    requested = {each.key: each.shares for each in held.charged()} if held.has_charged else {}
    capacity = {zone.zone: (zone.cpu.capacity, zone.memory.capacity) for zone in inputs}
    parts: dict[int, tuple[list[WorkPart], list[WorkPart]]] = {zone: ([], []) for zone in capacity}
    for work in workloads:
        if work.band in _RECLAIMED:
            continue
        key = attempt_key(work.replica, work.attempt) if work.replica else ""
        shares = {share.zone: share for share in requested[key]} if key in requested else {}
        zones = [zone for zone in work.zones if zone in parts] or [*parts]
        for zone in zones:
            share = shares.get(zone)
            limits = (share.cpu_mcpu, share.memory_bytes) if share else capacity[zone]
            uses = (work.cpu_used_mcpu // len(zones), work.memory_used_bytes // len(zones))
            for found, used, limit in zip(parts[zone], uses, limits, strict=True):
                found.append(WorkPart(key or work.workload, used, limit, bool(share)))
    return parts
