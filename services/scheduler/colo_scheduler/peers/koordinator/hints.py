"""Koordinator's hints: which sets of zones could serve each resource, how good each set is, and which are preferred.

Every set of zones is looked at, so they are for at most EXHAUSTIVE_ZONES zones.
"""

from collections.abc import Callable, Sequence
from typing import Final

from colo_common.model.resource_list import CPU, MEMORY, ResourceList
from colo_scheduler.numa.amounts import ZoneAmounts
from colo_scheduler.numa.policies import Hint, TopologyPolicy
from colo_scheduler.numa.zone_sets import ZoneSets
from colo_scheduler.peers.koordinator.even_split import spread_evenly
from colo_scheduler.scorers import allocation

__all__ = ["Scorer", "least_allocated", "most_allocated", "scored_hints"]

Scorer = Callable[[ResourceList, ResourceList], int]
"""Requested and capacity of a set of zones to 0-100."""

_SCORED: Final = (CPU, MEMORY)
_WEIGHTS: Final = (1, 1)


def least_allocated(requested: ResourceList, capacity: ResourceList) -> int:
    """The freer, the higher: `scorers.allocation.least_allocated` of CPU and memory, weighted equally."""
    return allocation.least_allocated(_row(requested), _row(capacity), _WEIGHTS)


def most_allocated(requested: ResourceList, capacity: ResourceList) -> int:
    """The fuller, the higher: `scorers.allocation.most_allocated` of CPU and memory, weighted equally."""
    return allocation.most_allocated(_row(requested), _row(capacity), _WEIGHTS)


def _row(amounts: ResourceList) -> list[int]:
    return [amounts.get(name, 0) for name in _SCORED]


def scored_hints(
    zones: Sequence[ZoneAmounts],
    request: ResourceList,
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
    sets = ZoneSets(zones)
    named = sets.resources_in(request)
    free = {name: sets.free(name) for name in named}
    loads = [(name, request.get(name, 0), sets.free(name), sets.capacity(name)) for name in _SCORED]
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
