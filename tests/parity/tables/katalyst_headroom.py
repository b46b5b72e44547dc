"""Katalyst's headroom of CPU and memory. colo promises by another formula; its smoothing and its PID are estimators of colo."""

from __future__ import annotations

import math
from typing import Any, Final

from colo_overcommit.estimators.pid import PidController, PidParams
from colo_overcommit.estimators.window import SmoothingWindow, WindowBounds
from tests.parity.peers.katalyst_headroom import (
    Utilisation,
    cpu_estimate,
    evicted,
    guard_limit,
    headroom_by_use,
    memory_estimate,
    oom_priority,
    supply_of,
)
from tests.parity.table import JsonObject, reference_only, table_of_kinds

_HIGH: Final = 0.95
_BASIS: Final = 10_000
_CACHE_LEAST: Final = 1 / 6
_CACHE_MOST: Final = 1 / 3.5
_OWN: Final = ("shared_cores", "dedicated_cores")


def _supply(group: JsonObject) -> float:
    return supply_of(group["reclaim_cpus"], group["pool_usage"], group["cgroup_usage"], group["quota"], group["period"])


def _cpu_headroom(case: JsonObject) -> object:
    """What is reported: of NUMA nodes with bound pods each by itself, of the others as one group that is divided by size."""
    given = case["options"]
    options = Utilisation(given["target"], given["max"], given["oversold_rate"], given["capacity_rate"])
    is_by_use, found, total = given["util_enable"], {}, 0.0
    for group in case.get("binding") or ():
        value = float(math.ceil(_supply(group)))
        if is_by_use:
            value = headroom_by_use(_supply(group), group["cgroup_usage"], group["last"], group["numa_cpus"], options)
            value = int(value * 1000) / 1000
        found[str(group["numa"])] = value
        total += value
    group = case.get("nonbinding")
    if group:
        sizes = group["numa_cpus"]
        if is_by_use:
            cpus = sum(sizes.values())
            whole = headroom_by_use(_supply(group), group["cgroup_usage"], group["last"], cpus, options)
            value = math.ceil(whole)
            found |= {name: float(int(value * size / cpus)) for name, size in sizes.items()}
            total += value
        else:
            parts = {name: float(int(_supply(group) / len(sizes))) for name in sizes}
            found |= parts
            total += sum(parts.values())
    return {"total_cpus": total, "per_numa": found}


def _region(case: JsonObject) -> object:
    kept = case["estimation"] + case["reserved_for_allocate"] - case["reserved_for_reclaim"]
    return {"headroom": max(case["upper"] - kept, 0)}


def _estimate_cpu(case: JsonObject) -> object:
    return {
        "cpus": cpu_estimate(case["reclaim_enabled"], case["usage"], case["load_1m"], case["load_5m"], case["request"])
    }


def _memory_of(pod: JsonObject) -> float:
    return memory_estimate(
        pod["qos"], pod["reclaim_enabled"], pod["rss"], pod["cache"], pod["shmem"], pod.get("request") or 0
    )


def _estimate_memory(case: JsonObject) -> object:
    return {"bytes": _memory_of(case)}


def _pid(case: JsonObject) -> object:
    """After each step the knob that the most demanding indicator asks for."""
    upper, is_reverse = case["upper"], case["knob_direction"] == "reverse"
    columns = []
    for indicator in case["indicators"]:
        p = indicator["params"]
        pid = PidController(
            PidParams(
                p["kpp"],
                p["kpn"],
                p["kdp"],
                p["kdn"],
                p["adjust_upper"],
                p["adjust_lower"],
                p["dead_lower"],
                p["dead_upper"],
            ),
            upper,
        )
        column = []
        for step in indicator["steps"]:
            moved = pid.adjustment(step["knob"], step["target"], step["current"])
            column.append(step["knob"] + moved if is_reverse else step["knob"] - moved)
        columns.append(column)
    chosen = [max(row) if is_reverse else min(row) for row in zip(*columns, strict=True)]
    return {"values": [min(max(value, case["lower"]), upper) for value in chosen]}


def _dynamic_quota(case: JsonObject) -> object:
    free = case["numa_cpus"] * (case["target"] - case["current"]) + case["reclaim_usage"]
    return {"quota_cpus": max(free, case["reserved_for_reclaim"])}


def _smooth(case: JsonObject) -> object:
    window = SmoothingWindow(WindowBounds(case["window_size"], case["ttl"], case["min_step"], case["max_step"]))
    return {"values": [window.add(sample["t"], sample["value"]) for sample in case["samples"]]}


