"""A fleet is filled, or lives on, and what happened is counted as by hand."""

import pytest

from tests.bench.openb import MIB
from tests.evidence.baselines import BASELINES
from tests.evidence.fleets import Fleet, Machine, uniform_fleet
from tests.evidence.measures import Scatter
from tests.evidence.mix import Ask, Mix, real_mix
from tests.evidence.placement import PLACERS
from tests.evidence.placers import COLO_WEIGHTS, ByColo, Share, Spot
from tests.evidence.replay import saturate, steady

#: Two zones of 10 CPUs each, memory without end.
FLEET = Fleet("", (Machine(1, 2, 10_000, 100 * MIB),) * 2)


def test_a_fleet_is_filled_as_by_hand() -> None:
    # 6 CPUs a replica: one a zone, and then 4 + 4 CPUs of a node hold another. 9 offered are 54 CPUs of 40; 52 are 130 %.
    mix = Mix("", ((Ask(6_000, MIB), 1),))
    filled = saturate(FLEET, mix, BASELINES["best-fit"](FLEET), 1)
    assert (filled.offered, filled.placed) == (9, 6)
    assert filled.at_first == filled.at_one_pct == filled.at_end == (90.0, 1.5)
    # Half of the CPU is asked for with the fourth: three on the first node, one on the second.
    assert (filled.half_nodes, filled.half_scatter) == (2, Scatter(4, 3, 5, 4, 1))
    # The third went over two zones although the other node had room in one; the sixth had no other place.
    assert filled.scatter == Scatter(6, 4, 8, 6, 1)
    assert filled.fragments == (10.0, 10.0, 10.0)


def test_colo_crosses_zones_only_where_no_zone_is_left() -> None:
    mix = Mix("", ((Ask(6_000, MIB), 1),))
    for weights in (COLO_WEIGHTS["colo: one zone, then most free"], COLO_WEIGHTS["colo: one zone, then packed"]):
        filled = saturate(FLEET, mix, ByColo(FLEET, weights), 1)
        assert filled.scatter == Scatter(6, 4, 8, 6, 0)


def test_a_single_large_request_that_is_refused_early_is_not_one_per_cent() -> None:
    # 150 small requests and a large one ask for all 200 CPUs: one per cent of 151 is 2. The large one finds 50 CPUs free, and the
    # second that is refused comes when 50 more small ones have filled them.
    one = Fleet("", (Machine(1, 1, 200_000, 1_000 * MIB),))
    small, large = Ask(1_000, MIB), Ask(55_000, MIB)
    mix = Mix("", ((small, 250), (large, 1)), (small,) * 150 + (large,) + (small,) * 100)
    filled = saturate(one, mix, BASELINES["best-fit"](one), 1)
    assert (filled.at_first, filled.at_one_pct) == ((75.0, 15.0), (100.0, 20.0))
    assert (filled.offered, filled.placed) == (206, 200)


def test_what_never_overfills_is_told_so() -> None:
    # The only request is all of a fleet: offered twice, refused once.
    one = Fleet("", (Machine(1, 1, 10_000, MIB),))
    filled = saturate(one, Mix("", ((Ask(10_000, MIB), 1),)), BASELINES["best-fit"](one), 1)
    assert (filled.offered, filled.placed, filled.at_first) == (2, 1, (100.0, 100.0))


@pytest.mark.parametrize("name", sorted(PLACERS))
def test_replicas_come_and_end_and_nothing_is_lost(name: str) -> None:
    fleet = uniform_fleet(6)
    mix = real_mix()
    mix = mix.without([ask for ask, _ in mix.classes if not fleet.holds(ask)])
    once, again = (steady(fleet, mix, PLACERS[name](fleet), 5) for _ in range(2))
    assert once == again
    assert once.scatter.replicas == once.placed <= once.offered
    assert 60 < once.held_cpu_pct < 100


def test_colo_s_ledger_is_empty_when_all_has_ended() -> None:
    placer = ByColo(FLEET, COLO_WEIGHTS["colo: packed, then one zone"])
    spots = [placer.place(number, Ask(6_000, MIB)) for number in range(7)]
    assert spots[0] == Spot(0, (Share(0, 6_000, MIB),))
    assert spots[6] is None
    for number, spot in enumerate(spots):
        if spot is not None:
            placer.end(number, spot)
    placer.check()
    assert [placer.place(number, Ask(20_000, MIB)) is not None for number in range(10, 13)] == [True, True, False]
