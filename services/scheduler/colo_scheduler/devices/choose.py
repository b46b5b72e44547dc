"""The choice of devices for a request.

GPUs: in partitions where the node has them, else as close to each other as possible; other devices: the freest ones, or the fullest
ones when packing. Devices that are requested jointly hang on the same PCIe switches where that is possible, or must. Figures and
order are those of koordinator-sh/koordinator:pkg/scheduler/plugins/deviceshare/{device_allocator,allocator_gpu}.go, where the
first of the joint kinds takes its best devices and the others follow if they can. With `is_joint_sought` it takes devices that
all can follow.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from colo_common.model.constraints import DeviceRequest, JointDevices
from colo_common.model.invalid import InvariantBroken
from colo_common.model.placement import DeviceShare
from colo_common.model.reasons import Reason
from colo_scheduler.devices.inventory import DeviceInventory, FreeDevice
from colo_scheduler.devices.joint import choose_together, place_of
from colo_scheduler.devices.kind import DeviceSupply, NoDevices, choose_kind, short
from colo_scheduler.devices.need import DeviceNeed, check_device_requests, need_of
from colo_scheduler.devices.partition import NO_PARTITIONS, GpuPartitions

__all__ = ["ANYWHERE", "DeviceChoice", "DeviceLocality", "NoDevices", "choose_devices"]


class DeviceLocality(Struct, frozen=True, kw_only=True):
    """How devices of one request must lie. `packs`: rather devices that are used already."""

    joint: JointDevices | None = None
    is_joint_sought: bool = False
    packs: bool = False


ANYWHERE: Final = DeviceLocality()


class DeviceChoice(Struct, frozen=True, kw_only=True):
    """The shares to hold, by kind and number."""

    shares: tuple[DeviceShare, ...]


def choose_devices(
    inventory: DeviceInventory,
    requests: Sequence[DeviceRequest],
    zones: Sequence[int] = (),
    *,
    only_in_zones: bool = False,
    locality: DeviceLocality = ANYWHERE,
    partitions: GpuPartitions = NO_PARTITIONS,
) -> DeviceChoice | NoDevices:
    """Devices for all requests together, or why there are none; nothing is held by choosing.

    `zones` are those of the request's CPUs: devices there come first, and with `only_in_zones` no others. Raises InvalidInput for
    requests that contradict themselves.
    """
    check_device_requests(requests)
    for request in requests:
        if request.kind not in inventory.kinds:
            known = ", ".join(inventory.kinds) or "none"
            detail = f"the node has no device {request.kind!r}; it has {known}"
            return _unknown(request, detail, request.kind)
        if request.labels and not inventory.has(request.kind, request.labels):
            labels = ", ".join(f"{name}={value}" for name, value in request.labels)
            detail = f"the node has no device {request.kind!r} with {labels}"
            return _unknown(request, detail, f"{request.kind} with {labels}")
    needs = [need_of(request) for request in requests]
    if zones:
        near = _choose_among(inventory, needs, locality, partitions, zones)
        if only_in_zones or isinstance(near, DeviceChoice):
            return near
    return _choose_among(inventory, needs, locality, partitions, ())


def _choose_among(
    inventory: DeviceInventory,
    needs: Sequence[DeviceNeed],
    locality: DeviceLocality,
    partitions: GpuPartitions,
    zones: Sequence[int],
) -> DeviceChoice | NoDevices:
    """Choose among the devices of these zones, all of them without any. Devices that belong to no zone always count."""
    free_devices = {
        need.kind: [
            free_device
            for free_device in inventory.free_devices(need.kind)
            if (not zones or free_device.device.zone < 0 or free_device.device.zone in zones)
            and need.labels.issubset(free_device.device.labels)
        ]
        for need in needs
    }
    return _choose_all(
        needs, DeviceSupply(free_devices=free_devices, partitions=partitions, packs=locality.packs), locality
    )


def _unknown(request: DeviceRequest, detail: str, unit: str) -> NoDevices:
    return NoDevices(
        reason=Reason.DEVICE_UNKNOWN, kind=request.kind, detail=detail, need=max(1, request.count), have=0, unit=unit
    )


def _choose_all(
    needs: Sequence[DeviceNeed], supply: DeviceSupply, locality: DeviceLocality
) -> DeviceChoice | NoDevices:
    by_kind = {need.kind: need for need in needs}
    rule = locality.joint
    joint = [by_kind[kind] for kind in rule.kinds if kind in by_kind] if rule and len(needs) > 1 else []
    taken: dict[str, list[FreeDevice]] = {}
    if rule is not None and len(joint) > 1:
        together: dict[str, list[FreeDevice]] | NoDevices | None = None
        if locality.is_joint_sought:
            together = choose_together(joint, supply, rule.scope)
        if together is None or (isinstance(together, NoDevices) and not rule.required):
            together = _choose_following(joint, supply, rule)
        if isinstance(together, NoDevices):
            return together
        taken.update(together)
    for need in needs:
        if need.kind not in taken:
            found = choose_kind(need, supply, need.count, need.count)
            if isinstance(found, NoDevices):
                return found
            taken[need.kind] = found
    shares = [_share(by_kind[kind], free_device) for kind, found in taken.items() for free_device in found]
    return DeviceChoice(shares=tuple(sorted(shares, key=lambda share: (share.kind, share.device))))


def _choose_following(
    joint: Sequence[DeviceNeed], supply: DeviceSupply, rule: JointDevices
) -> dict[str, list[FreeDevice]] | NoDevices:
    """The first kind as it likes best, then the others where it is."""
    first = joint[0]
    taken: dict[str, list[FreeDevice]] = {}
    places: set[str] = set()
    for need in joint:
        least = max(need.count, len(places)) if rule.required else need.count
        found = choose_kind(need, supply, least, max(least, len(places)), places)
        if isinstance(found, NoDevices):
            return found
        here = {place_of(free_device, rule.scope) for free_device in found}
        if need is first:
            places = here
        elif rule.required and here != places:
            return short(need, f"must be where the {first.kind} is")
        taken[need.kind] = found
    return taken


def _share(need: DeviceNeed, free_device: FreeDevice) -> DeviceShare:
    share = need.share_of(free_device)
    if share is None:
        raise InvariantBroken("a device was chosen that has too little", kind=need.kind, device=free_device.number)
    return share
