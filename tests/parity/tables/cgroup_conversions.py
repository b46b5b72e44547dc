"""Conversions between requests and kernel files, and the kernel's answers to writes.

The executor's own are those of weights, quotas and CPU lists, and the collector tells the rules of container runtimes apart; the
others are `reference only`.
"""

from __future__ import annotations

from collections.abc import Callable

from colo_collector.pod_weights import linear_weight, quadratic_weight
from colo_common.model.cpuset import CpuSet, InvalidCpuList
from colo_common.model.invalid import InvalidInput
from colo_executor import knobs
from tests.parity.peers import cgroup_conversions as conversions
from tests.parity.peers import cgroup_model
from tests.parity.peers.cgroup_model import Bandwidth
from tests.parity.peers.cpuset_model import CpusetV1Tree, effective_cpus_v2
from tests.parity.sentences import CPUSET_V1_RULES, V2_CORE_RULES, errno_for, step
from tests.parity.table import JsonObject, Reference, reference_only, table_of_kinds

_DEFAULTS = {"cpu.weight": "100", "cpu.weight.nice": "0", "cpu.idle": "0"}


def _shares_to_weight(case: JsonObject) -> object:
    shares = case["shares"]
    return {"linear_old": linear_weight(shares), "quadratic_new": quadratic_weight(shares)}


def _kernel_shares(case: JsonObject) -> object:
    """The executor writes weights on the kernel's scale."""
    return {"weight": knobs.weight_v2(case["shares"])}


def _nice_to_weight(case: JsonObject) -> object:
    try:
        return {"weight": conversions.weight_from_nice(case["nice"])}
    except InvalidInput:
        return {"errno": "ERANGE"}


def _kubelet_milli(case: JsonObject) -> object:
    mcpu, period_us = case["milli_cpu"], case["period_us"]
    if mcpu > 0 and period_us == knobs.PERIOD_US:
        quota_us = knobs.quota_us(mcpu)
        text = knobs.text_of(knobs.Knob.CPU_QUOTA, 2, quota_us)
        return {"quota_us": quota_us, "shares": knobs.weight_v1(mcpu), "cpu_max": text}
    quota_us = conversions.quota_from_mcpu(mcpu, period_us)
    text = conversions.cpu_max_text(quota_us, period_us)
    return Reference({"quota_us": quota_us, "shares": conversions.shares_from_mcpu(mcpu), "cpu_max": text})


def _swap_to_v2(case: JsonObject) -> object:
    try:
        return {"memory_swap_max": conversions.swap_max_from_v1(case["memory_swap"], case["memory"])}
    except InvalidInput:
        return {"memory_swap_max": "error"}


def _v2_write(case: JsonObject) -> object:
    name = case["file"]
    if name == "cpu.max":
        write = cgroup_model.write_cpu_max(case["text"], case.get("current", "max 100000"))
    else:
        write = cgroup_model.write_v2_cpu(name, case["text"], case.get("current", _DEFAULTS.get(name, "")))
    return {"result": write.errno or "ok"}


def _cpu_max_write(case: JsonObject) -> object:
    write = cgroup_model.write_cpu_max(case["text"], case["current"], case.get("burst_us", 0))
    return {"after": write.after} if write.errno is None else {"errno": write.errno}


def _v1_write(case: JsonObject) -> object:
    write = cgroup_model.write_v1(
        case["file"],
        case["text"],
        case["current"],
        is_idle=bool(case.get("idle", False)),
        quota_us=case.get("quota_us", cgroup_model.UNLIMITED_QUOTA_US),
    )
    return {"errno": write.errno, "after": write.after}


def _v1_child_quota(case: JsonObject) -> object:
    parent, child = Bandwidth(*case["parent_quota_period"]), Bandwidth(*case["child_new_quota_period"])
    return {"errno": cgroup_model.child_quota_errno(parent, child)}


def _v1_parent_quota(case: JsonObject) -> object:
    children = [Bandwidth(*child) for child in case["children"]]
    return {"errno": cgroup_model.parent_quota_errno(Bandwidth(*case["new_quota_period"]), children)}


def _burst_write(case: JsonObject) -> object:
    return {"errno": cgroup_model.burst_errno(case["quota_us"], case["burst_us"])}


