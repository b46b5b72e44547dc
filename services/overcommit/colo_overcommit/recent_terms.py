"""The terms of a node's samples of the last minutes, kept so that another policy can be tried on them."""

from collections import deque
from typing import Final

from colo_overcommit.allocatable import ZoneInputs

__all__ = ["WINDOW_MS", "RecentTerms"]

WINDOW_MS: Final = 300_000
_STEP_MS: Final = 30_000


class RecentTerms:
    """One sample of each half minute, of five minutes."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: deque[tuple[int, tuple[ZoneInputs, ...]]] = deque()

    def add(self, at_ms: int, inputs: tuple[ZoneInputs, ...]) -> None:
        """Keep the terms of a sample that arrived now, unless one of its half minute is kept. Times never fall."""
        kept = self._kept
        if kept and at_ms // _STEP_MS == kept[-1][0] // _STEP_MS:
            return
        kept.append((at_ms, inputs))
        while kept[0][0] <= at_ms - WINDOW_MS:
            kept.popleft()

    def __len__(self) -> int:
        return len(self._kept)

    def of_zones(self, zones: tuple[int, ...]) -> list[tuple[ZoneInputs, ...]]:
        """The terms of the samples that had exactly these zones, oldest first."""
        return [inputs for _, inputs in self._kept if tuple(zone.zone for zone in inputs) == zones]
