"""Which zones of a node hold a request, and how it is split over them.

Requests of CPU and memory alone, for one node in plain integers and for all rows of a cluster at once. The set is one zone if one
is enough (to the byte), of such zones the freest.

There is one arithmetic and one order of sets for both forms. CPU and memory are cut together: a zone that takes a share of the CPU
takes the same share of the memory, so that no replica computes in one zone on memory of another by plan. What a zone can take of a
request is therefore one number, its `part`, kept exact as a numerator over the `whole`; memory counts in MiB here, the request
rounded up and free memory rounded down:

    whole = request_cpu_mcpu * request_mib
    part = min(free_cpu_mcpu * request_mib, free_mib * request_cpu_mcpu, whole)

Zones hold a request together when their parts sum to the whole. A request of only CPU or only memory is cut by that one. Of several
zones the fewest of one socket are taken, else the fewest; between equals the freer (more free CPU, then memory, then the lower id).
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = [
    "CPU_MAX_MCPU",
    "IntArray",
    "MEMORY_MAX_BYTES",
    "NO_SOCKET",
    "Part",
    "SplitDemand",
    "ZoneFree",
    "by_freedom",
    "choose_several",
    "choose_zones",
    "cost_of",
    "costs_of_rows",
    "cpu_held_together",
    "fewest_leading",
    "parts_of_rows",
    "rank",
    "rows_holding",
    "rows_holding_together",
    "set_order",
    "split_cost",
    "split_in_two",
]

_MIB: Final = 1 << 20


class FreeZone(Protocol):
    """A zone: its id or place, its socket, and what is free of CPU and memory; below zero counts as nothing."""

    @property
    def slot(self) -> int:
        """The id, or the place among the zones of its node."""
        ...

    @property
    def socket(self) -> int:
        """The socket."""
        ...

    @property
    def free_cpu_mcpu(self) -> int:
        """Free CPU."""
        ...

    @property
    def free_memory_bytes(self) -> int:
        """Free memory."""
        ...


Zone = TypeVar("Zone", bound=FreeZone)
Ranked = list[tuple[int, Zone]]
"""Zones with their parts, the largest part first, then the freer zone."""
Fewest = Callable[[Ranked[Zone], int], "tuple[Zone, ...] | None"]
"""The first of the smallest sets, of two zones or more and of at most so many, that holds a request; None when none does."""


class SplitDemand(NamedTuple):
    """CPU and memory of a request, prepared: both at least 0, `mib` the memory in MiB, `whole` what the parts have to reach."""

    cpu_mcpu: int
    memory_bytes: int
    mib: int
    whole: int

    @classmethod
    def of(cls, cpu_mcpu: int, memory_bytes: int) -> "SplitDemand":
        """Prepare a request."""
        mib = -(-memory_bytes // _MIB)
        whole = (cpu_mcpu or 1) * (mib or 1) if cpu_mcpu or mib else 0
        return cls(cpu_mcpu, memory_bytes, mib, whole)

    def part(self, free_cpu_mcpu: int, free_memory_bytes: int) -> int:
        """What a zone can take, of `whole`: at least 0, and 0 when nothing is asked for."""
        cpu, _, mib, part = self
        if cpu and (by_cpu := free_cpu_mcpu * (mib or 1)) < part:
            part = by_cpu
        if mib and (by_memory := free_memory_bytes // _MIB * (cpu or 1)) < part:
            part = by_memory
        return part if part > 0 else 0

    def cut(self, parts: Iterable[int]) -> list[tuple[int, int]]:
        """CPU and memory that zones of these parts take when they are filled in this order.

        Both are cut at the same cumulative shares, rounded down, so each is within 1 mcpu and 1 byte of its zone's share. They sum
        to the request when the parts reach the whole, and none exceeds what is free.
        """
        whole = self.whole or 1
        taken = []
        reached = cpu_before = memory_before = 0
        for part in parts:
            reached = min(self.whole, reached + part)
            cpu_until = self.cpu_mcpu * reached // whole
            memory_until = self.memory_bytes * reached // whole
            taken.append((cpu_until - cpu_before, memory_until - memory_before))
            cpu_before, memory_before = cpu_until, memory_until
        return taken


def by_freedom(zone: FreeZone) -> tuple[int, int, int]:
    """Sorts the freer zone first: more free CPU, then memory, then the lower id."""
    return (-zone.free_cpu_mcpu, -zone.free_memory_bytes, zone.slot)


def set_order(zones: Sequence[FreeZone]) -> tuple[int, int, int, int]:
    """Sorts the better of two sets first: fewer zones, more free CPU, then memory, then the lower lowest id."""
    cpu = sum([zone.free_cpu_mcpu for zone in zones])
    memory = sum([zone.free_memory_bytes for zone in zones])
    return (len(zones), -cpu, -memory, min([zone.slot for zone in zones]))


def rank(demand: SplitDemand, zones: Iterable[Zone]) -> "Ranked[Zone]":
    """The zones with their parts, the largest part first, then the freer zone."""
    ranked = [(demand.part(zone.free_cpu_mcpu, zone.free_memory_bytes), zone) for zone in zones]
    ranked.sort(key=lambda pair: (-pair[0], by_freedom(pair[1])))
    return ranked


def fewest_leading(demand: SplitDemand, ranked: "Ranked[Zone]", widest: int) -> "tuple[Zone, ...] | None":
    """A `Fewest` for requests of CPU and memory alone: the leading zones have the largest sum of parts, so they decide."""
    total = 0
    for count, (part, _) in enumerate(ranked[:widest], start=1):
        total += part
        if total >= demand.whole:
            return tuple([zone for _, zone in ranked[:count]])
    return None


def choose_several(ranked: "Ranked[Zone]", widest: int, fewest: "Fewest[Zone]") -> "tuple[Zone, ...] | None":
    """At least two and at most `widest` zones, in the order they are filled; None when no such set holds the request.

    No zone alone holds it. The fewest zones of one socket come before the fewest of several sockets.
    """
    best: tuple[Zone, ...] | None = None
    most = widest
    for socket in sorted({zone.socket for _, zone in ranked}):
        found = fewest([pair for pair in ranked if pair[1].socket == socket], most)
        if found is None:
            continue
        most = len(found)
        if best is None or set_order(found) < set_order(best):
            best = found
    return best or fewest(ranked, widest)


IntArray = npt.NDArray[np.int64]

NO_SOCKET: Final = -1
"""The socket of a column that is no zone: rows of nodes with fewer zones than the widest are padded."""
CPU_MAX_MCPU: Final = 1 << 24
MEMORY_MAX_BYTES: Final = 1 << 46
"""The largest request and the most that is free in a zone: 16,777 CPUs and 64 TiB. 64 zones of such parts still sum in 64 bits."""


class ZoneFree(NamedTuple):
    """What is free in one zone; `slot` is its column in the rows of the cluster."""

    slot: int
    socket: int
    free_cpu_mcpu: int
    free_memory_bytes: int


class Part(NamedTuple):
    """What a request takes of one zone."""

    slot: int
    cpu_mcpu: int
    memory_bytes: int


class ZoneSplit(NamedTuple):
    """Several zones that hold a request together: their parts in ascending slot, and `cost_of` them."""

    parts: tuple[Part, ...]
    cost: int


def choose_zones(cpu_mcpu: int, memory_bytes: int, zones: Sequence[ZoneFree]) -> tuple[Part, ...] | None:
    """The zones and their parts in ascending slot, or None when no set of them can hold the request.

    The parts sum exactly to the request and none exceeds what is free; the zone with the largest part is filled first, and CPU and
    memory are cut at the same shares (`SplitDemand.cut`).
    """
    ordered = sorted(zones)
    free_cpu, free_memory = [zone.free_cpu_mcpu for zone in ordered], [zone.free_memory_bytes for zone in ordered]
    place = freest_zone(cpu_mcpu, memory_bytes, free_cpu, free_memory)
    if place >= 0:
        return (Part(ordered[place].slot, cpu_mcpu, memory_bytes),)
    split = split_zones(cpu_mcpu, memory_bytes, free_cpu, free_memory, [zone.socket for zone in ordered])
    if split is None:
        return None
    return tuple([Part(ordered[slot].slot, cpu, memory) for slot, cpu, memory in split.parts])


def freest_zone(cpu_mcpu: int, memory_bytes: int, free_cpu: Sequence[int], free_memory: Sequence[int]) -> int:
    """The place of the zone that holds the request alone, to the byte: the freest of them; -1 when none does."""
    best, best_cpu, best_memory = -1, -1, -1
    for place, cpu in enumerate(free_cpu):
        if cpu >= cpu_mcpu and cpu >= best_cpu:
            memory = free_memory[place]
            if memory >= memory_bytes and (cpu > best_cpu or memory > best_memory):
                best, best_cpu, best_memory = place, cpu, memory
    return best


def split_zones(
    cpu_mcpu: int, memory_bytes: int, free_cpu: Sequence[int], free_memory: Sequence[int], sockets: Sequence[int]
) -> ZoneSplit | None:
    """Several zones of a node, no single one of which holds the request; None when they do not hold it together.

    One entry for each zone; `free_cpu` and `free_memory` may be padded. A slot of the answer is a place in them.
    """
    count = len(sockets)
    if count == 2:
        first, second = (free_cpu[0], free_memory[0]), (free_cpu[1], free_memory[1])
        both = split_in_two(cpu_mcpu, memory_bytes, first, second)
        return None if both is None else ZoneSplit(both, split_cost(sockets))
    demand = SplitDemand.of(cpu_mcpu, memory_bytes)
    zones = [ZoneFree(place, socket, free_cpu[place], free_memory[place]) for place, socket in enumerate(sockets)]
    chosen = choose_several(rank(demand, zones), count, partial(fewest_leading, demand))
    if chosen is None:
        return None
    taken = demand.cut([demand.part(cpu, memory) for _, _, cpu, memory in chosen])
    parts = sorted([Part(zone.slot, cpu, memory) for zone, (cpu, memory) in zip(chosen, taken, strict=True)])
    crosses = len({zone.socket for zone in chosen}) > 1
    return ZoneSplit(tuple(parts), len(parts) + count if crosses else len(parts))


def split_in_two(
    cpu_mcpu: int, memory_bytes: int, first: tuple[int, int], second: tuple[int, int]
) -> tuple[Part, ...] | None:
    """The parts of the only two zones (free CPU and memory of each), neither of which is enough alone; None when both are not.

    Most machines have two zones, both of which are needed then: no set has to be looked for.
    """
    # `SplitDemand.part` and `cut`, written out.
    mib = -(-memory_bytes >> 20)
    whole = cpu_mcpu * mib
    part = min(whole, first[0] * mib, (first[1] >> 20) * cpu_mcpu)
    other = min(whole, second[0] * mib, (second[1] >> 20) * cpu_mcpu)
    if part <= 0 or other <= 0 or part + other < whole:
        return None
    # The larger part is filled first; of equal ones that of the freer zone.
    if (other, second) > (part, first):
        cpu, memory = cpu_mcpu * other // whole, memory_bytes * other // whole
        return Part(0, cpu_mcpu - cpu, memory_bytes - memory), Part(1, cpu, memory)
    cpu, memory = cpu_mcpu * part // whole, memory_bytes * part // whole
    return Part(0, cpu, memory), Part(1, cpu_mcpu - cpu, memory_bytes - memory)


def parts_of_rows(cpu_mcpu: int, memory_bytes: int, free_cpu: IntArray, free_memory: IntArray) -> IntArray:
    """The `part` of every zone of every row: shape (rows, columns), at least 0."""
    mib = SplitDemand.of(cpu_mcpu, memory_bytes).mib
    by_cpu = np.minimum(free_cpu, cpu_mcpu) * mib
    by_memory = np.minimum(free_memory >> 20, mib) * cpu_mcpu
    parts: IntArray = np.maximum(np.minimum(by_cpu, by_memory), 0)
    return parts


def cpu_held_together(cpu_mcpu: int, memory_bytes: int, parts: IntArray) -> IntArray:
    """How much of a request's CPU the zones of each row can take with its memory, by `parts_of_rows`: mcpu, rounded down."""
    # cpu * min(total, whole) // whole, and whole is cpu * MiB.
    demand = SplitDemand.of(cpu_mcpu, memory_bytes)
    total: IntArray = np.minimum(parts.sum(axis=1), demand.whole) // demand.mib
    return total


