"""Koordinator's batch allocatable: the terms of a case are put into colo's formula, whose result is what batch work may get.

Upstream's own roundings and omissions are applied around it (`peers/koordinator_batch.py`). The units of published
numbers and the rule when to write them again are Koordinator's own, so those cases are `reference only`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from colo_common.model.cpuset import CpuSet
from colo_common.model.quantity import ceil_div
from colo_overcommit.allocatable import Resource
from colo_overcommit.mid import MidResource
from colo_overcommit.online_charge import CalculatePolicy, added
from colo_overcommit.reserved import ReservationForm, reserved_amount
from tests.parity.peers.koordinator_batch import differs, normalised, percent_of, split
from tests.parity.table import JsonObject, reference_only, table_of_kinds

_CLASSES: Final = {"koord-prod": 9500, "koord-mid": 7500, "koord-batch": 5500, "koord-free": 3500}
_RECLAIMED: Final = ("koord-batch", "koord-free")
_RESET: Final = {"reset": True}
#: Memory is computed in thousandths of a byte, because pods are divided over zones in these.
_FINE: Final = {"cpu": 1, "memory": 1000}
_UNIT: Final = {"cpu": "cpu_milli", "memory": "memory_bytes"}
_DEFAULT_PCT: Final = {"cpu": 60, "memory": 65}


class _Pod(NamedTuple):
    """One high-priority pod: amounts by resource; `used` None without a metric."""

    requested: Mapping[str, int]
    used: Mapping[str, int] | None
    zones: list[int]
    is_lse: bool


def _amounts(given: JsonObject | None) -> dict[str, int]:
    return {name: int((given or {}).get(unit) or 0) for name, unit in _UNIT.items()}


def _is_listed(pod: JsonObject) -> bool:
    return pod["phase"] in ("Running", "Pending")


def _pods(case: JsonObject) -> list[_Pod]:
    """The high-priority pods, and the metrics of pods that nobody knows (dangling): these ask for nothing and are used."""
    metrics = {metric["key"]: metric for metric in case["pod_metrics"]}
    listed = {pod["key"]: pod for pod in case["pods"] if _is_listed(pod)}
    found = [
        _Pod(
            _amounts(pod["request"]),
            _amounts(metrics[key]) if key in metrics else None,
            list(pod.get("numa_nodes") or ()),
            pod["qos"] == "LSE",
        )
        for key, pod in listed.items()
        if pod["priority_class"] not in _RECLAIMED
    ]
    dangling = [m for key, m in metrics.items() if key not in listed and m["priority"] not in _RECLAIMED]
    return found + [_Pod(_amounts(None), _amounts(metric), [], False) for metric in dangling]


def _system(case: JsonObject, tier: str) -> dict[str, int]:
    """What the system uses, and the host applications that are more important than the tier."""
    used = _amounts(case["system_used"])
    for application in case.get("host_apps") or ():
        if _CLASSES.get(application["priority"], 0) > _CLASSES[tier]:
            for name, amount in _amounts(application).items():
                used[name] += amount
    return used


def _reserved(node: JsonObject) -> tuple[dict[str, int], dict[str, int]]:
    """What the kubelet and what the operator's annotation keep back."""
    capacity, allocatable = _amounts(node["capacity"]), _amounts(node["allocatable"])
    annotation = node.get("reservation_annotation") or {}
    own = _amounts(annotation)
    if annotation.get("reserved_cpus"):
        own["cpu"] = len(CpuSet.parse(annotation["reserved_cpus"])) * 1000
    return {name: max(capacity[name] - allocatable[name], 0) for name in capacity}, own


def _policy(strategy: JsonObject, name: str) -> str:
    policy = strategy.get(f"{name}_calculate_policy") or CalculatePolicy.USAGE
    # Upstream has no policy `request` for CPU and takes usage without a word.
    return CalculatePolicy.USAGE if name == "cpu" and policy == CalculatePolicy.REQUEST else policy


def _is_late(case: JsonObject) -> bool:
    age = case.get("metric_age_seconds")
    return age is None or age > case["strategy"].get("degrade_time_minutes", 15) * 60


class _Place(NamedTuple):
    """The node (zone None) or one of its `count` zones, with what it has of a resource."""

    zone: int | None
    count: int
    capacity: int


def _part(amount: int, place: _Place) -> int:
    """An even share of a quantity of the node, rounded up."""
    return amount if place.zone is None else ceil_div(amount, place.count)


def _share(pod: _Pod, amount: int, place: _Place) -> int:
    return amount if place.zone is None else split(amount, pod.zones, place.count)[place.zone]


def _promised(case: JsonObject, name: str, place: _Place) -> int:
    """What batch work may get of one resource in one place, in thousandths of a byte or in milli-CPU."""
    strategy, fine = case["strategy"], _FINE[name]
    policy = _policy(strategy, name)
    kubelet, own = _reserved(case["node"])
    online = charge = lse_requested = lse_used = 0
    for pod in _pods(case):
        requested = _share(pod, pod.requested[name] * fine, place)
        used = None if pod.used is None else _share(pod, pod.used[name] * fine, place)
        if pod.is_lse and name == "cpu" and policy == CalculatePolicy.USAGE:
            # Its request counts, also where the metric says that it uses more.
            lse_requested += requested
            lse_used += min(used or 0, requested)
            online += min(used or 0, requested)
            continue
        if used is None and place.zone is None and policy == CalculatePolicy.MAX_USAGE_REQUEST:
            continue  # upstream forgets pods without a metric here
        online += used or 0
        # Koordinator charges a pod without a metric its request for ever: it is always new.
        charge += added(policy, requested, used, 0, 1) if used is None or policy != CalculatePolicy.USAGE else 0
    by_request = policy == CalculatePolicy.REQUEST
    percent = strategy.get(f"{name}_reclaim_threshold_percent", _DEFAULT_PCT[name])
    most = strategy.get(f"batch_{name}_threshold_percent")
    resource = Resource(
        capacity=place.capacity * fine,
        reclaim_pct=percent,
        reserved=_part(reserved_amount(ReservationForm.MAX, kubelet[name], own[name]) * fine, place),
        system_used=0 if by_request else _part(_system(case, "koord-batch")[name] * fine, place),
        online_used=online,
        held=0,
        lse_requested=lse_requested,
        lse_used=lse_used,
        online_added=charge,
        most=None if most is None else percent_of(place.capacity, most) * fine,
    )
    # Upstream's margin is cut where colo's rounds up.
    cut = resource.margin - percent_of(place.capacity, 100 - percent) * fine
    amount = max(resource.left - resource.margin + cut, 0)
    return amount if resource.most is None else min(amount, resource.most)


