"""The rules for choosing CPUs once more, as slowly and literally as they are told: lists, sorting, every combination.

The twin shares nothing with the production code but its words. `rows` are (cpu, core, zone, socket) with core ids unique in the
machine; every core has the same number of CPUs, every zone lies in one socket. Where there are no CPUs to choose it answers None.
"""

import math
from collections.abc import Callable, Iterable
from itertools import combinations
from typing import NamedTuple

Row = tuple[int, int, int, int]
CORE, ZONE, SOCKET = 1, 2, 3


class Held(NamedTuple):
    """How many hold a CPU, and the policy of one of them."""

    refs: int
    policy: str = "None"


class Machine:
    """Rows by CPU, and sizes."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = {row[0]: row for row in rows}

    def ids(self, field: int) -> list[int]:
        return sorted({row[field] for row in self.rows.values()})

    def average(self, field: int) -> int:
        return len(self.rows) // len(self.ids(field))

    def of(self, cpus: Iterable[int], field: int, value: int) -> list[int]:
        return sorted(cpu for cpu in cpus if self.rows[cpu][field] == value)

    def place(self, cpu: int, field: int) -> int:
        return self.rows[cpu][field]


def round_robin(machine: Machine, cpus: list[int]) -> list[int]:
    if len(cpus) <= machine.average(CORE):
        return cpus
    rest, out = list(cpus), []
    while rest:
        seen, later = set(), []
        for cpu in rest:
            (later if machine.place(cpu, CORE) in seen else out).append(cpu)
            seen.add(machine.place(cpu, CORE))
        rest = later
    return out


class Koordinator:
    """One call of the accumulator."""

    def __init__(
        self, machine: Machine, free: Iterable[int], need: int, held: dict[int, Held], wish: tuple[str, str, str, int]
    ) -> None:
        self.machine, self.free, self.need = machine, set(free), need
        self.bind, self.exclusive, strategy, refs_max = wish
        self.sign = 1 if strategy == "MostAllocated" else -1
        self.refs = {cpu: entry.refs for cpu, entry in held.items()} if refs_max > 1 else {}
        self.cores = {machine.place(c, CORE) for c, entry in held.items() if entry.policy == "PCPULevel"}
        self.zones = {machine.place(c, ZONE) for c, entry in held.items() if entry.policy == "NUMANodeLevel"}
        self.taken: list[int] = []

    def ref(self, cpu: int) -> int:
        return self.refs.get(cpu, 0)

    def take(self, cpus: list[int]) -> None:
        for cpu in cpus:
            self.free.remove(cpu)
            self.taken.append(cpu)
            self.need -= 1
            if self.exclusive == "PCPULevel":
                self.cores.add(self.machine.place(cpu, CORE))
            if self.exclusive == "NUMANodeLevel":
                self.zones.add(self.machine.place(cpu, ZONE))

    def allowed(self, is_filtered: bool, policies: tuple[str, ...]) -> list[int]:
        kept = []
        for cpu in sorted(self.free):
            if is_filtered and self.exclusive in policies:
                if self.exclusive == "PCPULevel" and self.machine.place(cpu, CORE) in self.cores:
                    continue
                if self.exclusive == "NUMANodeLevel" and self.machine.place(cpu, ZONE) in self.zones:
                    continue
            kept.append(cpu)
        return kept

    def full_cores(self, cpus: list[int], field: int) -> dict[int, list[int]]:
        """CPUs of full cores by zone or socket, in the order of the cores."""
        by_core: dict[int, list[int]] = {}
        for cpu in cpus:
            by_core.setdefault(self.machine.place(cpu, CORE), []).append(cpu)
        full = [core for core, members in by_core.items() if len(members) == self.machine.average(CORE)]
        full.sort(key=lambda core: (sum(self.ref(cpu) for cpu in by_core[core]), core))
        found: dict[int, list[int]] = {}
        for core in full:
            found.setdefault(self.machine.place(by_core[core][0], field), []).extend(sorted(by_core[core]))
        return found

    def free_in(self, cpus: list[int], field: int, value: int) -> int:
        return len(self.machine.of(cpus, field, value))

    def full(self) -> None:
        machine = self.machine
        if self.need <= machine.average(ZONE):
            for is_filtered in (True, False):
                cpus = self.allowed(is_filtered, ("NUMANodeLevel",))
                lists = self.full_cores(cpus, ZONE)

                def key(zone: int, lists: dict[int, list[int]] = lists, cpus: list[int] = cpus) -> tuple[int, ...]:
                    socket = machine.place(lists[zone][0], SOCKET)
                    return (self.sign * len(lists[zone]), self.sign * self.free_in(cpus, SOCKET, socket), zone)

                for zone in sorted(lists, key=key):
                    if len(lists[zone]) >= self.need:
                        return self.take(lists[zone][: self.need])
        lists = self.full_cores(sorted(self.free), SOCKET)
        if self.need <= machine.average(SOCKET):
            for socket in sorted(lists, key=lambda socket: (self.sign * len(lists[socket]), socket)):
                if len(lists[socket]) >= self.need:
                    return self.take(lists[socket][: self.need])
        left = []
        for socket in sorted(lists, key=lambda socket: (-len(lists[socket]), socket)):
            if len(lists[socket]) <= self.need:
                self.take(lists[socket])
            else:
                left.append((len(lists[socket]), socket))
        size = machine.average(CORE)
        for _, socket in sorted(left):
            for start in range(0, len(lists[socket]), size):
                if self.need >= size:
                    self.take(lists[socket][start : start + size])
        return None

    def one_place(self) -> None:
        machine = self.machine
        for field, policies in ((ZONE, ("PCPULevel", "NUMANodeLevel")), (SOCKET, ("PCPULevel",))):
            if self.need > machine.average(field):
                continue
            for is_filtered in (True, False):
                cpus = self.allowed(is_filtered, policies)
                lists: dict[int, list[int]] = {}
                before: dict[int, int] = {}
                for value in machine.ids(field):
                    members = sorted(machine.of(cpus, field, value), key=lambda cpu: (self.ref(cpu), cpu))
                    before[value] = len(members)
                    if is_filtered:
                        seen: set[int] = set()
                        members = [
                            c
                            for c in members
                            if not (machine.place(c, CORE) in seen or seen.add(machine.place(c, CORE)))
                        ]  # type: ignore[func-returns-value]
                    if members:
                        lists[value] = members

                def key(
                    value: int,
                    field: int = field,
                    lists: dict[int, list[int]] = lists,
                    before: dict[int, int] = before,
                    cpus: list[int] = cpus,
                ) -> tuple[int, ...]:
                    if field == SOCKET:
                        return (self.sign * len(lists[value]), value)
                    socket = machine.place(lists[value][0], SOCKET)
                    return (self.sign * before[value], self.sign * self.free_in(cpus, SOCKET, socket), value)

                for value in sorted(lists, key=key):
                    if len(lists[value]) >= self.need:
                        return self.take(round_robin(machine, lists[value])[: self.need])
        return None

    def single(self) -> None:
        machine = self.machine
        for is_filtered in (True, False):
            cpus = self.allowed(is_filtered, ("PCPULevel", "NUMANodeLevel"))
            by_core: dict[int, list[int]] = {}
            for cpu in cpus:
                by_core.setdefault(machine.place(cpu, CORE), []).append(cpu)

            def key(core: int, by_core: dict[int, list[int]] = by_core, cpus: list[int] = cpus) -> tuple[int, ...]:
                zone, socket = machine.place(by_core[core][0], ZONE), machine.place(by_core[core][0], SOCKET)
                refs = sum(self.ref(cpu) for cpu in self.free if machine.place(cpu, CORE) == core)
                return (
                    -self.free_in(self.taken, SOCKET, socket),
                    self.sign * self.free_in(cpus, SOCKET, socket),
                    self.sign * self.free_in(cpus, ZONE, zone),
                    len(by_core[core]),
                    socket,
                    refs,
                    core,
                )

            listed = []
            for core in sorted(by_core, key=key):
                listed += sorted(by_core[core], key=lambda cpu: (self.ref(cpu), cpu))
            for cpu in round_robin(machine, listed):
                if self.need:
                    self.take([cpu])

    def run(self) -> list[int] | None:
        if self.need > len(self.free):
            return None
        if self.bind == "FullPCPUs" or self.machine.average(CORE) == 1:
            self.full()
        if self.bind != "FullPCPUs" and self.need:
            self.one_place()
        if self.need:
            self.single()
        return sorted(self.taken)


def koordinator(
    rows: Iterable[Row],
    free: Iterable[int],
    preferred: Iterable[int],
    need: int,
    held: dict[int, Held],
    wish: tuple[str, str, str, int],
) -> list[int] | None:
    """`wish` is (bind policy, exclusive policy, strategy, most holders of a CPU)."""
    machine, free = Machine(rows), set(free)
    first = set(preferred) & free
    part = Koordinator(machine, first, min(need, len(first)), held, wish).run()
    rest = Koordinator(machine, free - first, need - len(part or ()), held, wish).run()
    return None if rest is None or part is None else sorted([*part, *rest])


def packed(rows: Iterable[Row], free: Iterable[int], need: int, *, is_across_cores: bool = False) -> list[int] | None:
    machine, left, taken = Machine(rows), set(free), list[int]()
    if need > len(left):
        return None
    is_zone_first = len(machine.ids(SOCKET)) >= len(machine.ids(ZONE))

    def order(field: int, within: Callable[[int], bool] = lambda cpu: True) -> list[int]:
        found = {machine.place(cpu, field) for cpu in left if within(cpu)}
        return sorted(found, key=lambda value: (len(machine.of(left, field, value)), value))

    def nested(outer: int, inner: int) -> list[int]:
        return [i for o in order(outer) for i in order(inner, lambda cpu, o=o: machine.place(cpu, outer) == o)]  # type: ignore[misc]

    def zones() -> list[int]:
        return order(ZONE) if is_zone_first else nested(SOCKET, ZONE)

    def sockets() -> list[int]:
        return nested(ZONE, SOCKET) if is_zone_first else order(SOCKET)

    def cores() -> list[int]:
        outer, field = (sockets(), SOCKET) if is_zone_first else (zones(), ZONE)
        return [c for o in outer for c in order(CORE, lambda cpu, o=o: machine.place(cpu, field) == o)]  # type: ignore[misc]

    def whole(field: int, units: list[int]) -> None:
        for unit in units:
            members = machine.of(left, field, unit)
            if len(members) == len(machine.of(machine.rows, field, unit)) and len(members) <= need - len(taken):
                taken.extend(members)
                left.difference_update(members)

    for field in (ZONE, SOCKET) if is_zone_first else (SOCKET, ZONE):
        whole(field, zones() if field == ZONE else sockets())
    if not is_across_cores:
        whole(CORE, cores())
    units, field = (sockets(), SOCKET) if is_across_cores else (cores(), CORE)
    rest = [cpu for unit in units for cpu in machine.of(left, field, unit)]
    return sorted([*taken, *rest[: need - len(taken)]])


def _deviation(values: Iterable[int]) -> float:
    numbers = list(values)
    mean = math.floor(sum(numbers) / len(numbers) * 1000 + 0.5) / 1000
    return math.floor(math.sqrt(sum((mean - n) ** 2 for n in numbers) / len(numbers)) * 1000 + 0.5) / 1000


def distributed(rows: Iterable[Row], free: Iterable[int], need: int, group: int) -> list[int] | None:
    rows, left = list(rows), set(free)
    machine = Machine(rows)
    if need > len(left):
        return None
    if need % group or not need:
        return packed(rows, left, need)
    zones = _zones_in_order(machine, left)
    have = {zone: len(machine.of(left, ZONE, zone)) for zone in zones}
    groups = need // group
    per_zone = math.ceil(math.ceil(len(machine.rows) / group) / len(machine.ids(ZONE)))
    for k in range(math.ceil(groups / per_zone), min(groups, len(zones)) + 1):
        best: tuple[float, tuple[int, ...], int, tuple[int, ...]] | None = None
        for chosen in combinations(zones, k):
            each = need // k // group * group
            if sum(have[z] // group for z in chosen) * group < need or any(have[z] < each for z in chosen):
                continue
            for rest_zones, after in _rests(have, chosen, each, need - each * k, group):
                deviation = _deviation(after.values())
                if best is None or deviation < best[0]:
                    best = (deviation, chosen, each, rest_zones)
        if best is not None:
            return _hand(machine, rows, left, need, group, best)
    return packed(rows, left, need)


def _zones_in_order(machine: Machine, left: set[int]) -> list[int]:
    by_free = sorted(machine.ids(ZONE), key=lambda zone: (len(machine.of(left, ZONE, zone)), zone))
    if len(machine.ids(SOCKET)) < len(machine.ids(ZONE)):
        sockets = sorted(machine.ids(SOCKET), key=lambda socket: (len(machine.of(left, SOCKET, socket)), socket))
        socket_of = {row[ZONE]: row[SOCKET] for row in machine.rows.values()}
        by_free.sort(key=lambda zone: sockets.index(socket_of[zone]))
    return [zone for zone in by_free if machine.of(left, ZONE, zone)]


def _rests(
    have: dict[int, int], chosen: tuple[int, ...], each: int, rest: int, group: int
) -> Iterable[tuple[tuple[int, ...], dict[int, int]]]:
    even = {zone: count - (each if zone in chosen else 0) for zone, count in have.items()}
    if not rest:
        yield (), even
        return
    with_room = [zone for zone in chosen if even[zone] >= group]
    for size in range(len(with_room), 0, -1):
        for places in combinations(with_room, size):
            if sum(even[zone] // group for zone in places) * group < rest:
                continue
            after, open_ = dict(even), rest
            while open_:
                for zone in places:
                    if open_ and after[zone] >= group:
                        after[zone] -= group
                        open_ -= group
            yield places, after


def _hand(
    machine: Machine,
    rows: list[Row],
    left: set[int],
    need: int,
    group: int,
    best: tuple[float, tuple[int, ...], int, tuple[int, ...]],
) -> list[int]:
    _, chosen, each, rest_zones = best
    taken: list[int] = []
    turns = [(zone, each) for zone in chosen]
    while turns:
        for zone, count in turns:
            here = machine.of(left, ZONE, zone)
            if len(taken) < need and len(here) >= count:
                cpus = packed(rows, here, count) or []
                taken += cpus
                left.difference_update(cpus)
        turns = [(zone, group) for zone in rest_zones] if len(taken) < need else []
    return sorted(taken)