def rows_holding(
    cpu_mcpu: int, memory_bytes: int, free_cpu: IntArray, free_memory: IntArray, rows: IntArray
) -> npt.NDArray[np.bool_]:
    """Whether a request fits, for the chosen rows of (rows, columns) arrays: in one zone to the byte, or in several together."""
    cpu, memory = free_cpu.T.take(rows, axis=1), free_memory.T.take(rows, axis=1)
    alone = cpu >= cpu_mcpu
    alone &= memory >= memory_bytes
    holds: npt.NDArray[np.bool_] = np.logical_or.reduce(alone, axis=0)
    rest = np.flatnonzero(~holds)
    if rest.size:
        holds[rest] = _together(cpu_mcpu, memory_bytes, cpu.take(rest, axis=1), memory.take(rest, axis=1))
    return holds


def rows_holding_together(
    cpu_mcpu: int, memory_bytes: int, free_cpu: IntArray, free_memory: IntArray, rows: IntArray
) -> npt.NDArray[np.bool_]:
    """Whether the parts of all zones reach the whole, for the chosen rows of (rows, columns) arrays: shape (chosen,)."""
    return _together(cpu_mcpu, memory_bytes, free_cpu.T.take(rows, axis=1), free_memory.T.take(rows, axis=1))


def _together(cpu_mcpu: int, memory_bytes: int, cpu: IntArray, memory: IntArray) -> npt.NDArray[np.bool_]:
    """The same of arrays of shape (columns, rows), which are overwritten: zone by zone each is one long run in memory."""
    mib = SplitDemand.of(cpu_mcpu, memory_bytes).mib
    # A part is not cut at the whole: alone it would be enough all the same.
    cpu *= mib
    memory >>= 20
    memory *= cpu_mcpu
    np.minimum(cpu, memory, out=cpu)
    np.maximum(cpu, 0, out=cpu)
    reached: npt.NDArray[np.bool_] = np.add.reduce(cpu, axis=0) >= cpu_mcpu * mib
    return reached