def _batch(case: JsonObject) -> object:
    if _is_late(case):
        return _RESET
    capacity = _amounts(case["node"]["capacity"])
    answer: dict[str, Any] = _batch_in(case, {name: _Place(None, 1, amount) for name, amount in capacity.items()})
    zones = case["node"].get("zones")
    if zones:
        answer["zones"] = {
            zone["name"]: _batch_in(
                case, {name: _Place(number, len(zones), amount) for name, amount in _amounts(zone).items()}
            )
            for number, zone in enumerate(zones)
        }
    return answer


def _batch_in(case: JsonObject, places: Mapping[str, _Place]) -> dict[str, Any]:
    return {
        "batch_cpu_milli": _promised(case, "cpu", places["cpu"]),
        "batch_memory_bytes": ceil_div(_promised(case, "memory", places["memory"]), _FINE["memory"]),
    }


def _mid(case: JsonObject) -> object:
    if _is_late(case):
        return _RESET
    strategy, node = case["strategy"], case["node"]
    capacity = _amounts(node["capacity"])
    kubelet, own = _reserved(node)
    system, reclaimable = _system(case, "koord-mid"), _amounts(case.get("prod_reclaimable"))
    used = case.get("node_used") or None
    requested = dict.fromkeys(capacity, 0)
    for pod in case["pods"]:
        if _is_listed(pod) and pod["priority_class"] not in (*_RECLAIMED, "koord-mid"):
            for name, amount in _amounts(pod["request"]).items():
                requested[name] += amount
    found = {}
    for name, amount in capacity.items():
        is_static = strategy.get("mid_reclaim_mode") == "static"
        found[name] = MidResource(
            capacity=amount,
            most_pct=strategy.get(f"mid_{name}_threshold_percent", 100),
            static_pct=strategy.get(f"mid_static_{name}_reserved_percent", 0) if is_static else None,
            # Of a node whose use is not known nothing counts as unused.
            used=amount if used is None else _amounts(used)[name],
            reserved=reserved_amount(ReservationForm.MAX, system[name], kubelet[name], own[name]),
            prod_requested=requested[name],
            # The table gives what Koordinator's predictor found: what is requested above the peak.
            prod_measured=reclaimable[name],
            prod_peak=0,
            unallocated_pct=strategy.get("mid_unallocated_percent", 0),
        ).allocatable
    return {"mid_cpu_milli": found["cpu"], "mid_memory_bytes": found["memory"]}


def _batch_and_mid(case: JsonObject) -> object:
    batch, mid = _batch(case), _mid(case)
    return {**batch, **mid} if isinstance(batch, dict) and isinstance(mid, dict) else batch


def _publish(case: JsonObject) -> object:
    keys = ("batch_cpu_milli", "batch_memory_bytes")
    calculated, taken = case.get("calculated") or {}, case.get("third_party_allocated")
    if case.get("reset"):
        answer: dict[str, Any] = dict.fromkeys(keys)
        return answer if taken is None else {**answer, "origin_annotation": dict.fromkeys(keys, 0)}
    before = {
        keys[0]: normalised(calculated[keys[0]], case.get("cpu_normalization_ratio")),
        keys[1]: calculated[keys[1]],
    }
    if taken is None:
        return before
    return {**{key: max(before[key] - (taken.get(key) or 0), 0) for key in keys}, "origin_annotation": before}


def _diff_threshold(case: JsonObject) -> object:
    return {"need_sync": differs(case["old_milli"], case["new_milli"], case["diff_threshold"])}


def _node_sync_diff(case: JsonObject) -> object:
    old, new = case["old"], case["new"]
    moved = [differs(old.get(key), new.get(key), case["diff_threshold"]) for key in sorted({*old, *new})]
    return {"need_sync": any(moved)}


def _pod_numa_split(case: JsonObject) -> object:
    def parts(pod: JsonObject) -> list[dict[str, int]]:
        zones, count = list(case["allocated_numa_nodes"]), case["numa_num"]
        cpu = split(pod["cpu_milli"], zones, count)
        memory = split(pod["memory_bytes"] * 1000, zones, count)
        return [{"cpu_milli": one, "memory_milli_bytes": other} for one, other in zip(cpu, memory, strict=True)]

    return {"request": parts(case["pod_request"]), "usage": parts(case["pod_usage"])}


_KINDS: Final[Mapping[str, Callable[[JsonObject], object]]] = {
    "batch": _batch,
    "mid": _mid,
    "batch_and_mid": _batch_and_mid,
    "publish": reference_only(_publish),
    "diff_threshold": reference_only(_diff_threshold),
    "node_sync_diff": reference_only(_node_sync_diff),
    "pod_numa_split": reference_only(_pod_numa_split),
}

TABLE: Final = table_of_kinds("koord_batch_allocatable", _KINDS)
