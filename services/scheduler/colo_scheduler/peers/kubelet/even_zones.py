"""Which zones of a machine share a number of CPUs evenly: the set that leaves them with the most even numbers of free CPUs.

Evenness is the standard deviation of the free CPUs of all zones that had some, mean and result rounded to thousandths. Since what
is left in sum does not depend on the set, it grows with the sum of squares alone; that gives a bound below which no way to hand
out a rest can get, and sets are dropped by that bound without trying the ways.
"""

from collections.abc import Iterator
from itertools import combinations
from math import isqrt
from typing import Final, NamedTuple

from colo_scheduler.peers.kubelet.packing import PackingOrder

__all__ = ["STEPS_MAX", "EvenZones", "find_even_zones"]

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
