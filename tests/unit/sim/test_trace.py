"""A load trace read at any moment: bridging, holding, wrapping, shifting, numbers."""

import pytest

from colo_common.model.invalid import InvalidInput
from colo_sim.trace import NODE_SHIFT_MS, Load, LoadSeries, LoadTrace


def a_series(name: str = "m", t_ms=(0, 10_000, 20_000), cpu_ppm=(100_000, 200_000, 400_000)) -> LoadSeries:
    return LoadSeries(name, tuple(t_ms), tuple(cpu_ppm), tuple(500_000 for _ in t_ms))


@pytest.mark.parametrize(
    ("t_ms", "cpu_ppm"),
    [
        pytest.param(0, 100_000, id="on a sample"),
        pytest.param(5_000, 150_000, id="half way between two samples"),
        pytest.param(3, 100_030, id="a value that is exact"),
        pytest.param(20_000, 400_000, id="the last sample"),
        pytest.param(25_000, 250_000, id="half way from the last sample to the first"),
        pytest.param(30_000, 100_000, id="wrapped once"),
        pytest.param(30_000 * 7 + 5_000, 150_000, id="wrapped seven times"),
    ],
)
def test_a_series_is_bridged_between_samples_and_wraps(t_ms: int, cpu_ppm: int) -> None:
    assert a_series().at(t_ms) == Load(cpu_ppm, 500_000)


def test_a_gap_at_the_limit_is_bridged_and_a_longer_one_is_held() -> None:
    at_limit = LoadSeries("m", (0, 300_000, 600_001), (0, 300_000, 900_000), (0, 0, 0), 300_000)
    assert at_limit.at(150_000).cpu_ppm == 150_000
    assert at_limit.at(450_000).cpu_ppm == 300_000
    assert at_limit.at(600_000).cpu_ppm == 300_000
    assert at_limit.at(600_001).cpu_ppm == 900_000


def test_a_series_of_one_sample_is_constant() -> None:
    one = LoadSeries("m", (7,), (123,), (456,))
    assert [one.at(t) for t in (0, 1, 10**9)] == [Load(123, 456)] * 3


def test_copies_of_the_only_series_are_37_minutes_apart() -> None:
    times = tuple(range(0, 86_400_000, 300_000))
    only = LoadSeries("m", times, tuple(t // 1000 for t in times), tuple(0 for _ in times))
    trace = LoadTrace((only,), "test")
    assert NODE_SHIFT_MS == 2_220_000
    for node in range(5):
        assert trace.at(node, 60_000) == only.at(60_000 + node * NODE_SHIFT_MS)


def test_nodes_use_each_series_unshifted_before_any_copy() -> None:
    trace = LoadTrace((a_series("a"), a_series("b", cpu_ppm=(1, 2, 3))), "test")
    assert trace.at(0, 0).cpu_ppm == 100_000
    assert trace.at(1, 0).cpu_ppm == 1
    assert trace.at(2, 0) == trace.series[0].at(NODE_SHIFT_MS)


def test_numbers_of_a_series_are_mean_nearest_rank_p95_and_gaps() -> None:
    times = (*range(0, 100_000, 10_000), *range(1_000_000, 1_100_000, 10_000))
    series = LoadSeries("m", times, tuple(i * 10_000 for i in range(1, 21)), tuple(250_000 for _ in times))
    numbers = series.statistics()
    assert (numbers.samples, numbers.step_ms, numbers.span_ms) == (20, 10_000, 1_090_000)
    assert numbers.cpu_mean_pct == 10.5
    assert numbers.cpu_p95_pct == 19.0  # the 19th of 20 values
    assert numbers.cpu_max_pct == 20.0
    assert numbers.mem_mean_pct == 25.0
    assert (numbers.gaps, numbers.longest_gap_ms) == (1, 910_000)


@pytest.mark.parametrize(
    ("t_ms", "cpu_ppm", "mem_ppm"),
    [
        pytest.param((), (), (), id="empty"),
        pytest.param((0, 0), (1, 1), (1, 1), id="a time twice"),
        pytest.param((1, 0), (1, 1), (1, 1), id="out of order"),
        pytest.param((0,), (1_000_001,), (1,), id="above the whole"),
        pytest.param((0,), (1,), (-1,), id="below zero"),
        pytest.param((0, 1), (1,), (1, 1), id="different lengths"),
    ],
)
def test_a_broken_series_is_refused(t_ms, cpu_ppm, mem_ppm) -> None:
    with pytest.raises(InvalidInput):
        LoadSeries("m", t_ms, cpu_ppm, mem_ppm)


def test_a_trace_without_series_or_with_a_name_twice_is_refused() -> None:
    with pytest.raises(InvalidInput):
        LoadTrace((), "test")
    with pytest.raises(InvalidInput):
        LoadTrace((a_series("a"), a_series("a")), "test")
