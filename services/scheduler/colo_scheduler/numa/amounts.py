"""The amounts of a zone and of a request: plain mappings from resource name to integer, and the checks on both.

The amounts of a request are split over chosen zones by filling the first zones, resource by resource.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from colo_common.model.invalid import InvalidInput
from colo_common.model.reasons import Reason
from colo_common.model.resource_list import CPU, MEMORY, ResourceList

__all__ = [
    "HUGE_PAGES",
    "NO_AMOUNTS",
    "Split",
    "ZoneAmounts",
    "ZonePart",
    "check_zones",
    "fill",
    "is_native",
    "parts_of",
    "short_reason",
    "total_of",
    "wanted",
]

HUGE_PAGES: Final = "hugepages-"
"""`hugepages-2Mi` and so on: bytes of pages of that size."""
NO_AMOUNTS: Final[ResourceList] = {}


class ZoneAmounts(NamedTuple):
    """One zone: its id, its socket, what is free and what it has when it is empty.

    A resource that `free` does not name is not in this zone. Free below zero counts as zero. `capacity` may be left out where
    only availability decides.
    """

    zone: int
    socket: int
    free: ResourceList
    capacity: ResourceList = NO_AMOUNTS

    @property
    def slot(self) -> int:
        """The id."""
        return self.zone

    @property
    def free_cpu_mcpu(self) -> int:
        """Free CPU, 0 where the zone tells none."""
        return self.free.get(CPU, 0)

    @property
    def free_memory_bytes(self) -> int:
        """Free memory, 0 where the zone tells none."""
        return self.free.get(MEMORY, 0)


def wanted(request: ResourceList) -> dict[str, int]:
    """The request without its zero amounts, in order of name. Raises InvalidInput for a negative amount."""
    check_request(request)
    return {name: request[name] for name in sorted(request) if request[name]}


def check_request(request: ResourceList, field: str = "request") -> None:
    """Raise InvalidInput unless every amount is an integer of at least 0."""
    for name, amount in request.items():
        if isinstance(amount, bool) or not isinstance(amount, int):
            raise InvalidInput(f"{field}.{name}", "must be an integer", amount)
        if amount < 0:
            raise InvalidInput(f"{field}.{name}", "must be at least 0", amount)


def check_zones(zones: Sequence[ZoneAmounts]) -> None:
    """Raise InvalidInput unless there is a zone, and every id is at least 0 and given once."""
    if not zones:
        raise InvalidInput("zones", "at least one zone is needed", ())
    ids = [zone.zone for zone in zones]
    if len(set(ids)) != len(ids):
        raise InvalidInput("zones", "an id may be given only once", ids)
    if min(ids) < 0:
        raise InvalidInput("zones", "an id must be at least 0", min(ids))


def total_of(name: str, amounts: Iterable[ResourceList]) -> int:
    """The sum of one resource, each part below zero counted as zero."""
    return sum(max(0, each.get(name, 0)) for each in amounts)


def is_native(name: str) -> bool:
    """Whether a resource is one of Kubernetes' own: without a domain, or of a domain that ends in kubernetes.io."""
    return "/" not in name or "kubernetes.io/" in name


def short_reason(name: str) -> Reason:
    """The reason code for too little of one resource."""
    if name == CPU:
        return Reason.CPU_SHORT
    if name == MEMORY:
        return Reason.MEMORY_SHORT
    return Reason.HUGE_PAGES_SHORT if name.startswith(HUGE_PAGES) else Reason.DEVICE_SHORT


class ZonePart(NamedTuple):
    """The amounts that a request takes of one zone: those above 0 only."""

    zone: int
    amounts: dict[str, int]


class Split(NamedTuple):
    """Parts in ascending zone id, and what no zone could take (amounts above 0 only)."""

    parts: tuple[ZonePart, ...]
    rest: dict[str, int]


def fill(request: ResourceList, zones: Sequence[ZoneAmounts]) -> Split:
    """Each resource from the zones in their given order, as much as is free in each."""
    taken: dict[int, dict[str, int]] = {}
    rest: dict[str, int] = {}
    for name in sorted(request):
        remaining = request[name]
        for zone in zones:
            amount = min(remaining, max(0, zone.free.get(name, 0)))
            if amount:
                taken.setdefault(zone.zone, {})[name] = amount
                remaining -= amount
        if remaining:
            rest[name] = remaining
    return Split(parts_of(taken), rest)


def parts_of(taken: Mapping[int, dict[str, int]]) -> tuple[ZonePart, ...]:
    """The amounts taken of each zone, as parts in ascending zone id."""
    return tuple(ZonePart(zone, taken[zone]) for zone in sorted(taken))
