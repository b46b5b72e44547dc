"""How far batch work is held back: the target, the CPUs, the quota, and a whole turn of Koordinator's suppression."""

from __future__ import annotations

import math
from collections.abc import Iterable

from colo_common.model.cpu_topology import CpuRow
from colo_common.model.cpuset import CpuSet
from colo_executor.suppress import SuppressPolicy, bounds_mcpu, left_mcpu
from colo_executor.suppress_cpus import LEAST_CPUS, narrowed, pick
from tests.parity.peers.cpu_suppress import UNSET, HostApplication, MeteredPod, Use, grown, quota_us, use_of
from tests.parity.table import JsonObject, Reference, reference_only, table_of_kinds

_BE = "BE"


def _use(case: JsonObject, reserved_cores: float) -> Use:
    pods = [
        MeteredPod(
            uid=pod["uid"], counts=pod.get("counted", pod["qos_label"] != _BE and pod["kube_qos"] != "BestEffort")
        )
        for pod in case["pods"]
    ]
    applications = [
        HostApplication(
            counts=app.get("counted", not (app["qos"] == _BE and app["cgroup_base"] == "KubepodsBesteffort")),
            used_cores=app.get("used"),
        )
        for app in case["host_apps"]
    ]
    return use_of(case["node_used_cores"], reserved_cores, pods, case["pod_used_cores"], applications)


def _target_mcpu(case: JsonObject) -> int:
    """The target by the executor's formula; Koordinator's labels say whose use is whose.

    A floor above the threshold counts in full here; in the executor the threshold bounds it.
    """
    capacity = case["node_capacity_milli"]
    reserved = max(capacity - case["node_allocatable_milli"], case["anno_reserved_milli"] or 0)
    use = _use(case, reserved / 1_000)
    least_pct = case["min_percent"] or 0
    policy = SuppressPolicy(threshold_pct=case["threshold_percent"], floor_mcpu=0, floor_pct=least_pct)
    online = int(use.pods_cores * 1_000) + int(use.applications_cores * 1_000)
    left = left_mcpu(policy, capacity, online, int(use.system_cores * 1_000))
    if case["min_percent"] is None:
        return left
    return max(
        left, bounds_mcpu(policy, capacity)[0] if least_pct <= policy.threshold_pct else capacity * least_pct // 100
    )


def _be_target(case: JsonObject) -> object:
    return {"be_milli": _target_mcpu(case)}


def _rows(case: JsonObject) -> list[CpuRow]:
    return [
        CpuRow(cpu=row["cpu"], core=row["core"], zone=row["node"], socket=row["socket"]) for row in case["processors"]
    ]


def _pick_cpus(case: JsonObject) -> object:
    return {"cpus_in_order": pick(case["num_cpus"], _rows(case))}


def _cpus(case: JsonObject, *names: str) -> CpuSet:
    found = CpuSet()
    for name in names:
        found |= CpuSet.from_iterable(case.get(name) or ())
    return found


def _pool(case: JsonObject, rows: Iterable[CpuRow]) -> CpuSet:
    """Where batch work may run at most."""
    closed = _cpus(case, "lse_cpus", "reserved_cpus", "system_exclusive_cpus")
    return CpuSet.from_iterable(row.cpu for row in rows) - closed


def _narrowed(case: JsonObject, target_mcpu: int) -> tuple[CpuSet | None, bool]:
    """The CPUs that are written, None for none, and whether the executor alone gave the answer.

    Koordinator lets the set grow by a tenth of the machine only, and where the LSR part or the rest of the pool has fewer CPUs than
    are wanted of it, that part gives none.
    """
    rows = _rows(case)
    old, pool = CpuSet.parse(case["old_be_cpuset"]), _pool(case, rows)
    if not pool:
        return None, False
    wanted = max(math.ceil(target_mcpu / 1_000), LEAST_CPUS)
    count = grown(wanted, len(old), len(rows))
    lent = _cpus(case, "lsr_cpus") & pool
    if count == wanted <= len(pool):
        return narrowed(target_mcpu, pool, lent, rows), True
    from_lent = count * len(lent) // len(pool)
    chosen = pick(from_lent, [row for row in rows if row.cpu in lent])
    chosen += pick(count - from_lent, [row for row in rows if row.cpu in pool - lent])
    return CpuSet.from_iterable(chosen) if chosen else None, False


def _cpuset(case: JsonObject) -> object:
    cpus, is_ours = _narrowed(case, case["be_target_milli"])
    answer = {"be_cpuset": case["old_be_cpuset"] if cpus is None else cpus.format(), "skipped": cpus is None}
    return answer if is_ours else Reference(answer)


def _cfs_quota(case: JsonObject) -> object:
    return {"quota_us": quota_us(case["be_target_milli"], case["node_capacity_cores"], case["current_quota_us"])}


def _cycle(case: JsonObject) -> object:
    """One turn: the policy in force writes its file, the other policy's file is put back; switched off, both are."""
    pool = _pool(case, _rows(case)).format()
    if not case["enable"] or case["be_cpu_manager"]:
        return {"quota_us": UNSET, "be_cpuset": pool}
    if not case["pods"]:
        return {"quota_us": case["current_quota_us"], "be_cpuset": case["old_be_cpuset"]}
    target_mcpu = _target_mcpu(case)
    if case["policy"] == "cfsQuota":
        cores = -(-case["node_capacity_milli"] // 1_000)
        return {"quota_us": quota_us(target_mcpu, cores, case["current_quota_us"]), "be_cpuset": pool}
    cpus, _ = _narrowed(case, target_mcpu)
    return {"quota_us": UNSET, "be_cpuset": case["old_be_cpuset"] if cpus is None else cpus.format()}


def _split_usage(case: JsonObject) -> object:
    use = _use(case, case["node_reserved_cores"])
    return {
        "filtered_pods_cores": use.pods_cores,
        "filtered_host_apps_cores": use.applications_cores,
        "system_cores": use.system_cores,
    }


TABLE = table_of_kinds(
    "koord_cpu_suppress",
    {
        "be_target": _be_target,
        "pick_cpus": _pick_cpus,
        "cpuset": _cpuset,
        "cfs_quota": reference_only(_cfs_quota),
        "cycle": reference_only(_cycle),
        "split_usage": reference_only(_split_usage),
    },
)
