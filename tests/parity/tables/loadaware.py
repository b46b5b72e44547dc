"""Load-aware placement: which nodes are too busy, how good the others are, what a pod will use."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from colo_common.model.invalid import InvalidInput
from colo_common.model.qos import (
    PriorityBand,
    band_from_priority,
    default_band,
    parse_band,
    parse_qos,
    qos_from_kubernetes,
)
from colo_scheduler.load.estimate import estimate_of
from colo_scheduler.load.filter import LoadRefusal, RefusalKind, refusal_of
from colo_scheduler.load.policy import AggregateThresholds, LoadPolicy, OwnThresholds, UsageBasis
from colo_scheduler.load.score import load_score
from colo_scheduler.load.usage import Aggregate, NodeLoad, PlacedWorkload, WorkloadLoad, WorkloadRequest
from tests.parity.table import JsonObject, table_of_kinds

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
        name=pod.get("name") or "",
        band=_band(pod),
        requests=pod.get("requests") or {},
        limits=pod.get("limits") or {},
        is_daemon=bool(pod.get("daemonset")),
        factors_pct=_own_wish(pod, "scaling_factors") or {},
        estimated_after_placed_ms=_ms(_own_wish(pod, _WISHES[0])),
        estimated_after_started_ms=_ms(_own_wish(pod, _WISHES[1])),
    )


def _placed(pod: JsonObject) -> PlacedWorkload:
    return PlacedWorkload(
        workload=_workload(pod),
        placed_at_ms=_ms(pod.get("timestamp")) or 0,
        started_at_ms=_ms(pod.get("initialized_time")),
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
        estimated_after_placed_ms=_ms(args.get(_WISHES[0])),
        estimated_after_started_ms=_ms(args.get(_WISHES[1])),
        allow_own_estimation=bool(args.get("allow_customize_estimation")),
    )


def _own(section: JsonObject | None) -> OwnThresholds | None:
    if section is None:
        return None
    return OwnThresholds(
        usage_pct=section.get("usage_thresholds") or {},
        prod_usage_pct=section.get("prod_usage_thresholds") or {},
        aggregated=_aggregated(section.get("aggregated")),
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
        workloads=tuple(
            WorkloadLoad(
                name=pod["name"],
                usage=pod.get("usage") or {},
                is_prod=pod.get("priority_class") == "koord-prod",
            )
            for pod in metric.get("pods") or ()
        ),
    )


def _sentence(refusal: LoadRefusal) -> str:
    match refusal.kind:
        case RefusalKind.EXPIRED:
            return "node(s) nodeMetric expired"
        case RefusalKind.USAGE:
            return f"node(s) {refusal.resource} usage exceed threshold"
        case RefusalKind.AGGREGATED_USAGE:
            return f"node(s) {refusal.resource} aggregated usage exceed threshold"


def _parts(
    case: JsonObject,
) -> tuple[WorkloadRequest, NodeLoad | None, list[PlacedWorkload], dict[str, int], LoadPolicy, int]:
    placed = [_placed(pod) for pod in case.get("assigned_pods") or ()]
    now_ms = _ms(case.get("now")) or 0
    args = _policy(case["args"])
    return _workload(case["pod"]), _load(case["node_metric"]), placed, case["allocatable"], args, now_ms


def _filter(case: JsonObject) -> object:
    refusal = refusal_of(*_parts(case), own=_own(case.get("node_custom")))
    shown: dict[str, Any] = {"fits": refusal is None}
    if refusal is not None:
        shown["reason"] = _sentence(refusal)
    return shown


def _score(case: JsonObject) -> object:
    return {"score": load_score(*_parts(case))}


def _estimate_pod(case: JsonObject) -> object:
    is_allowed = case.get("allow_customize_estimation", True)
    policy = LoadPolicy(factors_pct=case["factors"], allow_own_estimation=is_allowed)
    return estimate_of(_workload(case["pod"]), policy)


TABLE = table_of_kinds("loadaware", {"filter": _filter, "score": _score, "estimate_pod": _estimate_pod})
