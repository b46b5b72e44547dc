"""What work is expected to use, and which aggregate of a report is compared."""

import pytest

from colo_common.model.qos import PriorityBand
from colo_scheduler.load.usage import (
    Aggregate,
    LoadPolicy,
    NodeLoad,
    UsageBasis,
    WorkloadRequest,
    aggregate_usage,
    estimate_of,
)

GIB = 1 << 30
NOW_MS = 1_000_000


def a_load(**more: object) -> NodeLoad:
    given = {"updated_at_ms": NOW_MS, "usage": {"cpu": 10_000, "memory": 8 * GIB}} | more
    return NodeLoad(**given)  # type: ignore[arg-type]


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
    assert estimate_of(WorkloadRequest(band=band), LoadPolicy()) == expected


def test_batch_work_is_estimated_by_what_it_asks_of_batch_capacity() -> None:
    workload = WorkloadRequest(
        band=PriorityBand.BATCH, requests={"cpu": 9000, "kubernetes.io/batch-cpu": 1001, "gpu": 3}
    )
    policy = LoadPolicy(factors_pct={"cpu": 50, "gpu": 100}, weights={"cpu": 1})
    assert estimate_of(workload, policy) == {"cpu": 501, "gpu": 3}


def test_an_estimate_is_of_the_larger_of_limit_and_request_and_never_above_a_limit() -> None:
    workload = WorkloadRequest(band=PriorityBand.PROD, requests={"cpu": 1000}, limits={"cpu": 3000})
    assert estimate_of(workload, LoadPolicy(factors_pct={"cpu": 85}))["cpu"] == 2550
    assert estimate_of(workload, LoadPolicy(factors_pct={"cpu": 110}))["cpu"] == 3000


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
