"""Devices of one kind: groups of GPUs, devices close to each other, or the ones that score best.

The order is that of koordinator-sh/koordinator:pkg/scheduler/plugins/deviceshare/{device_allocator,allocator_gpu}.go.
"""

from collections.abc import Callable, Collection, Sequence

from msgspec import Struct

from colo_common.model.constraints import PartitionPolicy
from colo_common.model.reasons import Reason
from colo_common.model.topology import DevicePartition
from colo_scheduler.devices.inventory import FreeDevice
from colo_scheduler.devices.need import GPU, DeviceNeed
from colo_scheduler.devices.partition import GpuPartitions, choose_partition, most_unused
from colo_scheduler.devices.scope import ProximityScope, choose_in_scopes, most_in_scope, pcie_of
from colo_scheduler.devices.scores import device_score

__all__ = [
    "NoDevices",
    "DeviceSupply",
    "by_turns",
    "choose_kind",
    "choose_plainly",
    "fitting_devices",
    "is_within",
    "short",
]


class NoDevices(Struct, frozen=True, kw_only=True):
    """Why the node cannot give the devices: the kind and the shortage in words, and in numbers where `have` is below `need`.

    `unit` names the counted thing: "gpu on one PCIe root".
    """

    reason: Reason
    kind: str
    detail: str
    need: int = 1
    have: int = 1
    unit: str = "condition"


class DeviceSupply(Struct, frozen=True, kw_only=True):
    """What is chosen from: the free devices of each kind asked for, and the node's groups. `packs`: the fullest first."""

    free_devices: dict[str, list[FreeDevice]]
    partitions: GpuPartitions
    packs: bool = False


_SCOPE_WORDS = {
    ProximityScope.ZONE: "in one NUMA node",
    ProximityScope.PCIE: "on one PCIe root",
}


def choose_kind(
    need: DeviceNeed, supply: DeviceSupply, least: int, most: int, switches: Collection[str] = ()
) -> list[FreeDevice] | NoDevices:
    """At least `least` devices of a kind that is no GPU, up to `most`, by turns on the `switches`; `need.count` GPUs."""
    if need.kind == GPU:
        return _choose_gpus(need, supply)
    if need.scope is ProximityScope.NODE:
        return choose_plainly(need, supply, least, most, switches)
    return _choose_close(need, supply, least)


def _choose_gpus(need: DeviceNeed, supply: DeviceSupply) -> list[FreeDevice] | NoDevices:
    if not need.is_shared:
        in_group = choose_group(need, supply, need.count)
        if isinstance(in_group, list) or is_group_final(need, supply):
            return in_group
    if need.is_shared and need.count > 1:
        if need.scope > ProximityScope.NODE:
            return short(need, "shares of several GPUs cannot be kept close to each other")
        return choose_plainly(need, supply, need.count, need.count)
    return _choose_close(need, supply, need.count)


def is_group_final(need: DeviceNeed, supply: DeviceSupply) -> bool:
    """Whether whole GPUs are given in groups or not at all."""
    wish = need.partition
    return supply.partitions.is_honored or (wish is not None and wish.policy is not PartitionPolicy.PREFER)


def choose_group(
    need: DeviceNeed,
    supply: DeviceSupply,
    count: int,
    suits: Callable[[Sequence[FreeDevice]], bool] = lambda free_devices: True,
) -> list[FreeDevice] | NoDevices:
    """`count` GPUs that are a group of the node, suit, and lie within the need's scope."""
    free_devices = {free_device.number: free_device for free_device in supply.free_devices[need.kind]}
    table = supply.partitions.by_size
    if table is None:
        return short(need, "the node has no table of GPU groups", have=0, unit="gpu in a group")

    def is_good(part: DevicePartition) -> bool:
        members = [free_devices[number] for number in part.devices]
        fit = all(need.share_of(free_device) is not None for free_device in members)
        return fit and is_within(members, need.scope) and suits(members)

    group = choose_partition(list(free_devices.values()), count, table, need.partition, is_good)
    if group is None:
        unused = most_unused(list(free_devices.values()), count, table, need.partition)
        detail = f"no group of {count} is unused" if table.get(count) else f"the node has no groups of {count}"
        return short(need, detail, have=unused, unit=f"gpu in a group of {count}", wanted=count)
    return [free_devices[number] for number in group.devices]


