"""Taking CPUs in turn from every zone, so that none of them carries the whole of a small reservation.

After Katalyst (kubewharf/katalyst-core:pkg/agent/qrm-plugins/cpu/dynamicpolicy/calculator/cpu_assignment.go), which so chooses the
CPUs of its reserved and its reclaimed pool.
"""

from colo_common.model.cpu_topology import CpuTopology, cpus_of_mask
from colo_common.model.cpuset import CpuSet

__all__ = ["take_in_turn"]


def take_in_turn(
    topology: CpuTopology, available: CpuSet, need: int, *, whole_cores: bool = True, from_highest: bool = False
) -> CpuSet | None:
    """The `need` CPUs, taken from the zones in turn, or None when fewer are available. The same input gives the same CPUs.

    With `whole_cores`, first one wholly free core of every zone in turn, as long as a core is needed; then one CPU of every zone
    in turn. Zones are visited in ascending id, whatever `from_highest`, which takes the highest core and CPU ids of each zone
    instead of the lowest. A need below 1 gives no CPU.
    """
    if need < 1:
        return CpuSet()
    free = available.mask & topology.all_mask
    if free.bit_count() < need:
        return None
    taken = _cores_in_turn(topology, free, need, from_highest=from_highest) if whole_cores else 0
    rest = need - taken.bit_count()
    queues = [_sorted(cpus_of_mask(mask & free & ~taken), from_highest) for mask in topology.zone_masks]
    for cpu in _turns(queues)[:rest]:
        taken |= 1 << cpu
    return CpuSet(taken)


def _cores_in_turn(topology: CpuTopology, free: int, need: int, *, from_highest: bool) -> int:
    """The mask of the whole cores taken; a core larger than what is still needed is passed over."""
    queues: list[list[int]] = []
    for cores in topology.cores_of_zone:
        whole = [core for core in cores if topology.core_masks[core] & ~free == 0]
        # By core id: the index of a core goes by its socket first, and a zone may span sockets.
        whole.sort(key=lambda core: (topology.cores[core][1], topology.cores[core][0]), reverse=from_highest)
        queues.append(whole)
    taken = 0
    for core in _turns(queues):
        mask = topology.core_masks[core]
        if taken.bit_count() + mask.bit_count() <= need:
            taken |= mask
    return taken


def _turns(queues: list[list[int]]) -> list[int]:
    """The first entry of every queue, then the second of every queue, and so on."""
    longest = max((len(queue) for queue in queues), default=0)
    return [queue[turn] for turn in range(longest) for queue in queues if turn < len(queue)]


def _sorted(cpus: list[int], from_highest: bool) -> list[int]:
    return cpus[::-1] if from_highest else cpus
