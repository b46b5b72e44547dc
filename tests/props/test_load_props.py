"""Load, scorers and eligibility: all rows at once give the integers that each node gives alone."""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from colo_common.model.node_selector import Operator, Requirement, Selector, selects
from colo_common.model.qos import PriorityBand
from colo_scheduler.cluster.labels import LabelColumns
from colo_scheduler.load.rows import (
    EXPIRED,
    FIRST_RESOURCE,
    IntArray,
    LoadTable,
    loads_passing,
    overloads_of_rows,
    refusal_codes_of_rows,
    scores_of_rows,
    usage_pct_of_rows,
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
    resource_of,
)
from colo_scheduler.peers.crane.dynamic_loads import (
    DynamicPolicy,
    Metric,
    MetricColumn,
    dynamic_score,
    dynamic_scores_of_rows,
    refused_by_of_rows,
)
from colo_scheduler.peers.crane.hot_value import Arrivals, HotPolicy
from tests.parity.peers.placed_load import Estimation, Placed, PodUsage, sums_of
from tests.support.load_twin import NO_SUMS, RefusalKind, hot_value, load_score, refusal_of, refused_by
from tests.support.profiles import examples

NOW_MS = 1_000_000
RESOURCES = ("cpu", "memory")
small = st.integers(0, 120)
amounts = st.fixed_dictionaries({}, optional=dict.fromkeys(RESOURCES, small | st.integers(0, 1 << 46)))
pcts = st.fixed_dictionaries({}, optional=dict.fromkeys(RESOURCES, st.integers(0, 100)))
bands = st.sampled_from(PriorityBand)
kinds = st.sampled_from(["avg", "p95"])
windows = st.sampled_from([0, 5, 10])


@st.composite
def workloads(draw: st.DrawFn) -> WorkloadRequest:
    band = draw(bands)
    placement_requests = {resource_of(resource, band): amount for resource, amount in draw(amounts).items()}
    limits = {resource_of(resource, band): amount for resource, amount in draw(amounts).items()}
    return WorkloadRequest(band=band, requests=placement_requests, limits=limits)


@st.composite
def placed_lists(draw: st.DrawFn) -> list[Placed]:
    return [
        Placed(name=f"w{number}", workload=draw(workloads()), placed_at_ms=NOW_MS - draw(st.integers(0, 120)))
        for number in range(draw(st.integers(0, 3)))
    ]


loads = st.none() | st.builds(
    NodeLoad,
    updated_at_ms=st.none() | st.integers(NOW_MS - 120, NOW_MS),
    usage=st.none() | amounts,
    report_interval_ms=st.integers(0, 60),
    system_usage=amounts,
    aggregates=st.lists(
        st.builds(Aggregate, window_ms=st.sampled_from([5, 10]), usage=st.dictionaries(kinds, amounts)), max_size=3
    ).map(tuple),
)
reported_pods = st.lists(
    st.builds(PodUsage, name=st.sampled_from(["w0", "w1", "ghost"]), usage=amounts, is_prod=st.booleans()),
    max_size=3,
    unique_by=lambda report: report.name,
)
estimations = st.builds(Estimation, after_placed_ms=st.none() | st.integers(0, 120))
aggregated = st.none() | st.builds(AggregateThresholds, usage_pct=pcts, kind=kinds, window_ms=windows)
policies = st.builds(
    LoadPolicy,
    usage_pct=pcts,
    prod_usage_pct=pcts,
    aggregated=aggregated,
    factors_pct=st.fixed_dictionaries(dict.fromkeys(RESOURCES, st.integers(1, 200))),
    weights=st.fixed_dictionaries({}, optional=dict.fromkeys(RESOURCES, st.integers(1, 100))),
    dominant_weight=st.integers(0, 100),
    expiration_ms=st.none() | st.integers(0, 120),
    filter_expired=st.booleans(),
    place_when_expired=st.booleans(),
    score_prod_usage=st.booleans(),
    score_basis=st.none() | st.builds(UsageBasis, kind=kinds, window_ms=windows),
    prod_usage_includes_system=st.booleans(),
)


