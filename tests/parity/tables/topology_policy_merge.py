"""Merged NUMA hints under the topology policies of Koordinator and of the kubelet, and Koordinator's exclusive check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from colo_scheduler.numa.exclusive import ZoneExclusive, ZoneStatus, allows
from colo_scheduler.numa.mask import mask_of, zones_of
from colo_scheduler.numa.policies import Hint, PolicyVerdict, ProviderHints, TopologyPolicy, decide_scored
from colo_scheduler.peers.kubelet.policies import decide_kubelet
from tests.parity.table import JsonObject, Result, Table, difference, raised


def _mask(zones: Sequence[int] | None) -> int | None:
    return None if zones is None else mask_of(zones)


def _providers(case: JsonObject) -> list[ProviderHints]:
    return [
        {
            resource: None
            if hints is None
            else [
                Hint(_mask(hint.get("affinity")), hint.get("preferred", False), hint.get("score", 0)) for hint in hints
            ]
            for resource, hints in (provider or {}).items()
        }
        for provider in case.get("providers") or ()
    ]


def _status(case: JsonObject) -> dict[int, ZoneStatus]:
    return {zone: ZoneStatus(status) for zone, status in enumerate(case.get("numa_node_status") or ())}


def _published(verdict: PolicyVerdict) -> dict[str, object]:
    affinity = None if verdict.mask is None else list(zones_of(verdict.mask))
    return {"affinity": affinity, "preferred": verdict.preferred, "admit": verdict.is_admitted}


def _koordinator(case: JsonObject) -> dict[str, object]:
    verdict = decide_scored(
        TopologyPolicy(case["policy"]),
        case["numa_nodes"],
        _providers(case),
        ZoneExclusive(case.get("exclusive_policy") or ""),
        _status(case),
    )
    return _published(verdict) | {"unsatisfied": verdict.unsatisfied, "score": verdict.score}


def _kubelet(case: JsonObject) -> dict[str, object]:
    distances = case.get("distances") if case.get("prefer_closest_numa") else None
    return _published(decide_kubelet(TopologyPolicy(case["policy"]), case["numa_nodes"], _providers(case), distances))


def _exclusive_check(case: JsonObject) -> dict[str, object]:
    exclusive = ZoneExclusive(case.get("exclusive_policy") or "")
    return {"allowed": allows(_mask(case.get("affinity")), exclusive, _status(case))}


_IMPLEMENTATIONS = {
    "koordinator": _koordinator,
    "kubelet": _kubelet,
    "koordinator-exclusive-check": _exclusive_check,
}


def _overlap(document: JsonObject) -> int:
    found = {case["input"].get("implementation") for case in document.get("cases", ()) if "input" in case}
    return len(found & _IMPLEMENTATIONS.keys())


def _run(document: JsonObject) -> Iterator[Result]:
    for case in document.get("cases", ()):
        yield Result(case["name"], _answer(case))


def _answer(case: Any) -> str | None:
    answer = _IMPLEMENTATIONS.get(case["input"].get("implementation"))
    if answer is None:
        return f"unknown implementation {case['input'].get('implementation')!r}"
    try:
        actual = answer(case["input"])
    except Exception as error:  # the next case still runs
        return raised(error)
    # Not every case records the score and whether the hint is unsatisfied; whatever it records has to be the same.
    expected = case["expected"]
    kept = {key: value for key, value in actual.items() if key in expected or key not in ("score", "unsatisfied")}
    return difference(expected, kept)


TABLE = Table("topology_policy_merge", _overlap, _run)
