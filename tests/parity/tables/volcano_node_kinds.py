"""The kinds of the table of Volcano's agent that say what it writes on a node, and when it evicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from colo_executor.knob_table import PERIOD_US
from colo_executor.knobs import weight_v1
from tests.parity.peers.volcano_node import (
    BatchContainer,
    OfflinePod,
    Watermarks,
    bursts_us,
    memory_values,
    pressure_ticks,
    throttle_mcpu,
    victim_of,
    weights_of,
)
from tests.parity.table import JsonObject, reference_only

__all__ = ["NODE_KINDS"]

_LEAST_QUOTA_US: Final = 1_000
_NO_LIMIT: Final = -1
_EXTENDED_LEVEL_MOST: Final = 1

_Write = list[object]


def _cpu_throttle(case: JsonObject) -> object:
    target = case["allocatable_m"] * case["threshold_pct"] // 100 - case["used_m"]
    quota = throttle_mcpu(target, case["last_quota_m"], case["jitter_pct"], case["recover_pct"])
    return {"emit": False} if quota is None else {"emit": True, "quota_m": quota}


def _quota_us(mcpu: int) -> int:
    return _NO_LIMIT if mcpu < 0 else max(mcpu * PERIOD_US // 1_000, _LEAST_QUOTA_US)


def _quota_text(version: int, quota_us: int) -> str:
    if version == 1:
        return str(quota_us)
    return "max" if quota_us == _NO_LIMIT else f"{quota_us} {PERIOD_US}"


def _quota_write(case: JsonObject) -> object:
    return {"value": _quota_text(case["cgroup"], _quota_us(case["quota_m"]))}


def _pressure(case: JsonObject) -> object:
    marks = Watermarks(high=case["high_pct"], low=case["low_pct"])
    ticks = pressure_ticks(marks, case["samples_pct"])
    return {"ticks": [{"evict_for": names, "recover": recovers} for names, recovers in ticks]}


def _evict_pick(case: JsonObject) -> object:
    pods = [
        OfflinePod(
            name=pod["name"],
            level=pod["qos_level"],
            request=pod[case["resource"]],
            is_critical=pod.get("critical", False),
        )
        for pod in case["pods"]
    ]
    victim = victim_of(pods)
    return {"evicted": victim, "taint": victim is not None}


def _containers(case: JsonObject) -> list[BatchContainer]:
    return [
        BatchContainer(
            name=found["name"],
            request_mcpu=found.get("req_cpu_m"),
            limit_mcpu=found.get("lim_cpu_m"),
            limit_bytes=found.get("lim_mem"),
        )
        for found in case["containers"]
    ]


def _extend_v1(case: JsonObject) -> object:
    def quota(limit_mcpu: int) -> object:
        return _quota_us(limit_mcpu or _NO_LIMIT)

    def memory(limit_bytes: int) -> object:
        return limit_bytes or _NO_LIMIT

    names = ("cpu.shares", "cpu.cfs_quota_us", "memory.limit_in_bytes")
    return {"writes": _writes(_containers(case), names, (weight_v1, quota, memory))}


def _extend_v2(case: JsonObject) -> object:
    def weight(request_mcpu: int) -> object:
        return str(weights_of(request_mcpu))

    def quota(limit_mcpu: int) -> object:
        return f"{_quota_us(limit_mcpu) if limit_mcpu else 'max'} {PERIOD_US}"

    def memory(limit_bytes: int) -> object:
        return str(limit_bytes) if limit_bytes else "max"

    names = ("cpu.weight", "cpu.max", "memory.max")
    return {"writes": _writes(_containers(case), names, (weight, quota, memory))}


def _writes(
    containers: Sequence[BatchContainer], names: Sequence[str], forms: Sequence[Callable[[int], object]]
) -> list[_Write]:
    """The writes of each container, then those of the pod: the sums, a limit only where every container has one."""
    rows = [(each.request_mcpu, each.limit_mcpu, each.limit_bytes) for each in containers]
    writes: list[_Write] = [
        [container.name, name, form(amount)]
        for container, row in zip(containers, rows, strict=True)
        for name, form, amount in zip(names, forms, row, strict=True)
        if amount is not None
    ]
    for index, (name, form) in enumerate(zip(names, forms, strict=True)):
        given = [row[index] for row in rows if row[index] is not None]
        is_limit = index > 0
        if given and not (is_limit and len(given) < len(rows)):
            # One container without a limit makes the pod one without.
            writes.append(["", name, form(0 if is_limit and 0 in given else sum(given))])
    return writes


def _cpu_burst(case: JsonObject) -> object:
    if case.get("enable") != "true":
        return {"changed": False}
    bursts = bursts_us(case.get("burst_us"), case["container_quota_us"])
    answer: dict[str, object] = {"changed": True, "container_burst_us": bursts}
    return answer | ({"pod_burst_us": sum(bursts.values())} if case["pod_quota_us"] > 0 else {})


def _memory_qos(case: JsonObject) -> object:
    config = {"high": 100, "low": 0, "min": 0, **(case.get("config") or {})}
    found = {"lim": case.get("lim") or 0, "req": case.get("req") or 0}
    if case["qos_level"] <= _EXTENDED_LEVEL_MOST:
        # A batch amount of 0 counts: the container has no limit, or asks for nothing.
        found |= {name: case[f"{name}_batch"] for name in found if case.get(f"{name}_batch") is not None}
    return memory_values(found["lim"], found["req"], config["high"], config["low"], config["min"])


NODE_KINDS: Final[Mapping[str, Callable[[JsonObject], object]]] = {
    name: reference_only(answer)
    for name, answer in {
        "cpu_throttle": _cpu_throttle,
        "quota_write": _quota_write,
        "pressure": _pressure,
        "evict_pick": _evict_pick,
        "extend_v1": _extend_v1,
        "extend_v2": _extend_v2,
        "cpu_burst": _cpu_burst,
        "memory_qos": _memory_qos,
    }.items()
}
"""By kind the answer; colo's ceiling, weights and evictions follow other rules, so that all are `reference only`."""
