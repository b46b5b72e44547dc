"""Load-aware placement: which nodes are too busy, how good the others are, what a pod will use.

A node is written as the only row of the scheduler's table and judged as all rows are. What placed pods add is Koordinator's own
sum, so cases with any are `reference only`, as are those of pods that belong on every node.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

from msgspec.structs import replace

from colo_common.model.invalid import InvalidInput
from colo_common.model.qos import (
    PriorityBand,
    band_from_priority,
    default_band,
    parse_band,
    parse_qos,
    qos_from_kubernetes,
)
from colo_scheduler.load.rows import (
    EXPIRED,
    FIRST_RESOURCE,
    PASSES,
    IntArray,
    LoadTable,
    refusal_codes_of_rows,
    scores_of_rows,
)
from colo_scheduler.load.usage import (
    Aggregate,
    AggregateThresholds,
    LoadPolicy,
    NodeLoad,
    UsageBasis,
    WorkloadRequest,
    estimate_of,
)
from tests.parity.peers.placed_load import Estimation, Placed, PodUsage, sums_of, with_own_factors
from tests.parity.table import JsonObject, Reference, table_of_kinds

_WISHES = ("estimated_seconds_after_pod_scheduled", "estimated_seconds_after_initialized")


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _band(pod: JsonObject) -> PriorityBand:
    with suppress(InvalidInput):  # a class that nobody knows says nothing
        return parse_band(pod.get("priority_class") or "", "priority_class")
    band = band_from_priority(pod.get("priority") or 0)
    if band is not None:
        return band
    if pod.get("qos"):
        return default_band(parse_qos(pod["qos"], "qos"))
    return default_band(qos_from_kubernetes(pod.get("kube_qos", "BestEffort"), "kube_qos"))


def _own_wish(pod: JsonObject, wish: str) -> Any:
    """What a pod wishes for itself, with or without a word before it that says so; None for nothing."""
    return next((value for key, value in pod.items() if key.endswith(wish)), None)


def _workload(pod: JsonObject) -> WorkloadRequest:
    return WorkloadRequest(
        band=_band(pod),
        requests=pod.get("requests") or {},
        limits=pod.get("limits") or {},
    )


def _placed(pod: JsonObject) -> Placed:
    return Placed(
        name=pod.get("name") or "",
        workload=_workload(pod),
        placed_at_ms=_ms(pod.get("timestamp")) or 0,
        started_at_ms=_ms(pod.get("initialized_time")),
        factors_pct=_own_wish(pod, "scaling_factors") or {},
        estimated_after_placed_ms=_ms(_own_wish(pod, _WISHES[0])),
        estimated_after_started_ms=_ms(_own_wish(pod, _WISHES[1])),
    )


def _aggregated(section: JsonObject | None) -> AggregateThresholds | None:
    if section is None:
        return None
    return AggregateThresholds(
        usage_pct=section.get("usage_thresholds") or {},
        kind=section.get("usage_aggregation_type") or "",
        window_ms=_ms(section.get("usage_aggregated_duration_seconds")) or 0,
    )


def _policy(args: JsonObject) -> LoadPolicy:
    aggregated = args.get("aggregated") or {}
    kind = aggregated.get("score_aggregation_type") or ""
    window_ms = _ms(aggregated.get("score_aggregated_duration_seconds")) or 0
    return LoadPolicy(
        usage_pct=args.get("usage_thresholds") or {},
        prod_usage_pct=args.get("prod_usage_thresholds") or {},
        aggregated=_aggregated(args.get("aggregated")),
        factors_pct=args.get("estimated_scaling_factors") or {},
        weights=args.get("resource_weights") or {},
        dominant_weight=args.get("dominant_resource_weight") or 0,
        expiration_ms=_ms(args.get("node_metric_expiration_seconds")),
        filter_expired=bool(args.get("filter_expired_node_metrics")),
        place_when_expired=bool(args.get("enable_schedule_when_node_metrics_expired")),
        score_prod_usage=bool(args.get("score_according_prod_usage")),
        score_basis=UsageBasis(kind=kind, window_ms=window_ms) if kind else None,
        prod_usage_includes_system=bool(args.get("prod_usage_include_sys")),
    )


def _of_node(policy: LoadPolicy, section: JsonObject | None) -> LoadPolicy:
    """The policy as it is for a node with thresholds of its own: each section that is not empty replaces the policy's."""
    own = section or {}
    aggregated = _aggregated(own.get("aggregated"))
    return replace(
        policy,
        usage_pct=own.get("usage_thresholds") or policy.usage_pct,
        prod_usage_pct=own.get("prod_usage_thresholds") or policy.prod_usage_pct,
        aggregated=aggregated if aggregated is not None and aggregated.is_active else policy.aggregated,
    )


