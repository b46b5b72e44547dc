"""An accumulator with what orders CPUs by Koordinator's rules, and its ways to take CPUs.

FullPCPUs takes whole physical cores, from one zone, else one socket, else as few sockets as possible. SpreadByPCPUs takes one
thread of each core first. The last resort of both is to take single CPUs wherever they are.
"""

from collections.abc import Iterable

from colo_common.model.cpu_accumulator import CpuAccumulator
from colo_common.model.cpu_topology import CpuTopology, cpus_of_mask
from colo_scheduler.cpus.binding import ExclusivePolicy

__all__ = [
    "ExclusiveAccumulator",
    "full_cores",
    "one_a_core",
    "spread_over_cores",
    "take_from_one_place",
    "take_full_cores",
    "take_single_cpus",
]

_BOTH = (ExclusivePolicy.PCPU_LEVEL, ExclusivePolicy.NUMA_NODE_LEVEL)


class ExclusiveAccumulator(CpuAccumulator):
    """An accumulator with what orders CPUs by Koordinator's rules.

    `kept_away`: the CPUs that the request's exclusive policy would rather not take.
    """

    def __init__(
        self,
        topology: CpuTopology,
        free: int,
        need: int,
        *,
        is_most_first: bool,
        exclusive: ExclusivePolicy,
        kept_away: int,
    ) -> None:
        super().__init__(topology, free, need)
        self.exclusive = exclusive
        self.kept_away = kept_away
        self.sign = 1 if is_most_first else -1
        """Multiplies a count of free CPUs in a sort key: fewest first for MostAllocated, else most first."""

    def take(self, cpus: int) -> None:
        """Take a mask; the cores or zones its CPUs lie in are from now on kept away from, as those of other holders are."""
        super().take(cpus)
        topology = self.topology
        if self.exclusive is ExclusivePolicy.PCPU_LEVEL:
            for cpu in cpus_of_mask(cpus):
                self.kept_away |= topology.core_masks[topology.core_of_cpu[cpu]]
        elif self.exclusive is ExclusivePolicy.NUMA_NODE_LEVEL:
            for cpu in cpus_of_mask(cpus):
                self.kept_away |= topology.zone_masks[topology.zone_of_cpu[cpu]]

    def passes(self, *levels: ExclusivePolicy) -> tuple[int, int]:
        """The free CPUs to try first, without those kept away if the request's policy is one of `levels`; then all of them."""
        return (self.free & ~self.kept_away if self.exclusive in levels else self.free, self.free)


def take_full_cores(accumulator: ExclusiveAccumulator) -> None:
    """Take as many of the needed CPUs as whole free cores give; what is left of `need` is less than a core, or has no full core.

    A need that is no multiple of a core takes a part of its last core when one zone or socket has room for all.
    """
    if _take_cores_in_zone(accumulator) or _take_cores_in_socket(accumulator):
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


def _take_cores_in_zone(accumulator: ExclusiveAccumulator) -> bool:
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


def _take_cores_in_socket(accumulator: ExclusiveAccumulator) -> bool:
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


def take_from_one_place(accumulator: ExclusiveAccumulator) -> None:
    """Take all that is needed from one zone, else from one socket, else nothing.

    Either is tried first with one CPU a core and without what the policy keeps away from, then with every free CPU. At the
    socket only the policy for cores keeps anything away.
    """
    if accumulator.need <= accumulator.topology.cpus_per_zone and _take_spread_in_zone(accumulator):
        return
    if accumulator.need <= accumulator.topology.cpus_per_socket:
        _take_spread_in_socket(accumulator)


def one_a_core(topology: CpuTopology, free: int) -> int:
    """The lowest CPU of each core in the mask."""
    lowest = 0
    for mask in topology.core_masks:
        in_core = free & mask
        lowest |= in_core & -in_core
    return lowest


