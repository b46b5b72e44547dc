"""Which sets of zones could serve each resource, and which of them a provider prefers: Koordinator's way and the kubelet's.

Both look at every set of zones, so they are for at most EXHAUSTIVE_ZONES zones.
"""

from collections.abc import Callable, Sequence

from colo_common.model.invalid import InvalidInput
from colo_scheduler.numa.amounts import CPU, MEMORY, Amounts, ZoneAmounts
from colo_scheduler.numa.assign import spread_evenly
from colo_scheduler.numa.mask import EXHAUSTIVE_ZONES, masks_with_places, sums_of_sets
from colo_scheduler.numa.merge import Hint
from colo_scheduler.numa.policies import TopologyPolicy

__all__ = ["Scorer", "kubelet_hints", "least_allocated", "most_allocated", "scored_hints"]

Scorer = Callable[[Amounts, Amounts], int]
"""Requested and capacity of a set of zones to 0-100."""

_WEIGHTS = {CPU: 1, MEMORY: 1}


def least_allocated(requested: Amounts, capacity: Amounts) -> int:
    """The freer, the higher: (capacity - requested) * 100 / capacity, CPU and memory weighted equally, rounded down."""
    return _weighted(
        [(capacity[name] - min(requested.get(name, 0), capacity[name]), capacity[name]) for name in _known(capacity)]
    )


def most_allocated(requested: Amounts, capacity: Amounts) -> int:
    """The fuller, the higher: requested * 100 / capacity, requested at most capacity, rounded down."""
    return _weighted([(min(requested.get(name, 0), capacity[name]), capacity[name]) for name in _known(capacity)])


def _known(capacity: Amounts) -> list[str]:
    return [name for name in _WEIGHTS if capacity.get(name, 0) > 0]


def _weighted(pairs: list[tuple[int, int]]) -> int:
    return sum(part * 100 // whole for part, whole in pairs) // len(pairs) if pairs else 0


def scored_hints(
    zones: Sequence[ZoneAmounts],
    request: Amounts,
    policy: TopologyPolicy,
    *,
    scorer: Scorer = least_allocated,
    cpu_unit_mcpu: int = 1,
) -> dict[str, list[Hint]]:
    """Koordinator's hints (resource_manager.go generateResourceHints) for every requested resource that some zone has.

    A set of zones counts when an even split of the whole request over it leaves no rest, and for a resource when none of its
    zones is without free amounts of it. Preferred are the smallest sets for the resource; under RESTRICTED all. The score is
    that of the set with the request added. A resource without any set has an empty list, one that no zone has is left out.
    Raises InvalidInput above EXHAUSTIVE_ZONES zones.
    """
    sets = _Sets(zones)
    named = sets.named(request)
    free = {name: sets.free(name) for name in named}
    loads = [(name, request.get(name, 0), sets.free(name), sets.capacity(name)) for name in _WEIGHTS]
    accepted: dict[str, list[tuple[int, int]]] = {name: [] for name in named}
    zoned = {name: request[name] for name in named}
    lacking = {name: sets.lacking(name) for name in named}
    for mask, places in sets.masks:
        # With units of 1 an even split leaves no rest exactly when there is enough in sum.
        if any(free[name][places] < request[name] for name in named):
            continue
        if cpu_unit_mcpu > 1 and spread_evenly(zoned, sets.at(places), cpu_unit_mcpu).rest:
            continue
        capacity = {name: total[places] for name, _, _, total in loads}
        requested = {name: max(0, total[places] - have[places]) + need for name, need, have, total in loads}
        score = scorer(requested, capacity)
        for name in named:
            if not places & lacking[name]:
                accepted[name].append((mask, score))
    hints = {}
    for name, found in accepted.items():
        least = min((mask.bit_count() for mask, _ in found), default=0)
        is_free = policy is TopologyPolicy.RESTRICTED
        hints[name] = [Hint(mask, is_free or mask.bit_count() == least, score) for mask, score in found]
    return hints


def kubelet_hints(zones: Sequence[ZoneAmounts], request: Amounts) -> dict[str, list[Hint]]:
    """The kubelet's hints: a set counts for a resource when it has enough free of it, resource by resource.

    Preferred are sets as small as the machine could do with when empty (by capacity). Raises InvalidInput above
    EXHAUSTIVE_ZONES zones.
    """
    sets = _Sets(zones)
    hints: dict[str, list[Hint]] = {}
    for name in sets.named(request):
        amount, capacity, free = request[name], sets.capacity(name), sets.free(name)
        least = min((mask.bit_count() for mask, places in sets.masks if capacity[places] >= amount), default=0)
        hints[name] = [Hint(mask, mask.bit_count() == least) for mask, places in sets.masks if free[places] >= amount]
    return hints


class _Sets:
    """Every set of the zones, and sums of amounts over all of them at once."""

    def __init__(self, zones: Sequence[ZoneAmounts]) -> None:
        if len(zones) > EXHAUSTIVE_ZONES:
            raise InvalidInput("zones", f"sets of zones are listed for at most {EXHAUSTIVE_ZONES} zones", len(zones))
        self.zones = sorted(zones, key=lambda zone: zone.zone)
        self.masks = masks_with_places(tuple(zone.zone for zone in self.zones))

    def named(self, request: Amounts) -> list[str]:
        """The resources wanted that some zone has, in order of name."""
        return [name for name in sorted(request) if request[name] and any(name in zone.capacity for zone in self.zones)]

    def free(self, name: str) -> list[int]:
        return sums_of_sets([max(0, zone.free.get(name, 0)) for zone in self.zones])

    def capacity(self, name: str) -> list[int]:
        return sums_of_sets([max(0, zone.capacity.get(name, 0)) for zone in self.zones])

    def lacking(self, name: str) -> int:
        """The places of zones without a free amount."""
        return sum(1 << place for place, zone in enumerate(self.zones) if zone.free.get(name, 0) <= 0)

    def at(self, places: int) -> list[ZoneAmounts]:
        return [zone for place, zone in enumerate(self.zones) if places >> place & 1]
