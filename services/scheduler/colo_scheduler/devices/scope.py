"""GPUs under the same PCIe switch, in the same zone, on the same node: the closest scope that holds a request.

The deepest scope wins; between equally deep ones the one that lies in more scopes that are used already, so that empty ones stay
empty; for a share of a GPU then the higher score (koordinator-sh/koordinator:deviceshare/allocator_gpu.go:357).
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple

from colo_scheduler.devices.inventory import FreeDevice

__all__ = ["ProximityScope", "choose_in_scopes", "most_in_scope", "pcie_of"]


class ProximityScope(IntEnum):
    """How close devices must be to each other; a larger one is closer."""

    NODE = 1
    ZONE = 2
    PCIE = 3


class _Place(NamedTuple):
    scope: ProximityScope
    free_devices: tuple[FreeDevice, ...]
    inner: tuple["_Place", ...]


class _Found(NamedTuple):
    depth: int
    used_scopes: int
    score: int
    free_devices: tuple[FreeDevice, ...]


def pcie_of(free_device: FreeDevice) -> str:
    """The switch of a device; one whose switch is not known stands alone."""
    return free_device.device.pcie or f"{free_device.device.kind} {free_device.number}"


def choose_in_scopes(
    free_devices: Sequence[FreeDevice],
    count: int,
    *,
    fits: Callable[[FreeDevice], bool],
    score: Callable[[FreeDevice], int] | None,
    required: ProximityScope = ProximityScope.NODE,
) -> tuple[FreeDevice, ...] | None:
    """`count` devices that fit, in the closest scope and none wider than `required`; None when there is none.

    In a scope the lowest numbers are taken; with `score`, which is for a share of a single device, the one of the highest score.
    """
    found = _search(_tree(free_devices), count, fits, score, required, 0, 0)
    return None if found is None else found.free_devices


def most_in_scope(free_devices: Sequence[FreeDevice], scope: ProximityScope) -> int:
    """How many of the devices lie together in the one place of that scope that has most of them."""
    if scope is ProximityScope.NODE:
        return len(free_devices)
    counts: dict[tuple[object, ...], int] = {}
    for free_device in free_devices:
        place = (free_device.device.zone, *((pcie_of(free_device),) if scope > ProximityScope.ZONE else ()))
        counts[place] = counts.get(place, 0) + 1
    return max(counts.values(), default=0)


def _tree(free_devices: Sequence[FreeDevice]) -> _Place:
    ordered = tuple(sorted(free_devices, key=lambda free_device: free_device.number))
    zones = []
    for zone in sorted({free_device.device.zone for free_device in ordered}):
        in_zone = tuple(free_device for free_device in ordered if free_device.device.zone == zone)
        switches = tuple(
            _Place(
                ProximityScope.PCIE, tuple(free_device for free_device in in_zone if pcie_of(free_device) == pcie), ()
            )
            for pcie in sorted({pcie_of(free_device) for free_device in in_zone})
        )
        zones.append(_Place(ProximityScope.ZONE, in_zone, switches))
    return _Place(ProximityScope.NODE, ordered, tuple(zones))


def _search(
    place: _Place,
    count: int,
    fits: Callable[[FreeDevice], bool],
    score: Callable[[FreeDevice], int] | None,
    required: ProximityScope,
    depth: int,
    used_scopes: int,
) -> _Found | None:
    if len(place.free_devices) < count:
        return None
    depth += 1
    used_scopes += any(free_device.is_used for free_device in place.free_devices)
    best: _Found | None = None
    for inner in place.inner:
        found = _search(inner, count, fits, score, required, depth, used_scopes)
        if found is not None and (best is None or found[:3] > best[:3]):
            best = found
    if best is not None or place.scope < required:
        return best
    fitting = [free_device for free_device in place.free_devices if fits(free_device)]
    if len(fitting) < count:
        return None
    if score is None:
        return _Found(depth, used_scopes, 0, tuple(fitting[:count]))
    scored = max(fitting, key=score)
    return _Found(depth, used_scopes, score(scored), (scored,))
