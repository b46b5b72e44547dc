"""Which zones of a node hold a request, and how it is split over them.

CPU and memory are split together: a zone that takes a share of the CPU takes the same share of the memory, so that no replica
computes in one zone on memory of another by plan. What a zone can take of a request is therefore one number, its `part`:

    part = min(request_cpu, free_cpu, floor(min(free_memory, request_memory) * request_cpu / request_memory))   in milli-CPU

A request fits into a set of zones when their parts sum to its CPU. The set is: one zone if one is enough; else the fewest zones
of one socket; else the fewest zones; between equals the freer (more free CPU, then more free memory, then the lower id).
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["NO_SOCKET", "IntArray", "Part", "ZoneFree", "choose_zones", "cost_of", "costs_of_rows", "parts_of_rows"]

IntArray = npt.NDArray[np.int64]

NO_SOCKET: Final = -1
"""The socket of a column that is no zone: rows of nodes with fewer zones than the widest are padded."""
_INT64_MAX: Final = 2**63 - 1


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


def choose_zones(cpu_mcpu: int, memory_bytes: int, zones: list[ZoneFree]) -> tuple[Part, ...] | None:
    """The zones and their parts, or None when no set of them can hold the request.

    The parts sum exactly to the request and none exceeds what is free. The freest zone is filled first. Memory follows CPU by
    cumulative shares rounded down, so that each zone's memory is its CPU share, rounded to one of the two neighbouring bytes.
    """
    best: ZoneFree | None = None
    for zone in zones:
        enough = zone.free_cpu_mcpu >= cpu_mcpu and zone.free_memory_bytes >= memory_bytes
        if enough and (best is None or _freer_first(zone) < _freer_first(best)):
            best = zone
    if best is not None:
        return (Part(best.slot, cpu_mcpu, memory_bytes),)
    if len(zones) < 2:
        return None
    ranked = [(part, zone) for zone in zones if (part := _part(cpu_mcpu, memory_bytes, zone)) > 0]
    ranked.sort(key=lambda pair: (-pair[0], _freer_first(pair[1])))
    sockets = sorted({zone.socket for _, zone in ranked})
    on_one_socket = [[pair for pair in ranked if pair[1].socket == socket] for socket in sockets]
    sets = [found for group in on_one_socket if (found := _fewest(cpu_mcpu, group))]
    if not sets:
        sets = [found for found in (_fewest(cpu_mcpu, ranked),) if found]
    if not sets:
        return None
    return _split(cpu_mcpu, memory_bytes, min(sets, key=_set_order))


def _freer_first(zone: ZoneFree) -> tuple[int, int, int]:
    return (-zone.free_cpu_mcpu, -zone.free_memory_bytes, zone.slot)


def _part(cpu_mcpu: int, memory_bytes: int, zone: ZoneFree) -> int:
    by_memory = min(max(zone.free_memory_bytes, 0), memory_bytes) * cpu_mcpu // memory_bytes
    return min(cpu_mcpu, zone.free_cpu_mcpu, by_memory)


def _fewest(cpu_mcpu: int, ranked: list[tuple[int, ZoneFree]]) -> list[tuple[int, ZoneFree]]:
    """The shortest prefix of zones in descending part whose parts sum to the request; empty when all of them do not."""
    total = 0
    for count, (part, _) in enumerate(ranked, start=1):
        total += part
        if total >= cpu_mcpu:
            return ranked[:count]
    return []


def _set_order(found: list[tuple[int, ZoneFree]]) -> tuple[int, int, int, int]:
    cpu = sum(zone.free_cpu_mcpu for _, zone in found)
    memory = sum(zone.free_memory_bytes for _, zone in found)
    return (len(found), -cpu, -memory, min(zone.slot for _, zone in found))


def _split(cpu_mcpu: int, memory_bytes: int, found: list[tuple[int, ZoneFree]]) -> tuple[Part, ...]:
    parts = []
    cpu_before = 0
    memory_before = 0
    for part, zone in found:
        cpu_until = min(cpu_mcpu, cpu_before + part)
        memory_until = memory_bytes * cpu_until // cpu_mcpu
        parts.append(Part(zone.slot, cpu_until - cpu_before, memory_until - memory_before))
        cpu_before, memory_before = cpu_until, memory_until
    parts.sort()
    return tuple(parts)


def parts_of_rows(cpu_mcpu: int, memory_bytes: int, free_cpu: IntArray, free_memory: IntArray) -> IntArray:
    """The `part` of every zone of every row: shape (rows, columns), at least 0. Exact also where int64 would overflow."""
    memory = np.clip(free_memory, 0, memory_bytes)
    if cpu_mcpu * memory_bytes > _INT64_MAX:
        wide = memory.astype(object) * cpu_mcpu // memory_bytes
        by_memory: IntArray = wide.astype(np.int64)
    else:
        by_memory = memory * cpu_mcpu // memory_bytes
    return np.clip(np.minimum(free_cpu, by_memory), 0, cpu_mcpu)


def cost_of(parts: tuple[Part, ...], zones: list[ZoneFree]) -> int:
    """How scattered a choice is: its number of zones, and when it crosses sockets the node's number of zones on top.

    So every set on one socket costs less than any that crosses, and the cost of a node never falls while its free shrinks.
    """
    sockets = {zone.socket for zone in zones if any(part.slot == zone.slot for part in parts)}
    return len(parts) if len(sockets) == 1 else len(parts) + len(zones)


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
    fits = parts.sum(axis=1) >= cpu_mcpu
    rest, parts = rest[fits], parts[fits]
    if rest.size == 0:
        return costs
    sockets = socket[rest]
    best = np.full(rest.size, columns + 1, dtype=np.int64)
    for number in np.unique(sockets[sockets != NO_SOCKET]).tolist():
        alone = np.where(sockets == number, parts, 0)
        enough = alone.sum(axis=1) >= cpu_mcpu
        if enough.any():
            best[enough] = np.minimum(best[enough], _fewest_of_rows(cpu_mcpu, alone[enough]))
    zones = (sockets != NO_SOCKET).sum(axis=1)
    costs[rest] = np.where(best <= columns, best, _fewest_of_rows(cpu_mcpu, parts) + zones)
    return costs


def _fewest_of_rows(cpu_mcpu: int, parts: IntArray) -> IntArray:
    """The fewest zones whose parts reach the request, for rows where all of them do."""
    reached = np.cumsum(-np.sort(-parts, axis=1), axis=1) >= cpu_mcpu
    first: IntArray = np.argmax(reached, axis=1)
    return first + 1
