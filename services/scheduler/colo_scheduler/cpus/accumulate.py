"""A choice of CPUs, step by step: Koordinator's accumulator, and the order of its steps.

The rules are those of koordinator-sh/koordinator:pkg/scheduler/plugins/nodenumaresource/cpu_accumulator.go. Three of its outcomes
are not repeated: it may take a thread too many where three or more sockets hold whole cores, its two lists are sorted by a sort
that keeps no order among equals, and a machine whose cores have different numbers of threads has no full core by its measure.
Here a choice has exactly the size asked for, equals stay in order of their id, and a core is full when all its CPUs are free.
"""

from typing import NamedTuple

from colo_common.model.cpu_topology import CpuTopology
from colo_common.model.reasons import Reason
from colo_scheduler.cpus.accumulator import (
    ExclusiveAccumulator,
    take_from_one_place,
    take_full_cores,
    take_single_cpus,
)
from colo_scheduler.cpus.binding import FAILED, NOT_ENOUGH, BindPolicy, ExclusivePolicy, NoCpus, NumaStrategy
from colo_scheduler.cpus.exclusive import Holders, kept_away

__all__ = ["Wish", "take_cpus", "take_preferred_cpus"]


class Wish(NamedTuple):
    """The part of a request that decides the order of CPUs."""

    bind: BindPolicy = BindPolicy.FULL_PCPUS
    exclusive: ExclusivePolicy = ExclusivePolicy.NONE
    strategy: NumaStrategy = NumaStrategy.LEAST_ALLOCATED


def take_preferred_cpus(
    topology: CpuTopology, free: int, preferred: int, need: int, wish: Wish, holders: Holders
) -> int | NoCpus:
    """`need` CPUs of the mask `free`, as a mask: those of `preferred` first, as many as are free, then others.

    The two parts are chosen one after the other, and if either has no answer there is none. A need below 1 gives no CPU.
    """
    first = preferred & free & topology.all_mask
    taken = 0
    if first:
        found = take_cpus(topology, first, min(need, first.bit_count()), wish, holders)
        if isinstance(found, NoCpus):
            return found
        taken = found
    rest = take_cpus(topology, free & ~first, need - taken.bit_count(), wish, holders)
    return rest if isinstance(rest, NoCpus) else taken | rest


def take_cpus(topology: CpuTopology, free: int, need: int, wish: Wish, holders: Holders) -> int | NoCpus:
    """`need` CPUs of the mask `free`, as a mask, by the wish: from one zone, else one socket, else as few as the rules allow."""
    if need < 1:
        return 0
    free &= topology.all_mask
    if need > free.bit_count():
        return NoCpus(reason=Reason.CPUS_SHORT, detail=NOT_ENOUGH, short_count=need - free.bit_count())
    accumulator = ExclusiveAccumulator(
        topology,
        free,
        need,
        is_most_first=wish.strategy is NumaStrategy.MOST_ALLOCATED,
        exclusive=wish.exclusive,
        kept_away=kept_away(topology, wish.exclusive, holders),
    )
    is_full = wish.bind is BindPolicy.FULL_PCPUS
    if is_full or topology.cpus_per_core == 1:
        take_full_cores(accumulator)
    if not is_full and accumulator.need:
        take_from_one_place(accumulator)
    if accumulator.need:
        take_single_cpus(accumulator)
    if accumulator.need:
        return NoCpus(reason=Reason.CPUS_SHORT, detail=FAILED, short_count=accumulator.need)
    return accumulator.taken
