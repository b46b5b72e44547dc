"""Gives files of others the values that they had before, in an order and in words that the kernel takes."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_executor.cgroup import CgroupError, CgroupTree
from colo_executor.old_sets import sets_of, stands_for_all, union_of
from colo_executor.process.machine import online_cpus

__all__ = ["OldValues"]


class OldValues:
    """`tree_of` is the tree that a path, relative to the cgroup root, is in."""

    def __init__(self, tree_of: Callable[[str], CgroupTree], sys_root: str) -> None:
        self._tree_of = tree_of
        self._sys_root = sys_root

    def shown(self, path: str, value: str) -> str:
        """What the file shows; where that is as good as `value`, that."""
        text = self._tree_of(path).text_at(path)
        if stands_for_all(path, value) and text:
            with contextlib.suppress(InvalidInput):
                return text if self._possible() - CpuSet.parse(text) else value
        return text

    def put_back(self, path: str, value: str) -> None:
        """Write the value. Raises CgroupError when the kernel refuses it, FileNotFoundError for a file that is deleted.

        A group of cgroup v2 that has CPUs of its own and processes cannot get those of its parent again by an empty list (Linux
        6.1 refuses it with ENOSPC). A list of all CPUs is as good: the kernel takes of it those that the parent has.
        """
        tree = self._tree_of(path)
        try:
            tree.put_back(path, value)
        except CgroupError:
            if not stands_for_all(path, value) or tree.version == 1:
                raise
            tree.put_back(path, self._possible().format())

    def put_back_all(self, images: Iterable[tuple[str, str]]) -> dict[str, str]:
        """Write the values, in this order. Returns by path why one could not be; a file that is deleted has none to get.

        What is refused is tried again after the others: a quota of cgroup v1 lies within that of the group above, a limit within
        another one of the same group.
        """
        left, refused = list(images), dict[str, str]()
        while left:
            refused = {}
            for path, value in left:
                try:
                    self.put_back(path, value)
                except FileNotFoundError:
                    continue
                except (CgroupError, OSError) as error:
                    refused[path] = str(error)
            if len(refused) == len(left):
                break
            left = [each for each in left if each[0] in refused]
        return refused

    def widen_sets(self, images: Mapping[str, str]) -> None:
        """Give sets what they had before beside what they have, so that each lies in that of its parent all the time.

        What the kernel refuses is told when the old value itself is written.
        """
        for path, value in sets_of(images):
            with contextlib.suppress(CgroupError, InvalidInput, OSError):
                tree = self._tree_of(path)
                if union := union_of(tree.text_at(path), value):
                    tree.put_back(path, union)

    def _possible(self) -> CpuSet:
        """The CPUs that the machine may ever have online."""
        with contextlib.suppress(OSError, InvalidInput):
            return CpuSet.parse(Path(self._sys_root, "devices/system/cpu/possible").read_text())
        return online_cpus(self._sys_root)
