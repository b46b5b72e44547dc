"""How well a device or a node suits a request, 0 to 100: the more is left, or when packing the less, the better."""

from collections.abc import Callable, Sequence

from colo_common.model.constraints import DeviceRequest
from colo_scheduler.devices.inventory import WHOLE_PCT, DeviceInventory, FreeDevice
from colo_scheduler.devices.need import DeviceNeed, need_of
from colo_scheduler.scorers.allocation import least_allocated_pct, most_allocated_pct

__all__ = ["device_score", "node_score"]


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
