"""Koordinator's placed pods: when an estimate stands beside or in place of what a report says of each."""

from __future__ import annotations

import pytest

from colo_common.model.qos import PriorityBand
from colo_scheduler.load.usage import (
    Aggregate,
    LoadPolicy,
    NodeLoad,
    Sums,
    UsageBasis,
    WorkloadRequest,
    estimate_of,
    prod_used,
    resource_of,
    used,
)
from tests.parity.peers.placed_load import (
    Estimation,
    Placed,
    PodUsage,
    contribution_of,
    needs_estimation,
    reports_of,
    sums_of,
    with_own_factors,
)

NOW_MS = 1_000_000
CPU_ONLY = LoadPolicy(factors_pct={"cpu": 100}, weights={"cpu": 1})
AGGREGATES = (Aggregate(window_ms=300_000, usage={"p95": {"cpu": 300}}),)


def a_workload(band: PriorityBand = PriorityBand.PROD, cpu: int = 4000) -> WorkloadRequest:
    return WorkloadRequest(band=band, requests={resource_of("cpu", band): cpu})


def a_pod(placed_at_ms: int = 0, band: PriorityBand = PriorityBand.PROD, **more: object) -> Placed:
    return Placed(name="w", workload=a_workload(band), placed_at_ms=placed_at_ms, **more)  # type: ignore[arg-type]


def a_load(**more: object) -> NodeLoad:
    given = {"updated_at_ms": NOW_MS, "usage": {"cpu": 10_000, "memory": 8 << 30}} | more
    return NodeLoad(**given)  # type: ignore[arg-type]


def test_own_factors_are_heard_only_when_the_policy_allows_them() -> None:
    wishes = {"cpu": 10}
    assert estimate_of(a_workload(), with_own_factors(LoadPolicy(), wishes, is_allowed=False))["cpu"] == 3400
    assert estimate_of(a_workload(), with_own_factors(LoadPolicy(), wishes, is_allowed=True))["cpu"] == 400


@pytest.mark.parametrize(
    ("placed_ms", "started_ms", "rules", "expected"),
    [
        (-60_000, None, {}, False),
        (-59_999, None, {}, True),
        (-90_000, None, {"after_placed_ms": 90_001}, True),
        (-90_000, None, {"after_placed_ms": 90_000}, False),
        (-90_000, None, {"after_started_ms": 1_000_000}, False),
        (-90_000, -1_000, {"after_started_ms": 1_001}, True),
        (-90_000, -1_000, {"after_started_ms": 1_000, "after_placed_ms": 900_000}, False),
        (-90_000, -1_000, {"after_started_ms": 0, "after_placed_ms": 900_000}, True),
    ],
)
def test_measured_work_is_estimated_in_its_first_interval_and_until_its_deadline(
    placed_ms: int, started_ms: int | None, rules: dict[str, int], expected: bool
) -> None:
    placed = a_pod(NOW_MS + placed_ms, started_at_ms=None if started_ms is None else NOW_MS + started_ms)
    report = PodUsage(name="w", usage={"cpu": 1})
    assert needs_estimation(placed, report, a_load(), Estimation(**rules)) is expected


def test_unmeasured_work_and_work_of_a_report_without_a_time_is_always_estimated() -> None:
    assert needs_estimation(a_pod(), None, a_load())
    assert needs_estimation(a_pod(), PodUsage(name="w", usage={"cpu": 1}), a_load(updated_at_ms=None))


def test_own_times_win_over_those_of_the_policy_when_allowed() -> None:
    placed = a_pod(NOW_MS - 90_000, estimated_after_placed_ms=10)
    report = PodUsage(name="w", usage={"cpu": 1})
    assert needs_estimation(placed, report, a_load(), Estimation(after_placed_ms=900_000))
    assert not needs_estimation(placed, report, a_load(), Estimation(after_placed_ms=900_000, allow_own=True))


def test_an_own_time_below_zero_leaves_the_policy_s_in_force_and_one_of_zero_does_not() -> None:
    rules = Estimation(after_placed_ms=900_000, allow_own=True)
    report = PodUsage(name="w", usage={"cpu": 1})
    for own_ms, needs in ((-1, True), (0, False), (None, True)):
        placed = a_pod(NOW_MS - 90_000, estimated_after_placed_ms=own_ms, estimated_after_started_ms=-5)
        assert needs_estimation(placed, report, a_load(), rules) is needs


def test_only_what_the_estimate_exceeds_the_report_by_is_added() -> None:
    for reported, expected in ((0, 14_000), (1500, 12_500), (5000, 10_000)):
        sums = sums_of(a_load(), [PodUsage(name="w", usage={"cpu": reported})], [a_pod(NOW_MS)], CPU_ONLY)
        assert used(a_load(), sums)["cpu"] == expected


def test_a_report_without_amounts_counts_as_none() -> None:
    assert reports_of([PodUsage(name="w", usage={})]) == {}


def test_prod_work_that_the_report_calls_otherwise_is_estimated_in_full() -> None:
    def sums(*, is_prod: bool) -> Sums:
        return sums_of(a_load(), [PodUsage(name="w", usage={"cpu": 700}, is_prod=is_prod)], [a_pod()], CPU_ONLY)

    assert prod_used(a_load(), sums(is_prod=True), CPU_ONLY) == {"cpu": 700}
    assert prod_used(a_load(), sums(is_prod=False), CPU_ONLY) == {"cpu": 4000}
    assert used(a_load(), sums(is_prod=False))["cpu"] == 10_000


def test_prod_usage_leaves_out_other_bands_and_takes_the_system_in_on_demand() -> None:
    load, reported = a_load(system_usage={"cpu": 5}), [PodUsage(name="w", usage={"cpu": 700}, is_prod=True)]
    placed = [a_pod(band=PriorityBand.BATCH)]
    assert prod_used(load, sums_of(load, reported, placed, CPU_ONLY), CPU_ONLY) == {}
    with_system = LoadPolicy(factors_pct={"cpu": 100}, prod_usage_includes_system=True)
    assert prod_used(load, sums_of(load, reported, placed, with_system), with_system) == {"cpu": 5}


def test_where_an_explicit_window_is_missing_all_placed_work_is_estimated_in_full() -> None:
    load = a_load(aggregates=AGGREGATES)
    sums = sums_of(load, [PodUsage(name="w", usage={"cpu": 700})], [a_pod()], CPU_ONLY)
    assert used(load, sums, UsageBasis(kind="p95", window_ms=7)) == {"cpu": 4000}
    assert used(load, sums, UsageBasis(kind="p95", window_ms=300_000)) == {"cpu": 300}


def test_a_contribution_of_other_work_has_no_prod_part() -> None:
    part = contribution_of(a_pod(band=PriorityBand.BATCH), None, a_load(), CPU_ONLY)
    assert part == ({"cpu": 4000}, {"cpu": 4000}, {}, {})


def test_without_a_report_nothing_is_added() -> None:
    assert sums_of(None, [], [a_pod()], CPU_ONLY) == ({}, {}, {})
