"""The share of the placement requests that this scheduler decides: jobs fall into shards, a lease gives a shard to one scheduler.

A lease carries a fence, a number that is higher with every change of hands. A commit names the fences of the shards of its
placement requests, and the ledger refuses it when a fence is not the newest: a scheduler that lost a shard unnoticed changes
nothing.
"""

import zlib
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from colo_common.model.invalid import InvalidInput

__all__ = ["SHARDS_MAX", "Fence", "Shards", "ShardsHeld", "check_shards", "shard_of"]

SHARDS_MAX: Final = 256

Fence = tuple[int, int]
"""A shard and the fence under which it is held."""


class ShardsHeld(Struct, frozen=True, kw_only=True):
    """Event of the shell: this scheduler alone holds these shards, until the next ShardsHeld."""

    fences: tuple[Fence, ...]


class Shards:
    """The shards of one scheduler. With `count` 0 the work is not shared: every want is its own."""

    def __init__(self, count: int) -> None:
        check_shards(count)
        self.count = count
        self._fences: dict[int, int] = {}

    def owns(self, job: str) -> bool:
        """Whether wants of this job are decided here."""
        return not self.count or shard_of(job, self.count) in self._fences

    def take(self, event: ShardsHeld) -> tuple[frozenset[int], frozenset[int]]:
        """Hold exactly these shards; those that are new (also under a new fence) and those that are lost."""
        before, self._fences = self._fences, dict(event.fences)
        new = frozenset(shard for shard, fence in self._fences.items() if before.get(shard) != fence)
        return new, frozenset(before.keys() - self._fences.keys())

    def fences_of(self, jobs: Iterable[str]) -> tuple[Fence, ...]:
        """The fences that a commit for these jobs must name, in ascending shard."""
        if not self.count:
            return ()
        shards = sorted({shard_of(job, self.count) for job in dict.fromkeys(jobs)})
        # One that was lost since the want was taken has no fence any more; 0 is never the newest.
        return tuple((shard, self._fences.get(shard, 0)) for shard in shards)


def shard_of(job: str, count: int) -> int:
    """The shard of a job, from 0 to count - 1: CRC-32 of its id modulo the number of shards."""
    return zlib.crc32(job.encode()) % count


def check_shards(count: int) -> None:
    """Raise InvalidInput unless the number of shards is from 0 (not shared) to SHARDS_MAX."""
    if not 0 <= count <= SHARDS_MAX:
        raise InvalidInput("shards", f"must be from 0 (not shared) to {SHARDS_MAX}", count)
