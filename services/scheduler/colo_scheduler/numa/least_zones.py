"""The fewest zones that hold a request, the closest of those: scheduler-plugins' LeastNUMANodes
(noderesourcetopology/least_numa.go)."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import combinations
from typing import Final, NamedTuple

from colo_common.model.invalid import InvalidInput
from colo_common.model.resource_list import CPU, MEMORY, ResourceList
from colo_common.model.topology import NodeTopology
from colo_scheduler.numa.amounts import HUGE_PAGES, total_of

__all__ = [
    "DISTANCE_UNKNOWN",
    "MAX_ZONES_LISTED",
    "ZONE_ID_END",
    "DistantZone",
    "KubeQos",
    "LeastZones",
    "distances_between",
    "is_aligned",
    "is_enough",
    "least_zones",
]

ZONE_ID_END: Final = 64
"""Zones from this id on are never chosen: sets of zones are masks of 64 bits there."""

DISTANCE_UNKNOWN: Final = 255
"""ACPI's value for a distance that is not known."""
MAX_ZONES_LISTED: Final = 16
"""Every set of zones may be looked at, so a node may have at most this many."""


class KubeQos(StrEnum):
    """Kubernetes' own QoS classes."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


def is_aligned(name: str) -> bool:
    """Whether the kubelet must take the resource from zones: CPU, memory, huge pages."""
    return name in (CPU, MEMORY) or name.startswith(HUGE_PAGES)


def is_enough(qos: KubeQos, name: str, need: int, have: int) -> bool:
    """Whether a zone serves a resource; CPU, memory and huge pages of pods that are not guaranteed are not taken from zones."""
    return (qos is not KubeQos.GUARANTEED and is_aligned(name)) or have >= need


class DistantZone(NamedTuple):
    """A zone, what is free in it, and its distance to each zone by id."""

    zone: int
    free: ResourceList
    distances: Mapping[int, int]


class LeastZones(NamedTuple):
    """The smallest set that holds a request. `is_closest`: no set of its size, fitting or not, is closer together."""

    zones: tuple[int, ...]
    is_closest: bool


def distances_between(topology: NodeTopology) -> list[list[int]] | None:
    """The distances between zones by id, DISTANCE_UNKNOWN for ids that are no zone; None unless every zone tells its own."""
    zones = topology.zones
    if not all(zone.distances for zone in zones):
        return None
    size = max(zone.zone for zone in zones) + 1
    matrix = [[DISTANCE_UNKNOWN] * size for _ in range(size)]
    for zone in zones:
        for other, distance in zip(zones, zone.distances, strict=True):
            matrix[zone.zone][other.zone] = distance
    return matrix


def least_zones(qos: KubeQos, request: ResourceList, zones: Sequence[DistantZone]) -> LeastZones | None:
    """The smallest set of zones whose amounts together hold the request, of those the closest, then the lowest ids; None: no
    set.

    A set with a zone that does not tell a requested resource does not count. Closeness is the mean distance over all ordered
    pairs, each with itself included. Zones from ZONE_ID_END on do not count. Raises InvalidInput above MAX_ZONES_LISTED zones.
    """
    if len(zones) > MAX_ZONES_LISTED:
        raise InvalidInput("zones", f"at most {MAX_ZONES_LISTED} zones are tried in every combination", len(zones))
    needs = {name: amount for name, amount in request.items() if amount}
    ordered = sorted((zone for zone in zones if zone.zone < ZONE_ID_END), key=lambda zone: zone.zone)
    for size in range(1, len(ordered) + 1):
        closest = DISTANCE_UNKNOWN * size * size
        best: tuple[int, tuple[DistantZone, ...]] | None = None
        for chosen in combinations(ordered, size):
            distance = _distance(chosen)
            closest = min(closest, distance)
            if (best is None or distance < best[0]) and _holds(qos, needs, chosen):
                best = (distance, chosen)
        if best is not None:
            return LeastZones(tuple(zone.zone for zone in best[1]), best[0] == closest)
    return None


def _distance(chosen: Sequence[DistantZone]) -> int:
    return sum(one.distances.get(other.zone, DISTANCE_UNKNOWN) for one in chosen for other in chosen)


def _holds(qos: KubeQos, needs: ResourceList, chosen: Sequence[DistantZone]) -> bool:
    if any(name not in zone.free for zone in chosen for name in needs):
        return False
    return all(
        is_enough(qos, name, need, total_of(name, (zone.free for zone in chosen))) for name, need in needs.items()
    )
