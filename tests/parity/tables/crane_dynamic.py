"""Placement by published metrics: which nodes are refused, how the others score, and how hot a node is."""

from __future__ import annotations

import math

import numpy as np

from colo_scheduler.peers.crane.dynamic_loads import (
    DynamicPolicy,
    MetricColumn,
    dynamic_scores_of_rows,
    refused_by_of_rows,
)
from colo_scheduler.peers.crane.hot_value import Arrivals, HotPolicy
from tests.parity.table import JsonObject, Reference, table_of_kinds

_HOT = "node_hot_value"


def _ms(seconds: float) -> int:
    """Whole milliseconds; an age below a window stays below it."""
    return math.floor(seconds * 1000)


def _number(delivered: object) -> float:
    """What is told, NaN when that is no number."""
    try:
        return float(delivered)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return math.nan


def _column(entry: JsonObject) -> MetricColumn:
    """A metric of the only node."""
    return MetricColumn(np.array([_number(entry["value"])]), np.array([_ms(entry["age_s"])], dtype=np.int64))


def _filter_score(case: JsonObject) -> object:
    policy = DynamicPolicy(
        sync_period_ms={name: _ms(seconds) for name, seconds in case["sync_period_s"].items()},
        limits_ratio=case.get("predicates") or {},
        weights=case.get("weights") or {},
    )
    columns = {name: _column(entry) for name, entry in (case.get("metrics") or {}).items()}
    number = int(refused_by_of_rows(columns, 1, policy)[0])
    is_daemon = bool(case.get("is_daemonset"))  # belongs on every node, load or not; colo places no such work
    refused = None if number < 0 or is_daemon else list(policy.limits_ratio)[number]
    answer = {
        "passes": refused is None,
        "rejected_by": refused,
        "score": int(dynamic_scores_of_rows(columns, columns.get(_HOT), 1, policy)[0]),
    }
    return Reference(answer) if is_daemon else answer


def _hot_value(case: JsonObject) -> object:
    policies = [HotPolicy(range_ms=_ms(entry["range_s"]), count=entry["count"]) for entry in case["hot_policies"]]
    arrivals = Arrivals(policies)
    for number, age_s in enumerate(case["binding_ages_s"]):
        arrivals.add(0, (f"pod/{number}", 1), -_ms(age_s))
    return {"hot_value": arrivals.hot_value_of(0, 0)}


TABLE = table_of_kinds("crane_dynamic", {"filter_score": _filter_score, "hot_value": _hot_value})
