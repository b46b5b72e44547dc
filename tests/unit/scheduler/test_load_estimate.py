"""What work is expected to use, and when its estimate stands beside or in place of what is measured."""

import pytest

from colo_common.model.qos import PriorityBand
from colo_scheduler.load.estimate import (
    contribution_of,
    estimate_of,
    needs_estimation,
    prod_used,
    reports_of,
    sums_of,
    used,
)
from colo_scheduler.load.policy import LoadPolicy, UsageBasis
from colo_scheduler.load.usage import (
    Aggregate,
    NodeLoad,
    PlacedWorkload,
    WorkloadLoad,
    WorkloadRequest,
    aggregate_usage,
    resource_of,
)

GIB = 1 << 30
NOW_MS = 1_000_000


def a_workload(
    name: str = "w", band: PriorityBand = PriorityBand.PROD, cpu: int = 4000, **more: object
) -> WorkloadRequest:
    return WorkloadRequest(name=name, band=band, requests={resource_of("cpu", band): cpu}, **more)  # type: ignore[arg-type]


def a_load(**more: object) -> NodeLoad:
    given = {"updated_at_ms": NOW_MS, "usage": {"cpu": 10_000, "memory": 8 * GIB}} | more
    return NodeLoad(**given)  # type: ignore[arg-type]


CPU_ONLY = LoadPolicy(factors_pct={"cpu": 100}, weights={"cpu": 1})


@pytest.mark.parametrize(
    ("band", "expected"),
    [
        (PriorityBand.PROD, {"cpu": 250, "memory": 200 << 20}),
        (PriorityBand.BATCH, {"cpu": 250, "memory": 200 << 20}),
        (PriorityBand.FREE, {"cpu": 250, "memory": 200 << 20}),
        (PriorityBand.MID, {"cpu": 0, "memory": 0}),
    ],
)
def test_work_that_asks_for_nothing_is_taken_for_a_little_and_mid_work_for_nothing(
    band: PriorityBand, expected: dict[str, int]
) -> None:
    assert estimate_of(WorkloadRequest(name="w", band=band), LoadPolicy()) == expected


def test_batch_work_is_estimated_by_what_it_asks_of_batch_capacity() -> None:
    workload = WorkloadRequest(
        name="w", band=PriorityBand.BATCH, requests={"cpu": 9000, "kubernetes.io/batch-cpu": 1001, "gpu": 3}
    )
    policy = LoadPolicy(factors_pct={"cpu": 50, "gpu": 100}, weights={"cpu": 1})
    assert estimate_of(workload, policy) == {"cpu": 501, "gpu": 3}


def test_an_estimate_is_of_the_larger_of_limit_and_request_and_never_above_a_limit() -> None:
    workload = WorkloadRequest(name="w", band=PriorityBand.PROD, requests={"cpu": 1000}, limits={"cpu": 3000})
    assert estimate_of(workload, LoadPolicy(factors_pct={"cpu": 85}))["cpu"] == 2550
    assert estimate_of(workload, LoadPolicy(factors_pct={"cpu": 110}))["cpu"] == 3000


def test_own_factors_are_heard_only_when_the_policy_allows_them() -> None:
    workload = a_workload(factors_pct={"cpu": 10})
    assert estimate_of(workload, LoadPolicy())["cpu"] == 3400
    assert estimate_of(workload, LoadPolicy(allow_own_estimation=True))["cpu"] == 400


@pytest.mark.parametrize(
    ("placed_ms", "started_ms", "policy", "expected"),
    [
        (-60_000, None, {}, False),
        (-59_999, None, {}, True),
        (-90_000, None, {"estimated_after_placed_ms": 90_001}, True),
        (-90_000, None, {"estimated_after_placed_ms": 90_000}, False),
        (-90_000, None, {"estimated_after_started_ms": 1_000_000}, False),
        (-90_000, -1_000, {"estimated_after_started_ms": 1_001}, True),
        (-90_000, -1_000, {"estimated_after_started_ms": 1_000, "estimated_after_placed_ms": 900_000}, False),
        (-90_000, -1_000, {"estimated_after_started_ms": 0, "estimated_after_placed_ms": 900_000}, True),
    ],
)
def test_measured_work_is_estimated_in_its_first_interval_and_until_its_deadline(
    placed_ms: int, started_ms: int | None, policy: dict[str, int], expected: bool
) -> None:
    placed = PlacedWorkload(
        workload=a_workload(),
        placed_at_ms=NOW_MS + placed_ms,
        started_at_ms=None if started_ms is None else NOW_MS + started_ms,
    )
    report = WorkloadLoad(name="w", usage={"cpu": 1})
    assert needs_estimation(placed, report, a_load(), LoadPolicy(**policy)) is expected  # type: ignore[arg-type]


def test_unmeasured_work_and_work_of_a_report_without_a_time_is_always_estimated() -> None:
    placed = PlacedWorkload(workload=a_workload(), placed_at_ms=0)
    assert needs_estimation(placed, None, a_load(), LoadPolicy())
    report = WorkloadLoad(name="w", usage={"cpu": 1})
    assert needs_estimation(placed, report, a_load(updated_at_ms=None), LoadPolicy())


def test_own_times_win_over_those_of_the_policy_when_allowed() -> None:
    workload = a_workload(estimated_after_placed_ms=10)
    placed = PlacedWorkload(workload=workload, placed_at_ms=NOW_MS - 90_000)
    report = WorkloadLoad(name="w", usage={"cpu": 1})
    long = {"estimated_after_placed_ms": 900_000}
    assert needs_estimation(placed, report, a_load(), LoadPolicy(**long))  # type: ignore[arg-type]
    allowed = LoadPolicy(allow_own_estimation=True, **long)  # type: ignore[arg-type]
    assert not needs_estimation(placed, report, a_load(), allowed)


