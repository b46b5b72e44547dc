"""How CPU and memory of a request are split over zones, and which set of zones is taken: the one arithmetic and the one order.

CPU and memory are cut together: a zone that takes a share of the CPU takes the same share of the memory, so that no replica
computes in one zone on memory of another by plan. What a zone can take of a request is therefore one number, its `part`, kept
exact as a numerator over the `whole`; memory counts in MiB here, the request rounded up and free memory rounded down:

    whole = request_cpu_mcpu * request_mib
    part = min(free_cpu_mcpu * request_mib, free_mib * request_cpu_mcpu, whole)

Zones hold a request together when their parts sum to the whole. A request of only CPU or only memory is cut by that one. Of several
zones the fewest of one socket are taken, else the fewest; between equals the freer (more free CPU, then memory, then the lower id).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

__all__ = ["FreeZone", "SplitDemand", "by_freedom", "choose_several", "fewest_leading", "rank", "set_order"]

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
