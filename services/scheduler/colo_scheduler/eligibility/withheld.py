"""Which CPUs of a node are left to be given out, and by how much what it keeps for itself shrinks what may be asked for.

cpus(alloc) = cpus(total) - cpus(allocated) - cpus(kubelet reserved) - cpus(annotated), after Koordinator's node reservation
(apis/extension/node_reservation.go, nodenumaresource/topology_options.go).
"""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.node_rules import NodeRules

__all__ = [
    "allocatable_of_rows",
    "available_cpus",
    "withheld_amounts",
    "withheld_cpus",
    "zone_capacities_of_rows",
    "zone_capacity_mcpu",
]

IntArray = npt.NDArray[np.int64]

_MCPU: Final = 1000


def withheld_amounts(rules: NodeRules) -> tuple[int, int]:
    """By how much a node's own rules shrink its allocatable: milli-CPU (1000 a listed CPU, else the quantity) and bytes.

    Nothing where only the listed CPUs are withheld.
    """
    if rules.reserved_cpus_only:
        return 0, 0
    listed = CpuSet.parse(rules.reserved_cpus, "rules.reserved_cpus")
    return len(listed) * _MCPU if listed else rules.reserved_mcpu, rules.reserved_memory_bytes


def withheld_cpus(
    kubelet_reserved: CpuSet,
    annotated: CpuSet,
    kubelet_pods: Iterable[CpuSet] = (),
    system_exclusive: CpuSet | None = None,
) -> CpuSet:
    """Every CPU that nobody may be given: the kubelet's own, the annotated, those of pods whose CPUs the kubelet manages, and the
    system's where it has them alone (None where it shares).
    """
    reserved = kubelet_reserved | annotated
    for cpus in kubelet_pods:
        reserved = reserved | cpus
    return reserved if system_exclusive is None else reserved | system_exclusive


def available_cpus(
    total: CpuSet,
    holders: Mapping[int, int],
    withheld: CpuSet,
    *,
    holders_max: int = 1,
    preferred: Iterable[CpuSet] = (),
) -> CpuSet:
    """The CPUs that may be given out. `holders` counts who holds each CPU; one with `holders_max` holders is taken.

    Each set in `preferred` (what a reservation or a victim would give back) takes one holder off each of its CPUs first.
    """
    if holders_max < 1:
        raise InvalidInput("holders_max", "must be at least 1", holders_max)
    counts = dict(holders)
    for cpus in preferred:
        for cpu in cpus:
            counts[cpu] = max(0, counts.get(cpu, 0) - 1)
    allocated = CpuSet.from_iterable(cpu for cpu, count in sorted(counts.items()) if count >= holders_max)
    return total - allocated - withheld


def zone_capacity_mcpu(capacity_mcpu: int, withheld_count: int) -> int:
    """A zone's capacity less 1000 a withheld CPU, at least 0; a zone that reports no CPU stays without."""
    return max(0, capacity_mcpu - withheld_count * _MCPU)


def zone_capacities_of_rows(capacity_mcpu: IntArray, withheld_count: IntArray) -> IntArray:
    """`zone_capacity_mcpu` of every cell: int64, any equal shapes."""
    left: IntArray = np.maximum(0, capacity_mcpu - withheld_count * _MCPU)
    return left


def allocatable_of_rows(allocatable: IntArray, withheld: IntArray) -> IntArray:
    """What may be asked for beside what is kept: allocatable - withheld, at least 0; int64, any equal shapes and units."""
    left: IntArray = np.maximum(0, allocatable - withheld)
    return left
