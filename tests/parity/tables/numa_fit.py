"""Filters and scores over zones: scheduler-plugins' NodeResourceTopology and Crane's topology-aware filter.

A service fits one request at a time and takes the fewest zones; scores of nodes by zones, and pods of several containers, are
`reference only`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from colo_common.model.node_rules import NodeRules
from colo_common.model.resource_list import ResourceList
from colo_scheduler.numa.amounts import ZoneAmounts
from colo_scheduler.numa.least_zones import ZONE_ID_END, DistantZone, KubeQos, least_zones
from colo_scheduler.numa.mask import EXHAUSTIVE_ZONES
from colo_scheduler.numa.policies import TopologyPolicy
from colo_scheduler.numa.rule import FitContext, ZoneAssignment
from colo_scheduler.peers.crane.awareness import AwareNode, AwarePod, AwareZone, PodContainer, filter_aware
from colo_scheduler.peers.registry import NUMA_MANAGERS
from tests.parity.peers.least_zones import score_least_zones, score_of_count
from tests.parity.peers.zone_filter import PodRequest, Scope, effective_request, refuse_pod
from tests.parity.peers.zone_scores import Strategy, score_node
from tests.parity.table import JsonObject, Reference, Result, Table, difference, kind_of, raised, reference_only


def _pod(case: JsonObject) -> PodRequest:
    pod = case["pod"]
    return PodRequest(
        KubeQos(case.get("qos", "Guaranteed")),
        tuple(container.get("requests", {}) for container in pod["containers"]),
        tuple(container.get("requests", {}) for container in pod.get("init_containers", ())),
    )


def _policy(case: JsonObject) -> TopologyPolicy:
    return TopologyPolicy(case.get("policy") or "none")


def _zones(zones: list[Any]) -> list[ZoneAmounts]:
    return [ZoneAmounts(zone["id"], 0, zone["available"]) for zone in zones]


def _distant(zones: list[Any]) -> list[DistantZone]:
    return [
        DistantZone(
            zone["id"], zone["available"], {int(other): cost for other, cost in (zone.get("costs") or {}).items()}
        )
        for zone in zones
    ]


def _filter(case: JsonObject) -> object:
    """A guaranteed pod of one container that asks for what zones have is what a service fits; all others are no replica's."""
    zones = None if case.get("zones") is None else _zones(case["zones"])
    scope, pod, policy = Scope(case.get("scope") or "container"), _pod(case), _policy(case)
    request = _one_request(pod, scope)
    if zones and request is not None and _is_fitted(policy, pod, request, zones, case["node_allocatable"]):
        found = NUMA_MANAGERS["kubelet"].fit_zones(policy, zones, request, FitContext(), NodeRules())
        if isinstance(found, ZoneAssignment):
            return {"fits": True}
        return {"fits": False, "reason": f"cannot align {'pod' if scope is Scope.POD else 'container'}"}
    refusal = refuse_pod(policy, scope, pod, zones, case["node_allocatable"])
    return Reference({"fits": True} if refusal is None else {"fits": False, "reason": refusal})


def _one_request(pod: PodRequest, scope: Scope) -> ResourceList | None:
    """What a pod asks for at once, None where its containers ask one after the other."""
    if len(pod.containers) == 1 and not pod.init_containers:
        return pod.containers[0]
    return effective_request(pod) if scope is Scope.POD else None


def _is_fitted(
    policy: TopologyPolicy,
    pod: PodRequest,
    request: ResourceList,
    zones: list[ZoneAmounts],
    node_allocatable: ResourceList,
) -> bool:
    """Whether a service decides this: one zone as the kubelet's strictest policy has it, of resources that zones have."""
    delivered = {name for zone in zones for name in zone.free}
    return (
        policy is TopologyPolicy.SINGLE
        and pod.qos is KubeQos.GUARANTEED
        and len(zones) <= EXHAUSTIVE_ZONES
        and all(zone.zone < ZONE_ID_END for zone in zones)
        and all(name in delivered and name in node_allocatable for name, amount in request.items() if amount)
    )


