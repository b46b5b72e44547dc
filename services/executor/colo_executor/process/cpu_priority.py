"""How the kernel makes batch work give way to what runs beside it, as its files show it."""

import os
from typing import Final

from colo_executor.local import LowPriority
from colo_executor.process.group_identity import has_group_identity
from colo_executor.process.kill_tier import SUFFIX

__all__ = ["RATIO_LEAST", "low_priority"]

RATIO_LEAST: Final = 500
"""So many times batch work's weight must be that of each group beside it: cgroup v1's least, 2, against the default, 1024, is 512.

On a machine of two CPUs, spinning and copying batch work at 2 of 1024 raised p99 of requests of 1 ms by 9 to 12 %, and cpu.idle
by 4 to 7 % (`python -m tests.bench.bench_online`). Under cgroup v2 the least, 1, against the default, 100, is not enough.
"""
_GROUPS_MOST: Final = 256


def low_priority(group: str, proc_root: str) -> LowPriority:
    """What the files of the batch tier's top group, a directory under the cpu controller, show now.

    "idle": cpu.idle is 1. "bvt": its group identity is negative, and the kernel heeds identities. "weight": no group beside it, but
    for one of batch work that is being ended, weighs less than `RATIO_LEAST` times what it weighs. "": neither, or it cannot be
    told, also with more groups beside it than are looked at.
    """
    if _text(group, "cpu.idle") == "1":
        return "idle"
    if _text(group, "cpu.bvt_warp_ns") in ("-1", "-2") and has_group_identity(proc_root):
        return "bvt"
    file = "cpu.shares" if os.path.exists(os.path.join(group, "cpu.shares")) else "cpu.weight"
    own = _number(group, file)
    if own < 1:
        return ""
    above, name = os.path.split(group)
    try:
        with os.scandir(above) as entries:
            siblings = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return ""
    others = [path for path in siblings if os.path.basename(path) not in (name, name + SUFFIX)]
    if len(others) > _GROUPS_MOST:
        return ""
    for path in others:
        weight = _number(path, file)
        # A group that is gone since it was listed competes with nobody.
        if weight < own * RATIO_LEAST and os.path.isdir(path):
            return ""
    return "weight"


def _number(group: str, file: str) -> int:
    """The number in the file; 0, which no group weighs, where there is none."""
    text = _text(group, file)
    return int(text) if text.isdecimal() else 0


def _text(group: str, file: str) -> str:
    """What the file shows; "" where it cannot be read, such as cpu.idle on a kernel without it."""
    try:
        with open(os.path.join(group, file), encoding="ascii") as opened:
            return opened.read().strip()
    except OSError:
        return ""
