"""A set of zones as an integer: bit i stands for the zone with id i."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Final

__all__ = ["EXHAUSTIVE_ZONES", "mask_of", "masks_by_size", "masks_with_places", "sums_of_sets", "zones_of"]

# Machines of a fleet have few different lists of zones.
_LISTS_REMEMBERED: Final = 64

EXHAUSTIVE_ZONES: Final = 8
"""Up to this many zones every set of zones is looked at (255 of them); the kubelet's topology manager ends at 8 as well."""


def mask_of(zones: Iterable[int]) -> int:
    """The mask of these zone ids."""
    mask = 0
    for zone in zones:
        mask |= 1 << zone
    return mask


def zones_of(mask: int) -> tuple[int, ...]:
    """The zone ids of a mask, ascending."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return tuple(found)


def masks_by_size(zones: Sequence[int]) -> Iterator[int]:
    """Every non-empty set of the zones: fewer zones first, inside a size in the order of ascending ids."""
    ordered = sorted(zones)
    for size in range(1, len(ordered) + 1):
        for chosen in combinations(ordered, size):
            yield mask_of(chosen)


@lru_cache(maxsize=_LISTS_REMEMBERED)
def masks_with_places(zones: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """`masks_by_size` of zones in ascending id, each with the same set as a mask of places (bit i: the i-th zone)."""
    place = {zone: 1 << index for index, zone in enumerate(zones)}
    return tuple((mask, sum(place[zone] for zone in zones_of(mask))) for mask in masks_by_size(zones))


def sums_of_sets(amounts: Sequence[int]) -> list[int]:
    """For every mask of places the sum of its amounts; index 0 is the empty set."""
    sums = [0]
    for amount in amounts:
        sums += [amount + total for total in sums]
    return sums
