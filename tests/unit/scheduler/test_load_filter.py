"""Which threshold a node is judged by, and why it is refused."""

import numpy as np
import pytest

from colo_common.model.invalid import InvalidInput
from colo_common.model.qos import PriorityBand
from colo_scheduler.load.rows import (
    EXPIRED,
    FIRST_RESOURCE,
    LoadTable,
    overloads_of_rows,
    scores_of_rows,
    usage_pct_of_rows,
    weigh,
)
from colo_scheduler.load.usage import (
    Aggregate,
    AggregateThresholds,
    LoadPolicy,
    NodeLoad,
    Sums,
    UsageBasis,
    WorkloadRequest,
    estimate_of,
)
from colo_scheduler.scorers.allocation import least_allocated_pct

NOW_MS = 1_000_000
CAPACITY = {"cpu": 1000, "memory": 1000}
PROD = WorkloadRequest(band=PriorityBand.PROD, requests={"cpu": 1, "memory": 1})
MID = WorkloadRequest(band=PriorityBand.MID)


def a_load(cpu: int = 0, memory: int = 0, age_ms: int = 0, **more: object) -> NodeLoad:
    usage = {"cpu": cpu, "memory": memory}
    return NodeLoad(updated_at_ms=NOW_MS - age_ms, usage=usage, **more)  # type: ignore[arg-type]


def a_table(load: NodeLoad | None, policy: LoadPolicy) -> LoadTable:
    table = LoadTable(policy, 1)
    table.write_sums(0, load, Sums({}, {}, {}), CAPACITY)
    return table


def refused(load: NodeLoad | None, policy: LoadPolicy, workload: WorkloadRequest = MID) -> tuple[str, int, int] | None:
    """Why a node with nothing placed must not take the work: the resource, its load in percent, the threshold."""
    table = a_table(load, policy)
    estimate = table.row_of(estimate_of(workload, policy))
    codes, used_pct, most_pct = overloads_of_rows(table.rows(1), estimate, workload.band, policy, NOW_MS)
    code = int(codes[0])
    if code < FIRST_RESOURCE:
        return ("expired", 0, 0) if code == EXPIRED else None
    return table.resources[code - FIRST_RESOURCE], int(used_pct[0]), int(most_pct[0])


def score(load: NodeLoad | None, policy: LoadPolicy, workload: WorkloadRequest = MID) -> int:
    table = a_table(load, policy)
    estimate = table.row_of(estimate_of(workload, policy))
    return int(scores_of_rows(table.rows(1), estimate, workload.band, policy, NOW_MS)[0])


@pytest.mark.parametrize(
    ("amount", "capacity", "expected"),
    [(0, 10, 0), (654, 1000, 65), (655, 1000, 66), (285, 1000, 29), (1, 0, 0), (2000, 1000, 200)],
)
def test_usage_is_rounded_half_up_to_a_whole_percent(amount: int, capacity: int, expected: int) -> None:
    assert usage_pct_of_rows(np.array([amount]), np.array([capacity])).tolist() == [expected]


def test_a_node_exactly_at_its_threshold_passes_and_one_percent_above_does_not() -> None:
    assert refused(a_load(cpu=654), LoadPolicy()) is None
    assert refused(a_load(cpu=655), LoadPolicy()) == ("cpu", 66, 65)


def test_what_exceeds_already_is_named_before_what_would_with_the_newcomer() -> None:
    policy = LoadPolicy(usage_pct={"cpu": 50, "memory": 50}, factors_pct={"cpu": 100, "memory": 100})
    big = WorkloadRequest(band=PriorityBand.PROD, requests={"cpu": 900, "memory": 1})
    assert refused(a_load(memory=900), policy, big) == ("memory", 90, 50)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({}, "expired"),
        ({"place_when_expired": True}, None),
        ({"filter_expired": False}, "cpu"),
        ({"expiration_ms": None}, "cpu"),
        ({"expiration_ms": 0}, "cpu"),
        ({"expiration_ms": 180_001}, "cpu"),
        ({"usage_pct": {}}, None),
    ],
)
def test_an_expired_report_refuses_passes_or_counts_as_the_policy_says(
    policy: dict[str, object], expected: str | None
) -> None:
    refusal = refused(a_load(cpu=999, age_ms=180_000), LoadPolicy(**policy))  # type: ignore[arg-type]
    assert (refusal[0] if refusal else None) == expected


def test_a_report_without_a_time_is_expired_unless_expiry_is_off() -> None:
    load = NodeLoad(updated_at_ms=None, usage={"cpu": 1})
    assert LoadPolicy(expiration_ms=0).is_expired(None, NOW_MS)
    assert not LoadPolicy(expiration_ms=None).is_expired(None, NOW_MS)
    assert score(load, LoadPolicy()) == 0


def test_without_a_report_or_its_numbers_a_node_passes_and_scores_nothing() -> None:
    empty = NodeLoad(updated_at_ms=NOW_MS, usage=None)
    for load in (None, empty):
        assert refused(load, LoadPolicy()) is None
        assert score(load, LoadPolicy()) == 0


