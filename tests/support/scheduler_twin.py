"""The slow, obvious scheduler: tries every set of zones and every node for every replica. It shares no code with the fast one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from itertools import combinations
from typing import NamedTuple

MIB = 1 << 20


class TwinZone(NamedTuple):
    zone: int
    socket: int
    cpu: int
    memory: int


class TwinNode(NamedTuple):
    name: str
    zones: tuple[TwinZone, ...]
    allocatable_cpu: int
    allocatable_memory: int


def share(cpu: int, memory: int, zone: TwinZone) -> tuple[int, int]:
    """Numerator and denominator of the share of the request that the zone can take, memory in whole MiB."""
    mib = -(-memory // MIB)
    whole = cpu * mib
    return max(0, min(whole, zone.cpu * mib, zone.memory // MIB * cpu)), whole


def fits(cpu: int, memory: int, zones: Sequence[TwinZone]) -> bool:
    """One zone to the byte, several by their shares."""
    if len(zones) == 1:
        return zones[0].cpu >= cpu and zones[0].memory >= memory
    whole = share(cpu, memory, zones[0])[1]
    return sum(share(cpu, memory, zone)[0] for zone in zones) >= whole


def fewest(cpu: int, memory: int, zones: Sequence[TwinZone]) -> tuple[int, int] | None:
    """(number of zones, 1 when they cross sockets) of the best set: one zone, then fewest on one socket, then fewest."""
    found = []
    for size in range(1, len(zones) + 1):
        for group in combinations(zones, size):
            if fits(cpu, memory, group):
                crosses = len({zone.socket for zone in group}) > 1
                found.append((int(crosses), size))
    if not found:
        return None
    best = min(found)
    return best[1], best[0]


def best_node(cpu: int, memory: int, nodes: Sequence[TwinNode], zone_weight: int, free_weight: int) -> str | None:
    """The node with the best weighted score; ties by more free CPU, then by name."""
    ranked = []
    for node in nodes:
        free_cpu = sum(zone.cpu for zone in node.zones)
        free_memory = sum(zone.memory for zone in node.zones)
        if free_cpu < cpu or free_memory < memory:
            continue
        found = fewest(cpu, memory, node.zones)
        if found is None:
            continue
        size, crosses = found
        zone_score = 100 // (size + len(node.zones) if crosses else size)
        cpu_pct = 100 * (free_cpu - cpu) // node.allocatable_cpu if node.allocatable_cpu else 0
        memory_pct = 100 * (free_memory - memory) // node.allocatable_memory if node.allocatable_memory else 0
        free_score = (cpu_pct + memory_pct) // 2
        ranked.append((-(zone_weight * zone_score + free_weight * free_score), -(free_cpu - cpu), node.name))
    return min(ranked)[2] if ranked else None


def part(amount: int, whole: int) -> Fraction:
    """The part of a whole above 0 that an amount is, at most all of it."""
    return min(Fraction(1), Fraction(amount, whole))


def free_pct(left: Sequence[int], whole: Sequence[int]) -> int:
    """The mean of the free percents of both resources, each rounded down; nothing is free of what nobody promised."""
    return max(
        0, min(100, sum(math.floor(Fraction(100 * a, b)) if b else 0 for a, b in zip(left, whole, strict=True)) // 2)
    )


def least_allocated(allocated: Sequence[int], whole: Sequence[int]) -> int:
    """The mean free percent of the resources that there are, each rounded down; what is exceeded is not free at all."""
    return _mean([math.floor(100 * (1 - part(a, b))) for a, b in zip(allocated, whole, strict=True) if b > 0])


def most_allocated(allocated: Sequence[int], whole: Sequence[int]) -> int:
    """The mean allocated percent of the resources that there are, each rounded down."""
    return _mean([math.floor(100 * part(a, b)) for a, b in zip(allocated, whole, strict=True) if b > 0])


def balanced(allocated: Sequence[int], whole: Sequence[int]) -> int:
    """100 less the standard deviation of the allocated parts, in whole percent rounded up; parts in thousandths rounded down."""
    parts = [math.floor(1000 * part(a, b)) for a, b in zip(allocated, whole, strict=True) if b > 0]
    if len(parts) < 2:
        return 100
    mean = Fraction(sum(parts), len(parts))
    variance = sum((each - mean) ** 2 for each in parts) / len(parts)
    deviation = (Decimal(variance.numerator) / Decimal(variance.denominator)).sqrt() / 10
    return 100 - int(deviation.to_integral_value(ROUND_CEILING))


def packed(asked: Sequence[int], held: Sequence[int], whole: Sequence[int]) -> int:
    """The mean percent of the resources asked for that is taken afterwards; 0 where one is exceeded, parts in millionths."""
    wanted = [(a, b, c) for a, b, c in zip(asked, held, whole, strict=True) if a > 0]
    if any(c > 0 and a + b > c for a, b, c in wanted):
        return 0
    parts = [math.floor(1_000_000 * Fraction(a + b, c)) if c > 0 else 0 for a, b, c in wanted]
    return math.floor(Fraction(100 * sum(parts), len(parts) * 1_000_000)) if parts else 0


def _mean(scores: Sequence[int]) -> int:
    return sum(scores) // len(scores) if scores else 0
