"""What files of others, and properties of units, had before they were changed, and how they get it back.

Files get it in an order and in words that the kernel takes.
"""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_executor.cgroup import CgroupError, CgroupTree
from colo_executor.journal import JournalFile
from colo_executor.journal_lines import PreImage
from colo_executor.old_sets import sets_of, stands_for_all, union_of
from colo_executor.process.machine import online_cpus

__all__ = ["OldValues"]


class OldValues:
    """The old values that the journal has, of what a write changed. `tree_of` is the tree that a path below the cgroup root is in.

    A file whose writes the kernel has refused so far has none: nothing there is colo's.
    """

    def __init__(self, journal: JournalFile, tree_of: Callable[[str], CgroupTree], sys_root: str) -> None:
        self._journal = journal
        self._tree_of = tree_of
        self._sys_root = sys_root
        # Journaled, and no write was taken yet: what they hold belongs to whoever set it last.
        self._refused: set[str] = set()

    def values(self) -> dict[str, str]:
        """The old values by path, in the order in which they were first changed."""
        known = self._journal.state.pre_images.copy()
        return {path: value for path, value in known.items() if path not in self._refused}

    def value(self, path: str) -> str | None:
        """What the file or property held before an executor first changed it; None where none did."""
        return None if path in self._refused else self._journal.state.pre_images.get(path)

    @contextlib.contextmanager
    def changing(self, path: str, value: str) -> Iterator[None]:
        """Journal what a file holds before it is first changed, in a `with` around the write that changes it.

        Where the kernel refuses that write nothing was changed: what the file holds is an old value only once a write is taken,
        and others may change it until then. An executor that dies in between leaves it to the next one as if it were changed.
        Raises CgroupError when the journal does not take it, and then nothing is written.
        """
        is_changed = self.value(path) is not None
        self.note_first(path, value)
        try:
            yield
        except CgroupError:
            if not is_changed:
                self._refused.add(path)
            raise

    def note_first(self, path: str, value: str) -> None:
        """Journal what a file or property holds, unless it was changed before. Raises CgroupError."""
        if self.value(path) is not None:
            return
        if self._journal.state.pre_images.get(path) != value:
            self._journal_values({path: value}, f"{path} is not changed: its old value")
        self._refused.discard(path)

    def note(self, images: Mapping[str, str]) -> None:
        """Journal what these files had before, in place of what was known of them. Raises CgroupError."""
        self._journal_values(images, "nothing is changed: the old values")
        self._refused.difference_update(images)

    def forget(self, paths: Collection[str]) -> None:
        """Forget what files had before that have it again, or are deleted."""
        self._journal.forget_old_values(paths)
        self._refused.difference_update(paths)

    def forget_refused(self) -> None:
        """Forget what was never changed, before the journal is left to the next executor."""
        if left := self._refused.intersection(self._journal.state.pre_images):
            self.forget(left)

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

    def _journal_values(self, images: Mapping[str, str], what: str) -> None:
        known = [path for path in images if path in self._journal.state.pre_images]
        if known:
            self._journal.forget_old_values(known)
        try:
            self._journal.append(*(PreImage(path=path, value=value) for path, value in images.items()))
        except OSError as error:
            raise CgroupError(f"{what} cannot be kept, {error}") from error

    def _possible(self) -> CpuSet:
        """The CPUs that the machine may ever have online."""
        with contextlib.suppress(OSError, InvalidInput):
            return CpuSet.parse(Path(self._sys_root, "devices/system/cpu/possible").read_text())
        return online_cpus(self._sys_root)