def _memory_canonical(case: JsonObject) -> object:
    pods = case["pods"]
    needed = sum(_memory_of(pod) for pod in pods)
    most = case["upper"] - case["reserved_for_allocate"]
    found = max(most - needed, 0.0)
    if case["util_enable"]:
        used = sum(pod["rss"] + pod["cache"] + pod["shmem"] for pod in pods if pod["qos"] in _OWN)
        system = sum(pod["cache"] + pod["shmem"] for pod in pods if pod["qos"] == "system_cores")
        watermark = case["total"] * 2 * case["scale_factor"] / _BASIS
        found += max(case["free"] * case["free_ratio"] - watermark - (needed - used + system), 0.0)
        if _CACHE_LEAST < case["cpu_mem_ratio"] < _CACHE_MOST:
            found += (case["total"] - case["used"] - case["free"]) * case["cache_ratio"]
        found += case["static"]
    return {"bytes": min(found, most)}


def _memory_numa(case: JsonObject) -> object:
    """What is free in each usable NUMA node, in requests of work that uses only a part of what it asks for."""
    usable = {name: each for name, each in case["numas"].items() if not each.get("excluded")}
    room = {name: each["free"] + each["inactive_file"] * case["cache_ratio"] for name, each in usable.items()}
    whole, total = sum(room.values()), sum(each["total"] for each in usable.values())
    reclaimed, others = case["reclaimed"], case["non_reclaimed"]
    wanted, used = _sums(reclaimed)
    factor = wanted / used if used else 1.0
    kept = 0.0
    other_wanted, other_used = _sums(others)
    if other_used is not None and other_used + (used or 0):
        spare = min(other_wanted - other_used, other_wanted * case["request_ratio"])
        kept = (total - whole) * max(spare / (other_used + (used or 0)), 0.0)
    share = case["reserved_for_allocate"] * len(usable) / case["numa_total_nodes"]
    left = max(whole - total * case["scale_factor"] / _BASIS - share - kept, 0.0)
    found = {}
    for name, amount in room.items():
        there = sum(pod["request"] / len(pod["numas"]) for pod in reclaimed if name in map(str, pod["numas"]))
        found[name] = (amount * left / whole * factor if whole else 0.0) + there
    return _bounded(found, case)


def _sums(pods: Any) -> tuple[float, float | None]:
    """What pods asked for and use; None when nobody knows what one of them uses, or there is none."""
    uses = [pod["usage"] for pod in pods]
    return sum(pod["request"] for pod in pods), None if not uses or None in uses else sum(uses)


def _bounded(found: dict[str, float], case: JsonObject) -> object:
    rate, alone = case["max_oversold_rate"], case.get("binding_limits") or {}
    if rate > 0:
        for name in [name for name in found if alone.get(name)]:
            found[name] = min(found[name], alone[name] * rate)
        shared = [name for name in found if not alone.get(name)]
        together, most = sum(found[name] for name in shared), case["reclaim_limit"] * rate
        if 0 < most < together:
            found |= {name: found[name] * most / together for name in shared}
    return {"bytes": sum(found.values()), "per_numa": found}


def _guard(case: JsonObject) -> object:
    critical = max(case["min_critical_watermark"], case["watermark_low"] * case["watermark_low_scale"])
    limit = guard_limit([(each["reclaimed_used"], each["free"]) for each in case["numas"].values()], critical)
    return {"limit": limit, "memory_high": int(limit * _HIGH)}


def _suppression(case: JsonObject) -> object:
    supply = supply_of(case["pool_cpus"], case["pool_usage"], case["cgroup_usage"], case["quota_cpus"], 1)
    victims = evicted(case["pods"], supply, case["max_tolerance"], case["min_duration_s"])
    return {"supply": supply, "evicted": victims}


def _oom(case: JsonObject) -> object:
    return {"priority": oom_priority(case["qos"], case.get("user"))}


TABLE: Final = table_of_kinds(
    "katalyst_headroom",
    {
        "cpu_headroom": reference_only(_cpu_headroom),
        "region_canonical": reference_only(_region),
        "estimate_cpu": reference_only(_estimate_cpu),
        "estimate_memory": reference_only(_estimate_memory),
        "pid_provision": _pid,
        "dynamic_quota": reference_only(_dynamic_quota),
        "smooth_window": _smooth,
        "memory_headroom_canonical": reference_only(_memory_canonical),
        "memory_headroom_numa_aware": reference_only(_memory_numa),
        "memory_guard": reference_only(_guard),
        "suppression": reference_only(_suppression),
        "oom_priority": reference_only(_oom),
    },
)
