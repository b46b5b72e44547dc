"""The rules for the constraints of a task, alone and together with its QoS class and its request."""

from __future__ import annotations

from typing import Final

from colo_common.model.constraints import (
    Constraints,
    CpuBind,
    CpuExclusive,
    CpuPolicy,
    DeviceExclusive,
    DeviceRequest,
    DeviceScope,
    HugePages,
    JointDevices,
    NumaExclusive,
    NumaPolicy,
)
from colo_common.model.invalid import InvalidInput
from colo_common.model.node_selector import check_requirements
from colo_common.model.qos import QosClass
from colo_common.model.quantity import format_bytes, format_mcpu
from colo_common.model.workload import ResourceRequest

__all__ = ["check_constraints"]

_LABELS_MOST: Final = 64
_TOLERATIONS_MOST: Final = 32
_DEVICES_MOST: Final = 8
_DEVICE_COUNT_MOST: Final = 64
_DEVICE_LABELS_MOST: Final = 16
_GPU: Final = "gpu"
"""The only kind of device for which a node has a table of groups."""
_DEVICE_MEMORY_MOST_BYTES: Final = 1 << 46
_BANDWIDTH_MOST_BYTES_PER_S: Final = 1 << 60
_JOINT_SCOPES: Final = (DeviceScope.NUMA_NODE, DeviceScope.PCIE)
_PAGE_SIZES_MOST: Final = 4
_TEXT_MOST: Final = 253
_EXCLUSIVE: Final = (CpuPolicy.EXCLUSIVE, CpuPolicy.IMMOVABLE)


def check_constraints(place: Constraints, qos: QosClass, request: ResourceRequest, path: str = "") -> None:
    """Raise InvalidInput, with the path as a job file spells it, when constraints break a rule or contradict the QoS class.

    LSE and LSR hold whole CPUs, so their request is a multiple of 1000 milli-CPU; LS and BE only by a CPU policy.
    """
    where = f"{path}place"
    if qos.has_own_cpus and request.cpu_mcpu % 1_000:
        rule = f"must be whole CPUs: work of class {qos.value} holds CPUs of its own"
        raise InvalidInput(f"{path}cpu", rule, format_mcpu(request.cpu_mcpu))
    _check_cpus(place, qos, request, where)
    if place.numa_exclusive is not NumaExclusive.DEFAULT and place.numa_policy is NumaPolicy.NONE:
        raise InvalidInput(f"{where}.numa_exclusive", "needs a `numa_policy`", place.numa_exclusive.value)
    _check_texts(place, where)
    _check_pages(place.huge_pages, where)
    if len(place.devices) > _DEVICES_MOST:
        raise InvalidInput(f"{where}.devices", f"must be at most {_DEVICES_MOST}", len(place.devices))
    kinds = [device.kind for device in place.devices]
    if kinds != sorted(set(kinds)):
        raise InvalidInput(f"{where}.devices", "kinds must ascend without repetition", kinds)
    for device in place.devices:
        _check_device(device, f"{where}.devices.{device.kind[:63]}")
    if place.joint_devices is not None:
        _check_joint(place.joint_devices, place.devices, f"{where}.joint_devices")