class Written(NamedTuple):
    """A node: its report, what is placed there, and how large it is."""

    load: NodeLoad | None
    reported: list[PodUsage]
    placed: list[Placed]
    rules: Estimation
    capacity: dict[str, int]

    def sums(self, policy: LoadPolicy) -> Sums:
        return sums_of(self.load, self.reported, self.placed, policy, self.rules)

    def write(self, table: LoadTable, row: int) -> None:
        table.write_sums(row, self.load, self.sums(table.policy), self.capacity)


nodes = st.builds(Written, loads, reported_pods, placed_lists(), estimations, amounts)


def expected_of(table: LoadTable, workload: WorkloadRequest) -> IntArray:
    return table.row_of(estimate_of(workload, table.policy))


@examples(2)
@given(policies, st.lists(nodes, min_size=1, max_size=4), workloads())
def test_verdicts_and_scores_of_all_nodes_are_those_of_each(
    policy: LoadPolicy,
    cluster: list[Written],
    newcomer: WorkloadRequest,
) -> None:
    table = LoadTable(policy, size=1)
    for row, node in enumerate(cluster):
        node.write(table, row)
    rows, estimate = table.rows(len(cluster)), expected_of(table, newcomer)
    codes = refusal_codes_of_rows(rows, estimate, newcomer.band, policy, NOW_MS).tolist()
    passing = loads_passing(rows, estimate, newcomer.band, policy, NOW_MS).tolist()
    scores = scores_of_rows(rows, estimate, newcomer.band, policy, NOW_MS).tolist()
    _, pct, most = overloads_of_rows(rows, estimate, newcomer.band, policy, NOW_MS)
    for row, node in enumerate(cluster):
        refusal = refusal_of(newcomer, node.load, node.sums(policy), node.capacity, policy, NOW_MS)
        if refusal is None:
            expected = 0
        elif refusal.kind is RefusalKind.EXPIRED:
            expected = EXPIRED
        else:
            expected = FIRST_RESOURCE + table.resources.index(refusal.resource)
            assert (int(pct[row]), int(most[row])) == (refusal.used_pct, refusal.threshold_pct)
        assert codes[row] == expected
        assert passing[row] == (refusal is None)
        assert scores[row] == load_score(newcomer, node.load, node.sums(policy), node.capacity, policy, NOW_MS)
        assert 0 <= scores[row] <= 100


tight = st.fixed_dictionaries(dict.fromkeys(RESOURCES, st.integers(0, 40)))


@examples(2)
@given(
    st.fixed_dictionaries(dict.fromkeys(RESOURCES, st.integers(40, 80))),
    st.lists(st.tuples(tight, st.sampled_from([0, 9, 10, 11])), min_size=8, max_size=8),
    st.integers(1, 20),
    st.sampled_from([0, 10]),
    st.booleans(),
)
def test_verdicts_agree_next_to_every_threshold_and_at_expiry(
    thresholds: dict[str, int],
    cluster: list[tuple[dict[str, int], int]],
    asked: int,
    expiration_ms: int,
    place_when_expired: bool,
) -> None:
    policy = LoadPolicy(
        usage_pct=thresholds,
        factors_pct=dict.fromkeys(RESOURCES, 100),
        expiration_ms=expiration_ms,
        place_when_expired=place_when_expired,
    )
    newcomer = WorkloadRequest(band=PriorityBand.PROD, requests={"cpu": asked, "memory": 21 - asked})
    table, capacity = LoadTable(policy), dict.fromkeys(RESOURCES, 40)
    reports = [NodeLoad(updated_at_ms=NOW_MS - age_ms, usage=usage) for usage, age_ms in cluster]
    for row, load in enumerate(reports):
        table.write_sums(row, load, NO_SUMS, capacity)
    rows, estimate = table.rows(len(reports)), expected_of(table, newcomer)
    codes = refusal_codes_of_rows(rows, estimate, newcomer.band, policy, NOW_MS).tolist()
    again, pct, most = overloads_of_rows(rows, estimate, newcomer.band, policy, NOW_MS)
    assert again.tolist() == codes
    for code, load, numbers in zip(codes, reports, zip(pct.tolist(), most.tolist(), strict=True), strict=True):
        refusal = refusal_of(newcomer, load, NO_SUMS, capacity, policy, NOW_MS)
        assert numbers == ((0, 0) if refusal is None else (refusal.used_pct, refusal.threshold_pct))
        named = None if refusal is None else refusal.resource
        assert named == {0: None, EXPIRED: ""}.get(code, RESOURCES[(code - FIRST_RESOURCE) % len(RESOURCES)])


