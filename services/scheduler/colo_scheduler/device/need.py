"""What a request needs of each device, and the resource names of Kubernetes that ask for devices.

The rules of names and combinations are those of koordinator-sh/koordinator:pkg/scheduler/plugins/deviceshare/utils.go.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from colo_common.model.constraints import DeviceExclusive, DeviceRequest, DeviceScope, PartitionWish
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import DeviceShare
from colo_scheduler.device.inventory import WHOLE_PCT, DeviceRoom
from colo_scheduler.device.scope import Scope

__all__ = ["COUNT_MOST", "FPGA", "GPU", "NIC", "DeviceNeed", "check_device_requests", "devices_of_resources", "need_of"]

GPU: Final = "gpu"
NIC: Final = "nic"
FPGA: Final = "fpga"
COUNT_MOST: Final = 1_024
"""The most devices of one kind in one request."""

_SCOPES: Final = {
    DeviceScope.NODE: Scope.NODE,
    DeviceScope.NUMA_NODE: Scope.ZONE,
    DeviceScope.PCIE: Scope.PCIE,
}

_WHOLE_NAMES: Final = ("nvidia.com/gpu", "amd.com/gpu", "dcu.com/gpu")
_GPU_PERCENT: Final = "koordinator.sh/gpu"
_GPU_SHARED: Final = "koordinator.sh/gpu.shared"
_GPU_CORE: Final = "koordinator.sh/gpu-core"
_GPU_MEMORY: Final = "koordinator.sh/gpu-memory"
_GPU_RATIO: Final = "koordinator.sh/gpu-memory-ratio"
_UNIT_NAMES: Final = {"koordinator.sh/rdma": NIC, "koordinator.sh/fpga": FPGA}
_GPU_NAMES: Final = (*_WHOLE_NAMES, _GPU_PERCENT, _GPU_SHARED, _GPU_CORE, _GPU_MEMORY, _GPU_RATIO)


class DeviceNeed(Struct, frozen=True, kw_only=True):
    """`count` devices of a kind, and the same share of each: `memory_pct` or `memory_bytes` of its memory, or neither.

    A device whose memory is not known can be given as a whole, or without memory, but not in shares of memory. The devices have
    all `labels`, and lie no further apart than `scope`.
    """

    kind: str
    count: int
    core_pct: int
    memory_pct: int = 0
    memory_bytes: int = 0
    labels: frozenset[tuple[str, str]] = frozenset()
    scope: Scope = Scope.NODE
    exclusive: DeviceExclusive = DeviceExclusive.NONE
    partition: PartitionWish | None = None

    @property
    def is_whole(self) -> bool:
        """Whether nothing of a device is left for others."""
        return self.core_pct == WHOLE_PCT and self.memory_pct == WHOLE_PCT

    @property
    def is_shared(self) -> bool:
        """Whether others can use the rest of a device: less than all of its memory, or of its cores when no memory is asked for."""
        if self.memory_pct:
            return self.memory_pct < WHOLE_PCT
        return bool(self.memory_bytes) or self.core_pct < WHOLE_PCT

    def share_of(self, room: DeviceRoom) -> DeviceShare | None:
        """What the need takes of a device, None when that has too little. A percentage of memory is rounded down to bytes."""
        total = room.device.memory_bytes
        memory_bytes = self.memory_bytes or self.memory_pct * total // 100
        is_unknown = total == 0 and (self.memory_bytes or self.memory_pct) and not self.is_whole
        if is_unknown or self.core_pct > room.core_pct or memory_bytes > room.memory_bytes:
            return None
        if self.is_whole and room.is_used:
            return None
        if self.exclusive is DeviceExclusive.PCIE_LEVEL and room.is_root_used:
            return None
        device = room.device
        return DeviceShare(
            kind=device.kind,
            device=device.device,
            zone=device.zone,
            core_pct=self.core_pct,
            memory_bytes=memory_bytes,
            exclusive=self.exclusive,
        )


def need_of(request: DeviceRequest) -> DeviceNeed:
    """The need behind a request: without any share, and with devices of one's own, it asks for whole ones."""
    has_share = bool(request.core_pct or request.memory_pct or request.memory_bytes)
    is_whole = not has_share or request.exclusive is not DeviceExclusive.NONE
    return DeviceNeed(
        kind=request.kind,
        count=request.count or 1,
        core_pct=WHOLE_PCT if is_whole else request.core_pct,
        memory_pct=WHOLE_PCT if is_whole else request.memory_pct,
        memory_bytes=0 if is_whole else request.memory_bytes,
        labels=frozenset(request.labels),
        scope=_SCOPES[request.scope],
        exclusive=request.exclusive,
        partition=request.partition,
    )


