"""Taking CPUs: by pieces of the machine, in turn from the zones, and apart. Compared with plain searches over sets."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colo_common.model.cpu_accumulator import take_sockets_first
from colo_common.model.cpu_topology import CpuRow, CpuTopology
from colo_common.model.cpu_turns import take_in_turn
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.topology import uniform_topology
from colo_scheduler.cpus.siblings import choose_apart, choose_apart_by_zone
from colo_scheduler.peers.katalyst.assignment import take_by_topology
from tests.support.cpu_topology import topology_from_node

Rows = tuple[CpuRow, ...]


def shared_core_count(topology: CpuTopology, cpus: CpuSet) -> int:
    """How many cores have two or more of their threads in this set."""
    return sum((mask & cpus.mask).bit_count() > 1 for mask in topology.core_masks)


@st.composite
def machines(draw: st.DrawFn, *, threads_max: int = 3) -> Rows:
    """A regular machine of at most 48 CPUs, numbered core by core or thread by thread; caches halve a zone or are the zone."""
    sockets, zones, cores = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 4))
    threads, halves, is_linux = draw(st.integers(1, threads_max)), draw(st.integers(1, 2)), draw(st.booleans())
    count = sockets * zones * cores
    rows = []
    for core in range(count):
        zone = core // cores
        for thread in range(threads):
            cpu = core + thread * count if is_linux else core * threads + thread
            l3 = zone * 2 + (core % cores) * halves // cores
            rows.append(CpuRow(cpu=cpu, core=core, zone=zone, socket=zone // zones, l3=l3))
    return tuple(rows)


@st.composite
def requests(draw: st.DrawFn, *, threads_max: int = 3) -> tuple[Rows, set[int], int]:
    """A machine, the CPUs that may be taken, how many are needed: seldom more than there are."""
    rows = draw(machines(threads_max=threads_max))
    available = draw(st.sets(st.sampled_from([row.cpu for row in rows])))
    return rows, available, draw(st.integers(0, len(available) + 1))


def taken(cpus: CpuSet | None) -> list[int] | None:
    return None if cpus is None else list(cpus)


# ---- the searches


def pieces(rows: Rows, free: set[int], level: str) -> list[set[int]]:
    """All CPUs of each piece of a level that has a free one, fewest free ones first, then by id."""
    found: dict[int, set[int]] = {}
    for row in rows:
        found.setdefault(getattr(row, level), set()).add(row.cpu)
    ordered = sorted(found.items(), key=lambda entry: (len(entry[1] & free), entry[0]))
    return [cpus for _, cpus in ordered if cpus & free]


def nested(rows: Rows, free: set[int], levels: list[str]) -> list[set[int]]:
    """The pieces of the last level, ordered inside the ordered pieces of the levels above it."""
    if len(levels) == 1:
        return pieces(rows, free, levels[0])
    inner: list[set[int]] = []
    for outer in nested(rows, free, levels[:-1]):
        inner.extend(pieces(tuple(row for row in rows if row.cpu in outer), free, levels[-1]))
    return inner


def plain_take(rows: Rows, available: set[int], need: int, levels: list[str], *, is_aligned: bool) -> list[int] | None:
    """Whole pieces level by level, then single CPUs; `is_aligned` puts the caches after the first level."""
    if need > len(available):
        return None
    free, chosen = set(available), set[int]()
    for depth in range(1, len(levels) + 1):
        for piece in nested(rows, free, levels[:depth]):
            if piece <= free and len(piece) <= need - len(chosen):
                chosen |= piece
                free -= piece
        while is_aligned and depth == 1 and len(chosen) < need:
            left = need - len(chosen)
            caches = [piece & free for piece in sorted(pieces(rows, free, "l3"), key=lambda p: cache_id(rows, p))]
            larger = sorted((cache for cache in caches if len(cache) >= left), key=len)
            if larger and len(larger[0]) > left:
                free = larger[0]
                break
            best = larger[0] if larger else max(caches, key=len)
            chosen |= best
            free -= best
    for piece in nested(rows, free, levels):
        for cpu in sorted(piece & free):
            if len(chosen) < need:
                chosen.add(cpu)
    return sorted(chosen)


def cache_id(rows: Rows, piece: set[int]) -> int:
    return next(row.l3 for row in rows if row.cpu in piece and row.l3 is not None)


def plain_turns(
    rows: Rows, available: set[int], need: int, *, whole_cores: bool, from_highest: bool
) -> list[int] | None:
    """Zones in turn: a core each as long as cores fit, then a CPU each."""
    if need > len(available):
        return None
    free, chosen = set(available), set[int]()
    zones = sorted({row.zone for row in rows})
    pick = max if from_highest else min
    cores = {core: {row.cpu for row in rows if row.core == core} for core in {row.core for row in rows}}
    zone_of = {row.core: row.zone for row in rows}
    is_moving = whole_cores
    while is_moving:
        is_moving = False
        for zone in zones:
            whole = [core for core, cpus in cores.items() if zone_of[core] == zone and cpus <= free]
            if whole and len(cores[pick(whole)]) <= need - len(chosen):
                chosen |= cores[pick(whole)]
                free -= cores[pick(whole)]
                is_moving = True
    while len(chosen) < need:
        for zone in zones:
            mine = [row.cpu for row in rows if row.zone == zone and row.cpu in free]
            if mine and len(chosen) < need:
                chosen.add(pick(mine))
                free.discard(pick(mine))
    return sorted(chosen)


# ---- the comparisons


@given(requests(), st.booleans())
def test_by_topology_is_what_a_plain_search_takes(request_: tuple[Rows, set[int], int], is_aligned: bool) -> None:
    rows, available, need = request_
    topology = CpuTopology.from_rows(rows)
    caches = topology.l3_masks if is_aligned else None
    found = take_by_topology(topology, CpuSet.from_iterable(available), need, caches=caches)
    assert taken(found) == plain_take(rows, available, need, ["socket", "core"], is_aligned=is_aligned)


@given(requests())
def test_sockets_first_is_what_a_plain_search_takes(request_: tuple[Rows, set[int], int]) -> None:
    rows, available, need = request_
    found = take_sockets_first(CpuTopology.from_rows(rows), CpuSet.from_iterable(available), need)
    assert taken(found) == plain_take(rows, available, need, ["socket", "zone", "core"], is_aligned=False)


@given(requests(), st.booleans(), st.booleans())
def test_in_turn_is_what_a_plain_search_takes(
    request_: tuple[Rows, set[int], int], whole_cores: bool, from_highest: bool
) -> None:
    rows, available, need = request_
    topology = CpuTopology.from_rows(rows)
    found = take_in_turn(
        topology, CpuSet.from_iterable(available), need, whole_cores=whole_cores, from_highest=from_highest
    )
    assert taken(found) == plain_turns(rows, available, need, whole_cores=whole_cores, from_highest=from_highest)


@given(requests(threads_max=2), st.sets(st.integers(0, 47)))
def test_apart_shares_as_few_cores_as_any_choice(request_: tuple[Rows, set[int], int], busy: set[int]) -> None:
    rows, available, need = request_
    topology = CpuTopology.from_rows(rows)
    free = sorted(available - busy)[:10]
    others = CpuSet.from_iterable(busy)
    found = choose_apart(topology, CpuSet.from_iterable(free), need, others)
    if need > len(free):
        assert found is None
        return
    assert found is not None
    assert len(found) == need
    assert not found & others
    fewest = min(shared_core_count(topology, CpuSet.from_iterable(each)) for each in combinations(free, need))
    assert shared_core_count(topology, found) == fewest


@given(requests(), st.sets(st.integers(0, 47)))
def test_apart_is_the_choice_of_one_cpu_after_the_other(request_: tuple[Rows, set[int], int], busy: set[int]) -> None:
    rows, available, need = request_
    core_of = {row.cpu: row.core for row in rows}
    free, chosen = available - busy, list[int]()
    while len(chosen) < need and free:
        best = min(
            free,
            key=lambda cpu: (
                sum(core_of[other] == core_of[cpu] for other in chosen),
                sum(core_of.get(other) == core_of[cpu] for other in busy),
                cpu,
            ),
        )
        chosen.append(best)
        free = free - {best}
    found = choose_apart(CpuTopology.from_rows(rows), CpuSet.from_iterable(available), need, CpuSet.from_iterable(busy))
    assert taken(found) == (sorted(chosen) if len(chosen) == need else None)


def test_cpus_that_the_machine_lacks_are_never_taken() -> None:
    topology = CpuTopology.from_rows([CpuRow(cpu=0, core=0, zone=0, socket=0)])
    many = CpuSet.parse("0-7")
    assert take_by_topology(topology, many, 2) is None
    assert take_sockets_first(topology, many, 2) is None
    assert take_in_turn(topology, many, 2) is None
    assert choose_apart(topology, many, 2) is None


def test_a_core_with_an_offline_thread_is_whole_and_no_held_cpu_is_given_with_it() -> None:
    # Three cores, the third with one thread online: on average 1 CPU a core, which must not make half a core look whole.
    rows = [CpuRow(cpu=cpu, core=cpu // 2, zone=0, socket=0) for cpu in range(5)]
    topology = CpuTopology.from_rows(rows)
    assert taken(take_by_topology(topology, CpuSet.parse("0,2-4"), 3)) == [2, 3, 4]
    assert taken(take_sockets_first(topology, CpuSet.parse("0,2-4"), 2)) == [0, 4]


@pytest.mark.parametrize("need", [0, -1])
@pytest.mark.parametrize("take", [take_by_topology, take_sockets_first, take_in_turn])
@pytest.mark.parametrize("available", ["0", ""])
def test_a_need_below_one_gives_no_cpu(take: Callable[..., CpuSet | None], need: int, available: str) -> None:
    topology = CpuTopology.from_rows([CpuRow(cpu=0, core=0, zone=0, socket=0)])
    assert take(topology, CpuSet.parse(available), need) == CpuSet()


def test_a_negative_need_of_cpus_apart_is_refused() -> None:
    topology = CpuTopology.from_rows([CpuRow(cpu=0, core=0, zone=0, socket=0)])
    with pytest.raises(InvalidInput, match="need"):
        choose_apart(topology, CpuSet.parse("0"), -1)


MACHINE = topology_from_node(uniform_topology(sockets=1, zones_per_socket=2, cpus_per_zone=8, memory_bytes_per_zone=1))


def test_each_zone_gives_what_is_asked_of_it_and_nothing_busy() -> None:
    assert choose_apart_by_zone(MACHINE, {0: 2, 1: 3}, CpuSet()) == CpuSet.parse("0,2,8,10,12")
    assert choose_apart_by_zone(MACHINE, {0: 9}, CpuSet()) is None
    assert choose_apart_by_zone(MACHINE, {}, CpuSet()) == CpuSet()
    # Not 1: the other thread of its core is busy, while 2 and 4 have a core each to themselves.
    assert choose_apart_by_zone(MACHINE, {0: 2}, CpuSet.parse("0")) == CpuSet.parse("2,4")
    assert choose_apart_by_zone(MACHINE, {0: 4}, CpuSet.parse("0,2,4,6")) == CpuSet.parse("1,3,5,7")
    assert choose_apart_by_zone(MACHINE, {0: 5}, CpuSet.parse("0,2,4,6")) is None


def test_a_choice_that_cannot_be_meant_is_refused() -> None:
    with pytest.raises(InvalidInput, match="zone of this machine"):
        choose_apart_by_zone(MACHINE, {7: 1}, CpuSet())
    with pytest.raises(InvalidInput, match="at least 0"):
        choose_apart_by_zone(MACHINE, {0: -1}, CpuSet())
