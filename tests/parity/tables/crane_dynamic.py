"""Placement by published metrics: which nodes are refused, how the others score, and how hot a node is."""

from __future__ import annotations

import math

from colo_scheduler.load.dynamic import DynamicPolicy, Metric, dynamic_score, refused_by
from colo_scheduler.load.hot_value import HotPolicy, hot_value
from tests.parity.table import JsonObject, table_of_kinds

_HOT = "node_hot_value"


def _ms(seconds: float) -> int:
    """Whole milliseconds; an age below a window stays below it."""
    return math.floor(seconds * 1000)


def _number(told: object) -> float:
    """What is told, NaN when that is no number."""
    try:
        return float(told)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return math.nan


def _filter_score(case: JsonObject) -> object:
    policy = DynamicPolicy(
        sync_period_ms={name: _ms(seconds) for name, seconds in case["sync_period_s"].items()},
        limits_ratio=case.get("predicates") or {},
        weights=case.get("weights") or {},
    )
    metrics = {
        name: Metric(_number(entry["value"]), _ms(entry["age_s"]))
        for name, entry in (case.get("metrics") or {}).items()
    }
    refused = refused_by(metrics, policy, is_daemon=bool(case.get("is_daemonset")))
    return {
        "passes": refused is None,
        "rejected_by": refused,
        "score": dynamic_score(metrics, metrics.get(_HOT), policy),
    }


def _hot_value(case: JsonObject) -> object:
    policies = [HotPolicy(range_ms=_ms(entry["range_s"]), count=entry["count"]) for entry in case["hot_policies"]]
    return {"hot_value": hot_value([_ms(age) for age in case["binding_ages_s"]], policies)}


TABLE = table_of_kinds("crane_dynamic", {"filter_score": _filter_score, "hot_value": _hot_value})
