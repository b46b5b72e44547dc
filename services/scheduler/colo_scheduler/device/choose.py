"""Which devices a request gets.

GPUs: in groups where the node has such, else as close to each other as possible; other devices: the ones that are left most free,
or packed. Devices that are asked for jointly hang on the same PCIe switches where that is possible, or must. Figures and order
are those of koordinator-sh/koordinator:pkg/scheduler/plugins/deviceshare/{device_allocator,allocator_gpu}.go.
"""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from colo_common.model.constraints import DeviceRequest
from colo_common.model.invalid import InvariantBroken
from colo_common.model.placement import DeviceShare
from colo_common.model.reasons import Reason
from colo_scheduler.device.inventory import DeviceInventory, DeviceRoom
from colo_scheduler.device.need import GPU, DeviceNeed, check_device_requests, need_of
from colo_scheduler.device.partition import NO_PARTITIONS, GpuPartitions, PartitionWish, choose_partition
from colo_scheduler.device.scope import Scope, choose_in_scopes, pcie_of
from colo_scheduler.device.scores import device_score

__all__ = ["ANYWHERE", "DeviceChoice", "DeviceLocality", "NoDevices", "choose_devices"]


class DeviceLocality(Struct, frozen=True, kw_only=True):
    """How devices of one request must lie.

    scope: GPUs no further apart than this. joint: kinds that belong together, the first decides; same_pcie: on exactly the same
    switches, else if possible. partition: GPUs in a group of the node. packs: rather devices that are used already.
    """

    scope: Scope = Scope.NODE
    joint: tuple[str, ...] = ()
    same_pcie: bool = False
    partition: PartitionWish | None = None
    packs: bool = False


ANYWHERE: Final = DeviceLocality()


class DeviceChoice(Struct, frozen=True, kw_only=True):
    """The shares to hold, by kind and number."""

    shares: tuple[DeviceShare, ...]


class NoDevices(Struct, frozen=True, kw_only=True):
    """Why the node cannot give the devices: which kind, and what is short, in words."""

    reason: Reason
    kind: str
    detail: str


def choose_devices(
    inventory: DeviceInventory,
    requests: Sequence[DeviceRequest],
    zones: Sequence[int] = (),
    *,
    only_in_zones: bool = False,
    locality: DeviceLocality = ANYWHERE,
    partitions: GpuPartitions = NO_PARTITIONS,
    reusable: Sequence[DeviceShare] = (),
    only_reusable: bool = False,
) -> DeviceChoice | NoDevices:
    """Devices for all requests together, or why there are none; nothing is held by choosing.

    `zones` are those of the request's CPUs: devices there come first, and with `only_in_zones` no others. `reusable` is what a
    reservation holds here for the one who asks: it is used first, and with `only_reusable` nothing else. Raises InvalidInput for
    requests that contradict themselves.
    """
    check_device_requests(requests)
    for request in requests:
        if request.kind not in inventory.kinds:
            known = ", ".join(inventory.kinds) or "none"
            detail = f"the node has no device {request.kind!r}; it has {known}"
            return NoDevices(reason=Reason.DEVICE_UNKNOWN, kind=request.kind, detail=detail)
    needs = [need_of(request) for request in requests]
    refused: NoDevices | None = None
    for in_zones in ([True] if zones else []) + ([] if zones and only_in_zones else [False]):
        for from_reusable in ([True] if reusable else []) + ([] if only_reusable else [False]):
            rooms = {
                need.kind: [
                    room
                    for room in inventory.rooms(need.kind, reusable)
                    if (not in_zones or room.device.zone < 0 or room.device.zone in zones)
                    and (not from_reusable or room.is_reusable)
                ]
                for need in needs
            }
            if from_reusable and only_reusable:
                rooms = {kind: _capped(found, reusable) for kind, found in rooms.items()}
            found = _choose_all(needs, rooms, locality, partitions)
            if isinstance(found, DeviceChoice):
                return found
            refused = found
    return refused or NoDevices(reason=Reason.DEVICE_SHORT, kind="", detail="nothing is held for the one who asks")


def _capped(rooms: Sequence[DeviceRoom], reusable: Sequence[DeviceShare]) -> list[DeviceRoom]:
    """The rooms cut down to what is held for the one who asks."""
    held = {(share.kind, share.device): share for share in reusable}
    return [
        room._replace(
            core_pct=min(room.core_pct, held[room.device.kind, room.number].core_pct),
            memory_bytes=min(room.memory_bytes, held[room.device.kind, room.number].memory_bytes),
        )
        for room in rooms
    ]