@given(policies, nodes, workloads(), st.integers(0, 3))
def test_placing_newcomers_one_by_one_equals_writing_the_node_again(
    policy: LoadPolicy,
    node: Written,
    newcomer: WorkloadRequest,
    count: int,
) -> None:
    table, again = LoadTable(policy), LoadTable(policy)
    node.write(table, 0)
    is_prod = newcomer.band is PriorityBand.PROD
    table.place_estimate(0, expected_of(table, newcomer) * (count + 1), is_prod=is_prod)
    table.place_estimate(0, -expected_of(table, newcomer), is_prod=is_prod)
    more = [Placed(name="fresh", workload=newcomer, placed_at_ms=NOW_MS)] * count
    node._replace(placed=[*node.placed, *more]).write(again, 0)
    for name in ("filter_used", "score_used", "prod_used"):
        assert getattr(table.rows(1), name).tolist() == getattr(again.rows(1), name).tolist()


@given(policies, nodes, workloads())
def test_a_score_never_rises_because_something_is_placed(
    policy: LoadPolicy,
    node: Written,
    newcomer: WorkloadRequest,
) -> None:
    table = LoadTable(policy)
    node.write(table, 0)
    estimate = expected_of(table, newcomer)
    before = scores_of_rows(table.rows(1), estimate, newcomer.band, policy, NOW_MS)[0]
    table.place_estimate(0, estimate, is_prod=newcomer.band is PriorityBand.PROD)
    after = scores_of_rows(table.rows(1), estimate, newcomer.band, policy, NOW_MS)[0]
    assert after <= before


ratios = st.floats(allow_nan=True, allow_infinity=True) | st.integers(0, 120).map(lambda pct: pct / 100)
metrics = st.dictionaries(st.sampled_from("abc"), st.builds(Metric, ratios, st.integers(0, 400_000)))
shares = st.floats(0, 1) | st.integers(0, 100).map(lambda pct: pct / 100)
dynamic_policies = st.builds(
    DynamicPolicy,
    sync_period_ms=st.fixed_dictionaries(dict.fromkeys("abc", st.sampled_from([0, 1, 50_000]))),
    limits_ratio=st.dictionaries(st.sampled_from("abc"), shares),
    weights=st.dictionaries(st.sampled_from("abc"), shares),
)


def columns_of(metrics: Sequence[Mapping[str, Metric]], policy: DynamicPolicy) -> dict[str, MetricColumn]:
    """The metrics of some nodes as columns, one for each metric that the policy names."""
    columns = {}
    for name in dict.fromkeys((*policy.limits_ratio, *policy.weights)):
        found = [entry.get(name) for entry in metrics]
        columns[name] = MetricColumn(
            np.array([math.nan if metric is None else metric.value for metric in found], dtype=np.float64),
            np.array([0 if metric is None else metric.age_ms for metric in found], dtype=np.int64),
        )
    return columns


