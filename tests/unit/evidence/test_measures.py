"""The book checks every place and counts zones, avoidable crossings and fragments."""

import pytest

from colo_common.model.invalid import InvariantBroken
from tests.evidence.fleets import Fleet, Machine
from tests.evidence.measures import Book, Fragments, Scatter
from tests.evidence.mix import Ask
from tests.evidence.placers import Share, Spot

# Two sockets of two zones with 4 CPUs and 40 bytes each: 16 CPUs a machine.
FOUR = Machine(2, 2, 4_000, 40)


def book(machines: int = 2) -> Book:
    return Book(Fleet("", (FOUR,) * machines))


def test_zones_and_sockets_are_counted_and_a_crossing_that_need_not_be_is_avoidable() -> None:
    kept = book()
    kept.place(Ask(1_000, 10), Spot(0, (Share(0, 1_000, 10),)))
    assert kept.scatter == Scatter(1, 1, 1, 1, 0)
    # Zones 0 and 2 are on two sockets, and zone 1 had held it alone.
    kept.place(Ask(2_000, 20), Spot(0, (Share(0, 1_000, 10), Share(2, 1_000, 10))))
    assert kept.scatter == Scatter(2, 1, 3, 3, 1)
    # Zones 0 and 1 are on one socket; no zone has 5 CPUs.
    kept.place(Ask(5_000, 10), Spot(1, (Share(0, 4_000, 8), Share(1, 1_000, 2))))
    assert kept.scatter == Scatter(3, 1, 5, 4, 1)
    assert kept.nodes_used == 2
    assert kept.cpu_pct == 100 * 8 / 32
    assert kept.memory_pct == 100 * 40 / 320
    kept.end(Spot(1, (Share(0, 4_000, 8), Share(1, 1_000, 2))))
    assert (kept.nodes_used, kept.cpu_pct) == (1, 100 * 3 / 32)
    assert kept.scatter.less(Scatter(2, 1, 3, 3, 1)) == Scatter(1, 0, 2, 1, 0)


@pytest.mark.parametrize(
    "spot",
    [
        pytest.param(Spot(0, (Share(0, 999, 10),)), id="less CPU than was asked for"),
        pytest.param(Spot(0, (Share(0, 1_000, 11),)), id="more memory"),
        pytest.param(Spot(0, (Share(0, 500, 5), Share(0, 500, 5))), id="one zone twice"),
    ],
)
def test_a_place_that_is_not_the_request_is_refused(spot: Spot) -> None:
    with pytest.raises(InvariantBroken, match="not what was asked for"):
        book().place(Ask(1_000, 10), spot)


def test_a_zone_cannot_be_given_away_twice() -> None:
    kept = book()
    kept.place(Ask(4_000, 10), Spot(0, (Share(3, 4_000, 10),)))
    with pytest.raises(InvariantBroken, match="given away twice"):
        kept.place(Ask(1, 1), Spot(0, (Share(3, 1, 1),)))


def test_fragments_are_the_free_cpu_that_classes_cannot_use() -> None:
    kept = book()
    classes = [(Ask(6_000, 10), 1), (Ask(2_000, 10), 3)]
    # Empty: both nodes take both; no zone takes 6 CPUs, which is a quarter of what is asked for.
    assert kept.fragments(classes) == Fragments(0.0, 0.0, 25.0)
    # 12 of 16 CPUs of node 0, 3 from each zone: 4 CPUs left there, 1 in a zone; 16 of 32 CPUs are free on node 1.
    kept.place(Ask(12_000, 40), Spot(0, tuple(Share(zone, 3_000, 10) for zone in range(4))))
    # By nodes only the large class misses node 0's 4 CPUs: 4/32 by one quarter. By zones the large one can use
    # none of the 20 CPUs, the small one all but the 4 of node 0: (20 + 3 x 4) / (4 x 32).
    assert kept.fragments(classes) == Fragments(0.0, 3.125, 25.0)
    # No memory left on node 0: its CPU is of no use to anybody.
    kept.place(Ask(4, 120), Spot(0, tuple(Share(zone, 1, 30) for zone in range(4))))
    useless = 100 * 3_996 / 32_000
    assert kept.fragments(classes)[:2] == (pytest.approx(useless), pytest.approx(useless))
