"""The requested and used CPU of LSE work by zone. No other work may run on the CPUs of LSE work, also while they are idle."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from colo_common.events.node import WorkloadUsage
from colo_common.model.qos import QosClass
from colo_common.model.topology import NodeTopology
from colo_overcommit.held_by_batch import HeldByBatch

__all__ = ["ExclusiveCpus", "exclusive_by_zone"]


class ExclusiveCpus(Struct, frozen=True, kw_only=True):
    """The CPU of LSE work in one zone."""

    requested_mcpu: int = 0
    used_mcpu: int = 0


def exclusive_by_zone(
    held: HeldByBatch, topology: NodeTopology, workloads: Iterable[WorkloadUsage]
) -> Mapping[int, ExclusiveCpus]:
    """Zone -> requested and used CPU of LSE work with a placement; {} without LSE work.

    The usage of a workload is divided evenly over the zones it may use (all zones when it names none), rounded down: less usage
    makes the idle part larger and the allocatable smaller.
    """
    requested = held.exclusive_by_zone()
    if not requested:
        return {}
    known = [zone.zone for zone in topology.zones]
    used = dict.fromkeys(known, 0)
    for workload in workloads:
        if workload.qos is not QosClass.LSE or not held.is_exclusive(workload.replica, workload.attempt):
            continue
        zones = [zone for zone in workload.zones if zone in used] or known
        for zone in zones:
            used[zone] += workload.cpu_used_mcpu // len(zones)
    return {
        zone: ExclusiveCpus(requested_mcpu=mcpu, used_mcpu=used[zone])
        for zone, mcpu in requested.items()
        if zone in used
    }