def _score(case: JsonObject) -> dict[str, object]:
    policy, scope, strategy = _policy(case), Scope(case.get("scope") or "container"), Strategy(case["strategy"])
    scores = {
        node["name"]: score_node(
            policy, scope, strategy, _pod(case), _zones(node.get("zones") or []), case.get("resource_weights", {})
        )
        for node in case["nodes"]
    }
    best = max(scores.values(), default=0)
    return {
        "best_node": next((name for name in scores if scores[name] == best), None),
        "best_score": best,
        "all_scores": scores,
    }


def _least_numa_score(case: JsonObject) -> dict[str, object]:
    return {
        node["name"]: score_least_zones(
            Scope(case["scope"]), _pod(case), _distant(node["zones"]), case.get("max_numa_nodes", 8)
        )
        for node in case["nodes"]
    }


def _numa_required(case: JsonObject) -> dict[str, object]:
    qos = KubeQos(case.get("qos", "Guaranteed"))
    found = least_zones(qos, case["requests"], _distant(case["zones"]))
    if found is None:
        return {"numa_nodes": None, "min_distance": False}
    return {"numa_nodes": list(found.zones), "min_distance": found.is_closest}


def _normalize(case: JsonObject) -> dict[str, object]:
    return {"score": score_of_count(case["numa_nodes_count"], case["optimal_distance"], case.get("max_numa_nodes", 8))}


def _crane(case: JsonObject) -> object:
    if case.get("cpu_policy") == "none" or case.get("daemonset"):  # the plugin does not act on these; no replica is one
        return Reference({"fits": True, "zone_result": None, "score": 0})
    pod = AwarePod(
        tuple(PodContainer(each.get("requests", {}), each.get("limits", {})) for each in case["containers"]),
        case.get("pod_aware"),
    )
    node = None
    if case.get("zones") is not None:
        node = AwareNode(
            case["cpu_manager_policy"] == "static",
            case["topology_manager_policy"] == "single-numa-node-pod-level",
            tuple(AwareZone(zone["name"], zone["allocatable"]) for zone in case["zones"]),
            tuple(case.get("allocated", ())),
        )
    verdict = filter_aware(pod, node, case.get("aware_resources", ("cpu",)))
    if verdict.reason:
        return {"fits": False, "reason": verdict.reason}
    return {
        "fits": True,
        "zone_result": None if verdict.result is None else dict(verdict.result),
        "score": verdict.score,
    }


_KINDS = {
    "filter": _filter,
    "score": reference_only(_score),
    "least_numa_score": reference_only(_least_numa_score),
    "numa_required": _numa_required,
    "normalize": reference_only(_normalize),
    "crane_filter_score": _crane,
}
#: An input key that tells a kind of this table from the same word elsewhere.
_MARKS = {"filter": "node_allocatable", "score": "strategy"}
#: What a case may leave out of its expected result.
_OPTIONAL = ("reason", "zone_result", "score", "all_scores")


def _overlap(document: JsonObject) -> int:
    found = set()
    for case in document.get("cases", ()):
        kind = kind_of(case)
        if kind in _KINDS and _MARKS.get(kind, "kind") in case["input"]:
            found.add(kind)
    return len(found)


def _run(document: JsonObject) -> Iterator[Result]:
    for case in document.get("cases", ()):
        kind = kind_of(case)
        if kind not in _KINDS:
            yield Result(case["name"], f"unknown kind {kind!r}")
            continue
        try:
            answer = _KINDS[kind](case["input"])
        except Exception as error:  # the next case still runs
            yield Result(case["name"], raised(error))
            continue
        is_reference = isinstance(answer, Reference)
        actual: Any = answer.value if isinstance(answer, Reference) else answer
        yield Result(case["name"], _failure(kind, case, actual), is_reference=is_reference)


def _failure(kind: str, case: Any, actual: Any) -> str | None:
    expected = dict(case["expected"])
    scores = actual.get("all_scores")
    if kind == "score" and isinstance(scores, Mapping) and scores.get(expected["best_node"]) == actual["best_score"]:
        actual["best_node"] = expected["best_node"]  # several nodes may share the best score
    if kind == "crane_filter_score" and actual.get("zone_result") is None and not expected.get("zone_result"):
        expected.pop("zone_result", None)
        actual.pop("zone_result", None)
    kept = {key: value for key, value in actual.items() if key in expected or key not in _OPTIONAL}
    return difference(expected, kept)


TABLE = Table("numa_fit", _overlap, _run)