def _check_cpus(place: Constraints, qos: QosClass, request: ResourceRequest, where: str) -> None:
    policy = place.cpu_policy
    if qos.has_own_cpus and policy in (CpuPolicy.NONE, CpuPolicy.NUMA):
        raise InvalidInput(f"{where}.cpu_policy", f"work of class {qos.value} holds CPUs of its own", policy.value)
    if policy is CpuPolicy.EXCLUSIVE and qos is QosClass.LS:
        raise InvalidInput(f"{where}.cpu_policy", "CPUs of one's own need the class LSE, LSR or BE", policy.value)
    binds = qos.has_own_cpus or policy in _EXCLUSIVE
    if policy in _EXCLUSIVE and request.cpu_mcpu % 1_000:
        raise InvalidInput(f"{where}.cpu_policy", "needs a request of whole CPUs", format_mcpu(request.cpu_mcpu))
    if place.cpu_bind is not CpuBind.DEFAULT and not binds:
        raise InvalidInput(f"{where}.cpu_bind", f"work of class {qos.value} binds no CPUs", place.cpu_bind.value)
    if place.cpu_exclusive is not CpuExclusive.NONE and not binds:
        raise InvalidInput(
            f"{where}.cpu_exclusive", f"work of class {qos.value} binds no CPUs", place.cpu_exclusive.value
        )
    if place.cpu_bind_required and place.cpu_bind is CpuBind.DEFAULT:
        raise InvalidInput(f"{where}.cpu_bind_required", "needs a `cpu_bind`", place.cpu_bind_required)


def _check_texts(place: Constraints, where: str) -> None:
    if len(place.node_labels) > _LABELS_MOST:
        raise InvalidInput(f"{where}.node_labels", f"must be at most {_LABELS_MOST}", len(place.node_labels))
    names = [name for name, _ in place.node_labels]
    if names != sorted(set(names)):
        raise InvalidInput(f"{where}.node_labels", "names must ascend without repetition", names[:_LABELS_MOST])
    for name, value in place.node_labels:
        if not 1 <= len(name) <= _TEXT_MOST or len(value) > _TEXT_MOST:
            rule = f"names and values are at most {_TEXT_MOST} characters"
            raise InvalidInput(f"{where}.node_labels", rule, name or value)
    check_requirements(place.node_requirements, f"{where}.node_selector")
    if len(place.tolerations) > _TOLERATIONS_MOST:
        raise InvalidInput(f"{where}.tolerations", f"must be at most {_TOLERATIONS_MOST}", len(place.tolerations))
    for number, toleration in enumerate(place.tolerations):
        if len(toleration.key) > _TEXT_MOST or len(toleration.value or "") > _TEXT_MOST:
            rule = f"keys and values are at most {_TEXT_MOST} characters"
            raise InvalidInput(f"{where}.tolerations[{number}]", rule, toleration.key)
        if not toleration.key and toleration.value is not None:
            rule = "a value needs a key; without either every taint is tolerated"
            raise InvalidInput(f"{where}.tolerations[{number}].key", rule, toleration.key)
    if len(place.reservation) > _TEXT_MOST:
        raise InvalidInput(f"{where}.reservation", f"must be at most {_TEXT_MOST} characters", place.reservation[:80])


def _check_pages(pages: tuple[HugePages, ...], where: str) -> None:
    sizes = [page.page_bytes for page in pages]
    if sizes != sorted(set(sizes)) or len(sizes) > _PAGE_SIZES_MOST:
        rule = f"page sizes must ascend without repetition, at most {_PAGE_SIZES_MOST}"
        raise InvalidInput(f"{where}.huge_pages", rule, sizes[:10])
    for page in pages:
        if page.page_bytes < 4_096 or page.page_bytes & (page.page_bytes - 1):
            raise InvalidInput(f"{where}.huge_pages", "a page size must be a power of two from 4Ki", page.page_bytes)
        if page.total_bytes < 1 or page.total_bytes % page.page_bytes:
            rule = "an amount must be whole pages, at least one"
            raise InvalidInput(
                f"{where}.huge_pages.{format_bytes(page.page_bytes)}", rule, format_bytes(page.total_bytes)
            )


