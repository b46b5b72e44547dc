"""The counts of the queues in the other partitions of the jobs, by which a queue's limits are those of all together."""

from typing import Final

from colo_common.events.job import QueueChanged
from colo_common.model.partition import Share

__all__ = ["QueuesElsewhere"]

_QUEUES_MOST: Final = 10_000


class QueuesElsewhere:
    """What the others said last of each queue. It is a quarter of a second old at most, and a minute where nothing changes.

    What two partitions accept in the same quarter of a second may together exceed a limit, by what one of them accepts in that
    time.
    """

    def __init__(self, share: Share) -> None:
        self._share = share
        # By queue, by partition: the waiting replicas, and the jobs that have not ended.
        self._counts: dict[str, dict[int, tuple[int, int]]] = {}

    def note(self, fact: QueueChanged) -> None:
        """Take what another partition says; what is of another number of partitions is of a time that is over."""
        share = self._share
        if (
            fact.partitions != share.partitions
            or fact.partition == share.partition
            or fact.partition >= share.partitions
        ):
            return
        if fact.queue not in self._counts and len(self._counts) >= _QUEUES_MOST:
            return
        self._counts.setdefault(fact.queue, {})[fact.partition] = (fact.waiting, fact.jobs)

    def of(self, queue: str) -> tuple[int, int]:
        """The waiting replicas and the unfinished jobs of the queue in the other partitions."""
        counts = self._counts.get(queue, {}).values()
        return sum(waiting for waiting, _ in counts), sum(jobs for _, jobs in counts)

    @property
    def partitions(self) -> int:
        """Into how many partitions the jobs are divided."""
        return self._share.partitions
