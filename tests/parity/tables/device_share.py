"""Devices: groups of GPUs, the closest scope, and devices that are asked for jointly. The cases carry no kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from colo_common.model.constraints import DeviceRequest, DeviceScope, JointDevices, PartitionPolicy, PartitionWish
from colo_common.model.placement import DeviceShare
from colo_common.model.topology import Device, DevicePartition
from colo_scheduler.devices.choose import DeviceChoice, DeviceLocality, choose_devices
from colo_scheduler.devices.inventory import DeviceInventory
from colo_scheduler.devices.layout import NO_PARTITIONS, GpuPartitions, partitions_of_model
from colo_scheduler.devices.need import GPU
from tests.parity.table import JsonObject, Result, Table, difference, raised

NIC = "nic"
_SCOPES = {
    "": DeviceScope.NODE,
    "Node": DeviceScope.NODE,
    "NUMANode": DeviceScope.NUMA_NODE,
    "PCIe": DeviceScope.PCIE,
}


def _devices(kind: str, rows: list[Mapping[str, Any]]) -> list[Device]:
    return [Device(kind=kind, device=row["minor"], zone=row["numa"], pcie=row["pcie"]) for row in rows]


def _inventory(case: JsonObject) -> DeviceInventory:
    devices = _devices(GPU, case["gpus"]) + _devices(NIC, case.get("rdmas") or [])
    inventory = DeviceInventory(devices)
    zones = {(device.kind, device.device): device.zone for device in devices}
    used = [(GPU, minor) for minor in case.get("used_gpus") or ()]
    used += [(NIC, minor) for minor in case.get("used_rdmas_fully") or ()]
    for index, (kind, minor) in enumerate(used):
        inventory.hold((f"other/task/{index}", 1), [DeviceShare(kind=kind, device=minor, zone=zones[kind, minor])])
    return inventory


def _partitions(case: JsonObject) -> GpuPartitions:
    table = case.get("partition_table")
    by_size = partitions_of_model(case.get("gpu_model") or "")
    if table is not None:
        by_size = {
            int(size): tuple(
                DevicePartition(
                    devices=tuple(row["minors"]), score=row.get("score", 0), bandwidth_bytes_per_s=row.get("bandwidth")
                )
                for row in rows
            )
            for size, rows in table.items()
        }
    policy = case.get("gpu_partition_policy") or ("Honor" if by_size is not None else "Prefer")
    return GpuPartitions(by_size=by_size, is_honored=policy == "Honor")


def _locality(case: JsonObject) -> DeviceLocality:
    joint = JointDevices(kinds=(GPU, NIC), required=case.get("joint_scope") == "SamePCIe")
    return DeviceLocality(joint=joint if case.get("joint") else None)


def _wish(case: JsonObject) -> PartitionWish | None:
    if not case.get("ring_bandwidth") and not case.get("restricted"):
        return None
    policy = PartitionPolicy.BEST if case.get("restricted") else PartitionPolicy.HONOR
    return PartitionWish(policy=policy, bandwidth_bytes_per_s=case.get("ring_bandwidth") or 0)


def _requests(case: JsonObject, scope: DeviceScope) -> list[DeviceRequest]:
    requests = []
    if case.get("gpu_wanted"):
        requests.append(DeviceRequest(kind=GPU, count=case["gpu_wanted"], scope=scope, partition=_wish(case)))
    units = case.get("rdma_wanted") or 0
    if units > 100:
        requests.append(DeviceRequest(kind=NIC, count=units // 100))
    elif units:
        requests.append(DeviceRequest(kind=NIC, core_pct=units))
    return requests


def _ways(case: JsonObject) -> Iterator[tuple[DeviceScope, GpuPartitions]]:
    """What is tried in turn. The recorded choice looks for a group first, and at the scope only where none has to be found."""
    partitions = _partitions(case)
    scope = _SCOPES.get(case.get("required_scope") or "")
    is_grouped = partitions.is_honored or _wish(case) is not None
    if is_grouped or (scope is not DeviceScope.NODE and partitions.by_size is not None):
        yield DeviceScope.NODE, GpuPartitions(by_size=partitions.by_size, is_honored=True)
    if not is_grouped and not case.get("gpu_wanted"):
        yield DeviceScope.NODE, partitions
    elif not is_grouped and scope is not None:  # no scope holds devices closer than a PCIe root
        yield scope, partitions if scope is DeviceScope.NODE else NO_PARTITIONS


def _choose(case: JsonObject) -> object:
    inventory, locality = _inventory(case), _locality(case)
    for scope, partitions in _ways(case):
        requests = _requests(case, scope)
        found = choose_devices(inventory, requests, locality=locality, partitions=partitions)
        if isinstance(found, DeviceChoice):
            chosen: dict[str, list[int]] = {}
            for share in found.shares:
                chosen.setdefault("gpu" if share.kind == GPU else "rdma", []).append(share.device)
            return chosen
        gpus = [request for request in requests if request.kind == GPU]
        if partitions.is_honored and isinstance(choose_devices(inventory, gpus, partitions=partitions), DeviceChoice):
            break  # a group that was found is kept to, whatever else is missing
    return {"error": True}


def _overlap(document: JsonObject) -> int:
    cases = document.get("cases")
    return int(
        isinstance(cases, list)
        and any(isinstance(case, Mapping) and _is_ours(case.get("input")) and "kind" not in case for case in cases)
    )


def _is_ours(found: object) -> bool:
    return isinstance(found, Mapping) and "gpus" in found and "kind" not in found


def _run(document: JsonObject) -> Iterator[Result]:
    for case in document["cases"]:
        name = str(case.get("name", "a case without a name"))
        if not _is_ours(case.get("input")) or "expected" not in case:
            yield Result(name, "must have an input with gpus, and an expected result")
            continue
        try:
            found = _choose(case["input"])
        except Exception as error:  # a case that our code cannot answer is a failed case, and the next one still runs
            yield Result(name, raised(error))
            continue
        yield Result(name, difference(case["expected"], found))


TABLE = Table("device_share", _overlap, _run)
