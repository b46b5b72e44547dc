"""A control group that cannot be removed, as one that a program of the machine keeps."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from colo_executor.cgroup import CgroupTree

__all__ = ["covered_group"]


@contextmanager
def covered_group(tree: CgroupTree, group: str) -> Iterator[None]:
    """Mount an empty disk on the group, under one controller where each has a hierarchy of its own. Needs the right to mount."""
    path = f"{tree.hierarchy.mounts['memory']}/{tree.name}/{group}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", path], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)