@examples(2)
@example(
    policy=DynamicPolicy(sync_period_ms={"a": 50_000}, weights={"a": 1e6}, limits_ratio={}),
    cluster=[({"a": Metric(1.8e306, 0)}, Metric(0.0, 0)), ({"a": Metric(0.25, 0)}, Metric(0.0, 0))],
)
@given(
    dynamic_policies,
    st.lists(st.tuples(metrics, st.builds(Metric, ratios, st.integers(0, 400_000))), min_size=1, max_size=5),
)
def test_metrics_of_all_nodes_judge_as_those_of_each(
    policy: DynamicPolicy, cluster: list[tuple[dict[str, Metric], Metric]]
) -> None:
    columns = columns_of([entry for entry, _ in cluster], policy)
    hot = columns_of([{"a": heat} for _, heat in cluster], DynamicPolicy(weights={"a": 1.0}, limits_ratio={}))["a"]
    names = list(policy.limits_ratio)
    refused = [names[number] if number >= 0 else None for number in refused_by_of_rows(columns, len(cluster), policy)]
    assert refused == [refused_by(entry, policy) for entry, _ in cluster]
    scores = dynamic_scores_of_rows(columns, hot, len(cluster), policy).tolist()
    assert scores == [dynamic_score(entry, heat, policy) for entry, heat in cluster]
    assert all(0 <= score <= 100 for score in scores)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60), st.sampled_from(["come", "go", "look"])), max_size=40),
    st.lists(st.builds(HotPolicy, range_ms=st.integers(1, 100), count=st.integers(1, 4)), max_size=3),
)
def test_heat_of_all_nodes_is_that_of_each(story: list[tuple[int, int, str]], hot: list[HotPolicy]) -> None:
    arrivals = Arrivals(hot)
    there: dict[tuple[int, int], int] = {}
    for row, number, what in sorted(story, key=lambda each: each[1]):
        guest = (row, number % 5)
        if what == "look":
            assert arrivals.hot_value_of(row, number) == hot_value(ages(there, row, number), hot)
        elif what == "go":
            there.pop(guest, None)
            arrivals.drop(row, ("job/t/0", guest[1]))
        else:
            # It is told again and again, and came when it was told first.
            there.setdefault(guest, number)
            arrivals.add(row, ("job/t/0", guest[1]), there[guest])
    expected = [hot_value(ages(there, node, 100), hot) for node in range(4)]
    assert arrivals.hot_values(4, 100).tolist() == expected
    assert [arrivals.hot_value_of(node, 100) for node in range(4)] == expected


def ages(there: dict[tuple[int, int], int], row: int, now_ms: int) -> list[int]:
    return [now_ms - at_ms for (node, _), at_ms in there.items() if node == row]


keys = st.sampled_from("abc")
values = st.sampled_from(["", "x", "1", "7", "-3", "007", "9" * 30])
some = st.lists(values, min_size=1).map(tuple)
number = st.tuples(st.integers(-9, 9).map(str))
requirements = st.one_of(
    st.builds(Requirement, key=keys, operator=st.sampled_from([Operator.IN, Operator.NOT_IN]), values=some),
    st.builds(Requirement, key=keys, operator=st.sampled_from([Operator.EXISTS, Operator.DOES_NOT_EXIST])),
    st.builds(Requirement, key=keys, operator=st.sampled_from([Operator.GT, Operator.LT]), values=number),
)  # fmt: skip


@given(
    st.lists(st.tuples(st.integers(0, 5), st.dictionaries(keys, values)), max_size=12),
    st.builds(
        Selector,
        labels=st.dictionaries(keys, values, max_size=2),
        requirements=st.lists(requirements, max_size=3).map(tuple),
    ),
)
def test_labels_of_all_nodes_are_selected_as_those_of_each(
    written: list[tuple[int, dict[str, str]]], selector: Selector
) -> None:
    selector.validate()
    columns, labels = LabelColumns(size=1), [dict[str, str]() for _ in range(7)]
    for row, entry in written:
        columns.write(row, entry)
        labels[row] = entry
    assert columns.selected(selector, 7).tolist() == [selects(selector, entry) for entry in labels]


@given(st.integers(0, 1 << 40), st.integers(1, 1 << 40))
def test_usage_is_the_nearest_percent(amount: int, capacity: int) -> None:
    found = usage_pct_of_rows(np.array([amount]), np.array([capacity]))
    assert found.tolist() == [math.floor(Fraction(100 * amount, capacity) + Fraction(1, 2))]
