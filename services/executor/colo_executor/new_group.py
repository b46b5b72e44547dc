"""Which files a control group of cgroup v2 will have that is still to be made.

It hands controllers down that no sibling may have now, so that no group shows their files.
"""

import os
import re
from collections.abc import Collection, Sequence

from colo_executor.group_dirs import DIR_FLAGS, groups_in, read_at
from colo_executor.knob_table import Knob, file_of, is_in_every_group

__all__ = ["knobs_of_new_group"]


def knobs_of_new_group(root_fd: int, controllers: Collection[str], huge_page_sizes: Sequence[int]) -> frozenset[Knob]:
    """The knobs of a top group: of controllers that siblings have by their files, of others those that this Linux gives."""
    enabled = read_at("cgroup.subtree_control", root_fd).split()
    files = [name for group in groups_in(root_fd) for name in _names(group, root_fd)]
    found = set()
    for knob in Knob:
        place = file_of(knob, 2, huge_page_sizes[0] if huge_page_sizes else 0)
        if place is None or place[0] not in controllers:
            continue
        is_shown = bool(files) and (place[0] in enabled or place[1].startswith("cgroup."))
        if place[1] in files if is_shown else is_in_every_group(knob, _release()):
            found.add(knob)
    return frozenset(found)


def _names(group: str, dir_fd: int) -> list[str]:
    """The files of a group in an open group; none of one that is gone or closed to us."""
    try:
        fd = os.open(group, DIR_FLAGS, dir_fd=dir_fd)
    except OSError:
        return []
    try:
        return os.listdir(fd)
    finally:
        os.close(fd)


def _release() -> tuple[int, int]:
    """The release of this Linux, (5, 15); (0, 0) for one that is told otherwise."""
    match = re.match(r"([0-9]{1,4})\.([0-9]{1,4})", os.uname().release)
    return (0, 0) if match is None else (int(match[1]), int(match[2]))
