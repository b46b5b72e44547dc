"""The kubelet's static CPU policy (policy_static.go): the CPUs that a container with whole CPUs gets by number, or why none."""

from collections.abc import Iterable, Sequence
from typing import Final

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvariantBroken
from colo_common.model.reasons import Reason
from colo_scheduler.cpus.available import available_cpus, keep_bindable
from colo_scheduler.cpus.binding import NOT_ENOUGH, BindPolicy, NoCpus
from colo_scheduler.cpus.exclusive import HeldCpus, sum_holders
from colo_scheduler.cpus.topology import CpuTopology
from colo_scheduler.peers.kubelet.distributed import take_distributed
from colo_scheduler.peers.kubelet.options import KubeletOptions
from colo_scheduler.peers.kubelet.packed import take_packed

__all__ = ["choose_static"]

_NONE: Final = CpuSet()


def choose_static(
    topology: CpuTopology,
    count: int,
    options: KubeletOptions,
    held: Sequence[HeldCpus] = (),
    reserved: CpuSet = _NONE,
    zones: Sequence[int] = (),
) -> CpuSet | NoCpus:
    """Choose `count` CPUs, at least 1, that are neither `reserved` nor held; the same arguments give the same CPUs.

    `zones` are the ids of the affinity: what they have is taken first, the rest elsewhere. Work is bounded: a sort of the
    machine's cores, and for the distribution at most `even_zones.STEPS_MAX` sets of zones. Raises InvalidInput for options that
    exclude each other.
    """
    options.validate()
    free = available_cpus(topology, sum_holders(held), reserved)
    if options.is_full_pcpus_only:
        per_core = topology.cpus_per_core
        if count % per_core:
            detail = f"SMT Alignment Error: requested {count} cpus not multiple cpus per core = {per_core}"
            return NoCpus(reason=Reason.CPUS_NOT_WHOLE_CORES, detail=detail)
        free = keep_bindable(topology, free, BindPolicy.FULL_PCPUS)
    if free.bit_count() < count:
        return NoCpus(reason=Reason.CPUS_SHORT, detail=NOT_ENOUGH, short_count=count - free.bit_count())
    aligned = _aligned(topology, options, zones) & free
    taken = 0
    for part, need in ((aligned, min(count, aligned.bit_count())), (free, count)):
        found = _take(topology, options, part & ~taken, need - taken.bit_count())
        if isinstance(found, NoCpus):
            return found
        taken |= found
    if taken & ~free or taken.bit_count() != count:
        raise InvariantBroken("chosen CPUs are not free or not as many as asked", found=taken, count=count)
    return CpuSet(taken)


def _aligned(topology: CpuTopology, options: KubeletOptions, zones: Iterable[int]) -> int:
    """The CPUs of the zones, with align-by-socket those of their sockets."""
    mask = 0
    for zone in zones:
        mask |= topology.cpus_of_zone(zone).mask
    if options.is_by_socket:
        for socket_mask in topology.socket_masks:
            if mask & socket_mask:
                mask |= socket_mask
    return mask


def _take(topology: CpuTopology, options: KubeletOptions, free: int, need: int) -> int | NoCpus:
    if not options.is_across_numa:
        return take_packed(topology, free, need, is_across_cores=options.is_across_cores, is_by_l3=options.is_by_l3)
    group = topology.cpus_per_core if options.is_full_pcpus_only else 1
    return take_distributed(topology, free, need, group, is_by_socket=options.is_by_socket)
