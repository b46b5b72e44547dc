"""The plain schedulers choose as they say, and their kernel finds the zones as well as it could."""

import pytest

from tests.evidence.baselines import BASELINES, by_need, tightest_zone
from tests.evidence.fleets import Fleet, Machine
from tests.evidence.mix import Ask
from tests.evidence.placers import Share, Spot

SMALL, LARGE = Machine(1, 2, 4_000, 400), Machine(1, 2, 8_000, 800)


def chosen(name: str, machines: tuple[Machine, ...], asks: list[Ask]) -> list[int | None]:
    placer = BASELINES[name](Fleet("", machines))
    spots = [placer.place(number, ask) for number, ask in enumerate(asks)]
    return [spot.machine if spot else None for spot in spots]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # 8 CPUs and 16: the smaller is the tighter until it is full.
        ("best-fit", [1, 1, 0, 0]),
        # 4 of 8 CPUs is 50 % allocated, 4 of 16 is 25 %.
        ("most-allocated", [1, 1, 0, 0]),
        # 75 % stays free of the larger, then 50 % of both: the earlier name.
        ("least-allocated", [0, 0, 1, 0]),
        ("best-fit, one zone or none", [1, 1, 0, 0]),
    ],
)
def test_each_fills_or_spreads_as_its_name_says(name: str, expected: list[int]) -> None:
    assert chosen(name, (LARGE, SMALL), [Ask(4_000, 400)] * 4) == expected


def test_between_equal_cpu_the_best_fit_is_the_one_with_less_memory_then_the_earlier_name() -> None:
    machines = (Machine(1, 1, 4_000, 500), Machine(1, 1, 4_000, 400), Machine(1, 1, 4_000, 400))
    assert chosen("best-fit", machines, [Ask(4_000, 100)] * 4) == [1, 2, 0, None]


def test_the_strict_one_refuses_what_only_two_zones_hold_together() -> None:
    assert chosen("best-fit, one zone or none", (SMALL,), [Ask(5_000, 100), Ask(4_000, 400)]) == [None, 0]
    assert chosen("best-fit", (SMALL,), [Ask(5_000, 100)]) == [0]


def test_what_ended_is_free_again() -> None:
    placer = BASELINES["best-fit"](Fleet("", (SMALL,)))
    spot = placer.place(0, Ask(8_000, 800))
    assert spot is not None
    assert placer.place(1, Ask(1, 1)) is None
    placer.end(0, spot)
    assert placer.place(2, Ask(1, 1)) == Spot(0, (Share(0, 1, 1),))


@pytest.mark.parametrize(
    ("ask", "free", "shares"),
    [
        pytest.param(Ask(2, 2), [(2, 2), (3, 2)], (Share(1, 2, 2),), id="the freest zone that holds it all"),
        pytest.param(
            Ask(2, 2), [(2, 2), (9, 1)], (Share(0, 2, 2),), id="a freer zone without the memory is passed over"
        ),
        pytest.param(
            Ask(5, 2), [(2, 9), (4, 9)], (Share(0, 1, 0), Share(1, 4, 2)), id="the rest spills, memory stays near"
        ),
        pytest.param(Ask(5, 7), [(2, 4), (4, 4)], (Share(0, 1, 3), Share(1, 4, 4)), id="both spill"),
        pytest.param(Ask(1, 5), [(0, 9), (4, 4)], (Share(0, 0, 1), Share(1, 1, 4)), id="memory alone is far"),
    ],
)
def test_a_replica_spreads_over_zones_by_need(ask: Ask, free: list[tuple[int, int]], shares: tuple[Share, ...]) -> None:
    assert by_need(ask, free) == shares


def test_the_tightest_zone_is_the_one_with_least_left() -> None:
    assert tightest_zone(Ask(2, 2), [(9, 9), (3, 3), (3, 2), (1, 9)]) == (Share(2, 2, 2),)
