"""The CPUs of batch work under a ceiling, on any machine."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from colo_common.model.cpu_topology import CpuRow
from colo_common.model.cpuset import CpuSet
from colo_executor.suppress_cpus import LEAST_CPUS, narrowed, pick

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
