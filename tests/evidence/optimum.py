"""The most replicas that a small cluster could take, found by trying, and the least that colo's scheduler is certain to place."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from math import floor

from tests.bench.openb import MIB
from tests.evidence.fleets import Machine
from tests.evidence.mix import Ask

__all__ = ["least_placed", "most_placed"]

Free = tuple[tuple[int, int], ...]


def most_placed(machines: Sequence[Machine], asks: Sequence[Ask]) -> int:
    """How many of the requests fit at most, whichever are left out and whoever comes first.

    A request fits a machine whose free CPU and memory in all zones together hold it: a scheduler that keeps to zones, or that must
    decide one request before it knows the next, can at best reach this. For a few machines and requests only: it tries everything.
    """
    ordered = tuple(sorted(asks, reverse=True))

    @cache
    def most(at: int, free: Free) -> int:
        if at == len(ordered):
            return 0
        ask, left = ordered[at], len(ordered) - at
        best = 0
        for place, (cpu, memory) in enumerate(free):
            if cpu < ask.cpu_mcpu or memory < ask.memory_bytes or (place and free[place - 1] == free[place]):
                continue
            rest = [*free[:place], (cpu - ask.cpu_mcpu, memory - ask.memory_bytes), *free[place + 1 :]]
            best = max(best, 1 + most(at + 1, tuple(sorted(rest))))
            if best == left:
                return best
        return max(best, most(at + 1, free))

    return most(0, tuple(sorted((machine.cpu_mcpu, machine.memory_bytes) for machine in machines)))


def least_placed(machines: Sequence[Machine], asks: Sequence[Ask]) -> int:
    """How many of the requests are placed at least by a scheduler that refuses none that fits, in whatever order it fills nodes.

    Each request must fit some machine that is empty.

    Let r be a request that was refused, P how often an empty machine holds r (zone by zone, in fractions), and q the largest ratio
    of another request's CPU or memory to that of r. A replica takes the same share of its CPU and of its memory in each zone, and
    so displaces at most q of r. The machine refused r, so less than one r still fitted: it holds more than (P - 1) / q replicas.
    Which requests are refused is not known before: the least over all of them counts. That shares are cut to whole milli-CPU and
    bytes, and free memory to MiB, is not in it: it can matter only where a request fits to the very unit.
    """
    least = len(asks)
    for number, refused in enumerate(asks):
        others = [*asks[:number], *asks[number + 1 :]]
        if not others:
            continue
        q = max(
            max(Fraction(ask.cpu_mcpu, refused.cpu_mcpu), Fraction(ask.memory_bytes, refused.memory_bytes))
            for ask in others
        )
        held = sum(max(0, floor((_times(machine, refused) - 1) / q) + 1) for machine in machines)
        least = min(least, held)
    return least


def _times(machine: Machine, ask: Ask) -> Fraction:
    by_memory = Fraction(machine.zone_bytes // MIB, -(-ask.memory_bytes // MIB))
    return machine.zones * min(Fraction(machine.zone_mcpu, ask.cpu_mcpu), by_memory)