def test_an_own_time_below_zero_leaves_the_policy_s_in_force_and_one_of_zero_does_not() -> None:
    policy = LoadPolicy(allow_own_estimation=True, estimated_after_placed_ms=900_000)
    report = WorkloadLoad(name="w", usage={"cpu": 1})
    for own_ms, needs in ((-1, True), (0, False), (None, True)):
        workload = a_workload(estimated_after_placed_ms=own_ms, estimated_after_started_ms=-5)
        placed = PlacedWorkload(workload=workload, placed_at_ms=NOW_MS - 90_000)
        assert needs_estimation(placed, report, a_load(), policy) is needs


def test_only_what_the_estimate_exceeds_the_report_by_is_added() -> None:
    placed = [PlacedWorkload(workload=a_workload(), placed_at_ms=NOW_MS)]
    for reported, expected in ((0, 14_000), (1500, 12_500), (5000, 10_000)):
        load = a_load(workloads=(WorkloadLoad(name="w", usage={"cpu": reported}),))
        assert used(load, sums_of(load, placed, CPU_ONLY))["cpu"] == expected


def test_a_report_without_amounts_counts_as_none() -> None:
    load = a_load(workloads=(WorkloadLoad(name="w", usage={}),))
    assert reports_of(load) == {}


def test_prod_work_that_the_report_calls_otherwise_is_estimated_in_full() -> None:
    placed = [PlacedWorkload(workload=a_workload(), placed_at_ms=0)]
    called_prod = a_load(workloads=(WorkloadLoad(name="w", usage={"cpu": 700}, is_prod=True),))
    called_batch = a_load(workloads=(WorkloadLoad(name="w", usage={"cpu": 700}),))
    assert prod_used(called_prod, sums_of(called_prod, placed, CPU_ONLY), CPU_ONLY) == {"cpu": 700}
    assert prod_used(called_batch, sums_of(called_batch, placed, CPU_ONLY), CPU_ONLY) == {"cpu": 4000}
    assert used(called_batch, sums_of(called_batch, placed, CPU_ONLY))["cpu"] == 10_000


def test_prod_usage_leaves_out_other_bands_and_takes_the_system_in_on_demand() -> None:
    load = a_load(system_usage={"cpu": 5}, workloads=(WorkloadLoad(name="w", usage={"cpu": 700}, is_prod=True),))
    placed = [PlacedWorkload(workload=a_workload(band=PriorityBand.BATCH), placed_at_ms=0)]
    assert prod_used(load, sums_of(load, placed, CPU_ONLY), CPU_ONLY) == {}
    with_system = LoadPolicy(factors_pct={"cpu": 100}, prod_usage_includes_system=True)
    assert prod_used(load, sums_of(load, placed, with_system), with_system) == {"cpu": 5}


AGGREGATES = (
    Aggregate(window_ms=300_000, usage={"p95": {"cpu": 300}, "avg": {"cpu": 30}}),
    Aggregate(window_ms=600_000, usage={"p95": {"cpu": 600}, "avg": {}}),
)


@pytest.mark.parametrize(
    ("kind", "window_ms", "expected"),
    [
        ("p95", 0, {"cpu": 600}),
        ("avg", 0, {"cpu": 30}),
        ("p99", 0, {"cpu": 10_000, "memory": 8 * GIB}),
        ("p95", 300_000, {"cpu": 300}),
        ("avg", 600_000, None),
        ("p95", 1, None),
    ],
)
def test_a_window_of_zero_takes_the_longest_that_has_a_value_and_else_the_newest_usage(
    kind: str, window_ms: int, expected: dict[str, int] | None
) -> None:
    assert aggregate_usage(a_load(aggregates=AGGREGATES), UsageBasis(kind=kind, window_ms=window_ms)) == expected


def test_an_aggregate_over_no_time_serves_where_there_is_no_longer_one() -> None:
    instant = Aggregate(window_ms=0, usage={"p99": {"cpu": 9}, "p95": {"cpu": 5}})
    load = a_load(aggregates=(instant, *AGGREGATES))
    assert aggregate_usage(load, UsageBasis(kind="p99")) == {"cpu": 9}
    assert aggregate_usage(load, UsageBasis(kind="p95")) == {"cpu": 600}


def test_where_an_explicit_window_is_missing_all_placed_work_is_estimated_in_full() -> None:
    placed = [PlacedWorkload(workload=a_workload(), placed_at_ms=0)]
    load = a_load(aggregates=AGGREGATES, workloads=(WorkloadLoad(name="w", usage={"cpu": 700}),))
    assert used(load, sums_of(load, placed, CPU_ONLY), UsageBasis(kind="p95", window_ms=7)) == {"cpu": 4000}
    assert used(load, sums_of(load, placed, CPU_ONLY), UsageBasis(kind="p95", window_ms=300_000)) == {"cpu": 300}


def test_a_contribution_of_other_work_has_no_prod_part() -> None:
    placed = PlacedWorkload(workload=a_workload(band=PriorityBand.BATCH), placed_at_ms=0)
    part = contribution_of(placed, None, a_load(), CPU_ONLY)
    assert part == ({"cpu": 4000}, {"cpu": 4000}, {}, {})
