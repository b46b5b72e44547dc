"""The terms of a node's samples of the last minutes, kept so that another policy can be tried on them."""

from collections import deque
from typing import Final, NamedTuple

from colo_common.events.node import NodeUsageSampled, WorkloadUsage
from colo_overcommit.allocatable import ZoneInputs

__all__ = ["WINDOW_MS", "KeptTerms", "RecentTerms"]

WINDOW_MS: Final = 300_000
_STEP_MS: Final = 30_000


class KeptTerms(NamedTuple):
    """The terms of one sample, and the host applications in it."""

    inputs: tuple[ZoneInputs, ...]
    hosts: tuple[WorkloadUsage, ...] = ()


class RecentTerms:
    """One sample of each half minute, of five minutes, with the use of its host applications."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: deque[tuple[int, KeptTerms]] = deque()

    def add(self, at_ms: int, inputs: tuple[ZoneInputs, ...], sample: NodeUsageSampled) -> None:
        """Keep the terms of a sample that arrived now, unless one of its half minute is kept. Times never fall."""
        kept = self._kept
        if kept and at_ms // _STEP_MS == kept[-1][0] // _STEP_MS:
            return
        hosts = tuple([one for one in sample.workloads if one.host_revision is not None])
        kept.append((at_ms, KeptTerms(inputs, hosts)))
        while kept[0][0] <= at_ms - WINDOW_MS:
            kept.popleft()

    def __len__(self) -> int:
        return len(self._kept)

    def of_zones(self, zones: tuple[int, ...]) -> list[KeptTerms]:
        """The terms of the samples that had exactly these zones, oldest first."""
        return [each for _, each in self._kept if tuple(zone.zone for zone in each.inputs) == zones]
