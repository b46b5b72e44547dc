"""Zones: shares sum to the request and fit, and the choice is the one an exhaustive search finds."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from colo_scheduler.numa.zones import (
    CPU_MAX_MCPU,
    MEMORY_MAX_BYTES,
    NO_SOCKET,
    ZoneFree,
    choose_zones,
    cost_of,
    costs_of_rows,
)
from tests.support.scheduler_twin import TwinZone, fewest

MIB = 1 << 20

# Small numbers meet each other's edges; large ones meet the limits of 64 bits.
cpus = st.one_of(st.integers(-3, 12), st.integers(0, 64_000), st.just(CPU_MAX_MCPU))
memories = st.one_of(
    st.integers(0, 12).map(lambda mib: mib * MIB), st.integers(-MIB, 300 * MIB), st.just(MEMORY_MAX_BYTES)
)
wanted_cpus = st.one_of(st.integers(1, 24), st.integers(1, 128_000), st.just(CPU_MAX_MCPU))
wanted_memories = st.one_of(
    st.integers(1, 24).map(lambda mib: mib * MIB), st.integers(1, 600 * MIB), st.just(MEMORY_MAX_BYTES)
)
nodes = st.lists(st.tuples(st.integers(0, 2), cpus, memories), min_size=1, max_size=6)


def zones_of(node: list[tuple[int, int, int]]) -> list[ZoneFree]:
    return [ZoneFree(slot, socket, cpu, memory) for slot, (socket, cpu, memory) in enumerate(node)]


@given(nodes, wanted_cpus, wanted_memories)
def test_shares_sum_to_the_request_and_never_exceed_what_is_free(
    node: list[tuple[int, int, int]], cpu: int, memory: int
) -> None:
    zones = zones_of(node)
    parts = choose_zones(cpu, memory, zones)
    if parts is None:
        return
    assert sum(part.cpu_mcpu for part in parts) == cpu
    assert sum(part.memory_bytes for part in parts) == memory
    assert len({part.slot for part in parts}) == len(parts)
    for part in parts:
        assert 0 <= part.cpu_mcpu <= zones[part.slot].free_cpu_mcpu
        assert 0 <= part.memory_bytes <= zones[part.slot].free_memory_bytes


@given(nodes, wanted_cpus, wanted_memories)
def test_memory_goes_where_the_cpu_goes(node: list[tuple[int, int, int]], cpu: int, memory: int) -> None:
    for part in choose_zones(cpu, memory, zones_of(node)) or ():
        # Cut at the same share: less than 1 mcpu and 1 byte apart, on both sides of the cross product.
        assert abs(part.cpu_mcpu * memory - part.memory_bytes * cpu) <= cpu + memory


@given(nodes, wanted_cpus, wanted_memories)
def test_the_set_is_as_small_as_an_exhaustive_search_finds(
    node: list[tuple[int, int, int]], cpu: int, memory: int
) -> None:
    zones = zones_of(node)
    parts = choose_zones(cpu, memory, zones)
    best = fewest(cpu, memory, [TwinZone(z.slot, z.socket, z.free_cpu_mcpu, z.free_memory_bytes) for z in zones])
    if parts is None:
        assert best is None
        return
    sockets = {zones[part.slot].socket for part in parts}
    assert (len(parts), int(len(sockets) > 1)) == best


@given(st.lists(nodes, min_size=1, max_size=6), wanted_cpus, wanted_memories)
def test_all_rows_at_once_cost_what_each_row_costs_alone(
    rows: list[list[tuple[int, int, int]]], cpu: int, memory: int
) -> None:
    width = max(len(row) for row in rows)
    free_cpu = np.zeros((len(rows), width), dtype=np.int64)
    free_memory = np.zeros((len(rows), width), dtype=np.int64)
    socket = np.full((len(rows), width), NO_SOCKET, dtype=np.int64)
    for number, row in enumerate(rows):
        for slot, (on, free, bytes_free) in enumerate(row):
            socket[number, slot], free_cpu[number, slot], free_memory[number, slot] = on, free, bytes_free
    costs = costs_of_rows(cpu, memory, free_cpu, free_memory, socket)
    for number, row in enumerate(rows):
        zones = zones_of(row)
        parts = choose_zones(cpu, memory, zones)
        assert costs[number] == (0 if parts is None else cost_of(parts, zones))


@given(nodes, wanted_cpus, wanted_memories, st.data())
def test_the_cost_never_falls_while_free_shrinks(
    node: list[tuple[int, int, int]], cpu: int, memory: int, data: st.DataObject
) -> None:
    zones = zones_of(node)
    less = [
        zone._replace(
            free_cpu_mcpu=zone.free_cpu_mcpu - data.draw(st.integers(0, 5)),
            free_memory_bytes=zone.free_memory_bytes - data.draw(st.integers(0, 5)) * MIB,
        )
        for zone in zones
    ]
    before, after = choose_zones(cpu, memory, zones), choose_zones(cpu, memory, less)
    if after is None:
        return
    assert before is not None
    assert cost_of(before, zones) <= cost_of(after, less)


@given(nodes, wanted_cpus, wanted_memories, st.randoms(use_true_random=False))
def test_the_order_in_which_zones_are_given_decides_nothing(
    node: list[tuple[int, int, int]], cpu: int, memory: int, rng: object
) -> None:
    zones = zones_of(node)
    shuffled = list(zones)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert choose_zones(cpu, memory, zones) == choose_zones(cpu, memory, shuffled)
