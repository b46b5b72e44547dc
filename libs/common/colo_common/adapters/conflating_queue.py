"""A conflating queue before a slow listener of live messages: it keeps the newest few of each subject and drops older ones."""

import asyncio
from collections import OrderedDict, deque
from typing import Generic, TypeVar

__all__ = ["ConflatingQueue"]

Item = TypeVar("Item")


class ConflatingQueue(Generic[Item]):
    """Items by subject, taken round-robin over the subjects, the oldest of a subject first.

    At most `depth` items a subject and `subjects_max` subjects are kept. At the limit of a subject its oldest item is dropped,
    at the limit of subjects all items of the subject that has waited longest; `dropped` counts them.
    """

    def __init__(self, depth: int = 4, subjects_max: int = 65_536) -> None:
        self._depth = depth
        self._subjects_max = subjects_max
        self._lanes: OrderedDict[str, deque[Item]] = OrderedDict()
        self._filled = asyncio.Event()
        self.dropped = 0

    def put(self, subject: str, item: Item) -> None:
        """Add an item; never waits."""
        lane = self._lanes.get(subject)
        if lane is None:
            if len(self._lanes) >= self._subjects_max:
                self.dropped += len(self._lanes.popitem(last=False)[1])
            lane = self._lanes[subject] = deque()
        elif len(lane) >= self._depth:
            lane.popleft()
            self.dropped += 1
        lane.append(item)
        self._filled.set()

    async def take(self) -> Item:
        """The next item, as soon as there is one."""
        while not self._lanes:
            self._filled.clear()
            await self._filled.wait()
        subject, lane = next(iter(self._lanes.items()))
        item = lane.popleft()
        if lane:
            self._lanes.move_to_end(subject)
        else:
            del self._lanes[subject]
        return item
