"""The CPUs of batch work where a CPU set keeps a ceiling: as many as it needs, whole cores first.

The ceiling of a NUMA zone is kept so always, that of the node by the operator's choice, and while batch work keeps to whole cores;
then the CPUs are spread over the zones.

The choice is that of Koordinator's cpuset policy (koordinator-sh/koordinator:pkg/koordlet/qosmanager/plugins/cpusuppress).
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import Final

from colo_common.events.enforcement import ZoneCeiling
from colo_common.model.cpu_topology import CpuRow
from colo_common.model.cpuset import CpuSet

__all__ = ["LEAST_CPUS", "left_by_zones", "narrowed", "pick", "threads_of", "whole_cores", "zones_left"]

LEAST_CPUS: Final = 2
"""Batch work keeps so many CPUs at any ceiling, as far as there are so many."""

_CPU_MCPU: Final = 1_000


def threads_of(cpus: CpuSet, rows: Sequence[CpuRow]) -> int:
    """The most of these CPUs that are threads of one core; 1 at least."""
    return max(Counter((row.socket, row.core) for row in rows if row.cpu in cpus).values(), default=1)


def narrowed(ceiling_mcpu: int, pool: CpuSet, lent: CpuSet, rows: Sequence[CpuRow], *, threads: int = 1) -> CpuSet:
    """The CPUs of `pool` that batch work runs on: the ceiling in whole CPUs, rounded up, at least LEAST_CPUS, at most the pool.

    They are rounded up to whole cores of so many `threads`. `lent` are CPUs of the pool that LSR work owns. They are chosen in the
    proportion that they have in the pool, rounded down, so that neither they nor the CPUs of LS work carry all batch work. `rows`
    say where each CPU of the machine is.
    """
    count = max(LEAST_CPUS, -(-ceiling_mcpu // _CPU_MCPU))
    return _chosen(min(len(pool), -(-count // threads) * threads), pool, lent, rows, threads)


def whole_cores(
    ceiling_mcpu: int, pool: CpuSet, lent: CpuSet, rows: Sequence[CpuRow], *, held: Collection[int], threads: int
) -> CpuSet:
    """The CPUs of `narrowed` in whole cores, and one core in each zone that a replica cannot leave (`held`) and that has none of
    them. The quota keeps the ceiling all the same.
    """
    chosen = narrowed(ceiling_mcpu, pool, lent, rows, threads=threads)
    for zone in sorted(held):
        here = CpuSet.from_iterable(row.cpu for row in rows if row.zone == zone) & pool
        if here and not here & chosen:
            chosen = chosen | _chosen(min(threads, len(here)), here, lent, rows, threads)
    return chosen


def left_by_zones(
    zones: Sequence[ZoneCeiling],
    pool: CpuSet,
    lent: CpuSet,
    rows: Sequence[CpuRow],
    *,
    held: Collection[int] = (),
    threads: int = 1,
) -> CpuSet:
    """The CPUs of `pool` that the ceilings of zones leave batch work, `lent` ones in their proportion, as in `narrowed`.

    In a zone it keeps the whole CPUs of the ceiling, and in those that a replica cannot leave (`held`) one at least; where the
    pool is in one zone, or no zone leaves any, LEAST_CPUS at least. Zones that are not named keep all.
    """
    left = pool
    for each in zones:
        here = CpuSet.from_iterable(row.cpu for row in rows if row.zone == each.zone) & pool
        least = LEAST_CPUS if here == pool else int(each.zone in held)
        count = max(least, each.ceiling_mcpu // _CPU_MCPU)
        if count < len(here):
            left = left - here | _chosen(count, here, lent, rows, threads)
    return left or _chosen(min(len(pool), LEAST_CPUS), pool, lent, rows, threads)


def zones_left(left: CpuSet, pool: CpuSet, rows: Sequence[CpuRow]) -> tuple[ZoneCeiling, ...]:
    """The zones of which `left` has not all CPUs of the pool: the ceilings that an earlier executor left.

    Only where cores have several threads does one leave a zone without any. None on a machine of one zone.
    """
    least = 0 if threads_of(pool, rows) > 1 else 1
    found = []
    zones = sorted({row.zone for row in rows})
    for zone in zones if len(zones) > 1 else ():
        here = CpuSet.from_iterable(row.cpu for row in rows if row.zone == zone) & pool
        kept = here & left
        if len(kept) >= least and kept != here:
            found.append(
                ZoneCeiling(zone=zone, ceiling_mcpu=len(kept) * _CPU_MCPU, capacity_mcpu=len(here) * _CPU_MCPU)
            )
    return tuple(found)


def _chosen(count: int, pool: CpuSet, lent: CpuSet, rows: Sequence[CpuRow], threads: int) -> CpuSet:
    if count == 0:
        return CpuSet()
    lent &= pool
    # In whole cores as well, or each part would end in half a core.
    from_lent = count * len(lent) // len(pool) // threads * threads
    chosen = pick(from_lent, [row for row in rows if row.cpu in lent])
    chosen += pick(count - from_lent, [row for row in rows if row.cpu in pool - lent])
    return CpuSet.from_iterable(chosen)


def pick(count: int, rows: Sequence[CpuRow]) -> list[int]:
    """`count` CPUs in the order in which they are chosen; none when there are fewer.

    The CPUs of one zone and socket are a bucket, ordered by core and number; the largest bucket comes first, among equals the one
    with the lowest CPU. In turn each bucket gives two CPUs of one core while two are needed and a bucket has such a pair; then,
    from the bucket that is next, each gives one CPU.
    """
    if not 0 < count <= len(rows):
        return []
    buckets = _buckets(rows)
    chosen: list[int] = []
    turn = misses = 0
    while count - len(chosen) >= 2 and misses < len(buckets):
        pair = _first_pair(buckets[turn % len(buckets)])
        turn += 1
        misses = 0 if pair else misses + 1
        chosen += pair
    while len(chosen) < count:
        bucket = buckets[turn % len(buckets)]
        turn += 1
        if bucket:
            chosen.append(bucket.pop(0).cpu)
    return chosen


def _buckets(rows: Sequence[CpuRow]) -> list[list[CpuRow]]:
    found: defaultdict[tuple[int, int], list[CpuRow]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row.core, row.cpu)):
        found[row.zone, row.socket].append(row)
    return sorted(found.values(), key=lambda bucket: (-len(bucket), bucket[0].cpu))


def _first_pair(bucket: list[CpuRow]) -> list[int]:
    """Take the first two CPUs of one core out of the bucket; empty when it has none."""
    for at in range(len(bucket) - 1):
        if bucket[at].core == bucket[at + 1].core:
            first, second = bucket.pop(at), bucket.pop(at)
            return [first.cpu, second.cpu]
    return []