def _choose_close(need: DeviceNeed, supply: DeviceSupply, count: int) -> list[FreeDevice] | NoDevices:
    free_devices = supply.free_devices[need.kind]

    def fits(free_device: FreeDevice) -> bool:
        return need.share_of(free_device) is not None

    # Of a share one device is taken, the best one; of whole ones those of the lowest numbers.
    score = _scorer(need, packs=supply.packs) if need.is_shared and count == 1 else None
    found = choose_in_scopes(free_devices, count, fits=fits, score=score, required=need.scope)
    if found is not None:
        return list(found)
    where = _SCOPE_WORDS.get(need.scope, "")
    have = most_in_scope([free_device for free_device in free_devices if fits(free_device)], need.scope)
    return short(
        need, f"{count} wanted {where}".rstrip() + f", {have} fit", have, f"{need.kind} {where}".rstrip(), count
    )


def choose_plainly(
    need: DeviceNeed, supply: DeviceSupply, least: int, most: int, switches: Collection[str] = ()
) -> list[FreeDevice] | NoDevices:
    """At least `least` devices, up to `most`, by score and number; first by turns on the `switches`."""
    fitting = by_turns(fitting_devices(need, supply), switches)
    if len(fitting) < least:
        return short(need, f"{least} wanted, {len(fitting)} fit", len(fitting), wanted=least)
    return fitting[:most]


def fitting_devices(need: DeviceNeed, supply: DeviceSupply) -> list[FreeDevice]:
    """The devices that have enough, the best first."""
    score = _scorer(need, packs=supply.packs)
    fitting = [free_device for free_device in supply.free_devices[need.kind] if need.share_of(free_device) is not None]
    return sorted(fitting, key=lambda free_device: (-score(free_device), free_device.number))


def by_turns(
    ranked: Sequence[FreeDevice], places: Collection[str], place_of: Callable[[FreeDevice], str] = pcie_of
) -> list[FreeDevice]:
    """First one device of each preferred place, then their second ones, and so on; all other devices last."""
    turns: dict[str, int] = {}
    keyed: list[tuple[int, FreeDevice]] = []
    for free_device in ranked:
        place = place_of(free_device)
        if place in places:
            turns[place] = turns.get(place, 0) + 1
            keyed.append((turns[place], free_device))
        else:
            keyed.append((len(ranked) + 1, free_device))
    return [free_device for _, free_device in sorted(keyed, key=lambda pair: pair[0])]


def is_within(free_devices: Sequence[FreeDevice], scope: ProximityScope) -> bool:
    """Whether the devices lie no further apart than the scope says."""
    match scope:
        case ProximityScope.NODE:
            return True
        case ProximityScope.ZONE:
            return len({free_device.device.zone for free_device in free_devices}) <= 1
        case ProximityScope.PCIE:
            return len({(free_device.device.zone, pcie_of(free_device)) for free_device in free_devices}) <= 1


def short(need: DeviceNeed, detail: str, have: int | None = None, unit: str = "", wanted: int = 0) -> NoDevices:
    """The error for too few devices; without `have` it has no numbers."""
    wanted = wanted or need.count
    if have is None or have >= wanted:
        return NoDevices(reason=Reason.DEVICE_SHORT, kind=need.kind, detail=detail)
    return NoDevices(
        reason=Reason.DEVICE_SHORT, kind=need.kind, detail=detail, need=wanted, have=have, unit=unit or need.kind
    )


def _scorer(need: DeviceNeed, *, packs: bool) -> Callable[[FreeDevice], int]:
    return lambda free_device: device_score(need, free_device, packs=packs)
