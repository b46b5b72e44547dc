"""The choice of devices for a request.

GPUs: in partitions where the node has them, else as close to each other as possible; other devices: the freest ones, or the fullest
ones when packing. Devices that are requested jointly hang on the same PCIe switches where that is possible, or must. Figures and
order are those of koordinator-sh/koordinator:pkg/scheduler/plugins/deviceshare/{device_allocator,allocator_gpu}.go, where the first
of the joint kinds takes its best devices and the others follow if they can. With `is_joint_sought` it takes devices that all can
follow.

The search for devices of several kinds that belong together, on the same PCIe roots or in the same zones, is for a set of places
(roots or zones) in which every kind has a device, and as many as requested. Fewest places come first; of equally many those that
the first kind would get by itself; then places in the fewest zones; then by name.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, combinations, islice
from typing import Final

from msgspec import Struct, structs

from colo_common.model.constraints import DeviceRequest, DeviceScope, JointDevices, PartitionPolicy
from colo_common.model.invalid import InvariantBroken
from colo_common.model.placement import DeviceShare
from colo_common.model.reasons import Reason
from colo_common.model.topology import DevicePartition
from colo_scheduler.devices.inventory import (
    DeviceInventory,
    FreeDevice,
    ProximityScope,
    choose_in_scopes,
    most_in_scope,
    pcie_of,
)
from colo_scheduler.devices.layout import NO_PARTITIONS, GpuPartitions, choose_partition, most_unused
from colo_scheduler.devices.need import GPU, DeviceNeed, check_device_requests, device_score, need_of

__all__ = [
    "ANYWHERE",
    "DeviceChoice",
    "DeviceLocality",
    "NoDevices",
    "choose_devices",
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
    """The devices to choose from: the free devices of each kind asked for, and the node's groups. `packs`: the fullest first."""

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


SETS_MOST: Final = 1_024
"""So many sets of places are looked at, the smallest first, beginning with those that have enough devices: all of them on nodes
with up to ten roots that have every kind."""

_Rooms = Mapping[str, Sequence[FreeDevice]]


def place_of(free_device: FreeDevice, scope: DeviceScope) -> str:
    """The name of the root or zone of a device; a root that is not known is like no other."""
    return f"zone {free_device.device.zone}" if scope is DeviceScope.NUMA_NODE else pcie_of(free_device)


def choose_together(
    needs: Sequence[DeviceNeed], supply: DeviceSupply, scope: DeviceScope
) -> dict[str, list[FreeDevice]] | NoDevices:
    """Devices of all kinds in the same places, at least one of each kind in each; the first kind decides how many places.

    Of the first kind exactly the devices wanted, of the others as many as wanted or one for each place, if that is more.
    """
    fitting = {need.kind: fitting_devices(need, supply) for need in needs}
    places = set.intersection(
        *({place_of(free_device, scope) for free_device in free_devices} for free_devices in fitting.values())
    )
    first = needs[0]
    alone = choose_kind(first, supply, first.count, first.count)
    liked = (
        frozenset()
        if isinstance(alone, NoDevices)
        else frozenset(place_of(free_device, scope) for free_device in alone)
    )
    if any(
        sum(place_of(free_device, scope) in places for free_device in fitting[need.kind]) < need.count for need in needs
    ):
        return _shortage(needs, fitting, places, scope, alone)
    least = _least_places(needs, fitting, places, scope)
    for chosen in islice(_sets(places, least, first.count, liked, _zones_of(fitting, scope)), SETS_MOST):
        found: dict[str, list[FreeDevice]] = {}
        for need in needs:
            count = need.count if need is first else max(need.count, len(chosen))
            picked = _pick(need, count, fitting[need.kind], supply, scope, chosen)
            if picked is None:
                break
            found[need.kind] = picked
        else:
            return found
    return _shortage(needs, fitting, places, scope, alone)


def _zones_of(fitting: _Rooms, scope: DeviceScope) -> dict[str, set[int]]:
    zones: dict[str, set[int]] = {}
    for free_devices in fitting.values():
        for free_device in free_devices:
            zones.setdefault(place_of(free_device, scope), set()).add(free_device.device.zone)
    return zones


