"""The memory twin of the leases: the same shares, fences and refusals, proven by the same contract suite."""

from collections.abc import Callable, Sequence

from colo_common.model.partition import BusReach, Fence
from colo_common.model.quantity import ceil_div
from colo_common.ports import OtherPartitions

__all__ = ["MemoryLeases"]


class MemoryLeases:
    """The leases of one process. `now_ms` is the clock of their ends."""

    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        self._now_ms = now_ms
        self._members: dict[str, tuple[int, int, BusReach]] = {}
        self._leases: dict[int, tuple[str, int, int]] = {}
        self._newest = 0

    async def renew(
        self,
        owner: str,
        ttl_ms: int,
        partitions: int,
        held: Sequence[Fence] = (),
        reach: BusReach = BusReach.UNSURE,
    ) -> tuple[Fence, ...]:
        """See Leases.renew."""
        now_ms = self._now_ms()
        others = {who: member for who, member in self._members.items() if who != owner and member[0] >= now_ms}
        for _, count, _reach in others.values():
            if count != partitions and ttl_ms:
                raise OtherPartitions(count, partitions)
        self._members = {**others, owner: (now_ms + ttl_ms, partitions, reach)} if ttl_ms else others
        lost = {partition: fence for partition, fence in held if fence > self._newest and ttl_ms}
        self._leases |= {partition: (owner, fence, now_ms + ttl_ms) for partition, fence in lost.items()}
        self._newest = max([self._newest, *lost.values()])
        if ttl_ms:
            self._leases = {partition: lease for partition, lease in self._leases.items() if partition < partitions}
        is_deaf = reach is BusReach.DEAF
        reaches = [other for _, _, other in others.values()]
        sharing = 1 + sum(is_deaf or other is not BusReach.DEAF for other in reaches)
        yields = is_deaf and BusReach.HEARS in reaches
        most = 0 if yields or not ttl_ms else ceil_div(partitions, sharing)
        mine: dict[int, int] = {}
        for partition in range(partitions):
            who, fence, _ = self._leases.get(partition, ("", 0, 0))
            if who == owner and len(mine) < most:
                mine[partition] = fence
            elif who == owner:
                del self._leases[partition]
        for partition in range(partitions):
            who, _, until_ms = self._leases.get(partition, ("", 0, -1))
            if who != owner and until_ms < now_ms and len(mine) < most:
                self._newest = max(self._newest + 1, now_ms)
                mine[partition] = self._newest
        self._leases |= {partition: (owner, fence, now_ms + ttl_ms) for partition, fence in mine.items()}
        return tuple(sorted(mine.items()))

    def lose(self, mask: int) -> int:
        """Forget the leases whose bits are set in the mask, so that the next instance that asks gets them; returns their number."""
        lost = [partition for partition in self._leases if mask >> partition & 1]
        for partition in lost:
            del self._leases[partition]
        return len(lost)

    def fenced(self, fences: Sequence[Fence]) -> int | None:
        """The first partition whose fence is not the newest, or None."""
        return next(
            (one for one, fence in fences if fence <= self._newest and self._leases.get(one, ("", -1, 0))[1] != fence),
            None,
        )
