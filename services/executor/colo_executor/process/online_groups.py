"""The control groups of online work that colo did not place, as the directories of one hierarchy show them."""

import contextlib
import os
from collections.abc import Collection
from typing import Final

__all__ = ["group_of_this_process", "online_groups"]

_POD_TREE: Final = ("kubepods", "kubepods.slice")
_BEST_EFFORT: Final = "besteffort"


def online_groups(root: str, own: Collection[str], here: str) -> set[str]:
    """The top-level groups but for `own`, those of batch work. Raises OSError where a group cannot be listed.

    A group that contains `here`, the group of this process, is replaced by its other children, because this process and what it
    started are no online work. The tree of Kubernetes pods is replaced by its children without those of class BestEffort.
    """
    found: set[str] = set()
    waiting = [name for name in _children(root, "") if name not in own]
    while waiting:
        name = waiting.pop()
        if name == here:
            continue
        if here.startswith(f"{name}/") or name in _POD_TREE:
            waiting += [f"{name}/{child}" for child in _children(root, name) if _BEST_EFFORT not in child]
        else:
            found.add(name)
    return found


def group_of_this_process(proc_root: str, controller: str = "") -> str:
    """The group of this process below the root of the controller's hierarchy, "" for that of cgroup v2.

    Empty when it is the root's or unknown.
    """
    with contextlib.suppress(OSError), open(os.path.join(proc_root, "self/cgroup"), encoding="utf-8") as file:
        for line in file:
            # "4:cpu,cpuacct:/system.slice", or "0::/system.slice" of cgroup v2.
            _, controllers, path = line.rstrip("\n").split(":", 2)
            if controller in controllers.split(","):
                return path.removeprefix("/").strip()
    return ""


def _children(root: str, group: str) -> list[str]:
    with os.scandir(os.path.join(root, group)) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
