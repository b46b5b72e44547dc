"""Plain schedulers to compare with, written for this comparison: they look at whole nodes, and the kernel finds the zones.

A node that is not told which zones to use leaves that to its kernel. Here the kernel is taken to do as well as it possibly could: a
replica that some zone of the node holds is in one, the freest; any other spreads by need, over the zones with most free CPU, its
memory on the same zones as far as there is room. A real kernel moves threads between zones as load changes, so what is counted
as crossing here is the least there would be.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from tests.evidence.fleets import Fleet
from tests.evidence.mix import Ask
from tests.evidence.placers import Share, Spot

__all__ = ["BASELINES", "Plain", "best_fit", "by_need", "least_allocated", "most_allocated"]

IntArray = npt.NDArray[np.int64]
Order = Callable[["Plain", IntArray, Ask], IntArray]
_ALL: Final = np.iinfo(np.int64).max


class Plain:
    """One order of preference over the nodes whose totals hold the request; equals are taken by name.

    `prefer` gives a number for each of these rows, the lowest is best. `one_zone`: only nodes of which one zone holds it all.
    """

    def __init__(self, fleet: Fleet, prefer: Order, *, one_zone: bool = False) -> None:
        self.seconds = 0.0
        self._prefer = prefer
        self._one_zone = one_zone
        self._machines = fleet.machines
        widest = max(machine.zones for machine in fleet.machines)
        # Zones that a machine lacks have nothing.
        self.zone_cpu: IntArray = np.zeros((len(fleet.machines), widest), dtype=np.int64)
        self.zone_memory: IntArray = np.zeros_like(self.zone_cpu)
        for row, machine in enumerate(fleet.machines):
            self.zone_cpu[row, : machine.zones] = machine.zone_mcpu
            self.zone_memory[row, : machine.zones] = machine.zone_bytes
        self.cpu: IntArray = self.zone_cpu.sum(axis=1)
        self.memory: IntArray = self.zone_memory.sum(axis=1)
        self.all_cpu, self.all_memory = self.cpu.copy(), self.memory.copy()

    def place(self, number: int, ask: Ask) -> Spot | None:
        """See Placer."""
        begun = time.process_time()
        spot = self._choose(ask)
        self.seconds += time.process_time() - begun
        if spot is not None:
            self._take(spot, 1)
        return spot

    def _choose(self, ask: Ask) -> Spot | None:
        fits = (self.cpu >= ask.cpu_mcpu) & (self.memory >= ask.memory_bytes)
        if self._one_zone:
            fits &= ((self.zone_cpu >= ask.cpu_mcpu) & (self.zone_memory >= ask.memory_bytes)).any(axis=1)
        rows = np.flatnonzero(fits)
        if not rows.size:
            return None
        row = int(rows[np.argmin(self._prefer(self, rows, ask))])
        free = list(zip(self.zone_cpu[row].tolist(), self.zone_memory[row].tolist(), strict=True))
        return Spot(row, tightest_zone(ask, free) if self._one_zone else by_need(ask, free))

    def end(self, number: int, spot: Spot) -> None:
        """See Placer."""
        self._take(spot, -1)

    def _take(self, spot: Spot, sign: int) -> None:
        for share in spot.shares:
            self.zone_cpu[spot.machine, share.zone] -= sign * share.cpu_mcpu
            self.zone_memory[spot.machine, share.zone] -= sign * share.memory_bytes
            self.cpu[spot.machine] -= sign * share.cpu_mcpu
            self.memory[spot.machine] -= sign * share.memory_bytes


def by_need(ask: Ask, free: list[tuple[int, int]]) -> tuple[Share, ...]:
    """The zones a kernel at its best would use on a node whose totals hold the request. `free`: CPU and memory by zone."""
    freest = sorted(range(len(free)), key=lambda zone: (-free[zone][0], -free[zone][1], zone))
    for zone in freest:
        if free[zone][0] >= ask.cpu_mcpu and free[zone][1] >= ask.memory_bytes:
            return (Share(zone, ask.cpu_mcpu, ask.memory_bytes),)
    cpu = _poured(ask.cpu_mcpu, [(zone, free[zone][0]) for zone in freest])
    near = sorted(freest, key=lambda zone: (zone not in cpu, -free[zone][1]))
    memory = _poured(ask.memory_bytes, [(zone, free[zone][1]) for zone in near])
    return tuple(Share(zone, cpu.get(zone, 0), memory.get(zone, 0)) for zone in sorted(cpu.keys() | memory.keys()))


def tightest_zone(ask: Ask, free: list[tuple[int, int]]) -> tuple[Share, ...]:
    """The zone that holds the request and has least CPU, then memory, left of it; there must be one."""
    holding = [zone for zone, (cpu, memory) in enumerate(free) if cpu >= ask.cpu_mcpu and memory >= ask.memory_bytes]
    return (Share(min(holding, key=lambda zone: free[zone]), ask.cpu_mcpu, ask.memory_bytes),)


def _poured(amount: int, zones: list[tuple[int, int]]) -> dict[int, int]:
    """Fill one zone after the other."""
    found: dict[int, int] = {}
    for zone, free in zones:
        part = min(amount, free)
        if part > 0:
            found[zone] = part
            amount -= part
    return found


def best_fit(plain: Plain, rows: IntArray, ask: Ask) -> IntArray:
    """Least free CPU left, then least free memory left."""
    left = plain.cpu[rows]
    return np.where(left == left.min(), plain.memory[rows], _ALL)


def most_allocated(plain: Plain, rows: IntArray, ask: Ask) -> IntArray:
    """The highest mean of allocated CPU and memory in whole per cent, as Kubernetes' MostAllocated scores with equal weights."""
    return -_allocated_pct(plain, rows, ask)


def least_allocated(plain: Plain, rows: IntArray, ask: Ask) -> IntArray:
    """The lowest mean of allocated CPU and memory, as Kubernetes' LeastAllocated, its default, scores."""
    free_cpu = (plain.cpu[rows] - ask.cpu_mcpu) * 100 // plain.all_cpu[rows]
    free_memory = (plain.memory[rows] - ask.memory_bytes) * 100 // plain.all_memory[rows]
    score: IntArray = -((free_cpu + free_memory) // 2)
    return score


def _allocated_pct(plain: Plain, rows: IntArray, ask: Ask) -> IntArray:
    cpu = (plain.all_cpu[rows] - plain.cpu[rows] + ask.cpu_mcpu) * 100 // plain.all_cpu[rows]
    memory = (plain.all_memory[rows] - plain.memory[rows] + ask.memory_bytes) * 100 // plain.all_memory[rows]
    score: IntArray = (cpu + memory) // 2
    return score


BASELINES: Final[dict[str, Callable[[Fleet], Plain]]] = {
    "best-fit": lambda fleet: Plain(fleet, best_fit),
    "most-allocated": lambda fleet: Plain(fleet, most_allocated),
    "least-allocated": lambda fleet: Plain(fleet, least_allocated),
    "best-fit, one zone or none": lambda fleet: Plain(fleet, best_fit, one_zone=True),
}
"""The schedulers that are compared with; the first is what ratios are taken to."""
