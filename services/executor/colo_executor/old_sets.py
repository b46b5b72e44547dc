"""The order in which files get their old values back when CPU sets and memory zones of groups in each other are among them."""

from collections.abc import Mapping
from typing import Final

from colo_common.model.cpuset import CpuSet
from colo_executor.knob_table import Knob, file_of

__all__ = ["in_put_back_order", "sets_of", "stands_for_all", "union_of"]

_NAMES: Final = frozenset(
    place[1] for knob in (Knob.CPUSET_CPUS, Knob.CPUSET_MEMS) for version in (1, 2) if (place := file_of(knob, version))
)


def sets_of(images: Mapping[str, str]) -> list[tuple[str, str]]:
    """The sets among these files and their old values, each group after the one that it is in."""
    found = [(path, value) for path, value in images.items() if path.rpartition("/")[2] in _NAMES]
    return sorted(found, key=lambda each: each[0].count("/"))


def in_put_back_order(images: Mapping[str, str]) -> list[tuple[str, str]]:
    """The files and their old values: the sets first, each group before the one that it is in, then all others as they were listed.

    A set goes with its controller, whose own old value may be that it was not handed down.
    """
    sets = sets_of(images)
    return sets[::-1] + [each for each in images.items() if each not in sets]


def stands_for_all(path: str, value: str) -> bool:
    """Whether the old value is that of a group of cgroup v2 that had all CPUs of its parent."""
    return not value and path.rpartition("/")[2] == "cpuset.cpus"


def union_of(shown: str, value: str) -> str:
    """The set that has both; "" where it is the one that is there, or where either stands for all CPUs of the parent."""
    now, before = CpuSet.parse(shown), CpuSet.parse(value)
    union = now | before
    return union.format() if now and before and union != now else ""
