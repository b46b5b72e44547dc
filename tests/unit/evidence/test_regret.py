"""The exhaustive optimum and the bound, by hand; and how far colo is from it on clusters that a seed draws."""

import pytest

from tests.bench.openb import MIB
from tests.evidence.fleets import Machine
from tests.evidence.mix import Ask, real_mix
from tests.evidence.optimum import least_placed, most_placed
from tests.evidence.placement import PLACERS
from tests.evidence.placers import COLO_WEIGHTS
from tests.evidence.regret import NODES_MOST, REPLICAS, regrets, small_clusters

ZONE = 10_000
MACHINE = Machine(1, 2, ZONE, 100 * MIB)


def asks(*cpus: int) -> list[Ask]:
    return [Ask(cpu * 1_000, cpu * MIB) for cpu in cpus]


@pytest.mark.parametrize(
    ("machines", "cpus", "most"),
    [
        pytest.param(1, (20,), 1, id="all of a machine"),
        pytest.param(1, (21,), 0, id="larger than any"),
        pytest.param(1, (), 0, id="nothing"),
        pytest.param(1, (20, 1, 1), 2, id="the large one is better left out"),
        pytest.param(2, (12, 12, 8, 8), 4, id="only in two pairs"),
        pytest.param(2, (12, 12, 9, 8), 3, id="one too many"),
        pytest.param(3, (7,) * 8, 6, id="two each"),
    ],
)
def test_the_optimum_by_hand(machines: int, cpus: tuple[int, ...], most: int) -> None:
    assert most_placed([MACHINE] * machines, asks(*cpus)) == most


def test_memory_limits_the_optimum_too() -> None:
    assert most_placed([MACHINE], [Ask(1, 90 * MIB)] * 5) == 2


@pytest.mark.parametrize(
    ("machines", "cpus", "least"),
    [
        pytest.param(2, (7,) * 8, 4, id="equal ones: as many as fit, 20/7 in whole numbers on each"),
        pytest.param(2, (20, 1), 2, id="the large one waits for nobody: each machine it could have must hold another"),
        pytest.param(1, (12, 4, 4, 4), 2, id="who refused one of 4 holds more than (20/4 - 1) / (12/4)"),
        pytest.param(1, (12, 12, 8), 1, id="who refused one of 12 may hold the other one only"),
        pytest.param(2, (2, 2), 2, id="never more than is asked for"),
    ],
)
def test_the_bound_by_hand(machines: int, cpus: tuple[int, ...], least: int) -> None:
    assert least_placed([MACHINE] * machines, asks(*cpus)) == least


def test_colo_is_within_a_tenth_of_the_optimum_of_who_knows_all_before() -> None:
    smalls = small_clusters(real_mix(), 1, 60)
    assert all(2 <= len(small.fleet.machines) <= NODES_MOST and len(small.asks) == REPLICAS for small in smalls)
    most = sum(small.most for small in smalls)
    found = regrets(smalls, {name: PLACERS[name] for name in COLO_WEIGHTS})
    for regret in found.values():
        assert regret.placed >= 0.9 * most
        assert regret.worst <= 3