def _quota_write_with_burst(case: JsonObject) -> object:
    return {"errno": cgroup_model.quota_errno(Bandwidth(case["new_quota_us"]), case["burst_us"])}


def _cpulist(case: JsonObject) -> object:
    try:
        cpus = CpuSet.parse(case["text"], nr_cpus=case["nr_cpus"])
    except InvalidCpuList as refused:
        return {"errno": refused.errno_name}
    return {"cpus": list(cpus), "text": cpus.format()}


def _cpuset_v1_sequence(case: JsonObject) -> object:
    tree = CpusetV1Tree(CpuSet.parse(case["root_cpus"]), CpuSet.parse(case["root_mems"]))
    return {"errno_per_step": [step(tree, words) for words in case["steps"]]}


def _cpuset_v2_effective(case: JsonObject) -> object:
    ancestors = [CpuSet.parse(text) for text in case["cpus_ancestors_first"]]
    return {"effective": effective_cpus_v2(CpuSet.parse(case["root_cpus"]), ancestors).format()}


def _memory_v1_limit(case: JsonObject) -> object:
    errno, after = cgroup_model.write_memory_v1(case["text"])
    return {"errno": errno} if errno else {"errno": None, "after": after}


def _memory_v2_limit(case: JsonObject) -> object:
    write = cgroup_model.write_memory_v2(case["text"])
    return {"errno": write.errno} if write.errno else {"after": write.after}


def _pod_path(case: JsonObject) -> object:
    pod = conversions.pod_path(case["qos"], case["uid"], case["driver"])
    container = conversions.container_path(pod, case["container_id"], case["driver"], case["runtime_prefix"])
    return {"pod": pod, "container": container}


def _expand_slice(case: JsonObject) -> object:
    try:
        return {"path": conversions.expand_slice(case["slice"])}
    except InvalidInput:
        return {"error": True}


def _systemd_quota(case: JsonObject) -> object:
    return {"cpu_quota_per_sec_usec": conversions.systemd_quota_us(case["quota_us"], case["period_us"])}


#: What no service does: it writes the files of its own groups and parses CPU lists; the kernel's answers are the kernel's.
_REFERENCE: dict[str, Callable[[JsonObject], object]] = {
    "kernel_weight_to_shares": lambda case: {"shares": conversions.kernel_shares_from_weight(case["weight"])},
    "nice_to_weight": _nice_to_weight,
    "v2_write": _v2_write,
    "systemd_quota": _systemd_quota,
    "blkio_to_io_weight": lambda case: {"io_weight": conversions.io_weight_from_blkio(case["blkio"])},
    "swap_to_v2": _swap_to_v2,
    "cpu_max_write": _cpu_max_write,
    "v2_effective_cpus": lambda case: {"cpus": conversions.effective_cpus(case["ancestors_first"])},
    "v1_write": _v1_write,
    "v1_child_quota": _v1_child_quota,
    "v1_parent_quota": _v1_parent_quota,
    "burst_write": _burst_write,
    "quota_write_with_burst": _quota_write_with_burst,
    "quota_write_order": lambda case: {"order": list(conversions.quota_write_order(case["old_us"], case["new_us"]))},
    "cpumask": lambda case: {"text": conversions.cpu_mask_text(CpuSet.from_iterable(case["cpus"]), case["nr_cpus"])},
    "cpuset_v1_rule": lambda case: {"errno": errno_for(case["rule"], CPUSET_V1_RULES)},
    "cpuset_v1_sequence": _cpuset_v1_sequence,
    "cpuset_v2_effective": _cpuset_v2_effective,
    "memory_v1_limit": _memory_v1_limit,
    "memory_v2_limit": _memory_v2_limit,
    "pod_path": _pod_path,
    "expand_slice": _expand_slice,
    "v2_core_write": lambda case: {"errno": cgroup_model.write_v2_core(case["file"], case["text"])},
    "v2_core_rule": lambda case: {"errno": errno_for(case["rule"], V2_CORE_RULES)},
}

_KINDS: dict[str, Callable[[JsonObject], object]] = {
    **{kind: reference_only(answer) for kind, answer in _REFERENCE.items()},
    "cpulist": _cpulist,
    "kubelet_milli": _kubelet_milli,
    "shares_to_weight": _shares_to_weight,
    "kernel_shares_to_weight": _kernel_shares,
}

TABLE = table_of_kinds("cgroup_conversions", _KINDS)
