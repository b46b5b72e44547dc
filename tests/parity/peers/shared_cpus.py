"""CPUs that several pods may hold at once, as Koordinator gives them out where `maxRefCount` is above 1; colo gives each to one.

The order is that of the accumulator's literal twin, which counts holders.
"""

from __future__ import annotations

from colo_common.model.cpu_topology import CpuTopology, cpus_of_mask
from colo_common.model.reasons import Reason
from colo_scheduler.cpus.accumulate import Wish, take_preferred_cpus
from colo_scheduler.cpus.binding import FAILED, NOT_ENOUGH, ExclusivePolicy, NoCpus
from colo_scheduler.cpus.exclusive import Holders
from tests.support import cpu_twin


def count_of(holders: Holders, cpu: int) -> int:
    """How many hold a CPU."""
    return sum(plane >> cpu & 1 for plane in holders.planes)


def take_shared_cpus(
    topology: CpuTopology, free: int, preferred: int, need: int, wish: Wish, holders: Holders, max_ref_count: int
) -> int | NoCpus:
    """`colo_scheduler.cpus.accumulate.take_preferred_cpus` where a CPU may have `max_ref_count` holders."""
    if max_ref_count <= 1:
        return take_preferred_cpus(topology, free, preferred, need, wish, holders)
    rows = [
        (cpu, topology.core_of_cpu[cpu], topology.zone_of_cpu[cpu], topology.socket_of_cpu[cpu])
        for cpu in cpus_of_mask(topology.all_mask)
    ]
    held = {
        cpu: cpu_twin.Held(
            count_of(holders, cpu), wish.exclusive.value if _keeps_away(holders, cpu, wish.exclusive) else "None"
        )
        for cpu in cpus_of_mask(topology.all_mask)
    }
    asked = (wish.bind.value, wish.exclusive.value, wish.strategy.value, max_ref_count)
    usable = free & topology.all_mask
    found = cpu_twin.koordinator(rows, cpus_of_mask(usable), cpus_of_mask(preferred & usable), need, held, asked)
    if found is None:
        short = need - usable.bit_count()
        detail = NOT_ENOUGH if short > 0 else FAILED
        return NoCpus(reason=Reason.CPUS_SHORT, detail=detail, short_count=max(1, short))
    return sum(1 << cpu for cpu in found)


def _keeps_away(holders: Holders, cpu: int, asked: ExclusivePolicy) -> bool:
    """Whether a holder of the CPU wants its core, or its zone, alone, as the newcomer does."""
    level = {ExclusivePolicy.PCPU_LEVEL: holders.pcpu_level, ExclusivePolicy.NUMA_NODE_LEVEL: holders.zone_level}
    return bool(level.get(asked, 0) >> cpu & 1)
