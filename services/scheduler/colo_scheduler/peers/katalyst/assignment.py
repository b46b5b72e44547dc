"""Katalyst's order of taking CPUs: whole sockets, then the last-level caches that fit best, then cores, then single CPUs.

The rules are those of kubewharf/katalyst-core:pkg/agent/qrm-plugins/cpu/dynamicpolicy/calculator/cpu_assignment.go. Pieces of one
level are ordered by (free CPUs, id), both ascending, inside the pieces above them. A piece is whole when all its online CPUs are
free; the original compares with the machine's average, which differs on irregular machines only.
"""

from collections.abc import Sequence

from colo_common.model.cpu_accumulator import CpuAccumulator, cores_in, free_cpus_in, sockets_in_order
from colo_common.model.cpu_topology import CpuTopology
from colo_common.model.cpuset import CpuSet

__all__ = ["take_by_topology"]


def take_by_topology(
    topology: CpuTopology, available: CpuSet, need: int, *, caches: Sequence[int] | None = None
) -> CpuSet | None:
    """The `need` CPUs that Katalyst takes, or None when fewer are available. The same input gives the same CPUs.

    Free sockets no larger than the need; then, with `caches` (masks of last-level caches in order of id, `topology.l3_masks`),
    the cache that fits best: one with exactly as many free CPUs as needed, else the smallest larger one and from there on nothing
    outside of it, else the largest smaller one whole, and again; then free cores; then single CPUs. Equal caches: the first.
    A need below 1 gives no CPU.
    """
    accumulator = CpuAccumulator(topology, available.mask, need)
    if accumulator.short_count:
        return None
    accumulator.take_whole([topology.socket_masks[socket] for socket in sockets_in_order(accumulator)])
    if caches is not None:
        _align(accumulator, caches)
    accumulator.take_whole(cores_in(accumulator, sockets_in_order(accumulator), topology.cores_of_socket))
    cores = cores_in(accumulator, sockets_in_order(accumulator), topology.cores_of_socket)
    accumulator.take_cpus(free_cpus_in(accumulator, cores))
    return CpuSet(accumulator.taken)


def _align(accumulator: CpuAccumulator, caches: Sequence[int]) -> None:
    """Choose caches until one holds what is left of the need, or nothing is left of it."""
    while accumulator.need > 0:
        sizes = [(mask, (mask & accumulator.free).bit_count()) for mask in caches if mask & accumulator.free]
        if not sizes:
            return
        enough = [entry for entry in sizes if entry[1] >= accumulator.need]
        mask, size = min(enough, key=lambda entry: entry[1]) if enough else max(sizes, key=lambda entry: entry[1])
        if size > accumulator.need:
            accumulator.keep_to(mask)
            return
        accumulator.take(mask & accumulator.free)
