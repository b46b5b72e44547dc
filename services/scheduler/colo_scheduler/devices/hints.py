"""Which sets of zones can give the devices of a request, for a NUMA decision that weighs them against CPUs and memory."""

from collections.abc import Sequence
from itertools import combinations
from typing import Final

from msgspec import Struct

from colo_common.model.constraints import DeviceRequest
from colo_scheduler.devices.choose import ANYWHERE, DeviceLocality, NoDevices, choose_devices
from colo_scheduler.devices.inventory import DeviceInventory
from colo_scheduler.devices.layout import NO_PARTITIONS, GpuPartitions

__all__ = ["BEST_SCORE", "ZONES_MOST", "DeviceHint", "device_hints"]

BEST_SCORE: Final = 500
"""The score of zones that have the very devices which would be chosen without any zones: more than CPUs can score."""
ZONES_MOST: Final = 8
"""On nodes with more zones only single zones, pairs and all zones together are looked at."""


class DeviceHint(Struct, frozen=True, kw_only=True):
    """A set of zones, ascending, that can give the devices; preferred when no smaller set can."""

    zones: tuple[int, ...]
    is_preferred: bool
    score: int


def device_hints(
    inventory: DeviceInventory,
    requests: Sequence[DeviceRequest],
    zones: Sequence[int],
    *,
    locality: DeviceLocality = ANYWHERE,
    partitions: GpuPartitions = NO_PARTITIONS,
) -> tuple[DeviceHint, ...] | NoDevices:
    """The feasible sets of `zones`, fewest zones first, then in ascending order; why there is none when even all zones cannot.

    Devices that belong to no zone count in every set.
    """
    ordered = tuple(sorted(zones))
    best = choose_devices(
        inventory,
        requests,
        ordered,
        only_in_zones=True,
        locality=locality,
        partitions=partitions,
    )
    if isinstance(best, NoDevices):
        return best
    sizes = range(1, len(ordered) + 1) if len(ordered) <= ZONES_MOST else (1, 2, len(ordered))
    # What fits into some zones fits into more of them, but where kinds only follow each other, or groups are weighed.
    grows = (locality.joint is None or locality.is_joint_sought) and partitions.by_size is None
    home = {share.zone for share in best.shares}
    feasible: list[tuple[tuple[int, ...], bool]] = []
    for chosen_zones in (part for size in sizes for part in combinations(ordered, size)):
        if grows and any(set(smaller) <= set(chosen_zones) for smaller, _ in feasible):
            feasible.append((chosen_zones, home <= set(chosen_zones)))
            continue
        found = choose_devices(
            inventory,
            requests,
            chosen_zones,
            only_in_zones=True,
            locality=locality,
            partitions=partitions,
        )
        if not isinstance(found, NoDevices):
            feasible.append((chosen_zones, found == best))
    fewest = len(feasible[0][0]) if feasible else 0
    return tuple(
        DeviceHint(zones=part, is_preferred=len(part) == fewest, score=BEST_SCORE if is_best else 0)
        for part, is_best in feasible
    )
