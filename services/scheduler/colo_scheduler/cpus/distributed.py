"""The kubelet's distribution of CPUs over zones (distribute-cpus-across-numa): the same number from each of as few as possible.

The rules are those of kubernetes/kubernetes:pkg/kubelet/cm/cpumanager/cpu_assignment.go. Two of its defects are absent: with more
than four zones its iteration over combinations reuses memory that it already gave away, and with groups of two and zones that
have an odd number of free CPUs it can hand out a rest forever. Here combinations are values, and a rest is handed out only to
sets of zones that have room for all of it in whole groups.
"""

from collections.abc import Iterator
from itertools import combinations
from math import isqrt
from typing import Final, NamedTuple

from colo_common.model.invalid import InvariantBroken
from colo_common.model.reasons import Reason
from colo_scheduler.cpus.binding import NOT_ENOUGH, NoCpus
from colo_scheduler.cpus.packed import take_packed
from colo_scheduler.cpus.packing import Packing
from colo_scheduler.cpus.topology import CpuTopology

__all__ = ["STEPS_MAX", "take_distributed"]

STEPS_MAX: Final = 8_000
"""Sets of zones looked at for one choice, counting the sets that could take a rest. A machine of 8 zones has 3^8 = 6,561 of them
and is always searched as a whole. Past the limit the search ends with the best set so far or the zones with the most free
groups, whichever leaves the machine more even; it never ends without a set where one exists.
"""


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
    packing = Packing(topology, free, need)
    available = packing.free.bit_count()
    if need > available:
        return NoCpus(reason=Reason.CPUS_SHORT, detail=NOT_ENOUGH, short_count=need - available)
    found = _Search(packing, group, is_by_socket=is_by_socket).find()
    if found is None:
        return take_packed(topology, free, need, is_across_cores=is_across_cores)
    for zone in found.zones:
        _take_in_zone(packing, zone, found.each, is_across_cores=is_across_cores)
    while packing.need:
        with_room = [z for z in found.rest_zones if (packing.free & topology.zone_masks[z]).bit_count() >= group]
        if not with_room:
            raise InvariantBroken("zones chosen for a rest have no room for it", need=need, group=group)
        for zone in with_room[: packing.need // group]:
            _take_in_zone(packing, zone, group, is_across_cores=is_across_cores)
    return packing.taken


def _take_in_zone(packing: Packing, zone: int, count: int, *, is_across_cores: bool) -> None:
    in_zone = packing.free & packing.topology.zone_masks[zone]
    cpus = take_packed(packing.topology, in_zone, count, is_across_cores=is_across_cores)
    if isinstance(cpus, NoCpus):
        raise InvariantBroken("a zone chosen for its free CPUs lacks them", zone=zone, count=count)
    packing.take(cpus)


class _Even(NamedTuple):
    """A set of zones: `each` CPUs from every one of `zones`, what is left group by group from `rest_zones` in turn."""

    deviation_milli: int
    is_in_one_socket: bool
    zones: tuple[int, ...]
    each: int
    rest_zones: tuple[int, ...]


class _Search:
    """Looks for the most even set of zones. The order of zones is the packing's, that of combinations lexicographic."""

    def __init__(self, packing: Packing, group: int, *, is_by_socket: bool) -> None:
        topology = packing.topology
        self._need = packing.need
        self._group = group
        self._is_by_socket = is_by_socket
        self._zones = packing.zones()
        self._free = {zone: (packing.free & topology.zone_masks[zone]).bit_count() for zone in self._zones}
        self._sockets = topology.sockets_of_zone
        groups = -(-topology.cpu_count // group)
        self._groups_per_zone = -(-groups // len(topology.zone_ids))
        self._steps = 0
        self._squares = sum(count * count for count in self._free.values())
        self._left = sum(self._free.values()) - packing.need

    def find(self) -> _Even | None:
        groups = self._need // self._group
        most = sorted((count // self._group for count in self._free.values()), reverse=True)
        for k in range(-(-groups // self._groups_per_zone), min(groups, len(self._zones)) + 1):
            # If any k zones hold the need, those with the most groups do; larger k then fail or work for the same reason.
            if sum(most[:k]) < groups or (most[k - 1] < groups // k and not self._is_by_socket):
                continue
            best = self._best_of(k)
            if best is not None:
                return best
        return None

    def _best_of(self, k: int) -> _Even | None:
        best: _Even | None = None
        seen: set[tuple[object, ...]] = set()
        for zones in combinations(self._zones, k):
            if best is not None and best.deviation_milli == 0 and (best.is_in_one_socket or not self._is_by_socket):
                return best
            self._steps += 1
            if self._steps > STEPS_MAX:
                return self._better(best, self._most_free(k))
            is_in_one_socket = self._is_in_one_socket(zones)
            # Zones with equal numbers of free CPUs give the same result, and the first of equals wins.
            alike = (is_in_one_socket, *(self._free[zone] for zone in zones))
            if alike not in seen:
                seen.add(alike)
                best = self._better(best, self._evaluate(zones, is_in_one_socket=is_in_one_socket))
        return best if self._steps <= STEPS_MAX else self._better(best, self._most_free(k))

    def _is_in_one_socket(self, zones: tuple[int, ...]) -> bool:
        if not self._is_by_socket:
            return False
        return len({socket for zone in zones for socket in self._sockets[zone]}) == 1

    def _better(self, best: _Even | None, other: _Even | None) -> _Even | None:
        if best is None or other is None:
            return best or other
        if best.is_in_one_socket != other.is_in_one_socket:
            return other if other.is_in_one_socket else best
        return other if other.deviation_milli < best.deviation_milli else best

    def _most_free(self, k: int) -> _Even | None:
        """The zones with the most whole groups, and the rest from those with the most left: what a cut search falls back to."""
        zones = sorted(self._zones, key=lambda zone: -(self._free[zone] // self._group))[:k]
        return self._evaluate(tuple(zones), is_in_one_socket=self._is_in_one_socket(tuple(zones)), is_cut=True)

    def _evaluate(self, zones: tuple[int, ...], *, is_in_one_socket: bool, is_cut: bool = False) -> _Even | None:
        group = self._group
        groups = [self._free[zone] // group for zone in zones]
        if sum(groups) * group < self._need:
            return None
        each = self._need // len(zones) // group * group
        if self._is_by_socket:
            each = min(each, min(groups) * group)
        elif min(groups) * group < each:
            return None
        left = [self._free[zone] - each for zone in zones]
        outside = self._squares - sum(self._free[zone] ** 2 for zone in zones)
        rest = (self._need - each * len(zones)) // group
        if not rest:
            deviation = self._deviation_milli(outside + sum(count * count for count in left))
            return _Even(deviation, is_in_one_socket, zones, each, ())
        best: tuple[int, tuple[int, ...]] | None = None
        for places in self._rest_places(left, is_cut=is_cut):
            if sum(left[place] // group for place in places) < rest:
                continue
            after = _hand_out(left, places, rest, group)
            deviation = self._deviation_milli(outside + sum(count * count for count in after))
            if best is None or deviation < best[0]:
                best = (deviation, places)
        if best is None:
            return None
        return _Even(best[0], is_in_one_socket, zones, each, tuple(zones[place] for place in best[1]))

    def _rest_places(self, left: list[int], *, is_cut: bool) -> Iterator[tuple[int, ...]]:
        """The sets of zones that may take the rest, by their place in `left`: the largest sets first."""
        with_room = [place for place, count in enumerate(left) if count >= self._group]
        if is_cut:
            yield tuple(sorted(with_room, key=lambda place: -left[place]))
            return
        for size in range(len(with_room), 0, -1):
            for places in combinations(with_room, size):
                self._steps += 1
                if self._steps > STEPS_MAX:
                    return
                yield places

    def _deviation_milli(self, squares: int) -> int:
        """The standard deviation of what is left free in every zone, in thousandths, mean and result rounded half up.

        Exact: with the mean m in thousandths, the sum of (m - 1000 x)^2 is n m^2 - 2000 m sum(x) + 10^6 sum(x^2).
        """
        n = len(self._zones)
        mean_milli = (2_000 * self._left + n) // (2 * n)
        total = n * mean_milli * mean_milli - 2_000 * mean_milli * self._left + 1_000_000 * squares
        return (isqrt(4 * total // n) + 1) // 2


def _hand_out(left: list[int], places: tuple[int, ...], rest: int, group: int) -> list[int]:
    """What is left after `rest` groups were taken from these places in turn; they have room for all of them."""
    after = list(left)
    while rest:
        for place in places:
            if rest and after[place] >= group:
                after[place] -= group
                rest -= 1
    return after
