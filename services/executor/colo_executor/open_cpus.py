"""Publishes on which own CPUs of LSE and LSR work processes of others may run, too."""

from typing import Final

from msgspec import Struct

from colo_common.events.effects import Publish
from colo_common.events.enforcement import OwnCpusOpened
from colo_common.model.cpuset import CpuSet

__all__ = ["OpenCpus", "OpenCpusPublisher"]

_AGAIN_MS: Final = 3_600_000


class OpenCpus(Struct, frozen=True, kw_only=True):
    """Own CPUs that are open to others, and the top groups that these are in ("/": in none), for a kubelet's pods by class."""

    cpus: CpuSet = CpuSet()
    groups: tuple[str, ...] = ()


class OpenCpusPublisher:
    """One fact when they are others than before, and each hour while there are any: readers may keep no longer history."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._published = OpenCpus()
        self._published_at_ms = 0

    def doubt(self) -> None:
        """Perhaps nobody knows them any more: they are due again with the next look."""
        self._published_at_ms = 0

    def follow(self, found: OpenCpus, now_ms: int) -> list[Publish]:
        """The fact about what was found, when it is due."""
        is_due_again = bool(found.cpus) and now_ms - self._published_at_ms >= _AGAIN_MS
        if found == self._published and not is_due_again:
            return []
        self._published, self._published_at_ms = found, now_ms
        fact = OwnCpusOpened(at_ms=now_ms, node=self._node, cpus=found.cpus.format(), groups=found.groups)
        return [Publish(fact=fact, id=f"executor:opened:{self._node}:{now_ms}")]