def check_device_requests(requests: Sequence[DeviceRequest], field: str = "devices") -> None:
    """Raise InvalidInput for the first request that breaks a rule."""
    kinds: set[str] = set()
    for index, request in enumerate(requests):
        where = f"{field}[{index}]"
        if not request.kind:
            raise InvalidInput(f"{where}.kind", "must not be empty", request.kind)
        if request.kind in kinds:
            raise InvalidInput(f"{where}.kind", "must appear once", request.kind)
        kinds.add(request.kind)
        if not 0 <= request.count <= COUNT_MOST:
            raise InvalidInput(f"{where}.count", f"must be from 0 to {COUNT_MOST}", request.count)
        for name, value in (("core_pct", request.core_pct), ("memory_pct", request.memory_pct)):
            if not 0 <= value <= WHOLE_PCT:
                raise InvalidInput(f"{where}.{name}", f"must be from 0 to {WHOLE_PCT}", value)
        if request.memory_bytes < 0:
            raise InvalidInput(f"{where}.memory_bytes", "must not be below 0", request.memory_bytes)
        if request.memory_bytes and request.memory_pct:
            raise InvalidInput(f"{where}.memory_bytes", "must not stand beside memory_pct", request.memory_bytes)


def devices_of_resources(resources: Mapping[str, int], field: str = "resources") -> tuple[DeviceRequest, ...]:
    """The devices that Kubernetes resource names ask for, by kind; zero amounts ask for nothing.

    Percentages are of one device; above 100 they must be whole devices. Raises InvalidInput for a device that is not known and for
    combinations that contradict themselves.
    """
    asked = {name: amount for name, amount in sorted(resources.items()) if amount != 0}
    for name, amount in asked.items():
        if name not in _GPU_NAMES and name not in _UNIT_NAMES:
            known = ", ".join((*_GPU_NAMES, *_UNIT_NAMES))
            raise InvalidInput(f"{field}[{name}]", f"must be one of the known devices: {known}", name)
        if amount < 0:
            raise InvalidInput(f"{field}[{name}]", "must not be below 0", amount)
    found = [_units(kind, asked[name], f"{field}[{name}]") for name, kind in _UNIT_NAMES.items() if name in asked]
    gpu = {name: amount for name, amount in asked.items() if name in _GPU_NAMES}
    if gpu:
        found.append(_gpu(gpu, field))
    check_device_requests(found, field)
    return tuple(sorted(found, key=lambda request: request.kind))


def _units(kind: str, amount: int, field: str) -> DeviceRequest:
    count = _whole_devices(amount, field)
    return DeviceRequest(kind=kind, count=count) if count else DeviceRequest(kind=kind, core_pct=amount)


def _whole_devices(pct: int, field: str) -> int:
    """How many whole devices a percentage is; 0 when it is a part of one."""
    if pct > WHOLE_PCT and pct % WHOLE_PCT:
        raise InvalidInput(field, "must be a multiple of 100 above 100", pct)
    return pct // WHOLE_PCT


def _gpu(asked: Mapping[str, int], field: str) -> DeviceRequest:
    names = set(asked)
    if len(names) == 1 and names <= set(_WHOLE_NAMES):
        return DeviceRequest(kind=GPU, count=next(iter(asked.values())))
    if names == {_GPU_PERCENT}:
        pct = asked[_GPU_PERCENT]
        count = _whole_devices(pct, f"{field}[{_GPU_PERCENT}]")
        return DeviceRequest(kind=GPU, count=count) if count else DeviceRequest(kind=GPU, core_pct=pct, memory_pct=pct)
    memory = names & {_GPU_MEMORY, _GPU_RATIO}
    if len(memory) != 1 or names - memory - {_GPU_CORE, _GPU_SHARED}:
        raise InvalidInput(field, "must be GPUs in one of the known combinations", sorted(names))
    count = asked.get(_GPU_SHARED) or _count_by_ratio(asked.get(_GPU_RATIO, 0), f"{field}[{_GPU_RATIO}]")
    core_pct = _part(asked.get(_GPU_CORE, 0), count, f"{field}[{_GPU_CORE}]")
    memory_pct = _part(asked.get(_GPU_RATIO, 0), count, f"{field}[{_GPU_RATIO}]")
    if core_pct == memory_pct == WHOLE_PCT:
        return DeviceRequest(kind=GPU, count=count)
    memory_bytes = -(-asked.get(_GPU_MEMORY, 0) // count)
    return DeviceRequest(kind=GPU, count=count, core_pct=core_pct, memory_pct=memory_pct, memory_bytes=memory_bytes)


def _count_by_ratio(ratio_pct: int, field: str) -> int:
    return max(1, _whole_devices(ratio_pct, field))


def _part(pct: int, count: int, field: str) -> int:
    if pct % count or pct // count > WHOLE_PCT:
        raise InvalidInput(field, f"must be a multiple of {count}, at most 100 for each device", pct)
    return pct // count
