"""Whether this kernel heeds the group identities of cpu.bvt_warp_ns."""

import contextlib
import os
import re
from typing import Final

from colo_executor.knob_table import Knob

__all__ = ["has_group_identity", "heeded_knobs"]

_SWITCH: Final = "sys/kernel/sched_group_identity_enabled"
_CRASHES: Final = re.compile(r"4\.19\.91-25\.[1-5]\.al7\b")
"""Kernels of Alibaba Cloud Linux 2 that go down when identities are used, as their maker says."""


def has_group_identity(proc_root: str) -> bool:
    """Whether identities count where their files are: the kernel's switch is not 0, and it is none that they bring down.

    An older kernel has no switch, and always heeds them. Nobody turns the switch here: it excludes core scheduling on the node.
    """
    with contextlib.suppress(OSError), open(os.path.join(proc_root, "sys/kernel/osrelease"), encoding="ascii") as file:
        if _CRASHES.match(file.read()):
            return False
    try:
        with open(os.path.join(proc_root, _SWITCH), encoding="ascii") as file:
            return file.read().strip() != "0"
    except FileNotFoundError:
        return True
    except OSError:
        return False


def heeded_knobs(has: frozenset[Knob], proc_root: str) -> frozenset[Knob]:
    """The knobs whose files are there, without that of group identities where the kernel does not heed them."""
    return has - {Knob.CPU_BVT} if Knob.CPU_BVT in has and not has_group_identity(proc_root) else has