def _least_places(needs: Sequence[DeviceNeed], fitting: _Rooms, places: set[str], scope: DeviceScope) -> int:
    """Fewer places do not have so many devices of some kind, whichever they are."""
    least = 1
    for need in needs:
        counts = Counter(
            place for free_device in fitting[need.kind] if (place := place_of(free_device, scope)) in places
        )
        have = accumulate(sorted(counts.values(), reverse=True))
        least = max(least, 1 + sum(count < need.count for count in have))
    return least


def _sets(
    places: set[str], least: int, most: int, liked: frozenset[str], zones: Mapping[str, set[int]]
) -> Iterator[frozenset[str]]:
    """Sets of `least` to `most` places in the order in which they are tried."""
    ordered = sorted(places)
    for size in range(least, min(most, len(ordered)) + 1):
        sets = [frozenset(part) for part in islice(combinations(ordered, size), SETS_MOST)]

        def order(part: frozenset[str]) -> tuple[bool, int, list[str]]:
            return (part != liked, len(set[int]().union(*(zones[place] for place in part))), sorted(part))

        yield from sorted(sets, key=order)


def _pick(
    need: DeviceNeed,
    count: int,
    fitting: Sequence[FreeDevice],
    supply: DeviceSupply,
    scope: DeviceScope,
    places: frozenset[str],
) -> list[FreeDevice] | None:
    """`count` devices in all of the places and no others; None when there are none."""
    free_devices = [free_device for free_device in fitting if place_of(free_device, scope) in places]
    if len(free_devices) < count or not _covers(free_devices, scope, places):
        return None
    if need.kind == GPU and not need.is_shared:
        # Groups are looked for among all GPUs: which ones stay whole counts.
        group = choose_group(need, supply, count, lambda members: _covers(members, scope, places))
        if isinstance(group, list):
            return group
        if is_group_final(need, supply):
            return None
    if not need.is_shared:
        close = choose_in_scopes(free_devices, count, fits=lambda free_device: True, score=None, required=need.scope)
        if close is not None and _covers(close, scope, places):
            return list(close)
    found = by_turns(free_devices, places, lambda free_device: place_of(free_device, scope))[:count]
    if _covers(found, scope, places) and is_within(found, need.scope):
        return found
    close = choose_in_scopes(free_devices, count, fits=lambda free_device: True, score=None, required=need.scope)
    return list(close) if close is not None and _covers(close, scope, places) else None


def _covers(free_devices: Iterable[FreeDevice], scope: DeviceScope, places: frozenset[str]) -> bool:
    return {place_of(free_device, scope) for free_device in free_devices} == places


def _shortage(
    needs: Sequence[DeviceNeed], fitting: _Rooms, places: set[str], scope: DeviceScope, alone: object
) -> NoDevices:
    """The shortage to report: of the first kind by itself, or of a kind in the places of all other kinds."""
    if isinstance(alone, NoDevices):
        return alone
    first = needs[0]
    others = " and ".join(need.kind for need in needs[1:])
    what = "NUMA node" if scope is DeviceScope.NUMA_NODE else "PCIe root"
    for need in needs:
        here = [free_device for free_device in fitting[need.kind] if place_of(free_device, scope) in places]
        in_one = (
            need.scope >= (ProximityScope.ZONE if scope is DeviceScope.NUMA_NODE else ProximityScope.PCIE)
            or need.count == 1
        )
        have = _most_in_one(here, scope) if in_one else len(here)
        preposition = "in" if scope is DeviceScope.NUMA_NODE else "on"
        where = f"{preposition} one {what}" if in_one else f"{preposition} {what}s"
        sibling = others if need is first else first.kind
        if have < need.count:
            return short(need, "not beside each other", have, f"{need.kind} {where} with {sibling}")
    return structs.replace(short(first, "no set of places holds all of them"), kind=first.kind)


def _most_in_one(free_devices: Sequence[FreeDevice], scope: DeviceScope) -> int:
    counts: dict[str, int] = {}
    for free_device in free_devices:
        place = place_of(free_device, scope)
        counts[place] = counts.get(place, 0) + 1
    return max(counts.values(), default=0)


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
