"""The kubelet's distribution of CPUs over zones (distribute-cpus-across-numa): the same number from each of as few as possible.

The rules are those of kubernetes/kubernetes:pkg/kubelet/cm/cpumanager/cpu_assignment.go. Two of its defects are absent: with more
than four zones its iteration over combinations reuses memory that it already gave away, and with groups of two and zones that
have an odd number of free CPUs it can hand out a rest forever. Here combinations are values, and a rest is handed out only to
sets of zones that have room for all of it in whole groups.
"""

from colo_common.model.invalid import InvariantBroken
from colo_common.model.reasons import Reason
from colo_scheduler.cpus.accumulator import CpuAccumulator
from colo_scheduler.cpus.binding import NOT_ENOUGH, NoCpus
from colo_scheduler.cpus.topology import CpuTopology
from colo_scheduler.peers.kubelet.even_zones import find_even_zones
from colo_scheduler.peers.kubelet.packed import take_packed
from colo_scheduler.peers.kubelet.packing import PackingOrder

__all__ = ["take_distributed"]


def take_distributed(
    topology: CpuTopology,
    free: int,
    need: int,
    group: int = 1,
    *,
    is_across_cores: bool = False,
    is_by_socket: bool = False,
) -> int | NoCpus:
    """`need` CPUs of the mask `free`, as a mask: the same number, in whole groups of `group` CPUs, from each of k zones.

    k is the smallest for which that works, and among sets of k zones the one is taken that leaves all zones with the most
    even number of free CPUs; `is_by_socket` (align-by-socket) prefers sets within one socket to any other. If no k works, or the
    need is not made of whole groups, CPUs are packed (`take_packed`). A need below 1 gives no CPU.
    """
    if need < 1:
        return 0
    if need % group:
        return take_packed(topology, free, need, is_across_cores=is_across_cores)
    accumulator = CpuAccumulator(topology, free, need)
    if accumulator.short_count:
        return NoCpus(reason=Reason.CPUS_SHORT, detail=NOT_ENOUGH, short_count=accumulator.short_count)
    found = find_even_zones(PackingOrder(accumulator), group, is_by_socket=is_by_socket)
    if found is None:
        return take_packed(topology, free, need, is_across_cores=is_across_cores)
    for zone in found.zones:
        _take_in_zone(accumulator, zone, found.each, is_across_cores=is_across_cores)
    while accumulator.need:
        with_room = [z for z in found.rest_zones if (accumulator.free & topology.zone_masks[z]).bit_count() >= group]
        if not with_room:
            raise InvariantBroken("zones chosen for a rest have no room for it", need=need, group=group)
        for zone in with_room[: accumulator.need // group]:
            _take_in_zone(accumulator, zone, group, is_across_cores=is_across_cores)
    return accumulator.taken


def _take_in_zone(accumulator: CpuAccumulator, zone: int, count: int, *, is_across_cores: bool) -> None:
    in_zone = accumulator.free & accumulator.topology.zone_masks[zone]
    cpus = take_packed(accumulator.topology, in_zone, count, is_across_cores=is_across_cores)
    if isinstance(cpus, NoCpus):
        raise InvariantBroken("a zone chosen for its free CPUs lacks them", zone=zone, count=count)
    accumulator.take(cpus)
