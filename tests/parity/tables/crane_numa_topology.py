"""Crane's topology-aware filter: which zones a pod with whole guaranteed CPUs gets, and the score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from colo_common.model.resource_list import CPU, MEMORY
from colo_scheduler.peers.crane.awareness import (
    AwareNode,
    AwarePod,
    AwareVerdict,
    AwareZone,
    PodContainer,
    filter_aware,
)
from tests.parity.table import JsonObject, Result, Table, difference, raised

_SPELT = {CPU: "cpu_milli", MEMORY: "memory_bytes"}
_READ = {spelt: name for name, spelt in _SPELT.items()}
_UPSTREAM_DEFECT = "expected_reproduces_upstream_defect"


def _amounts(spelt: Mapping[str, Any]) -> dict[str, int]:
    return {_READ.get(key, key): value for key, value in spelt.items() if isinstance(value, int)}


def _container(container: Mapping[str, Any]) -> PodContainer:
    parts: dict[str, dict[str, int]] = {"request": {}, "limit": {}}
    for key, value in container.items():
        which, _, name = key.partition("_")
        if which in parts and value is not None:
            parts[which][_READ.get(name, name)] = value
    return PodContainer(parts["request"], parts["limit"])


def _holder(pod: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    # A result that names no zone of memory stands for none at all.
    for result in (pod.get("topology_result"), pod.get("assumed_result")):
        zones = [zone for zone in result or () if zone.get("type", "Node") == "Node"]
        if zones:
            return {zone["name"]: _amounts(zone) for zone in zones}
    return {}


def _decide(case: JsonObject) -> AwareVerdict:
    pod, delivered = case["pod"], case.get("node")
    node = None
    if delivered is not None:
        node = AwareNode(
            delivered.get("crane_cpu_manager_policy") == "Static",
            delivered.get("topology_manager_policy") == "SingleNUMANodePodLevel",
            tuple(AwareZone(zone["name"], _amounts(zone.get("allocatable") or {})) for zone in delivered["zones"]),
            tuple(_holder(each) for each in case.get("existing_pods", ())),
        )
    wanted = AwarePod(
        tuple(_container(each) for each in pod["containers"]),
        pod.get("topology_awareness"),
    )
    return filter_aware(wanted, node, case.get("aware_resources", (CPU,)))


def _is_left_alone(pod: Mapping[str, Any]) -> bool:
    """Whether Crane's plugin does not act on a pod, whatever its node is. No replica of colo is such a pod."""
    return pod.get("cpu_policy") == "none" or bool(pod.get("is_daemonset"))


def _published(verdict: AwareVerdict) -> dict[str, object]:
    if verdict.reason:
        return {"status": "unschedulable", "reason": verdict.reason, "result": None, "score": None}
    delivered: dict[str, object] = {"status": "ok", "reason": None, "result": None, "score": verdict.score}
    if verdict.result is not None:
        delivered["result"] = [{"name": name} | _spelt(amounts) for name, amounts in verdict.result]
    if verdict.unassigned is not None:
        delivered["unassigned"] = _spelt(verdict.unassigned)
    return delivered


def _spelt(amounts: Mapping[str, int]) -> dict[str, int]:
    return {_SPELT.get(name, name): amount for name, amount in amounts.items()}


def _overlap(document: JsonObject) -> int:
    return int(any("aware_resources" in c["input"] and "node" in c["input"] for c in _cases(document)))


def _cases(document: JsonObject) -> list[Any]:
    return [case for case in document.get("cases", ()) if isinstance(case, Mapping) and "input" in case]


def _run(document: JsonObject) -> Iterator[Result]:
    for case in document.get("cases", ()):
        failure, is_reference = _answer(case), _is_left_alone(case["input"]["pod"])
        # A case that records a mistake of the other system is not required; it counts when it holds anyway.
        is_required = case.get("defect") != _UPSTREAM_DEFECT
        yield Result(case["name"], failure, failure is None or is_required, is_reference)


def _answer(case: Any) -> str | None:
    try:
        verdict = AwareVerdict() if _is_left_alone(case["input"]["pod"]) else _decide(case["input"])
        actual = _published(verdict)
    except Exception as error:  # the next case still runs
        return raised(error)
    expected = {key: value for key, value in case["expected"].items() if key != "tie"}
    kept = {key: value for key, value in actual.items() if key in expected or key != "unassigned"}
    return difference(expected, kept)


TABLE = Table("crane_numa_topology", _overlap, _run)
