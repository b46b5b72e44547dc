"""Choosing CPUs so that one workload gets both threads of a physical core only when nothing else is left.

The threads of one batch workload peak together, so two of them on one core take from each other; two of different workloads
seldom do. (The agents of other systems pack whole cores instead: `assignment`.)
"""

from collections.abc import Mapping

from colo_common.model.cpu_topology import CpuTopology, cpus_of_mask
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput

__all__ = ["choose_apart", "choose_apart_by_zone"]


def choose_apart(topology: CpuTopology, allocatable: CpuSet, need: int, busy: CpuSet | None = None) -> CpuSet | None:
    """The `need` CPUs of `allocatable` that share as few cores among themselves as possible; None when there are not enough.

    One after the other takes the CPU on whose core this workload has the fewest threads, then others (`busy`) have the fewest,
    then the lowest id. So no core gives two threads while another one could give its first, and on cores of two threads
    the cores that give two are as few as possible. `busy` CPUs and CPUs that the machine lacks are never taken.
    Raises InvalidInput for a negative need.
    """
    if need < 0:
        raise InvalidInput("need", "must be at least 0", need)
    busy_mask = 0 if busy is None else busy.mask
    free = allocatable.mask & topology.all_mask & ~busy_mask
    if free.bit_count() < need:
        return None
    # The k-th thread that a core gives is wanted after every (k-1)-th: sorting by k is the choice one by one.
    order: list[tuple[int, int, int]] = []
    for mask in topology.core_masks:
        busy_threads = (mask & busy_mask).bit_count()
        order.extend((taken, busy_threads, cpu) for taken, cpu in enumerate(cpus_of_mask(mask & free)))
    order.sort()
    return CpuSet.from_iterable(cpu for _, _, cpu in order[:need])


def choose_apart_by_zone(topology: CpuTopology, wanted: Mapping[int, int], busy: CpuSet) -> CpuSet | None:
    """`choose_apart` in each zone (by id) as many CPUs as `wanted` names; None when a zone has too few that are not `busy`.

    Raises InvalidInput for a zone that the machine lacks and for a negative number.
    """
    chosen = CpuSet()
    for zone in sorted(wanted):
        if zone not in topology.zone_ids:
            raise InvalidInput(f"wanted[{zone}]", "must be a zone of this machine", zone)
        part = choose_apart(topology, topology.cpus_of_zone(zone), wanted[zone], busy)
        if part is None:
            return None
        chosen |= part
    return chosen
