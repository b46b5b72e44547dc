"""The kubelet's static CPU policy (policy_static.go): the CPUs that a container with whole CPUs gets by number, or why none.

Packing takes whole zones and sockets first, then whole caches and cores, then single CPUs of begun ones. With caches preferred it
takes whole last-level ("uncore") caches first, then one cache that holds all that is left.

Distribution (distribute-cpus-across-numa) takes the same number of CPUs from each of as few zones as possible, and of such sets the
one that leaves the most even numbers of free CPUs. Evenness is the standard deviation of the free CPUs of all zones that had some,
mean and result rounded to thousandths. Since what is left in sum does not depend on the set, it grows with the sum of squares
alone; that gives a bound below which no way to hand out a rest can get, and sets are dropped by that bound without trying the ways.

The rules are those of kubernetes/kubernetes:pkg/kubelet/cm/cpumanager/cpu_assignment.go. Two of its defects are absent: with more
than four zones its iteration over combinations reuses memory that it already gave away, and with groups of two and zones that have
an odd number of free CPUs it can hand out a rest forever. Here combinations are values, and a rest is handed out only to sets of
zones that have room for all of it in whole groups.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from math import isqrt
from typing import Final, NamedTuple

from colo_common.model.cpu_accumulator import CpuAccumulator, free_cpus_in
from colo_common.model.cpu_topology import CpuTopology
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvariantBroken
from colo_common.model.reasons import Reason
from colo_scheduler.cpus.available import available_cpus, keep_bindable
from colo_scheduler.cpus.binding import FAILED, NOT_ENOUGH, BindPolicy, NoCpus
from colo_scheduler.cpus.exclusive import HeldCpus, sum_holders
from colo_scheduler.peers.kubelet.options import KubeletOptions

__all__ = [
    "choose_static",
    "take_distributed",
    "take_packed",
]


class PackingOrder:
    """Lists the units of a machine as they are in an accumulator at the time of the call.

    Units are listed by (free CPUs, fewest first; id), those without a free CPU are left out. Where a zone holds one or more sockets
    (`is_zone_first`), sockets are listed zone by zone and cores socket by socket; else zones socket by socket and cores zone by
    zone. Every list names a unit once.
    """

    def __init__(self, accumulator: CpuAccumulator) -> None:
        self.accumulator = accumulator
        self.topology = accumulator.topology
        self.is_zone_first = len(self.topology.socket_ids) >= len(self.topology.zone_ids)

    def zones(self) -> list[int]:
        """Zones with free CPUs."""
        topology = self.topology
        if self.is_zone_first:
            return self.accumulator.fewest_free_first(range(len(topology.zone_ids)), topology.zone_masks)
        groups = (topology.zones_of_socket[socket] for socket in self.sockets())
        return _once(
            zone for group in groups for zone in self.accumulator.fewest_free_first(group, topology.zone_masks)
        )

    def sockets(self) -> list[int]:
        """Sockets with free CPUs."""
        topology = self.topology
        if not self.is_zone_first:
            return self.accumulator.fewest_free_first(range(len(topology.socket_ids)), topology.socket_masks)
        groups = (topology.sockets_of_zone[zone] for zone in self.zones())
        return _once(
            socket for group in groups for socket in self.accumulator.fewest_free_first(group, topology.socket_masks)
        )

    def caches(self) -> list[int]:
        """Last-level caches with free CPUs, zone by zone."""
        topology = self.topology
        listed: list[int] = []
        for zone in self.zones():
            mask = topology.zone_masks[zone]
            in_zone = [l3 for l3, l3_mask in enumerate(topology.l3_masks) if l3_mask & mask]
            listed += self.accumulator.fewest_free_first(in_zone, topology.l3_masks)
        return _once(listed)

    def cores(self) -> list[int]:
        """Cores with free CPUs."""
        topology, free = self.topology, self.accumulator.free
        if self.is_zone_first:
            groups = [topology.cores_of_socket[socket] for socket in self.sockets()]
        else:
            groups = [topology.cores_of_zone[zone] for zone in self.zones()]
        listed: list[int] = []
        for group in groups:
            with_free = [
                (in_core, core) for core in group if (in_core := (free & topology.core_masks[core]).bit_count())
            ]
            if len(topology.socket_ids) > 1:
                with_free.sort(key=lambda pair: (pair[0], topology.cores[pair[1]][1], pair[1]))
            else:
                with_free.sort()
            listed += [core for _, core in with_free]
        return _once(listed)


def _once(units: Iterable[int]) -> list[int]:
    return list(dict.fromkeys(units))


STEPS_MAX: Final = 8_000
"""Sets of zones looked at for one choice, the sets that could take a rest included. A machine of 8 zones has 3^8 = 6,561 of them
and is always searched as a whole. Past the limit the search ends with the best set so far or the zones with the most free
groups, whichever leaves the machine more even; it never ends without a set where one exists.
"""


class EvenZones(NamedTuple):
    """`each` CPUs from every one of `zones`, and what is left group by group from `rest_zones` in turn."""

    deviation_milli: int
    is_in_one_socket: bool
    zones: tuple[int, ...]
    each: int
    rest_zones: tuple[int, ...]


def find_even_zones(order: PackingOrder, group: int, *, is_by_socket: bool) -> EvenZones | None:
    """The most even set of as few zones as possible for the CPUs that the accumulator still needs, in whole groups.

    None when no number of zones works. Among equals the first wins, zones as `order` lists them and sets in lexicographic order.
    `is_by_socket` prefers any set within one socket to every other. The need is a multiple of the group and not more than what is
    free.
    """
    return _Search(order, group, is_by_socket=is_by_socket).find()


class _Search:
    """One search; counts its steps."""

    def __init__(self, order: PackingOrder, group: int, *, is_by_socket: bool) -> None:
        topology, accumulator = order.topology, order.accumulator
        self._need = accumulator.need
        self._group = group
        self._is_by_socket = is_by_socket
        self._zones = order.zones()
        self._free = {zone: (accumulator.free & topology.zone_masks[zone]).bit_count() for zone in self._zones}
        self._sockets = topology.sockets_of_zone
        groups = -(-topology.cpu_count // group)
        self._groups_per_zone = -(-groups // len(topology.zone_ids))
        self._steps = 0
        self._squares = sum(count * count for count in self._free.values())
        self._left = sum(self._free.values()) - accumulator.need

    def find(self) -> EvenZones | None:
        groups = self._need // self._group
        most = sorted((count // self._group for count in self._free.values()), reverse=True)
        for k in range(-(-groups // self._groups_per_zone), min(groups, len(self._zones)) + 1):
            # If any k zones hold the need, those with the most groups do.
            if sum(most[:k]) < groups or (most[k - 1] < groups // k and not self._is_by_socket):
                continue
            best = self._best_of(k)
            if best is not None:
                return best
        return None

    def _best_of(self, k: int) -> EvenZones | None:
        most_free = self._most_free(k)
        # The most free zones are an answer, so that no less even set can win; unless another one lies in one socket.
        worst_milli = None if self._is_by_socket or most_free is None else most_free.deviation_milli
        best: EvenZones | None = None
        seen: set[tuple[object, ...]] = set()
        for zones in combinations(self._zones, k):
            if best is not None and best.deviation_milli == 0 and (best.is_in_one_socket or not self._is_by_socket):
                return best
            self._steps += 1
            if self._steps > STEPS_MAX:
                return _better(best, most_free)
            is_in_one_socket = self._is_in_one_socket(zones)
            # Zones with equal numbers of free CPUs give the same result, and the first of equals wins.
            alike = (is_in_one_socket, *[self._free[zone] for zone in zones])
            if alike not in seen:
                seen.add(alike)
                best = _better(best, self._evaluate(zones, is_in_one_socket, worst_milli))
        return best if self._steps <= STEPS_MAX else _better(best, most_free)

    def _is_in_one_socket(self, zones: tuple[int, ...]) -> bool:
        if not self._is_by_socket:
            return False
        return len({socket for zone in zones for socket in self._sockets[zone]}) == 1

    def _most_free(self, k: int) -> EvenZones | None:
        """The zones with the most whole groups, and the rest from those with the most left: what a cut search falls back to."""
        zones = tuple(sorted(self._zones, key=lambda zone: -(self._free[zone] // self._group))[:k])
        return self._evaluate(zones, self._is_in_one_socket(zones), None, is_only_fullest=True)

    def _evaluate(
        self, zones: tuple[int, ...], is_in_one_socket: bool, worst_milli: int | None, *, is_only_fullest: bool = False
    ) -> EvenZones | None:
        """This set at its most even; None when it cannot hold the need, or cannot be as even as `worst_milli`."""
        group = self._group
        free = [self._free[zone] for zone in zones]
        least = min(free) // group * group
        each = self._need // len(zones) // group * group
        if self._is_by_socket:
            each = min(each, least)
        if each > least or sum([count // group for count in free]) * group < self._need:
            return None
        left = [count - each for count in free]
        squares = self._squares - sum([n * n for n in free]) + sum([n * n for n in left])
        rest = (self._need - each * len(zones)) // group
        if not rest:
            return EvenZones(self._deviation_milli(squares), is_in_one_socket, zones, each, ())
        bound_milli = self._deviation_milli(_after_most(squares, left, rest, group))
        if worst_milli is not None and bound_milli > worst_milli:
            return None
        ways = [_fullest_first(left, group)] if is_only_fullest else self._ways(left, rest)
        best: tuple[int, tuple[int, ...]] | None = None
        for places in ways:
            deviation_milli = self._deviation_milli(_after_turns(squares, left, places, rest, group))
            if best is None or deviation_milli < best[0]:
                best = (deviation_milli, places)
                if deviation_milli <= bound_milli:
                    break
        if best is None:
            return None
        return EvenZones(best[0], is_in_one_socket, zones, each, tuple(zones[place] for place in best[1]))

    def _ways(self, left: list[int], rest: int) -> Iterator[tuple[int, ...]]:
        """The sets of zones that can take the rest in whole groups, by their place in `left`: the largest sets first."""
        with_room = [place for place, count in enumerate(left) if count >= self._group]
        # Of a set with more zones than groups only the first take one. A larger set with the same first ones came before, so
        # each choice of first ones is tried once, in its largest set: the one with all places behind them.
        for last in range(rest - 1, len(with_room)):
            for first in combinations(with_room[:last], rest - 1):
                self._steps += 1
                if self._steps > STEPS_MAX:
                    return
                yield (*first, *with_room[last:])
        for size in range(min(rest - 1, len(with_room)), 0, -1):
            for places in combinations(with_room, size):
                self._steps += 1
                if self._steps > STEPS_MAX:
                    return
                if sum([left[place] // self._group for place in places]) >= rest:
                    yield places

    def _deviation_milli(self, squares: int) -> int:
        """The standard deviation of what is left free in every zone, in thousandths, mean and result rounded half up.

        Exact: with the mean m in thousandths, the sum of (m - 1000 x)^2 is n m^2 - 2000 m sum(x) + 10^6 sum(x^2).
        """
        n = len(self._zones)
        mean_milli = (2_000 * self._left + n) // (2 * n)
        total = n * mean_milli * mean_milli - 2_000 * mean_milli * self._left + 1_000_000 * squares
        return (isqrt(4 * total // n) + 1) // 2


def _better(best: EvenZones | None, other: EvenZones | None) -> EvenZones | None:
    if best is None or other is None:
        return best or other
    if best.is_in_one_socket != other.is_in_one_socket:
        return other if other.is_in_one_socket else best
    return other if other.deviation_milli < best.deviation_milli else best


def _fullest_first(left: list[int], group: int) -> tuple[int, ...]:
    with_room = [place for place, count in enumerate(left) if count >= group]
    return tuple(sorted(with_room, key=lambda place: -left[place]))


def _after_most(squares: int, left: list[int], rest: int, group: int) -> int:
    """The sum of squares when each group of the rest comes from the fullest zone: no way to hand it out gives less."""
    after = list(left)
    for _ in range(rest):
        place = after.index(max(after))
        squares -= group * (2 * after[place] - group)
        after[place] -= group
    return squares


def _after_turns(squares: int, left: list[int], places: tuple[int, ...], rest: int, group: int) -> int:
    """The sum of squares when these places, which have room, give a group each in turn until the rest is handed out."""
    if rest <= len(places) and all(left[place] >= group for place in places[:rest]):
        return squares - group * sum([2 * left[place] - group for place in places[:rest]])
    after = list(left)
    while rest:
        for place in places:
            if rest and after[place] >= group:
                squares -= group * (2 * after[place] - group)
                after[place] -= group
                rest -= 1
    return squares


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


def take_packed(
    topology: CpuTopology, free: int, need: int, *, is_across_cores: bool = False, is_by_l3: bool = False
) -> int | NoCpus:
    """`need` CPUs of the mask `free`, as a mask, packed as tightly as they go. A need below 1 gives no CPU.

    `is_across_cores` (distribute-cpus-across-cores) takes no whole cores, but the lowest CPUs of a socket; `is_by_l3`
    (prefer-align-cpus-by-uncorecache) looks for whole, then partial last-level caches before cores.
    """
    if need < 1:
        return 0
    accumulator = CpuAccumulator(topology, free, need)
    if accumulator.short_count:
        return NoCpus(reason=Reason.CPUS_SHORT, detail=NOT_ENOUGH, short_count=accumulator.short_count)
    order = PackingOrder(accumulator)
    if order.is_zone_first:
        accumulator.take_whole([topology.zone_masks[zone] for zone in order.zones()])
        accumulator.take_whole([topology.socket_masks[socket] for socket in order.sockets()])
    else:
        accumulator.take_whole([topology.socket_masks[socket] for socket in order.sockets()])
        accumulator.take_whole([topology.zone_masks[zone] for zone in order.zones()])
    if accumulator.need and is_by_l3:
        take_caches(accumulator, order)
    if not accumulator.need:
        return accumulator.taken
    if is_across_cores:
        pieces = [topology.socket_masks[socket] for socket in order.sockets()]
    else:
        accumulator.take_whole([topology.core_masks[core] for core in order.cores()])
        pieces = [topology.core_masks[core] for core in order.cores()]
    accumulator.take_cpus(free_cpus_in(accumulator, pieces))
    if accumulator.need:
        return NoCpus(reason=Reason.CPUS_SHORT, detail=FAILED, short_count=accumulator.need)
    return accumulator.taken


def take_distributed(
    topology: CpuTopology,
    free: int,
    need: int,
    group: int = 1,
    *,
    is_across_cores: bool = False,
    is_by_socket: bool = False,
) -> int | NoCpus:
    """`need` CPUs of the mask `free`, as a mask: the same number, in whole groups of `group` CPUs, from each of k zones.

    k is the smallest for which that works, and among sets of k zones the one is taken that leaves all zones with the most
    even number of free CPUs; `is_by_socket` (align-by-socket) prefers sets within one socket to any other. If no k works, or the
    need is not made of whole groups, CPUs are packed (`take_packed`). A need below 1 gives no CPU.
    """
    if need < 1:
        return 0
    if need % group:
        return take_packed(topology, free, need, is_across_cores=is_across_cores)
    accumulator = CpuAccumulator(topology, free, need)
    if accumulator.short_count:
        return NoCpus(reason=Reason.CPUS_SHORT, detail=NOT_ENOUGH, short_count=accumulator.short_count)
    found = find_even_zones(PackingOrder(accumulator), group, is_by_socket=is_by_socket)
    if found is None:
        return take_packed(topology, free, need, is_across_cores=is_across_cores)
    for zone in found.zones:
        _take_in_zone(accumulator, zone, found.each, is_across_cores=is_across_cores)
    while accumulator.need:
        with_room = [z for z in found.rest_zones if (accumulator.free & topology.zone_masks[z]).bit_count() >= group]
        if not with_room:
            raise InvariantBroken("zones chosen for a rest have no room for it", need=need, group=group)
        for zone in with_room[: accumulator.need // group]:
            _take_in_zone(accumulator, zone, group, is_across_cores=is_across_cores)
    return accumulator.taken


def _take_in_zone(accumulator: CpuAccumulator, zone: int, count: int, *, is_across_cores: bool) -> None:
    in_zone = accumulator.free & accumulator.topology.zone_masks[zone]
    cpus = take_packed(accumulator.topology, in_zone, count, is_across_cores=is_across_cores)
    if isinstance(cpus, NoCpus):
        raise InvariantBroken("a zone chosen for its free CPUs lacks them", zone=zone, count=count)
    accumulator.take(cpus)


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
