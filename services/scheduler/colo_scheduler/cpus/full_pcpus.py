"""FullPCPUs: whole physical cores, from one zone, else one socket, else as few sockets as possible."""

from collections.abc import Iterable

from colo_common.model.cpu_topology import CpuTopology, cpus_of_mask
from colo_scheduler.cpus.accumulator import ExclusiveAccumulator
from colo_scheduler.cpus.binding import ExclusivePolicy

__all__ = ["full_cores", "take_full_cores"]


def take_full_cores(accumulator: ExclusiveAccumulator) -> None:
    """Take as many of the needed CPUs as whole free cores give; what is left of `need` is less than a core, or has no full core.

    A need that is no multiple of a core takes a part of its last core when one zone or socket has room for all.
    """
    if _take_in_zone(accumulator) or _take_in_socket(accumulator):
        return
    _take_across_sockets(accumulator)


def full_cores(topology: CpuTopology, free: int) -> int:
    """The CPUs of the mask whose cores lie in it as a whole."""
    full = 0
    for mask in topology.core_masks:
        if free & mask == mask:
            full |= mask
    return full


def _ordered(accumulator: ExclusiveAccumulator, full: int, cores: Iterable[int]) -> list[int]:
    """The cores within `full`: the largest first, then by id."""
    topology = accumulator.topology
    masks = topology.core_masks
    ordered = [core for core in cores if masks[core] & full]
    if topology.cpu_count != topology.cpus_per_core * len(masks):
        ordered.sort(key=lambda core: (-masks[core].bit_count(), core))
    return ordered


def _take_first(accumulator: ExclusiveAccumulator, full: int, cores: Iterable[int]) -> None:
    """Take what is needed from these cores, which have it, in their order."""
    cpus: list[int] = []
    for core in _ordered(accumulator, full, cores):
        cpus += cpus_of_mask(accumulator.topology.core_masks[core])
        if len(cpus) >= accumulator.need:
            break
    accumulator.take_cpus(cpus)


def _take_in_zone(accumulator: ExclusiveAccumulator) -> bool:
    topology = accumulator.topology
    if accumulator.need > topology.cpus_per_zone:
        return False
    for free in accumulator.passes(ExclusivePolicy.NUMA_NODE_LEVEL):
        full = full_cores(topology, free)
        best: tuple[int, int, int] | None = None
        for zone, mask in enumerate(topology.zone_masks):
            in_zone = full & mask
            count = in_zone.bit_count()
            if count < accumulator.need:
                continue
            socket = topology.socket_of_cpu[(in_zone & -in_zone).bit_length() - 1]
            key = (
                accumulator.sign * count,
                accumulator.sign * (free & topology.socket_masks[socket]).bit_count(),
                zone,
            )
            if best is None or key < best:
                best = key
        if best is not None:
            _take_first(accumulator, full, topology.cores_of_zone[best[2]])
            return True
    return False


def _take_in_socket(accumulator: ExclusiveAccumulator) -> bool:
    topology = accumulator.topology
    if accumulator.need > topology.cpus_per_socket:
        return False
    full = full_cores(topology, accumulator.free)
    counts = [(full & mask).bit_count() for mask in topology.socket_masks]
    enough = [(accumulator.sign * count, socket) for socket, count in enumerate(counts) if count >= accumulator.need]
    if not enough:
        return False
    _take_first(accumulator, full, topology.cores_of_socket[min(enough)[1]])
    return True


def _take_across_sockets(accumulator: ExclusiveAccumulator) -> None:
    """Whole sockets' full cores, the largest first whatever the strategy, while they fit; then core after core of the smallest."""
    topology = accumulator.topology
    full = full_cores(topology, accumulator.free)
    sockets = sorted((-(full & mask).bit_count(), socket) for socket, mask in enumerate(topology.socket_masks))
    left: list[tuple[int, int]] = []
    for negative, socket in sockets:
        if -negative > accumulator.need:
            left.append((-negative, socket))
        else:
            accumulator.take(full & topology.socket_masks[socket])
    for _, socket in sorted(left):
        cores = _ordered(accumulator, full, topology.cores_of_socket[socket])
        accumulator.take_whole(topology.core_masks[core] for core in cores)
