"""Every set of the zones of one node, and sums of amounts over all of them at once."""

from collections.abc import Sequence

from colo_common.model.invalid import InvalidInput
from colo_common.model.resource_list import ResourceList
from colo_scheduler.numa.amounts import ZoneAmounts
from colo_scheduler.numa.mask import EXHAUSTIVE_ZONES, masks_with_places, sums_of_sets

__all__ = ["ZoneSets"]


class ZoneSets:
    """The sets of at most EXHAUSTIVE_ZONES zones; raises InvalidInput for more.

    `masks`: (mask of zone ids, mask of places) of every set, fewest zones first; place i is the i-th zone in order of id. The sums
    are lists with one entry for each mask of places.
    """

    def __init__(self, zones: Sequence[ZoneAmounts]) -> None:
        if len(zones) > EXHAUSTIVE_ZONES:
            raise InvalidInput("zones", f"sets of zones are listed for at most {EXHAUSTIVE_ZONES} zones", len(zones))
        self.zones = sorted(zones, key=lambda zone: zone.zone)
        self.masks = masks_with_places(tuple(zone.zone for zone in self.zones))

    def resources_in(self, request: ResourceList) -> list[str]:
        """The requested resources that some zone has, in order of name."""
        return [name for name in sorted(request) if request[name] and any(name in zone.capacity for zone in self.zones)]

    def free(self, name: str) -> list[int]:
        """What is free of a resource in each set; a zone below zero counts as zero."""
        return sums_of_sets([max(0, zone.free.get(name, 0)) for zone in self.zones])

    def capacity(self, name: str) -> list[int]:
        """What each set has of a resource when it is empty."""
        return sums_of_sets([max(0, zone.capacity.get(name, 0)) for zone in self.zones])

    def lacking(self, name: str) -> int:
        """The places of the zones without a free amount of a resource."""
        return sum(1 << place for place, zone in enumerate(self.zones) if zone.free.get(name, 0) <= 0)

    def at(self, places: int) -> list[ZoneAmounts]:
        """The zones of a mask of places."""
        return [zone for place, zone in enumerate(self.zones) if places >> place & 1]