def _estimation(args: JsonObject) -> Estimation:
    return Estimation(
        after_placed_ms=_ms(args.get(_WISHES[0])),
        after_started_ms=_ms(args.get(_WISHES[1])),
        allow_own=bool(args.get("allow_customize_estimation")),
    )


def _load(metric: JsonObject | None) -> NodeLoad | None:
    if metric is None:
        return None
    interval_ms = _ms(metric.get("report_interval_seconds"))
    return NodeLoad(
        updated_at_ms=_ms(metric.get("update_time")),
        usage=metric.get("node_usage"),
        report_interval_ms=60_000 if interval_ms is None else interval_ms,
        system_usage=metric.get("system_usage") or {},
        aggregates=tuple(
            Aggregate(window_ms=_ms(entry["duration_seconds"]) or 0, usage=entry["usage"])
            for entry in metric.get("aggregated") or ()
        ),
    )


def _reported(metric: JsonObject | None) -> list[PodUsage]:
    return [
        PodUsage(name=pod["name"], usage=pod.get("usage") or {}, is_prod=pod.get("priority_class") == "koord-prod")
        for pod in (metric or {}).get("pods") or ()
    ]


class _Judged(NamedTuple):
    """The only node as a row of the scheduler's table, and what the newcomer is expected to use."""

    table: LoadTable
    workload: WorkloadRequest
    estimate: IntArray
    now_ms: int
    is_reference: bool


def _judged(case: JsonObject) -> _Judged:
    policy, rules, pod = (
        _of_node(_policy(case["args"]), case.get("node_custom")),
        _estimation(case["args"]),
        case["pod"],
    )
    load, placed = _load(case["node_metric"]), [_placed(each) for each in case.get("assigned_pods") or ()]
    table = LoadTable(policy, 1)
    sums = sums_of(load, _reported(case["node_metric"]), placed, policy, rules)
    table.write_sums(0, load, sums, case["allocatable"])
    workload = _workload(pod)
    estimate = _estimate(pod, workload, policy, allow_own=rules.allow_own)
    is_reference = bool(placed) or bool(pod.get("daemonset"))
    return _Judged(table, workload, table.row_of(estimate), _ms(case.get("now")) or 0, is_reference)


def _estimate(pod: JsonObject, workload: WorkloadRequest, policy: LoadPolicy, *, allow_own: bool) -> dict[str, int]:
    """A pod's own factors, where it may bring them, are those of the policy for it."""
    return estimate_of(
        workload, with_own_factors(policy, _own_wish(pod, "scaling_factors") or {}, is_allowed=allow_own)
    )


def _filter(case: JsonObject) -> object:
    table, workload, estimate, now_ms, is_reference = _judged(case)
    code = int(refusal_codes_of_rows(table.rows(1), estimate, workload.band, table.policy, now_ms)[0])
    if case["pod"].get("daemonset"):  # belongs on every node, load or not; colo places no such work
        code = PASSES
    shown: dict[str, Any] = {"fits": code == PASSES}
    if code == EXPIRED:
        shown["reason"] = "node(s) nodeMetric expired"
    elif code >= FIRST_RESOURCE:
        _, basis = table.policy.thresholds_of(is_prod=workload.band is PriorityBand.PROD)
        usage = "usage" if basis is None else "aggregated usage"
        shown["reason"] = f"node(s) {table.resources[code - FIRST_RESOURCE]} {usage} exceed threshold"
    return Reference(shown) if is_reference else shown


def _score(case: JsonObject) -> object:
    table, workload, estimate, now_ms, is_reference = _judged(case)
    shown = {"score": int(scores_of_rows(table.rows(1), estimate, workload.band, table.policy, now_ms)[0])}
    return Reference(shown) if is_reference else shown


def _estimate_pod(case: JsonObject) -> object:
    is_allowed = case.get("allow_customize_estimation", True)
    policy = LoadPolicy(factors_pct=case["factors"])
    return _estimate(case["pod"], _workload(case["pod"]), policy, allow_own=is_allowed)


TABLE = table_of_kinds("loadaware", {"filter": _filter, "score": _score, "estimate_pod": _estimate_pod})
