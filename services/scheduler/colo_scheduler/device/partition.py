"""GPUs that may only be given out in certain groups, because only inside a group they are linked fast.

Groups of one size have scores; the classes of equal score are looked at in ascending score, and of a class the group is chosen
that leaves the most valuable groups of 8, 4 and 2 whole (koordinator-sh/koordinator:deviceshare/allocator_gpu.go:177).
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final

from msgspec import Struct

from colo_scheduler.device.inventory import DeviceRoom

__all__ = ["NO_PARTITIONS", "GpuPartitions", "Partition", "PartitionWish", "choose_partition", "partitions_of_model"]

_WORTH: Final = {8: 10_000, 4: 100, 2: 1}
_LINKED_MODELS: Final = ("H100", "H800", "H20")


class Partition(Struct, frozen=True, kw_only=True):
    """A group of GPUs by number. `bandwidth` of its ring is None when it is not known."""

    devices: tuple[int, ...]
    score: int = 1
    bandwidth: int | None = None


class GpuPartitions(Struct, frozen=True, kw_only=True):
    """The groups of a node by size. `is_honored`: GPUs are given out in groups or not at all. None: the node has no groups."""

    by_size: dict[int, tuple[Partition, ...]] | None = None
    is_honored: bool = False


NO_PARTITIONS: Final = GpuPartitions()


class PartitionWish(Struct, frozen=True, kw_only=True):
    """What a request wants of a group. `only_best`: only the first class of scores. Such a wish is always honored."""

    bandwidth: int | None = None
    only_best: bool = False


def partitions_of_model(model: str) -> dict[int, tuple[Partition, ...]] | None:
    """The groups of a known model with eight linked GPUs: singles, pairs, fours, all; None for any other model."""
    if model not in _LINKED_MODELS:
        return None
    return {
        size: tuple(Partition(devices=tuple(range(first, first + size))) for first in range(0, 8, size))
        for size in (1, 2, 4, 8)
    }


def choose_partition(
    rooms: Sequence[DeviceRoom], count: int, table: Mapping[int, Sequence[Partition]], wish: PartitionWish | None
) -> Partition | None:
    """The group of `count` GPUs to give, None when there is none: all of its GPUs must be here, healthy and unused."""
    unused = {room.number for room in rooms if not room.is_used}
    for _, candidates in groupby(sorted(table.get(count, ()), key=_score_of), key=_score_of):
        feasible = [part for part in candidates if unused.issuperset(part.devices) and _has_bandwidth(part, wish)]
        if feasible:
            present = {room.number for room in rooms if room.is_used}
            return max(feasible, key=lambda part: _worth_left(present.union(part.devices), count, table))
        if wish is not None and wish.only_best:
            return None
    return None


def _score_of(part: Partition) -> int:
    return part.score


def _has_bandwidth(part: Partition, wish: PartitionWish | None) -> bool:
    if wish is None or wish.bandwidth is None:
        return True
    return part.bandwidth is not None and part.bandwidth >= wish.bandwidth


def _worth_left(used: set[int], count: int, table: Mapping[int, Sequence[Partition]]) -> int:
    """What the groups that stay whole are worth: of each size from `count` up, those of the first class of scores."""
    worth = 0
    for size, weight in _WORTH.items():
        parts = table.get(size, ()) if size >= count else ()
        first = min((part.score for part in parts), default=0)
        worth += sum(weight * part.score for part in parts if part.score == first and used.isdisjoint(part.devices))
    return worth
