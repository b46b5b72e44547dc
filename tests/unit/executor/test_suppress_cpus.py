"""The CPUs of batch work under a ceiling, on any machine."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from colo_common.events.enforcement import ZoneCeiling
from colo_common.model.cpu_topology import CpuRow
from colo_common.model.cpuset import CpuSet
from colo_executor.suppress_cpus import LEAST_CPUS, left_by_zones, narrowed, pick, threads_of, zones_left

cpu_sets = st.sets(st.integers(0, 31)).map(CpuSet.from_iterable)


@st.composite
def machines(draw: st.DrawFn) -> list[CpuRow]:
    """Up to 32 CPUs in zones, sockets and cores of any size."""
    cpus = draw(st.sets(st.integers(0, 31), min_size=1))
    zones = {cpu: draw(st.integers(0, 3)) for cpu in cpus}
    return [
        CpuRow(cpu=cpu, core=draw(st.integers(0, 15)) + 16 * zones[cpu], zone=zones[cpu], socket=zones[cpu] // 2)
        for cpu in cpus
    ]


@given(machines(), st.integers(-1, 40))
def test_as_many_different_cpus_as_asked_or_none(rows: list[CpuRow], count: int) -> None:
    chosen = pick(count, rows)
    assert len(chosen) == len(set(chosen)) == (count if 0 < count <= len(rows) else 0)
    assert set(chosen) <= {row.cpu for row in rows}


@given(machines(), cpu_sets, cpu_sets, st.integers(0, 40_000))
def test_the_ceiling_fits_into_the_cpus_and_no_more_are_taken(
    rows: list[CpuRow], closed: CpuSet, lent: CpuSet, ceiling_mcpu: int
) -> None:
    pool = CpuSet.from_iterable(row.cpu for row in rows) - closed
    found = narrowed(ceiling_mcpu, pool, lent, rows)
    assert found <= pool
    assert len(found) == min(len(pool), max(LEAST_CPUS, -(-ceiling_mcpu // 1_000)))
    # Never more than its share, so that work with CPUs of its own does not carry all.
    assert len(found & lent) * len(pool or "x") <= len(found) * len(lent & pool)


def zone_ceilings(rows: list[CpuRow], ceilings_mcpu: dict[int, int]) -> tuple[ZoneCeiling, ...]:
    sizes = Counter(row.zone for row in rows)
    return tuple(
        ZoneCeiling(zone=zone, ceiling_mcpu=mcpu, capacity_mcpu=sizes[zone] * 1_000)
        for zone, mcpu in sorted(ceilings_mcpu.items())
    )


@given(
    machines(),
    cpu_sets,
    cpu_sets,
    st.dictionaries(st.integers(0, 4), st.integers(0, 12_000)),
    st.sets(st.integers(0, 3)),
)
def test_a_zone_keeps_what_its_ceiling_leaves_and_one_cpu_where_a_replica_cannot_leave(
    rows: list[CpuRow], closed: CpuSet, lent: CpuSet, ceilings_mcpu: dict[int, int], held: set[int]
) -> None:
    pool = CpuSet.from_iterable(row.cpu for row in rows) - closed
    left = left_by_zones(zone_ceilings(rows, ceilings_mcpu), pool, lent, rows, held=held)
    assert left <= pool
    assert bool(left) == bool(pool), "batch work is never without a CPU"
    if all(ceilings_mcpu.get(zone, 1_000) < 1_000 and zone not in held for zone in range(4)):
        assert len(left) == min(LEAST_CPUS, len(pool))
        return
    for zone in range(4):
        here = CpuSet.from_iterable(row.cpu for row in rows if row.zone == zone) & pool
        kept = len(left & here)
        if zone not in ceilings_mcpu:
            assert kept == len(here)
            continue
        if zone in held or ceilings_mcpu[zone] >= 1_000:
            assert (kept > 0) == bool(here), "a replica of one zone is never without a CPU"
        assert kept <= max(LEAST_CPUS if here == pool else 1, ceilings_mcpu[zone] // 1_000)


def test_a_zone_gives_up_whole_cores_and_its_part_of_the_cpus_of_lsr_work() -> None:
    # Two zones of four cores with two threads: 0-3 and 8-11, 4-7 and 12-15.
    rows = [CpuRow(cpu=cpu, core=cpu % 8, zone=cpu % 8 // 4, socket=0) for cpu in range(16)]
    pool = CpuSet.parse("0-15")

    def left(*ceilings: int, lent: str = "", threads: int = 1, held: tuple[int, ...] = (0,)) -> str:
        zones, lsr = zone_ceilings(rows, dict(enumerate(ceilings))), CpuSet.parse(lent)
        return left_by_zones(zones, pool, lsr, rows, held=held, threads=threads).format()

    assert left(4_000) == "0-1,4-9,12-15"
    assert left(4_999) == left(4_000), "a part of a CPU is none"
    assert left(1_000, 3_000) == "0,4-5,12"
    assert left(0) == "0,4-7,12-15"
    assert left(0, held=()) == "4-7,12-15"
    assert left(0, 0, held=()) == "0,8", "one zone has the least"
    assert left(8_000, 8_000) == "0-15"
    # Half of the zone is LSR's: half of what is kept is, rounded down.
    assert left(4_000, lent="0-1,8-9") == "0,2,4-8,10,12-15"
    assert left(1_000, lent="0-1,8-9") == "2,4-7,12-15"
    # By whole cores neither part ends in half of one.
    assert left(6_000, lent="0-1,8-9") == "0-8,10,12-15"
    assert left(6_000, lent="0-1,8-9", threads=2) == "0,2-8,10-15"


def test_whole_cores_are_rounded_up_and_take_no_half_of_one() -> None:
    rows = [CpuRow(cpu=cpu, core=cpu % 8, zone=cpu % 8 // 4, socket=0) for cpu in range(16)]
    pool = CpuSet.parse("0-15")
    assert [threads_of(CpuSet.parse(cpus), rows) for cpus in ("0-15", "0-7", "", "7-8,15")] == [2, 1, 1, 2]
    assert narrowed(3_000, pool, CpuSet(), rows).format() == "0,4,8"
    assert narrowed(3_000, pool, CpuSet(), rows, threads=2).format() == "0,4,8,12"
    assert narrowed(3_000, pool, CpuSet.parse("0-3,8-11"), rows, threads=2).format() == "0,4,8,12"
    assert narrowed(15_500, pool, CpuSet(), rows, threads=2) == pool
    # Where a core is not whole the pool ends in a part of one.
    assert len(narrowed(15_000, pool - CpuSet.parse("3"), CpuSet(), rows, threads=2)) == 15


def test_what_an_earlier_executor_left_of_a_zone_is_found_in_the_set() -> None:
    rows = [CpuRow(cpu=cpu, core=cpu, zone=cpu // 4, socket=0) for cpu in range(8)]
    pool = CpuSet.parse("0-6")
    half = ZoneCeiling(zone=0, ceiling_mcpu=2_000, capacity_mcpu=4_000)
    assert zones_left(CpuSet.parse("0,2,4-7"), pool, rows) == (half,)
    assert zones_left(left_by_zones((half,), pool, CpuSet(), rows), pool, rows) == (half,)
    assert zones_left(pool, pool, rows) == ()
    assert zones_left(CpuSet.parse("4-6"), pool, rows) == (), "nobody left a zone without a CPU"
    cores = [CpuRow(cpu=cpu, core=cpu // 2, zone=cpu // 4, socket=0) for cpu in range(8)]
    empty = ZoneCeiling(zone=0, ceiling_mcpu=0, capacity_mcpu=4_000)
    assert zones_left(CpuSet.parse("4-6"), pool, cores) == (empty,), "except where cores are shared"
    one_zone = [CpuRow(cpu=cpu, core=cpu, zone=0, socket=0) for cpu in range(8)]
    assert zones_left(CpuSet.parse("0-3"), pool, one_zone) == ()
