"""What workloads say of themselves, and how the use of a node is spread over half an hour."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from colo_collector.business import BusinessWatch, MetricRule, parse_business_metrics, values_of
from colo_collector.latency_slo import SetLatencySlo
from colo_collector.usage_windows import UsageWindows
from colo_common.events.node import ClassUsage, SloViolations
from colo_common.model.invalid import InvalidInput
from colo_common.model.qos import QosClass
from colo_common.model.sketch import Sketch
from tests.unit.collector.test_collector_core import a_sample
from tests.unit.collector.test_machine import WEB, Bench, sample

URL = "http://127.0.0.1:9/metrics"
WEB_RULE = MetricRule(workload="web", url=URL, metric="p99_ms", slo_milli=100_000)


def test_a_rule_has_the_slo_of_latencies_unless_it_says_otherwise() -> None:
    rules = parse_business_metrics(
        (
            f"web={URL};metric=p99_ms;baseline=40",
            f"shop/db={URL};metric=latency_seconds",
            f"job={URL};metric=steps_per_s;worse=lower;kind=other;baseline=2.5",
            f"api={URL};metric=p50_ms;slo=7.5",
        ),
        100,
    )
    assert [(one.workload, one.worse, one.baseline_milli, one.slo_milli) for one in rules] == [
        ("web", "higher", 40_000, 100_000),
        ("shop/db", "higher", None, 100),
        ("job", "lower", 2_500, None),
        ("api", "higher", None, 7_500),
    ]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("web", "business_metrics[0]"),
        ("web=ftp://x;metric=a", "business_metrics[0]"),
        (f"web={URL}", "business_metrics[0].metric"),
        (f"web={URL};metric=a;metric=b", "business_metrics[0]"),
        (f"web={URL};metric=a;slo=-1", "business_metrics[0].slo"),
        (f"web={URL};metric=a;baseline=nan", "business_metrics[0].baseline"),
        (f"web={URL};metric=a;worse=never", "business_metrics[0].worse"),
        (f"web={URL};metric=a;worse=lower;kind=latency", "business_metrics[0].kind"),
    ],
)
def test_a_rule_of_another_form_is_refused_with_its_place(text: str, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_business_metrics((text,), 100)
    assert caught.value.field == field


def test_the_values_of_a_metric_are_those_of_all_its_series_and_nothing_else() -> None:
    text = (
        '# HELP p99_ms x\np99_ms 5\np99_ms{path="/a b"} 7.5 1700000000\np99_ms_total 9\np99_ms NaN\np99_ms +Inf\n'
        "p99_ms -3\np99_ms six\np99_ms\n"
    )
    assert values_of(text, "p99_ms") == (5.0, 7.5)


def test_the_violation_rate_counts_values_above_the_slo_by_window() -> None:
    watch = BusinessWatch((WEB_RULE,))
    for second in range(0, 1_200, 10):
        # The first ten minutes are bad, the last ten are good; of several series the worst one counts.
        watch.take("web", (20.0, 150.0 if second < 600 else 90.0), second * 1_000)
    metric = watch.metrics(1_195_000)["web"]
    assert metric.violations == (
        SloViolations(window_ms=300_000, samples=30, above=0),
        SloViolations(window_ms=600_000, samples=60, above=0),
        SloViolations(window_ms=1_800_000, samples=120, above=60),
    )
    assert (metric.value_milli, metric.age_ms, metric.slo_milli) == (90_000, 5_000, 100_000)


def test_another_slo_judges_the_last_half_hour_anew_and_leaves_declared_ones() -> None:
    rules = parse_business_metrics(
        (f"web={URL};metric=p99_ms", f"db={URL};metric=latency_seconds", f"own={URL};metric=p99_ms;slo=120"), 100
    )
    watch = BusinessWatch(rules)
    for second in range(0, 60, 10):
        for name, unit in (("web", 1), ("db", 1_000), ("own", 1)):
            watch.take(name, ((150.0 if second < 30 else 50.0) / unit,), second * 1_000)

    def judged() -> dict[str, tuple[int | None, int, bool, int, int]]:
        return {
            name: (one.slo_milli, one.violations[0].above, one.breaks_slo, one.slo_revision, one.slo_since_ms)
            for name, one in watch.metrics(60_000).items()
        }

    own = (120_000, 3, False, 0, 0)
    before = {"web": (100_000, 3, False, 0, 0), "db": (100, 3, False, 0, 0), "own": own}
    assert judged() == before
    watch.set_latency_slo(SetLatencySlo(slo_ms=40, revision=7, since_ms=60_000))
    assert judged() == {"web": (40_000, 6, True, 7, 60_000), "db": (40, 6, True, 7, 60_000), "own": own}
    watch.set_latency_slo(SetLatencySlo(slo_ms=200, revision=8, since_ms=61_000))
    assert judged()["web"] == (200_000, 0, False, 8, 61_000)
    watch.set_latency_slo(SetLatencySlo(slo_ms=100))
    assert judged() == before


@given(st.lists(st.integers(0, 10**9), max_size=100), st.integers(0, 10**9))
def test_a_sketch_counts_what_is_above_a_value_within_four_percent(values: list[int], mark: int) -> None:
    sketch = Sketch()
    for value in values:
        sketch.add(value)
    certain = sum(value > mark * 1.05 + 1 for value in values)
    assert certain <= sketch.above(mark) <= sum(value > mark for value in values)


@pytest.mark.parametrize(
    ("worse", "baseline", "value", "slowdown_pct"),
    [
        ("higher", 40_000, 60.0, 150),
        ("higher", 40_000, 20.0, 50),
        ("lower", 4_000, 2.0, 200),
        ("lower", 4_000, 0.0, None),
    ],
)
def test_a_slowdown_compares_with_the_declared_baseline(
    worse: str, baseline: int, value: float, slowdown_pct: int | None
) -> None:
    rule = structs.replace(WEB_RULE, worse=worse, baseline_milli=baseline, slo_milli=None)  # type: ignore[arg-type]
    watch = BusinessWatch((rule,))
    assert watch.take("web", (value,), 0)
    assert not watch.take("web", (), 1)
    assert watch.metrics(0)["web"].slowdown_pct == slowdown_pct
    assert watch.metrics(0)["web"].violations == ()


def test_a_workload_without_a_baseline_is_compared_with_its_own_half_hour() -> None:
    watch = BusinessWatch((WEB_RULE,))
    for second in range(19):
        watch.take("web", (10.0,), second * 1_000)
        assert watch.metrics(second * 1_000)["web"].baseline_milli is None
    watch.take("web", (20.0,), 20_000)
    found = watch.metrics(20_000)["web"]
    assert found.baseline_milli == pytest.approx(10_000, rel=0.02)
    assert found.slowdown_pct == pytest.approx(200, abs=5)


def test_the_sample_carries_the_metric_with_its_age_and_drops_it_after_a_minute(tmp_path: Path) -> None:
    bench = Bench(tmp_path, online=("web=/web:LSR",), workloads=(WEB,))
    bench.observe()
    watch = BusinessWatch((WEB_RULE,))
    watch.take("web", (30.0,), 500)
    bench.machine.set_business(watch.metrics(500), 500)
    business = sample(bench.second()).workloads[0].business
    assert business is not None
    assert (business.metric, business.value_milli, business.age_ms) == ("p99_ms", 30_000, 500)
    for _ in range(60):
        observation = bench.second()
    assert sample(observation).workloads[0].business is None


# ------------------------------------------------------------ windows


@given(st.lists(st.integers(0, 10**12) | st.integers(0, 50), min_size=1, max_size=200))
def test_quantiles_are_within_two_percent_of_the_exact_ones(values: list[int]) -> None:
    sketch = Sketch()
    for value in values:
        sketch.add(value)
    ordered = sorted(values)
    for pct, found in zip((50, 90, 95, 99, 100), sketch.quantiles((50, 90, 95, 99, 100)), strict=True):
        exact = ordered[max(-(-len(values) * pct // 100), 1) - 1]
        assert abs(found - exact) <= exact * 0.02 + 1
    assert (sketch.count, sketch.total, sketch.largest) == (len(values), sum(values), max(values))


def test_sketches_add_up_and_stay_small() -> None:
    source = random.Random(7)
    parts = [Sketch() for _ in range(60)]
    whole = Sketch()
    for index in range(20_000):
        value = int(source.lognormvariate(10, 3))
        parts[index % 60].add(value)
        whole.add(value)
    merged = Sketch.merged(parts)
    assert merged.quantiles((50, 99)) == whole.quantiles((50, 99))
    assert (merged.count, merged.average) == (whole.count, whole.average)
    assert len(merged._buckets) < 1_200
    assert Sketch().quantiles((50,)) == (0,)


def test_windows_come_once_in_thirty_seconds_and_cover_what_they_say() -> None:
    windows = UsageWindows()
    classes = (ClassUsage(qos=QosClass.LS, workloads=1, cpu_used_mcpu=500, memory_used_bytes=7, stall_pct=12),)
    found = []
    for second in range(1_900):
        # The use rises by a milli-CPU a second.
        one = structs.replace(
            a_sample(), monotonic_ms=1_000 * second, cpu_used_mcpu=second, system_cpu_used_mcpu=9, classes=classes
        )
        published = windows.take(one)
        found += [published] if published else []
    assert len(found) == 63
    last = {(one.of, one.what, one.window_ms): one for one in found[-1]}
    five, thirty = last["node", "cpu_mcpu", 300_000], last["node", "cpu_mcpu", 1_800_000]
    assert (five.samples, five.largest, five.average) == (300, 1_889, 1_739)
    assert five.p50 == pytest.approx(1_739, rel=0.03)
    assert thirty.samples == 1_800
    assert thirty.p99 == pytest.approx(1_872, rel=0.03)
    assert last["LS", "stall_pct", 600_000].p95 == 12
    assert last["system", "cpu_mcpu", 300_000].largest == 9


def test_a_machine_clock_that_began_again_begins_the_windows_again() -> None:
    windows = UsageWindows()
    for second in (0, 40, 80):
        windows.take(structs.replace(a_sample(), monotonic_ms=second * 1_000))
    assert windows.take(structs.replace(a_sample(), monotonic_ms=1_000)) == ()
