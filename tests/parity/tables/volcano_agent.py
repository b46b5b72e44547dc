"""Volcano's agent: how much of a node it oversubscribes, what it writes there, and when it evicts.

colo's formula, weights and evictions are others, so every case is `reference only`.
"""

from __future__ import annotations

from typing import Final

from tests.parity.peers.volcano_oversubscription import is_written, reported, sample_of
from tests.parity.table import JsonObject, reference_only, table_of_kinds
from tests.parity.tables.volcano_node_kinds import NODE_KINDS

_NAMES: Final = ("cpu_m", "memory")


def _sample(case: JsonObject) -> object:
    guaranteed = sum(case.get("guaranteed_cpu_m") or ()) if case.get("cpu_manager_policy") == "static" else 0
    allocatable, used, ratio_pct = case["allocatable"], case["usage"], case["ratio_pct"]
    return {
        "cpu_m": sample_of(allocatable["cpu_m"], used["cpu_m"], guaranteed, ratio_pct),
        "memory": sample_of(allocatable["memory"], used["memory"], 0, ratio_pct),
    }


def _report(case: JsonObject) -> object:
    kinds = {"cpu": "cpu_m", "memory": "memory"}
    counted = {kinds[name] for name in case.get("types", kinds)}
    return {name: reported([each[name] for each in case["samples"]]) if name in counted else 0 for name in _NAMES}


def _update(case: JsonObject) -> object:
    current, new = ([case[when][name] for name in _NAMES] for when in ("current", "new"))
    return {"update": is_written(case["report_no"], current, new)}


TABLE = table_of_kinds(
    "volcano_agent",
    {
        "oversub_sample": reference_only(_sample),
        "oversub_report": reference_only(_report),
        "oversub_update": reference_only(_update),
        **NODE_KINDS,
    },
)
