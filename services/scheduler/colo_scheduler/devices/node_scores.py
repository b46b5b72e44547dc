"""The device scores of all nodes for requests, kept up to date: only changed nodes are scored again."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from colo_common.model.constraints import DeviceRequest
from colo_scheduler.devices.inventory import DeviceInventory
from colo_scheduler.devices.need import node_score

__all__ = ["DeviceScores"]

_REQUESTS_MOST: Final = 64
_Asked = tuple[tuple[DeviceRequest, ...], bool]
IntArray = npt.NDArray[np.int64]


class _Kept:
    def __init__(self, scores: IntArray, stale: set[int]) -> None:
        self.scores = scores
        self.stale = stale


class DeviceScores:
    """Scores for the last requests, at most 64. `devices_of` returns the devices of a row, None without known devices."""

    def __init__(self) -> None:
        self._kept: OrderedDict[_Asked, _Kept] = OrderedDict()

    def fork(self) -> "DeviceScores":
        """An independent copy."""
        other = DeviceScores()
        for asked, kept in self._kept.items():
            other._kept[asked] = _Kept(kept.scores.copy(), set(kept.stale))
        return other

    def note(self, row: int) -> None:
        """Note that the free parts of the row's devices changed."""
        for kept in self._kept.values():
            kept.stale.add(row)

    def of(
        self,
        requests: tuple[DeviceRequest, ...],
        count: int,
        devices_of: Callable[[int], DeviceInventory | None],
        *,
        packs: bool,
    ) -> IntArray:
        """`node_score` of the first `count` rows; 0 for those without devices. Read only."""
        asked = (requests, packs)
        kept = self._kept.get(asked)
        if kept is None or kept.scores.size != count:
            kept = self._kept[asked] = _Kept(np.zeros(count, dtype=np.int64), set(range(count)))
            if len(self._kept) > _REQUESTS_MOST:
                self._kept.popitem(last=False)
        self._kept.move_to_end(asked)
        for row in sorted(kept.stale):
            devices = devices_of(row) if row < count else None
            if row < count:
                kept.scores[row] = 0 if devices is None else node_score(devices, requests, packs=packs)
        kept.stale.clear()
        return kept.scores
