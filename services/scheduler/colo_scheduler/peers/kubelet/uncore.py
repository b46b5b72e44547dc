"""CPUs that share a last-level ("uncore") cache: whole caches first, then one cache that holds all that is left."""

from colo_scheduler.cpus.accumulator import CpuAccumulator
from colo_scheduler.cpus.assignment import free_cpus_in
from colo_scheduler.peers.kubelet.packing import PackingOrder

__all__ = ["take_caches"]


def take_caches(accumulator: CpuAccumulator, order: PackingOrder) -> None:
    """Take whole free caches while they fit, then the rest from the first cache that has room for all of it.

    Nothing is taken of a cache that could give only a part of the rest. Cores of a cache are taken by (its whole cores, by id;
    then single CPUs, of begun cores first). The kubelet passes a cache over when one of its first cores is begun; here such
    a cache is used when it has room.
    """
    topology = accumulator.topology
    caches = [topology.l3_masks[l3] for l3 in order.caches()]
    # The kubelet tries whole caches only for a need of at least a cache of average size (topology.go CPUsPerUncore).
    if accumulator.need >= topology.cpu_count // len(topology.l3_masks):
        accumulator.take_whole(caches)
    for cache in caches:
        mask = accumulator.free & cache
        if accumulator.need and mask.bit_count() >= accumulator.need:
            _take_part(accumulator, mask)
            return


def _take_part(accumulator: CpuAccumulator, free: int) -> None:
    """Take what is needed of one cache, whose free CPUs are `free`."""
    topology = accumulator.topology
    cores = [core for core, mask in enumerate(topology.core_masks) if mask & free]
    accumulator.take_whole(topology.core_masks[core] for core in cores if not topology.core_masks[core] & ~free)
    begun = accumulator.fewest_free_first(cores, topology.core_masks)
    accumulator.take_cpus(free_cpus_in(accumulator, [topology.core_masks[core] & free for core in begun]))
