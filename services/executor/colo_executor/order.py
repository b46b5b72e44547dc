"""The order of kernel writes in which the kernel accepts every step.

cgroup v1 refuses a CPU quota above that of an ancestor, a burst above the quota, and a CPU set outside the parent's or without a
child's CPUs. So growing values are written from the top down, then shrinking values from the bottom up; a set that
moves passes through the union of old and new.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from colo_common.model.cpuset import CpuSet
from colo_executor.knobs import UNLIMITED, Knob

__all__ = ["KnobWrite", "cpuset_writes", "quota_writes"]

_INFINITE: Final = 1 << 62


class KnobWrite(Struct, frozen=True, kw_only=True):
    """One value for one knob of the control group at `path` (relative to the executor's own group, "" is that group).

    `page_bytes` is the page size of a limit of huge pages, 0 for every other knob.
    """

    path: str
    knob: Knob
    value: int | str
    page_bytes: int = 0


def _depth(path: str) -> tuple[int, str]:
    return (path.count("/") + 1 if path else 0, path)


def quota_writes(have: Mapping[str, int], target: Mapping[str, int]) -> tuple[KnobWrite, ...]:
    """Writes that lead the quotas `have` to `target` (same paths, one period, UNLIMITED for none); both trees must be legal.

    After each write every group's quota is at most that of its nearest limited ancestor, as v1 demands.
    """
    changed = [path for path in target if have[path] != target[path]]
    grows = sorted((path for path in changed if _size(target[path]) > _size(have[path])), key=_depth)
    shrinks = sorted((path for path in changed if _size(target[path]) < _size(have[path])), key=_depth, reverse=True)
    return tuple(KnobWrite(path=path, knob=Knob.CPU_QUOTA, value=target[path]) for path in (*grows, *shrinks))


def _size(quota: int) -> int:
    return _INFINITE if quota == UNLIMITED else quota


def cpuset_writes(knob: Knob, have: Mapping[str, CpuSet], target: Mapping[str, CpuSet]) -> tuple[KnobWrite, ...]:
    """Writes that lead the sets `have` to `target` (same paths): unions from the top down, then targets from the bottom up.

    After each write every group's set lies in its parent's and contains its children's.
    """
    writes = []
    now = dict(have)
    for path in sorted(target, key=_depth):
        union = have[path] | target[path]
        if union != now[path]:
            writes.append(KnobWrite(path=path, knob=knob, value=union.format()))
            now[path] = union
    for path in sorted(target, key=_depth, reverse=True):
        if target[path] != now[path]:
            writes.append(KnobWrite(path=path, knob=knob, value=target[path].format()))
            now[path] = target[path]
    return tuple(writes)
