"""Which zones of a node hold a request, and how it is split over them.

CPU and memory are split together: a zone that takes a share of the CPU takes the same share of the memory, so that no replica
computes in one zone on memory of another by plan. What a zone can take of a request is therefore one number, its `part`, kept
exact as a numerator over the `whole`; memory counts in MiB here, the request rounded up and free memory rounded down:

    whole = request_cpu_mcpu * request_mib
    part = min(free_cpu_mcpu * request_mib, free_mib * request_cpu_mcpu, whole)

A request fits into a set of zones when their parts sum to the whole. The set is: one zone if one is enough (to the byte); else the
fewest zones of one socket; else the fewest zones; between equals the freer (more free CPU, then memory, then the lower id).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = [
    "CPU_MAX_MCPU",
    "MEMORY_MAX_BYTES",
    "NO_SOCKET",
    "IntArray",
    "Part",
    "ZoneFree",
    "choose_zones",
    "cost_of",
    "cpu_held_together",
    "costs_of_rows",
    "parts_of_rows",
    "rows_holding",
    "rows_holding_together",
    "split_cost",
    "split_in_two",
    "whole_of",
]

IntArray = npt.NDArray[np.int64]

NO_SOCKET: Final = -1
"""The socket of a column that is no zone: rows of nodes with fewer zones than the widest are padded."""
_MIB: Final = 1 << 20
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


def choose_zones(cpu_mcpu: int, memory_bytes: int, zones: list[ZoneFree]) -> tuple[Part, ...] | None:
    """The zones and their parts, or None when no set of them can hold the request.

    The parts sum exactly to the request and none exceeds what is free. The zone with the largest part is filled first. CPU and
    memory are cut at the same cumulative shares, rounded down, so each is within 1 mcpu and 1 byte of its zone's share.
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
    if len(zones) == 2:
        first, second = sorted(zones)
        parts = split_in_two(cpu_mcpu, memory_bytes, first[2:], second[2:])
        return parts and (parts[0]._replace(slot=first.slot), parts[1]._replace(slot=second.slot))
    whole = whole_of(cpu_mcpu, memory_bytes)
    ranked = [(part, zone) for zone in zones if (part := _part(cpu_mcpu, memory_bytes, zone)) > 0]
    ranked.sort(key=lambda pair: (-pair[0], _freer_first(pair[1])))
    sockets = sorted({zone.socket for _, zone in ranked})
    on_one_socket = [[pair for pair in ranked if pair[1].socket == socket] for socket in sockets]
    sets = [found for group in on_one_socket if (found := _fewest(whole, group))]
    if not sets:
        sets = [found for found in (_fewest(whole, ranked),) if found]
    if not sets:
        return None
    return _split(cpu_mcpu, memory_bytes, min(sets, key=_set_order))


def split_in_two(
    cpu_mcpu: int, memory_bytes: int, first: tuple[int, int], second: tuple[int, int]
) -> tuple[Part, ...] | None:
    """The parts of the only two zones (free CPU and memory of each), neither of which is enough alone; None when both are not.

    Most machines have two zones, so this one is short.
    """
    mib = _mib(memory_bytes)
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


def _freer_first(zone: ZoneFree) -> tuple[int, int, int]:
    return (-zone.free_cpu_mcpu, -zone.free_memory_bytes, zone.slot)


def whole_of(cpu_mcpu: int, memory_bytes: int) -> int:
    """The number that the parts of a request have to reach."""
    return cpu_mcpu * _mib(memory_bytes)


def _mib(memory_bytes: int) -> int:
    """A request in MiB, rounded up."""
    return -(-memory_bytes // _MIB)


def _part(cpu_mcpu: int, memory_bytes: int, zone: ZoneFree) -> int:
    mib = _mib(memory_bytes)
    return max(0, min(cpu_mcpu * mib, zone.free_cpu_mcpu * mib, zone.free_memory_bytes // _MIB * cpu_mcpu))


def _fewest(whole: int, ranked: list[tuple[int, ZoneFree]]) -> list[tuple[int, ZoneFree]]:
    """The shortest prefix of zones in descending part whose parts reach the whole; empty when all of them do not."""
    total = 0
    for count, (part, _) in enumerate(ranked, start=1):
        total += part
        if total >= whole:
            return ranked[:count]
    return []


def _set_order(found: list[tuple[int, ZoneFree]]) -> tuple[int, int, int, int]:
    cpu = sum(zone.free_cpu_mcpu for _, zone in found)
    memory = sum(zone.free_memory_bytes for _, zone in found)
    return (len(found), -cpu, -memory, min(zone.slot for _, zone in found))


def _split(cpu_mcpu: int, memory_bytes: int, found: list[tuple[int, ZoneFree]]) -> tuple[Part, ...]:
    whole = whole_of(cpu_mcpu, memory_bytes)
    parts = []
    reached = cpu_before = memory_before = 0
    for part, zone in found:
        reached = min(whole, reached + part)
        cpu_until = cpu_mcpu * reached // whole
        memory_until = memory_bytes * reached // whole
        parts.append(Part(zone.slot, cpu_until - cpu_before, memory_until - memory_before))
        cpu_before, memory_before = cpu_until, memory_until
    parts.sort()
    return tuple(parts)


def parts_of_rows(cpu_mcpu: int, memory_bytes: int, free_cpu: IntArray, free_memory: IntArray) -> IntArray:
    """The `part` of every zone of every row: shape (rows, columns), at least 0."""
    mib = _mib(memory_bytes)
    by_cpu = np.minimum(free_cpu, cpu_mcpu) * mib
    by_memory = np.minimum(free_memory >> 20, mib) * cpu_mcpu
    parts: IntArray = np.maximum(np.minimum(by_cpu, by_memory), 0)
    return parts


def cpu_held_together(cpu_mcpu: int, memory_bytes: int, parts: IntArray) -> IntArray:
    """How much of a request's CPU the zones of each row can take with its memory, by `parts_of_rows`: mcpu, rounded down."""
    # cpu * min(total, whole) // whole, and whole is cpu * MiB.
    total: IntArray = np.minimum(parts.sum(axis=1), whole_of(cpu_mcpu, memory_bytes)) // _mib(memory_bytes)
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
    mib = _mib(memory_bytes)
    # A part is not cut at the whole: alone it would be enough all the same.
    cpu *= mib
    memory >>= 20
    memory *= cpu_mcpu
    np.minimum(cpu, memory, out=cpu)
    np.maximum(cpu, 0, out=cpu)
    reached: npt.NDArray[np.bool_] = np.add.reduce(cpu, axis=0) >= cpu_mcpu * mib
    return reached


def cost_of(parts: tuple[Part, ...], zones: list[ZoneFree]) -> int:
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
    whole = whole_of(cpu_mcpu, memory_bytes)
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
