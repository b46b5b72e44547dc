"""The CPUs of batch work where a CPU set keeps the ceiling: as many as it needs, spread over zones, whole cores first.

The choice is that of Koordinator's cpuset policy (koordinator-sh/koordinator:pkg/koordlet/qosmanager/plugins/cpusuppress).
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from colo_common.model.cpu_topology import CpuRow
from colo_common.model.cpuset import CpuSet

__all__ = ["LEAST_CPUS", "narrowed", "pick"]

LEAST_CPUS: Final = 2
"""Batch work keeps so many CPUs at any ceiling, as far as there are so many."""

_CPU_MCPU: Final = 1_000


def narrowed(ceiling_mcpu: int, pool: CpuSet, lent: CpuSet, rows: Sequence[CpuRow]) -> CpuSet:
    """The CPUs of `pool` that batch work runs on: the ceiling in whole CPUs, rounded up, at least LEAST_CPUS, at most the pool.

    `lent` are CPUs of the pool that LSR work owns. They are chosen in the proportion that they have in the pool, rounded down, so
    that neither they nor the CPUs of LS work carry all batch work. `rows` say where each CPU of the machine is.
    """
    count = min(len(pool), max(LEAST_CPUS, -(-ceiling_mcpu // _CPU_MCPU)))
    if count == 0:
        return CpuSet()
    lent &= pool
    from_lent = count * len(lent) // len(pool)
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
