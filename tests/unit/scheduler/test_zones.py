"""Zones table by table; a row's name is its class of input."""

import pytest

from colo_scheduler.numa.zones import Part, ZoneFree, choose_zones, cost_of
from tests.support.builders import GIB

MIB = 1 << 20


def zones(*free: tuple[int, int, int]) -> list[ZoneFree]:
    """Socket, mcpu, GiB of each zone."""
    return [ZoneFree(slot, socket, cpu, gib * GIB) for slot, (socket, cpu, gib) in enumerate(free)]


TABLE = {
    "exactly one zone": ((4000, 8), zones((0, 4000, 8)), [(0, 4000, 8)]),
    "one mcpu too much": ((4001, 8), zones((0, 4000, 8)), None),
    "one GiB too much": ((4000, 9), zones((0, 4000, 8)), None),
    "one zone is enough, the freer CPU wins": ((1000, 1), zones((0, 2000, 8), (0, 3000, 2)), [(1, 1000, 1)]),
    "equal CPU, the freer memory wins": ((1000, 1), zones((0, 2000, 2), (0, 2000, 8)), [(1, 1000, 1)]),
    "all equal, the lower id wins": ((1000, 1), zones((0, 2000, 2), (1, 2000, 2)), [(0, 1000, 1)]),
    "zone < request < node": ((6000, 6), zones((0, 4000, 8), (0, 4000, 8)), [(0, 4000, 4), (1, 2000, 2)]),
    "exactly the node": ((8000, 16), zones((0, 4000, 8), (0, 4000, 8)), [(0, 4000, 8), (1, 4000, 8)]),
    "two zones of one socket before two that cross": (
        (6000, 6),
        zones((0, 5000, 8), (1, 3000, 8), (1, 3000, 8)),
        [(1, 3000, 3), (2, 3000, 3)],
    ),
    "three zones of one socket before two that cross": (
        (6000, 6),
        zones((0, 5000, 8), (1, 2000, 8), (1, 2000, 8), (1, 2000, 8)),
        [(1, 2000, 2), (2, 2000, 2), (3, 2000, 2)],
    ),
    "the socket that needs fewer zones, though it stands later": (
        (6000, 6),
        zones((0, 2000, 8), (0, 2000, 8), (0, 2000, 8), (1, 3000, 8), (1, 3000, 8)),
        [(3, 3000, 3), (4, 3000, 3)],
    ),
    "the socket that needs fewer zones, though it stands first": (
        (6000, 6),
        zones((0, 3000, 8), (0, 3000, 8), (1, 2000, 8), (1, 2000, 8), (1, 2000, 8)),
        [(0, 3000, 3), (1, 3000, 3)],
    ),
    "as many zones on both sockets, the freer socket": (
        (4000, 4),
        zones((0, 2000, 8), (0, 2000, 8), (1, 3000, 8), (1, 3000, 8)),
        [(2, 3000, 3), (3, 1000, 1)],
    ),
    "no socket is enough, across them": ((6000, 6), zones((0, 4000, 8), (1, 4000, 8)), [(0, 4000, 4), (1, 2000, 2)]),
    "memory decides the split": ((4000, 8), zones((0, 4000, 6), (0, 4000, 2)), [(0, 3000, 6), (1, 1000, 2)]),
    "enough in sum, never together": ((4000, 8), zones((0, 4000, 0), (0, 0, 8)), None),
    "a zone that is overcommitted counts as nothing": ((2000, 2), zones((0, -500, 8), (0, 1999, 8)), None),
    "a zone without memory is skipped": (
        (3000, 3),
        zones((0, 2000, 2), (0, 9000, 0), (0, 2000, 2)),
        [(0, 2000, 2), (2, 1000, 1)],
    ),
}


@pytest.mark.parametrize(("request_", "free", "expected"), TABLE.values(), ids=TABLE.keys())
def test_a_request_takes_these_zones(
    request_: tuple[int, int], free: list[ZoneFree], expected: list[tuple[int, int, int]] | None
) -> None:
    found = choose_zones(request_[0], request_[1] * GIB, free)
    assert found == (None if expected is None else tuple(Part(slot, cpu, gib * GIB) for slot, cpu, gib in expected))


def test_shares_that_do_not_divide_are_cut_downwards_and_sum_exactly() -> None:
    free = [ZoneFree(0, 0, 500, GIB), ZoneFree(1, 0, 501, GIB)]
    parts = choose_zones(1001, 1001 * MIB + 7, free)
    assert parts is not None
    assert sum(part.cpu_mcpu for part in parts) == 1001
    assert sum(part.memory_bytes for part in parts) == 1001 * MIB + 7


def test_a_part_of_a_mebibyte_counts_in_one_zone_and_not_across_two() -> None:
    half = MIB // 2
    assert choose_zones(1000, MIB + half, [ZoneFree(0, 0, 1000, MIB + half)]) is not None
    assert choose_zones(1000, 3 * MIB, [ZoneFree(0, 0, 1000, MIB + half), ZoneFree(1, 0, 1000, MIB + half)]) is None


@pytest.mark.parametrize(
    ("free", "request_cpu", "cost"),
    [
        (zones((0, 4000, 8), (1, 4000, 8)), 4000, 1),
        (zones((0, 4000, 8), (0, 4000, 8), (1, 4000, 8)), 8000, 2),
        (zones((0, 4000, 8), (1, 4000, 8)), 8000, 4),
        (zones((0, 1000, 8), (0, 4000, 8), (1, 4000, 8)), 8000, 5),
    ],
    ids=["one zone", "two of a socket", "two of two sockets: 2 + 2 zones", "two of three zones: 2 + 3 zones"],
)
def test_crossing_sockets_costs_more_than_any_set_of_one_socket(
    free: list[ZoneFree], request_cpu: int, cost: int
) -> None:
    parts = choose_zones(request_cpu, GIB, free)
    assert parts is not None
    assert cost_of(parts, free) == cost