def _take_spread_in_zone(accumulator: ExclusiveAccumulator) -> bool:
    topology = accumulator.topology
    for is_first, free in zip((True, False), accumulator.passes(*_BOTH), strict=True):
        usable = one_a_core(topology, free) if is_first else free
        best: tuple[int, int, int] | None = None
        for zone, mask in enumerate(topology.zone_masks):
            in_zone = free & mask
            if (usable & mask).bit_count() < accumulator.need:
                continue
            socket = topology.socket_of_cpu[(in_zone & -in_zone).bit_length() - 1]
            in_socket = (free & topology.socket_masks[socket]).bit_count()
            key = (accumulator.sign * in_zone.bit_count(), accumulator.sign * in_socket, zone)
            if best is None or key < best:
                best = key
        if best is not None:
            _take_spread(accumulator, free, usable, topology.zone_masks[best[2]], is_one_a_core=is_first)
            return True
    return False


def _take_spread_in_socket(accumulator: ExclusiveAccumulator) -> None:
    topology = accumulator.topology
    for is_first, free in zip((True, False), accumulator.passes(ExclusivePolicy.PCPU_LEVEL), strict=True):
        usable = one_a_core(topology, free) if is_first else free
        counts = [(usable & mask).bit_count() for mask in topology.socket_masks]
        enough = [
            (accumulator.sign * count, socket) for socket, count in enumerate(counts) if count >= accumulator.need
        ]
        if enough:
            _take_spread(accumulator, free, usable, topology.socket_masks[min(enough)[1]], is_one_a_core=is_first)
            return


def _take_spread(accumulator: ExclusiveAccumulator, free: int, usable: int, place: int, *, is_one_a_core: bool) -> None:
    """Take what is needed of a place that has it: the first of each core in their order, or all its CPUs spread over the cores."""
    if not is_one_a_core:
        cpus = spread_over_cores(accumulator, cpus_of_mask(free & place))
    else:
        cpus = cpus_of_mask(usable & place)
    accumulator.take_cpus(cpus)


def spread_over_cores(accumulator: ExclusiveAccumulator, cpus: list[int]) -> list[int]:
    """The same CPUs, one of each core in their order, then a second one of each, and so on; no more than a core's: unchanged."""
    if len(cpus) <= accumulator.topology.cpus_per_core:
        return cpus
    core_of_cpu = accumulator.topology.core_of_cpu
    rounds: list[list[int]] = []
    given: dict[int, int] = {}
    for cpu in cpus:
        core = core_of_cpu[cpu]
        turn = given.get(core, 0)
        given[core] = turn + 1
        if turn == len(rounds):
            rounds.append([])
        rounds[turn].append(cpu)
    return [cpu for each in rounds for cpu in each]


def take_single_cpus(accumulator: ExclusiveAccumulator) -> None:
    """Take CPUs one by one: beside what is taken already, from the most used places, filling begun cores before whole ones."""
    for free in accumulator.passes(*_BOTH):
        order = _cores_by_nearness(accumulator, free & accumulator.free)
        cpus = [
            cpu
            for core in order
            for cpu in cpus_of_mask(accumulator.topology.core_masks[core] & free & accumulator.free)
        ]
        accumulator.take_cpus(spread_over_cores(accumulator, cpus))
        if not accumulator.need:
            return


def _cores_by_nearness(accumulator: ExclusiveAccumulator, free: int) -> Iterable[int]:
    """Cores with free CPUs by (CPUs taken in the socket, most first; free in socket and in zone by the strategy; free in the core;
    socket; id).
    """
    topology, sign = accumulator.topology, accumulator.sign
    taken = [(accumulator.taken & mask).bit_count() for mask in topology.socket_masks]
    socket_free = [(free & mask).bit_count() for mask in topology.socket_masks]
    zone_free = [(free & mask).bit_count() for mask in topology.zone_masks]

    def key(core: int) -> tuple[int, int, int, int, int, int]:
        socket, zone = topology.socket_of_core[core], topology.zone_of_core[core]
        in_core = (free & topology.core_masks[core]).bit_count()
        nearness = (-taken[socket], sign * socket_free[socket], sign * zone_free[zone], in_core)
        return (*nearness, socket, core)

    return sorted((core for core, mask in enumerate(topology.core_masks) if mask & free), key=key)