def _choose_all(
    needs: Sequence[DeviceNeed],
    rooms: dict[str, list[DeviceRoom]],
    locality: DeviceLocality,
    partitions: GpuPartitions,
) -> DeviceChoice | NoDevices:
    by_kind = {need.kind: need for need in needs}
    joint = [by_kind[kind] for kind in locality.joint if kind in by_kind] if len(needs) > 1 else []
    taken: dict[str, list[DeviceRoom]] = {}
    switches: set[str] = set()
    for need in joint + [need for need in needs if need not in joint]:
        least = most = need.count
        is_secondary = need in joint[1:]
        if is_secondary and locality.same_pcie:
            least = max(least, len(switches))
        if is_secondary:
            most = max(least, len(switches))
        found = _choose_kind(
            need, rooms[need.kind], least, most, switches if is_secondary else set(), locality, partitions
        )
        if isinstance(found, NoDevices):
            return found
        taken[need.kind] = found
        here = {pcie_of(room) for room in found}
        if joint and need is joint[0]:
            switches = here
        elif is_secondary and locality.same_pcie and here != switches:
            return _short(need, f"must hang on the PCIe switches of the {joint[0].kind}")
    shares = [_share(by_kind[kind], room) for kind, found in taken.items() for room in found]
    return DeviceChoice(shares=tuple(sorted(shares, key=lambda share: (share.kind, share.device))))


def _share(need: DeviceNeed, room: DeviceRoom) -> DeviceShare:
    share = need.share_of(room)
    if share is None:
        raise InvariantBroken("a device was chosen that has too little", kind=need.kind, device=room.number)
    return share


def _choose_kind(
    need: DeviceNeed,
    rooms: Sequence[DeviceRoom],
    least: int,
    most: int,
    switches: set[str],
    locality: DeviceLocality,
    partitions: GpuPartitions,
) -> list[DeviceRoom] | NoDevices:
    if need.kind == GPU:
        return _choose_gpus(need, rooms, locality, partitions)
    return _choose_plainly(need, rooms, least, most, switches, packs=locality.packs)


def _choose_gpus(
    need: DeviceNeed, rooms: Sequence[DeviceRoom], locality: DeviceLocality, partitions: GpuPartitions
) -> list[DeviceRoom] | NoDevices:
    if not need.is_shared:
        in_group = _choose_group(need, rooms, locality.partition, partitions)
        if isinstance(in_group, list):
            return in_group
        if partitions.is_honored or locality.partition is not None:
            return in_group
    if need.is_shared and need.count > 1:
        if locality.scope > Scope.NODE:
            return _short(need, "shares of several GPUs cannot be kept close to each other")
        return _choose_plainly(need, rooms, need.count, need.count, set(), packs=locality.packs)
    found = choose_in_scopes(
        rooms,
        need.count,
        fits=lambda room: need.share_of(room) is not None,
        score=_scorer(need, packs=locality.packs) if need.is_shared else None,
        required=locality.scope,
    )
    if found is None:
        where = "" if locality.scope is Scope.NODE else f" in one {locality.scope.name.lower()}"
        return _short(need, f"{need.count} wanted{where}, {_fitting(need, rooms)} fit")
    return list(found)


def _choose_group(
    need: DeviceNeed, rooms: Sequence[DeviceRoom], wish: PartitionWish | None, partitions: GpuPartitions
) -> list[DeviceRoom] | NoDevices:
    if partitions.by_size is None:
        return _short(need, "the node has no table of GPU groups")
    if not partitions.by_size.get(need.count):
        return _short(need, f"the node has no groups of {need.count}")
    group = choose_partition(rooms, need.count, partitions.by_size, wish)
    if group is None:
        return _short(need, f"no group of {need.count} is unused")
    return [room for number in group.devices for room in rooms if room.number == number]


def _choose_plainly(
    need: DeviceNeed, rooms: Sequence[DeviceRoom], least: int, most: int, switches: set[str], *, packs: bool
) -> list[DeviceRoom] | NoDevices:
    score = _scorer(need, packs=packs)
    ranked = sorted(rooms, key=lambda room: (not room.is_reusable, -score(room), room.number))
    fitting = [room for room in _by_turns(ranked, switches) if need.share_of(room) is not None]
    if len(fitting) < least:
        return _short(need, f"{least} wanted, {len(fitting)} fit")
    return fitting[:most]


def _by_turns(ranked: Sequence[DeviceRoom], switches: set[str]) -> list[DeviceRoom]:
    """First one device of each preferred switch, then their second ones, and so on; all other devices last."""
    turns: dict[str, int] = {}
    keyed: list[tuple[int, DeviceRoom]] = []
    for room in ranked:
        pcie = pcie_of(room)
        if pcie in switches:
            turns[pcie] = turns.get(pcie, 0) + 1
            keyed.append((turns[pcie], room))
        else:
            keyed.append((len(ranked) + 1, room))
    return [room for _, room in sorted(keyed, key=lambda pair: pair[0])]


def _scorer(need: DeviceNeed, *, packs: bool) -> Callable[[DeviceRoom], int]:
    return lambda room: device_score(need, room, packs=packs)


def _fitting(need: DeviceNeed, rooms: Sequence[DeviceRoom]) -> int:
    return sum(need.share_of(room) is not None for room in rooms)


def _short(need: DeviceNeed, detail: str) -> NoDevices:
    return NoDevices(reason=Reason.DEVICE_SHORT, kind=need.kind, detail=detail)