def _check_device(device: DeviceRequest, where: str) -> None:
    if (
        not device.kind
        or len(device.kind) > 63
        or not device.kind.replace("-", "").isalnum()
        or not device.kind.isascii()
    ):
        raise InvalidInput(where, "a kind is letters, digits and '-', at most 63 characters", device.kind[:80])
    if device.count > _DEVICE_COUNT_MOST:
        raise InvalidInput(f"{where}.count", f"must be at most {_DEVICE_COUNT_MOST}", device.count)
    for name in ("core_pct", "memory_pct"):
        if getattr(device, name) > 100:
            raise InvalidInput(f"{where}.{name}", "must be from 1 to 100 of one device", getattr(device, name))
    if device.memory_bytes > _DEVICE_MEMORY_MOST_BYTES:
        raise InvalidInput(f"{where}.memory", f"must be at most {_DEVICE_MEMORY_MOST_BYTES} bytes", device.memory_bytes)
    if device.memory_bytes and device.memory_pct:
        raise InvalidInput(
            f"{where}.memory_pct", "must not stand beside `memory`: they say the same", device.memory_pct
        )
    if not (device.count or device.core_pct or device.memory_bytes or device.memory_pct):
        raise InvalidInput(f"{where}.count", "must be at least 1, unless a share is asked for", device.count)
    _check_device_wishes(device, where)


def _check_device_wishes(device: DeviceRequest, where: str) -> None:
    """Check the conditions of a device request: labels, exclusive use, scope and partition."""
    names = [name for name, _ in device.labels]
    if names != sorted(set(names)) or len(names) > _DEVICE_LABELS_MOST:
        rule = f"names must ascend without repetition, at most {_DEVICE_LABELS_MOST}"
        raise InvalidInput(f"{where}.labels", rule, names[:_DEVICE_LABELS_MOST])
    for name, value in device.labels:
        if not 1 <= len(name) <= _TEXT_MOST or len(value) > _TEXT_MOST:
            raise InvalidInput(
                f"{where}.labels", f"names and values are at most {_TEXT_MOST} characters", name or value
            )
    is_share = bool(device.core_pct or device.memory_bytes or device.memory_pct)
    if device.exclusive is not DeviceExclusive.NONE and is_share:
        rule = "devices of one's own are whole ones: ask for a `count`, not for a share"
        raise InvalidInput(f"{where}.exclusive", rule, device.exclusive.value)
    if device.scope is not DeviceScope.NODE and is_share and device.count > 1 and device.kind == _GPU:
        rule = "shares of several GPUs cannot be kept close to each other"
        raise InvalidInput(f"{where}.scope", rule, device.scope.value)
    if device.partition is None:
        return
    bandwidth = device.partition.bandwidth_bytes_per_s
    if bandwidth > _BANDWIDTH_MOST_BYTES_PER_S:
        rule = f"must be at most {_BANDWIDTH_MOST_BYTES_PER_S} bytes a second"
        raise InvalidInput(f"{where}.partition.bandwidth", rule, bandwidth)
    if device.kind != _GPU:
        raise InvalidInput(f"{where}.partition", f"only the kind {_GPU!r} has groups", device.partition.policy.value)
    if is_share:
        raise InvalidInput(
            f"{where}.partition", "a group is of whole GPUs, not of shares", device.partition.policy.value
        )
    if device.scope is not DeviceScope.NODE:
        rule = "must not stand beside `partition`: the group says how close its GPUs are"
        raise InvalidInput(f"{where}.scope", rule, device.scope.value)


def _check_joint(joint: JointDevices, devices: tuple[DeviceRequest, ...], where: str) -> None:
    if len(joint.kinds) < 2:
        raise InvalidInput(f"{where}.kinds", "must be at least two kinds", list(joint.kinds))
    if len(set(joint.kinds)) != len(joint.kinds):
        raise InvalidInput(f"{where}.kinds", "a kind may come once", list(joint.kinds)[: _DEVICES_MOST + 1])
    asked = [device.kind for device in devices]
    for kind in joint.kinds:
        if kind not in asked:
            raise InvalidInput(
                f"{where}.kinds", f"must be among `devices`, which has {', '.join(asked) or 'none'}", kind[:80]
            )
    if joint.scope not in _JOINT_SCOPES:
        known = " or ".join(scope.value for scope in _JOINT_SCOPES)
        raise InvalidInput(f"{where}.scope", f"must be {known}", joint.scope.value)
