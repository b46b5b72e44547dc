"""Devices of several kinds that belong together: on the same PCIe roots, or in the same zones.

The search is for a set of places (roots or zones) in which every kind has a device, and as many as requested. Fewest places come
first; of equally many those that the first kind would get by itself; then places in the fewest zones; then by name.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, combinations, islice
from typing import Final

from msgspec import structs

from colo_common.model.constraints import DeviceScope
from colo_scheduler.devices.inventory import FreeDevice
from colo_scheduler.devices.kind import (
    DeviceSupply,
    NoDevices,
    by_turns,
    choose_group,
    choose_kind,
    fitting_devices,
    is_group_final,
    is_within,
    short,
)
from colo_scheduler.devices.need import GPU, DeviceNeed
from colo_scheduler.devices.scope import ProximityScope, choose_in_scopes, pcie_of

__all__ = ["SETS_MOST", "choose_together", "place_of"]

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
