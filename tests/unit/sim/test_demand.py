"""Demand of a simulated node: a plain function of its arguments."""

import pytest

from colo_common.model.invalid import InvalidInput
from colo_sim.demand import FLEET_NOISE, NO_NOISE, BurstNoise, NodeDemand, OnlineDemand, Spike
from colo_sim.synthetic import synthetic_day
from colo_sim.trace import LoadSeries, LoadTrace

FLAT = LoadTrace((LoadSeries("m", (0, 300_000), (400_000, 400_000), (500_000, 500_000)),), "test")


def a_demand(trace: LoadTrace = FLAT, *, node: str = "n-0", index: int = 0, seed: int = 1, **more) -> NodeDemand:
    sizes = {"cpu_capacity_mcpu": 64_000, "memory_capacity_bytes": 1_000_000, **more}
    return NodeDemand(trace, node=node, node_index=index, seed=seed, **sizes)


def test_without_noise_demand_is_the_share_of_the_machine() -> None:
    assert a_demand(noise=NO_NOISE).at(12_345) == OnlineDemand(25_600, 350_000)
    assert a_demand(noise=NO_NOISE, memory_share_ppm=1_000_000).at(0) == OnlineDemand(25_600, 500_000)


def test_demand_does_not_depend_on_the_order_of_questions() -> None:
    times = list(range(0, 600_000, 700))
    forward = [a_demand(synthetic_day(1)).at(t) for t in times]
    one = a_demand(synthetic_day(1))
    assert [one.at(t) for t in reversed(times)] == forward[::-1]


def test_nodes_and_seeds_differ() -> None:
    def walk(**more) -> list[OnlineDemand]:
        return [a_demand(synthetic_day(1), **more).at(t) for t in range(0, 60_000, 1_000)]

    assert walk() == walk()
    assert walk() != walk(seed=2)
    assert walk() != walk(node="n-1")


def test_noise_keeps_the_mean_within_its_bursts() -> None:
    values = [a_demand().at(t).cpu_mcpu for t in range(0, 3_600_000, 1_000)]
    mean_mcpu = sum(values) / len(values)
    assert 25_600 * 0.99 < mean_mcpu < 25_600 * 1.03
    assert max(values) > 28_000, "an hour has bursts"
    assert len(set(values)) > 1_000


def test_a_fleet_mean_gets_stronger_noise_and_a_level_of_its_own() -> None:
    day = synthetic_day(1)
    quiet = BurstNoise(ripple_ppm=0, burst_chance_ppm=0, level_ppm=FLEET_NOISE.level_ppm)
    levels = {a_demand(day, node=f"n-{i}", noise=quiet).at(0).cpu_mcpu for i in range(20)}
    assert len(levels) == 20
    assert max(levels) <= day.at(0, 0).cpu_ppm * 64_000 // 1_000_000 * 1.151


def test_a_spike_adds_demand_while_it_lasts_and_may_exceed_the_machine() -> None:
    spike = Spike(start_ms=10_000, length_ms=5_000, cpu_ppm=900_000, mem_ppm=900_000)
    demand = a_demand(noise=NO_NOISE, spikes=(spike,))
    assert demand.at(9_999) == OnlineDemand(25_600, 350_000)
    assert demand.at(10_000) == OnlineDemand(83_200, 1_000_000)
    assert demand.at(14_999).cpu_mcpu == 83_200
    assert demand.at(15_000) == OnlineDemand(25_600, 350_000)


@pytest.mark.parametrize(
    "build",
    [
        lambda: a_demand(cpu_capacity_mcpu=0),
        lambda: a_demand(index=-1),
        lambda: a_demand(memory_share_ppm=1_000_001),
        lambda: Spike(start_ms=0, length_ms=0),
        lambda: Spike(start_ms=0, length_ms=1, cpu_ppm=-1),
        lambda: BurstNoise(burst_low_ppm=9, burst_high_ppm=8),
        lambda: BurstNoise(window_ms=0),
    ],
)
def test_sizes_out_of_range_are_refused(build) -> None:
    with pytest.raises(InvalidInput):
        build()