def cost_of(parts: tuple[Part, ...], zones: Sequence[ZoneFree]) -> int:
    """How scattered a choice is: its number of zones, and when it crosses sockets the node's number of zones on top.

    So every set on one socket costs less than any that crosses, and the cost of a node never falls while its free shrinks.
    """
    sockets = {zone.socket for zone in zones if any(part.slot == zone.slot for part in parts)}
    return len(parts) if len(sockets) == 1 else len(parts) + len(zones)


def split_cost(sockets: Sequence[int]) -> int:
    """The least that `cost_of` can be for a request that no single zone of such a node holds; exact for up to two zones."""
    return 2 if len(set(sockets)) < len(sockets) else 2 + len(sockets)


def costs_of_rows(
    cpu_mcpu: int, memory_bytes: int, free_cpu: IntArray, free_memory: IntArray, socket: IntArray
) -> IntArray:
    """`cost_of` what `choose_zones` would take in each row, 0 where the request does not fit. All shapes (rows, columns)."""
    single: npt.NDArray[np.bool_] = np.any((free_cpu >= cpu_mcpu) & (free_memory >= memory_bytes), axis=1)
    costs: IntArray = single.astype(np.int64)
    columns = free_cpu.shape[1]
    rest = np.flatnonzero(~single)
    if columns < 2 or rest.size == 0:
        return costs
    parts = parts_of_rows(cpu_mcpu, memory_bytes, free_cpu[rest], free_memory[rest])
    whole = SplitDemand.of(cpu_mcpu, memory_bytes).whole
    fits = parts.sum(axis=1) >= whole
    rest, parts = rest[fits], parts[fits]
    if rest.size == 0:
        return costs
    sockets = socket[rest]
    best = np.full(rest.size, columns + 1, dtype=np.int64)
    for number in np.unique(sockets[sockets != NO_SOCKET]).tolist():
        alone = np.where(sockets == number, parts, 0)
        enough = alone.sum(axis=1) >= whole
        if enough.any():
            best[enough] = np.minimum(best[enough], _fewest_of_rows(whole, alone[enough]))
    zones = (sockets != NO_SOCKET).sum(axis=1)
    costs[rest] = np.where(best <= columns, best, _fewest_of_rows(whole, parts) + zones)
    return costs


def _fewest_of_rows(whole: int, parts: IntArray) -> IntArray:
    """The fewest zones whose parts reach the whole, for rows where all of them do."""
    reached = np.cumsum(-np.sort(-parts, axis=1), axis=1) >= whole
    first: IntArray = np.argmax(reached, axis=1)
    return first + 1
