"""Partitions: the parts into which the instances of a service divide their work. A lease gives a partition to one instance.

A lease carries a fence, a number that is higher with every change of hands. A write names the fences of its partitions,
and is refused when a fence is not the newest: an instance that lost a partition unnoticed changes nothing.
"""

import zlib
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from msgspec import Struct

from colo_common.model.invalid import InvalidInput

__all__ = [
    "PARTITIONS_MAX",
    "WHOLE",
    "BusReach",
    "Fence",
    "Partitions",
    "PartitionsHeld",
    "Share",
    "check_partitions",
    "partition_of",
]

PARTITIONS_MAX: Final = 256

Fence = tuple[int, int]
"""A partition and the fence under which it is held."""


class BusReach(StrEnum):
    """Whether an instance reaches the bus, without which it can do nothing for the partitions that it holds.

    A deaf one gives its partitions to those that hear. Nobody is sure of either at once: when the bus itself goes away or comes
    back, the instances learn it within some seconds of one another, and none of them could do better than the others.
    """

    HEARS = "hears"
    DEAF = "deaf"
    UNSURE = ""


class PartitionsHeld(Struct, frozen=True, kw_only=True):
    """Event of the shell: this instance alone holds these partitions, until the next PartitionsHeld."""

    fences: tuple[Fence, ...]


class Partitions:
    """The partitions of one instance. With `count` 0 the work is not shared: everything is its own."""

    def __init__(self, count: int) -> None:
        check_partitions(count)
        self.count = count
        self._fences: dict[int, int] = {}

    def owns(self, key: str) -> bool:
        """Whether this instance decides about the key."""
        return not self.count or partition_of(key, self.count) in self._fences

    def holds(self, partition: int) -> bool:
        """Whether this instance holds the partition."""
        return partition in self._fences

    def take(self, event: PartitionsHeld) -> tuple[frozenset[int], frozenset[int]]:
        """Hold exactly these partitions; those that are new (also under a new fence) and those that are lost."""
        before, self._fences = self._fences, dict(event.fences)
        new = frozenset(partition for partition, fence in self._fences.items() if before.get(partition) != fence)
        return new, frozenset(before.keys() - self._fences.keys())

    def fence_of(self, key: str) -> int:
        """The fence of the key's partition; 0 when the work is not shared, or the partition is not held."""
        return self._fences.get(partition_of(key, self.count), 0) if self.count else 0

    def fences_of(self, keys: Iterable[str]) -> tuple[Fence, ...]:
        """The fences that a change about these keys must name, in ascending partition."""
        if not self.count:
            return ()
        partitions = sorted({partition_of(key, self.count) for key in dict.fromkeys(keys)})
        # One that was lost meanwhile has no fence any more; 0 is never the newest.
        return tuple((partition, self._fences.get(partition, 0)) for partition in partitions)


class Share(Struct, frozen=True):
    """One partition of so many, for a core that serves exactly one of them; with one of one, everything is its own."""

    partition: int = 0
    partitions: int = 1

    def owns(self, key: str) -> bool:
        """Whether the key is of this partition."""
        return self.partitions == 1 or partition_of(key, self.partitions) == self.partition

    @property
    def is_whole(self) -> bool:
        """Whether the work is not divided."""
        return self.partitions == 1

    @property
    def name(self) -> str:
        """Its name among all, such as "2-of-4"."""
        return f"{self.partition}-of-{self.partitions}"


WHOLE: Final = Share()


def partition_of(key: str, count: int) -> int:
    """The partition of a job or a node, from 0 to count - 1: CRC-32 of its name modulo the number of partitions."""
    return zlib.crc32(key.encode()) % count


def check_partitions(count: int, field: str = "partitions") -> None:
    """Raise InvalidInput unless the number is from 0 (not shared) to PARTITIONS_MAX."""
    if not 0 <= count <= PARTITIONS_MAX:
        raise InvalidInput(field, f"must be from 0 (not shared) to {PARTITIONS_MAX}", count)
