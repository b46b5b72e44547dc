"""Classes, bands and admission of pods; pools and CPU sets of nodes; group identity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from colo_collector.kubelet import pinned_pods, read_checkpoint
from colo_common.model.cpu_accumulator import take_sockets_first
from colo_common.model.cpu_topology import CpuRow, CpuTopology
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.qos import PriorityBand, QosClass, is_legal_pair
from colo_common.model.withheld import NodeReservation, divide_by_zones, reserved_cpus
from colo_executor.kept_cpus import KeptCpus
from colo_executor.online import CpuHold, pools_of
from colo_scheduler.cpus.qos_binding import ResourceSpec, bind
from tests.parity.peers.container_cpuset import (
    CpusetRule,
    GivenCpus,
    ZoneCpus,
    ZonePool,
    cpus_of_host_application,
    cpus_of_workload,
)
from tests.parity.peers.cpu_pools import SharedPool, union, without
from tests.parity.peers.effective_qos import effective, effective_of_pod, labelled_band, labelled_qos
from tests.parity.peers.group_identity import (
    ClassIdentity,
    IdentityRule,
    OwnIdentity,
    Sysctl,
    identity_of_workload,
    identity_rule,
)
from tests.parity.peers.kubelet_pods import RunningPod, topology_policy, unmanaged
from tests.parity.peers.node_reservation import system_cpus, zones_less_reserved
from tests.parity.peers.pod import QOS_LABEL, Amounts, Container, KubernetesQos, Pod, kubernetes_qos
from tests.parity.peers.pod_admission import Refusal, refusals
from tests.parity.table import JsonObject, Reference, reference_only, table_of_kinds

_SYSCTL: dict[object, Sysctl] = {True: "on", False: "off", None: "absent", "unreadable": "unreadable"}


def _amounts(found: JsonObject) -> Amounts:
    return Amounts(
        cpu_mcpu=found.get("cpu_milli") or 0,
        memory_bytes=found.get("memory_bytes") or 0,
        batch_cpu_mcpu=found.get("batch-cpu") or 0,
        batch_memory_bytes=found.get("batch-memory") or 0,
    )


def _pod(found: JsonObject | None) -> Pod | None:
    if found is None:
        return None
    status = found.get("status_qos_class")
    return Pod(
        labels=found.get("labels") or {},
        priority=found.get("priority"),
        containers=tuple(
            Container(requests=_amounts(each.get("requests") or {}), limits=_amounts(each.get("limits") or {}))
            for each in found.get("containers") or ()
        ),
        status_qos=KubernetesQos(status) if status else None,
    )


def _labels(name: str) -> dict[str, str]:
    return {QOS_LABEL: name} if name else {}


def _qos(name: str) -> QosClass | None:
    return labelled_qos(_labels(name))


def _name(qos: QosClass | None) -> str:
    return "" if qos is None else qos.value


def _band(band: PriorityBand | None) -> str:
    return "" if band is None else f"koord-{band.value}"


def _qos_raw(case: JsonObject) -> object:
    pod = _pod(case["pod"])
    return {"qos": "" if pod is None else _name(labelled_qos(pod.labels))}


def _priority_class_raw(case: JsonObject) -> object:
    pod = _pod(case["pod"])
    return {"priority_class": "" if pod is None else _band(labelled_band(pod.labels, pod.priority))}


def _kube_qos(case: JsonObject) -> object:
    pod = _pod(case["pod"])
    return {"kube_qos": "" if pod is None else kubernetes_qos(pod).value}


def _effective(case: JsonObject) -> object:
    kubernetes = KubernetesQos(case["kube_qos"]) if case.get("kube_qos") else None
    found = effective(_labels(case.get("qos_label") or ""), case.get("priority"), kubernetes)
    return {
        "qos_raw": _name(found.labelled_qos),
        "qos": _name(found.qos),
        "priority_class_raw": _band(found.labelled_band),
        "priority_class": _band(found.band),
        "priority": found.priority,
    }


def _admission(case: JsonObject) -> object:
    pod = _pod(case["new_pod"])
    before = _pod(case.get("old_pod")) if case["operation"] == "UPDATE" else None
    assert pod is not None
    reasons = None if before is not None else refusals_of_job(pod)
    if reasons is not None:
        return {"allowed": not reasons, "reasons": [reason.value for reason in reasons]}
    reasons = refusals(pod, before, keeps_priority_label=not case.get("skip_priority_validation", False))
    return Reference({"allowed": not reasons, "reasons": [reason.value for reason in reasons]})


def refusals_of_job(pod: Pod) -> tuple[Refusal, ...] | None:
    """What colo has against a job of the pod's class, band and request; None for a pod that no job can be.

    A job names class and band, and asks for batch CPU by its class. Of LSE and SYSTEM colo demands more than Koordinator does.
    """
    qos, band = labelled_qos(pod.labels), labelled_band(pod.labels, pod.priority)
    asks_batch = bool(pod.request.batch_cpu_mcpu or pod.request.batch_memory_bytes)
    if qos not in (QosClass.LSR, QosClass.LS, QosClass.BE) or band is None or (asks_batch and qos is not QosClass.BE):
        return None
    found = [] if is_legal_pair(qos, band) else [Refusal.FORBIDDEN_COMBINATION]
    try:
        own = bind(ResourceSpec(), qos=qos, band=PriorityBand.PROD, cpu_mcpu=pod.request.cpu_mcpu)
    except InvalidInput:
        found.append(Refusal.CPU_REQUEST_NOT_INTEGER)
    else:
        if own is None and qos.has_own_cpus:
            found.append(Refusal.CPU_REQUEST_REQUIRED)
    return tuple(found)


def _zone_pools(found: Any) -> tuple[ZonePool, ...]:
    return tuple(ZonePool(zone=pool["node"], cpus=pool["cpuset"]) for pool in found or ())


def _container_cpuset(case: JsonObject) -> object:
    if case.get("annotation_invalid"):
        return {"cpuset": None, "error": True}
    alloc = case.get("alloc") or {}
    zones = tuple(
        ZoneCpus(
            zone=each["node"], cpu_mcpu=each.get("cpu_milli") or 0, batch_cpu_mcpu=each.get("batch_cpu_milli") or 0
        )
        for each in alloc.get("numa") or ()
    )
    rule = CpusetRule(
        ls_pools=_zone_pools(case.get("ls_pools")),
        be_pools=_zone_pools(case.get("be_pools")),
        system_cpus=case.get("system_cpuset") or "",
        is_kubelet_static=case.get("kubelet_policy") == "static",
        has_be_zones=bool(case.get("be_cpu_manager")),
    )
    given = GivenCpus(cpus=alloc.get("cpuset") or "", zones=zones)
    is_known = case.get("rule_present", True)
    qos = _qos(case.get("qos_label") or "")
    cpus = cpus_of_workload(rule if is_known else None, given, qos, case["kube_qos"])
    return {"cpuset": cpus, "error": False}


def _host_app_cpuset(case: JsonObject) -> object:
    try:
        cpus = cpus_of_host_application(CpusetRule(ls_pools=_zone_pools(case.get("ls_pools"))), _qos(case["qos"]))
    except InvalidInput:
        return {"cpuset": None, "error": True}
    return {"cpuset": cpus, "error": False}


def _identity(found: JsonObject | None) -> ClassIdentity:
    """A class that the policy does not mention is not enabled."""
    found = found or {}
    return ClassIdentity(is_enabled=bool(found.get("enable")), identity=found.get("group_identity") or 0)


def _bvt_rule(case: JsonObject) -> object:
    classes = case["classes"]
    rule = identity_rule(
        lsr=_identity(classes.get("LSR")),
        ls=_identity(classes.get("LS")),
        be=_identity(classes.get("BE")),
        is_policy=case.get("cpu_policy") in (None, "", "groupIdentity"),
    )
    return {
        "enable": rule.is_enabled,
        "pod_qos": {qos.value: value for qos, value in rule.by_qos.items()},
        "kube_qos_dir": rule.by_directory,
        "kube_qos_pod": rule.by_kubernetes_qos,
    }


def _bvt_pod(case: JsonObject) -> object:
    found, own = case["rule"], case.get("cpu_qos_annotation")
    rule = None
    if found is not None:
        rule = IdentityRule(
            is_enabled=found["enable"],
            by_qos={QosClass[name]: value for name, value in (found.get("pod_qos") or {}).items()},
            by_directory=found.get("kube_qos_dir") or {},
            by_kubernetes_qos=found.get("kube_qos_pod") or {},
        )
    asked = None
    if own is not None:
        asked = OwnIdentity(is_enabled=own.get("enable") is True, identity=own.get("groupIdentity"))
    value = identity_of_workload(
        rule,
        _qos(case.get("qos_label") or ""),
        case.get("kube_qos") or "",
        asked,
        is_supported=case.get("system_supported", True),
        sysctl=_SYSCTL[case.get("sysctl_enabled")],
    )
    return {"bvt": value}


def _topology(found: list[JsonObject]) -> CpuTopology:
    return CpuTopology.from_rows(
        CpuRow(cpu=row["cpu"], core=row["core"], zone=row["node"], socket=row["socket"]) for row in found
    )


def _list_or_none(text: str) -> CpuSet:
    """A list as its reader takes it: what cannot be read is no CPU."""
    try:
        return CpuSet.parse(text)
    except InvalidInput:
        return CpuSet()


def _running(found: list[JsonObject] | None) -> list[RunningPod]:
    return [
        RunningPod(uid=pod["uid"], qos=_qos(pod.get("qos_label") or ""), cpus=_list_or_none(pod.get("cpuset") or ""))
        for pod in found or ()
    ]


def _system(found: JsonObject | None) -> CpuSet:
    return CpuSet() if found is None else system_cpus(found.get("cpuset") or "", found.get("exclusive"))


def _shown_pools(pools: tuple[SharedPool, ...]) -> list[dict[str, object]]:
    return [{"socket": pool.socket, "node": pool.zone, "cpuset": pool.cpus.format()} for pool in pools]


def _cpu_pools(case: JsonObject) -> object:
    topology, pods = _topology(case["topology"]), _running(case.get("pods"))
    is_static = case.get("kubelet_policy") == "static"
    pinned = pinned_pods(unmanaged(case.get("cpu_manager_entries") or {}, pods)) if is_static else ()
    # LSE alone keeps BE off; whoever else holds CPUs holds them as LSR does.
    holds = [
        CpuHold(owner=pod.uid, qos=QosClass.LSE if pod.qos is QosClass.LSE else QosClass.LSR, cpus=pod.cpus, cpu_mcpu=0)
        for pod in pods
        if pod.cpus
    ]
    everything = CpuSet(topology.all_mask)
    kept = union(pod.cpus for pod in pinned)
    reserved = reserved_cpus(topology, NodeReservation(cpus=case.get("node_reserved_cpus") or ""))
    before = pools_of(everything, holds, KeptCpus(withheld=kept))
    withheld = kept | reserved | _system(case.get("system_qos"))
    after = pools_of(everything, holds, KeptCpus(withheld=withheld))
    return {
        "ls_pools": _by_zone(topology, before.ls, after.ls),
        "be_pools": _by_zone(topology, before.be, after.be),
        "kubelet_allocated": [{"uid": pod.uid, "cpuset": pod.cpus.format()} for pod in pinned],
    }


def _by_zone(topology: CpuTopology, before: CpuSet, after: CpuSet) -> list[dict[str, object]]:
    """A pool zone by zone: those with a CPU before the node withheld any, by socket, with what they have after."""
    shown = []
    for zone in topology.zone_ids:
        here = before & topology.cpus_of_zone(zone)
        if here:
            socket = topology.socket_ids[topology.socket_of_cpu[next(iter(here))]]
            shown.append({"socket": socket, "node": zone, "cpuset": (after & here).format()})
    return sorted(shown, key=lambda pool: (pool["socket"], pool["node"]))


def _kubelet_checkpoint(case: JsonObject) -> object:
    try:
        entries = read_checkpoint(case["checkpoint"] or "")
    except InvalidInput:
        return {"error": True, "allocations": None}
    pods = _running(case.get("pods"))
    pinned = pinned_pods(unmanaged(entries, pods))
    shown = {"error": False, "allocations": [{"uid": pod.uid, "cpuset": pod.cpus.format()} for pod in pinned]}
    return Reference(shown) if pods else shown


def _remove_system_cpus(case: JsonObject) -> object:
    """Where nothing is withheld, lists stay as they are written; from a list that cannot be read on, so do all that follow."""
    written, system = case["pools"] or [], _system(case.get("system_qos"))
    readable: list[SharedPool] = []
    for pool in written if system else ():
        try:
            cpus = CpuSet.parse(pool["cpuset"])
        except InvalidInput:
            break
        readable.append(SharedPool(socket=pool["socket"], zone=pool["node"], cpus=cpus))
    return {"pools": [*_shown_pools(without(readable, system)), *written[len(readable) :]]}


def _node_reserved(case: JsonObject) -> object:
    found = case.get("reservation") or {}
    reservation = NodeReservation(cpus=found.get("reserved_cpus") or "", cpu_mcpu=found.get("cpu_milli") or 0)
    return {"reserved_cpus": reserved_cpus(_topology(case["topology"]), reservation).format()}


def _take_by_topology(case: JsonObject) -> object:
    cpus = take_sockets_first(_topology(case["topology"]), CpuSet.parse(case["available"]), case["count"])
    return {"cpus": None if cpus is None else cpus.format()}


def _numa_reservation(case: JsonObject) -> object:
    allocatable = {zone: amounts.get("allocatable") or {} for zone, amounts in case["zones_milli"].items()}
    reserved = case.get("kubelet_reserved_milli") or {}
    return {"allocatable_milli": zones_less_reserved(allocatable, reserved, case["zone_count"])}


#: What no service does: colo's jobs name class and band, executors write the CPUs that placements name, and no other system's
#: annotations are read.
_REFERENCE: dict[str, Callable[[JsonObject], object]] = {
    "qos_raw": _qos_raw,
    "priority_class_raw": _priority_class_raw,
    "priority_class_default": lambda case: {"priority_class": _band(effective_of_pod(_pod(case["pod"])).band)},
    "priority_value_default": lambda case: {"priority": effective_of_pod(_pod(case["pod"])).priority},
    "kube_qos": _kube_qos,
    "effective": _effective,
    "container_cpuset": _container_cpuset,
    "host_app_cpuset": _host_app_cpuset,
    "bvt_rule": _bvt_rule,
    "bvt_pod": _bvt_pod,
    "remove_system_cpus": _remove_system_cpus,
    "topology_policy": lambda case: {
        "topology_policy": topology_policy(case.get("policy") or "", case.get("scope") or "")
    },
    "numa_reservation": _numa_reservation,
}

_KINDS: dict[str, Callable[[JsonObject], object]] = {
    **{kind: reference_only(answer) for kind, answer in _REFERENCE.items()},
    "admission": _admission,
    "cpu_pools": _cpu_pools,
    "kubelet_checkpoint": _kubelet_checkpoint,
    "node_reserved": _node_reserved,
    "take_by_topology": _take_by_topology,
    "divide_by_zones": lambda case: {"milli_value": divide_by_zones(case["milli_value"], case["zones"])},
}

TABLE = table_of_kinds("koord_qos_mapping", _KINDS)
