"""Reads the kernel's files of an executor's control groups, by path; writes none."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from colo_executor.cgroup_hierarchy import find_hierarchy
from colo_executor.desired import BATCH
from colo_executor.knob_table import WEIGHT_MOST, Knob, file_of
from colo_executor.knobs import weight_v2

__all__ = ["CGROUP_ROOT", "KernelView", "differences"]

CGROUP_ROOT: Final = "/sys/fs/cgroup"
_OF_ENDING: Final = {("cpu.shares", str(WEIGHT_MOST)), ("cpu.weight", str(weight_v2(WEIGHT_MOST)))}


class KernelView:
    """The groups of one subtree. The constructor raises CgroupError where a needed controller is lacking.

    Groups are named as the executor names them: "" is the subtree itself, "batch" the tier, "batch/NAME" a replica attempt.
    """

    def __init__(self, subtree: str, root: str = CGROUP_ROOT) -> None:
        hierarchy = find_hierarchy(root)
        self.version = hierarchy.version
        self._root = Path(root).resolve()
        self._mounts = {controller: Path(mount) / subtree for controller, mount in hierarchy.mounts.items()}

    def replicas(self) -> tuple[str, ...]:
        """The existing groups of replica attempts, in order."""
        return tuple(f"{BATCH}/{path.name}" for path in _directories(self._mounts["cpu"] / BATCH))

    def processes(self, group: str) -> tuple[int, ...]:
        """The processes of the group itself; () when the group does not exist."""
        text = _text(self._mounts["cpu"] / group / "cgroup.procs") or ""
        return tuple(int(line) for line in text.split())

    def knobs(self, group: str) -> dict[str, str]:
        """The text of every existing knob file, by path relative to the root of control groups."""
        found = {}
        for knob in Knob:
            place = file_of(knob, self.version)
            if place is None or place[0] not in self._mounts:
                continue
            path = self._mounts[place[0]] / group / place[1]
            text = _text(path)
            if text is not None:
                found[str(path.relative_to(self._root))] = text
        return found

    def ceiling_mcpu(self) -> int | None:
        """The batch tier's CPU ceiling: quota x 1000 // period; None without one."""
        tier = self._mounts["cpu"] / BATCH
        if self.version == 1:
            words = [_text(tier / name) or "" for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
        else:
            words = (_text(tier / "cpu.max") or "").split()
        if len(words) != 2 or not all(word.isdigit() for word in words):
            return None
        return int(words[0]) * 1_000 // max(int(words[1]), 1)

    def left(self) -> tuple[str, ...]:
        """The existing directories of the subtree, under any controller."""
        return tuple(str(path) for path in sorted(set(self._mounts.values())) if path.is_dir())


def differences(published: Mapping[str, str], shown: Mapping[str, str]) -> list[str]:
    """A sentence for each file with another value than the published one; a deleted file has none.

    Nor has the greatest weight: the executor gives it to an attempt that was told to end.
    """
    return [
        f"{path}: published {value}, shows {shown[path]}"
        for path, value in sorted(published.items())
        if path in shown and shown[path] != value and (path.rpartition("/")[2], shown[path]) not in _OF_ENDING
    ]


def _text(path: Path) -> str | None:
    try:
        return path.read_text("ascii").strip()
    except OSError:
        return None


def _directories(path: Path) -> list[Path]:
    try:
        return sorted(entry for entry in path.iterdir() if entry.is_dir())
    except OSError:
        return []
