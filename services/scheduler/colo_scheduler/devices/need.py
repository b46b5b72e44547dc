"""The need of a request of each device, and the Kubernetes resource names that request devices; how well a device or a node suits
it.

The rules of names and combinations are those of koordinator-sh/koordinator:pkg/scheduler/plugins/deviceshare/utils.go.

The score of a device or a node is 0 to 100: the more is left, or when packing the less, the better.
"""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from colo_common.model.constraints import DeviceExclusive, DeviceRequest, DeviceScope, PartitionWish
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import DeviceShare
from colo_scheduler.devices.inventory import WHOLE_PCT, DeviceInventory, FreeDevice, ProximityScope
from colo_scheduler.scorers.allocation import least_allocated_pct, most_allocated_pct

__all__ = [
    "DeviceNeed",
    "GPU",
    "check_device_requests",
    "device_score",
    "need_of",
    "node_score",
]

GPU: Final = "gpu"
COUNT_MOST: Final = 1_024
"""The most devices of one kind in one request."""

_SCOPES: Final = {
    DeviceScope.NODE: ProximityScope.NODE,
    DeviceScope.NUMA_NODE: ProximityScope.ZONE,
    DeviceScope.PCIE: ProximityScope.PCIE,
}


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
    scope: ProximityScope = ProximityScope.NODE
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

    def share_of(self, free_device: FreeDevice) -> DeviceShare | None:
        """The part of a device that the need takes, None when the device has too little. A percentage of memory is rounded down to
        bytes.
        """
        total = free_device.device.memory_bytes
        memory_bytes = self.memory_bytes or self.memory_pct * total // 100
        is_unknown = total == 0 and (self.memory_bytes or self.memory_pct) and not self.is_whole
        if is_unknown or self.core_pct > free_device.core_pct or memory_bytes > free_device.memory_bytes:
            return None
        if self.is_whole and free_device.is_used:
            return None
        if self.exclusive is DeviceExclusive.PCIE_LEVEL and free_device.is_root_used:
            return None
        device = free_device.device
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


def device_score(need: DeviceNeed, free_device: FreeDevice, *, packs: bool) -> int:
    """The score of one device after it has given the share: by memory where that is known, else by cores.

    least = (total - used) * 100 / total, most = used * 100 / total, rounded down
    (koordinator-sh/koordinator:deviceshare/scoring.go). A share larger than the device scores 0, or 100 when packing.
    """
    total, free, wanted = _figures(need, free_device)
    return _pct(packs)(total - free + wanted, total)


def node_score(inventory: DeviceInventory, requests: Sequence[DeviceRequest], *, packs: bool) -> int:
    """The score of a node after it has given all shares: the mean over the kinds asked for, rounded down; 0 without any."""
    scores: list[int] = []
    for need in (need_of(request) for request in requests):
        figures = [_figures(need, free_device) for free_device in inventory.free_devices(need.kind)]
        total = sum(figure[0] for figure in figures)
        if total == 0:
            scores.append(0)
            continue
        wanted = need.count * max(figure[2] for figure in figures)
        scores.append(_pct(packs)(total - sum(figure[1] for figure in figures) + wanted, total))
    return sum(scores) // len(scores) if scores else 0


def _figures(need: DeviceNeed, free_device: FreeDevice) -> tuple[int, int, int]:
    """Total, free and wanted, of memory where the device has some and some is asked for, else of cores."""
    total = free_device.device.memory_bytes
    wanted = need.memory_bytes or need.memory_pct * total // 100
    return (total, free_device.memory_bytes, wanted) if wanted else (WHOLE_PCT, free_device.core_pct, need.core_pct)


def _pct(packs: bool) -> Callable[[int, int], int]:
    return most_allocated_pct if packs else least_allocated_pct
