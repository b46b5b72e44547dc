"""CPUs that share a last-level ("uncore") cache: whole caches first, then one cache that holds all that is left."""

from colo_scheduler.cpus.topology import cpus_of_mask
from colo_scheduler.peers.kubelet.packing import Packing

__all__ = ["take_caches"]


def take_caches(packing: Packing) -> None:
    """Take whole free caches while they fit, then the rest from the first cache that has room for all of it.

    Nothing is taken of a cache that could give only a part of the rest. Cores of a cache are taken by (its whole cores, by id;
    then single CPUs, of begun cores first). The kubelet passes a cache over when one of its first cores is begun; here such
    a cache is used when it has room.
    """
    topology = packing.topology
    order = packing.caches()
    # The kubelet tries whole caches only for a need of at least a cache of average size (topology.go CPUsPerUncore).
    if packing.need >= topology.cpu_count // len(topology.l3_masks):
        for l3 in order:
            mask = topology.l3_masks[l3]
            if not mask & ~packing.free and mask.bit_count() <= packing.need:
                packing.take(mask)
    for l3 in order:
        mask = packing.free & topology.l3_masks[l3]
        if packing.need and mask.bit_count() >= packing.need:
            _take_part(packing, mask)
            return


def _take_part(packing: Packing, free: int) -> None:
    topology = packing.topology
    cores = [core for core, mask in enumerate(topology.core_masks) if mask & free]
    for core in cores:
        mask = topology.core_masks[core]
        if not mask & ~free and mask.bit_count() <= packing.need:
            packing.take(mask)
    cores.sort(key=lambda core: ((packing.free & topology.core_masks[core]).bit_count(), core))
    packing.take_cpus(cpu for core in cores for cpu in cpus_of_mask(packing.free & topology.core_masks[core] & free))