def test_thresholds_that_are_all_off_refuse_nothing_and_do_not_look_at_the_age_of_a_report() -> None:
    expired = a_load(cpu=999, age_ms=999_999)
    off = {"cpu": 0, "memory": 0}
    assert refused(expired, LoadPolicy()) == ("expired", 0, 0)
    assert refused(expired, LoadPolicy(usage_pct=off)) is None
    aggregated = AggregateThresholds(usage_pct=off, kind="p95")
    assert refused(expired, LoadPolicy(aggregated=aggregated)) is None


def test_prod_work_is_judged_as_other_work_where_the_prod_thresholds_are_off() -> None:
    policy = LoadPolicy(usage_pct={"cpu": 50}, prod_usage_pct={"cpu": 0})
    assert refused(a_load(cpu=900), policy, PROD) == ("cpu", 90, 50)
    on = LoadPolicy(usage_pct={"cpu": 50}, prod_usage_pct={"cpu": 0, "memory": 1})
    assert refused(a_load(cpu=900), on, PROD) is None


AGGREGATED = AggregateThresholds(usage_pct={"cpu": 10}, kind="p95", window_ms=5)
WITHOUT_KIND = AggregateThresholds(usage_pct={"cpu": 3})
WITHOUT_PCT = AggregateThresholds(kind="p95")
BASIS = UsageBasis(kind="p95", window_ms=5)


@pytest.mark.parametrize(
    ("policy", "is_prod", "thresholds", "basis"),
    [
        ({}, False, {"cpu": 65, "memory": 95}, None),
        ({"prod_usage_pct": {"cpu": 1}}, True, {"cpu": 1}, None),
        ({"prod_usage_pct": {"cpu": 1}}, False, {"cpu": 65, "memory": 95}, None),
        ({"aggregated": AGGREGATED}, False, {"cpu": 10}, BASIS),
        ({"aggregated": AGGREGATED, "prod_usage_pct": {"cpu": 1}}, True, {"cpu": 1}, None),
        ({"aggregated": WITHOUT_PCT}, False, {"cpu": 65, "memory": 95}, None),
        ({"aggregated": WITHOUT_KIND}, False, {"cpu": 65, "memory": 95}, None),
    ],
)  # fmt: skip
def test_prod_thresholds_go_before_aggregated_before_plain(
    policy: dict[str, object],
    is_prod: bool,
    thresholds: dict[str, int],
    basis: UsageBasis | None,
) -> None:
    assert LoadPolicy(**policy).thresholds_of(is_prod=is_prod) == (thresholds, basis)  # type: ignore[arg-type]


def test_an_aggregate_is_judged_in_place_of_the_newest_usage() -> None:
    load = a_load(aggregates=(Aggregate(window_ms=5, usage={"p95": {"cpu": 500}}),))
    assert refused(load, LoadPolicy(aggregated=AGGREGATED)) == ("cpu", 50, 10)


def test_prod_work_is_judged_and_scored_by_prod_usage_when_the_policy_says_so() -> None:
    policy = LoadPolicy(prod_usage_pct={"cpu": 50}, score_prod_usage=True, factors_pct={"cpu": 100}, weights={"cpu": 1})
    load = a_load(cpu=900)
    assert refused(load, policy, PROD) is None
    assert refused(load, policy, MID) is not None
    assert score(load, policy, PROD) == 99
    assert score(load, policy, MID) == 10


def test_the_scarcest_resource_counts_even_without_a_weight() -> None:
    assert weigh({"cpu": 85, "memory": 95}, {}, 10) == 85
    assert weigh({"cpu": 20, "memory": 90}, {"memory": 1}, 1) == 55
    assert weigh({"cpu": 20}, {}, 0) == 0


@pytest.mark.parametrize(("amount", "capacity", "expected"), [(0, 3, 100), (1, 3, 66), (3, 3, 0), (4, 3, 0), (0, 0, 0)])
def test_what_is_left_is_rounded_down(amount: int, capacity: int, expected: int) -> None:
    assert least_allocated_pct(amount, capacity) == expected


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        ({"usage_pct": {"cpu": 101}}, "usage_pct.cpu"),
        ({"prod_usage_pct": {"cpu": -1}}, "prod_usage_pct.cpu"),
        ({"aggregated": AggregateThresholds(usage_pct={"cpu": 1}, kind="p12")}, "aggregated.kind"),
        ({"score_basis": UsageBasis(kind="median")}, "score_basis.kind"),
        ({"score_basis": UsageBasis(kind="p95", window_ms=-1)}, "score_basis.window_ms"),
        ({"factors_pct": {"cpu": 0, "memory": 1}}, "factors_pct.cpu"),
        ({"weights": {"cpu": 101}}, "weights.cpu"),
        ({"weights": {"gpu": 1}}, "weights.gpu"),
        ({"dominant_weight": -1}, "dominant_weight"),
        ({"expiration_ms": -1}, "expiration_ms"),
    ],
)
def test_a_policy_that_breaks_a_rule_is_named(policy: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        LoadPolicy(**policy).validate()  # type: ignore[arg-type]
    assert refusal.value.field == field


def test_the_policy_as_shipped_is_valid() -> None:
    policy = LoadPolicy()
    policy.validate()
    assert policy.resources == policy.scored == ("cpu", "memory")
