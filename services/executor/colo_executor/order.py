"""In which order kernel files must be written so that every step is one the kernel accepts.

cgroup v1 refuses a CPU quota above that of an ancestor, a burst above the quota, and a CPU set outside the parent's or without a
child's. So what grows is written from the top down, then what shrinks from the bottom up; a set that moves passes through the
union of old and new.
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

    `page_bytes`: of which huge pages a limit is, 0 for every other knob.
    """

    path: str
    knob: Knob
    value: int | str
    page_bytes: int = 0


def _depth(path: str) -> tuple[int, str]:
    return (path.count("/") + 1 if path else 0, path)


def quota_writes(have: Mapping[str, int], placement_request: Mapping[str, int]) -> tuple[KnobWrite, ...]:
    """Writes that lead the quotas `have` to `placement_request` (same paths, one period, UNLIMITED for none); both trees must
    be legal.

    After each write every group's quota is at most that of its nearest limited ancestor, as v1 demands.
    """
    changed = [path for path in placement_request if have[path] != placement_request[path]]
    grows = sorted((path for path in changed if _size(placement_request[path]) > _size(have[path])), key=_depth)
    shrinks = sorted(
        (path for path in changed if _size(placement_request[path]) < _size(have[path])), key=_depth, reverse=True
    )
    return tuple(
        KnobWrite(path=path, knob=Knob.CPU_QUOTA, value=placement_request[path]) for path in (*grows, *shrinks)
    )


def _size(quota: int) -> int:
    return _INFINITE if quota == UNLIMITED else quota


def cpuset_writes(
    knob: Knob, have: Mapping[str, CpuSet], placement_request: Mapping[str, CpuSet]
) -> tuple[KnobWrite, ...]:
    """Writes that lead the sets `have` to `placement_request` (same paths): unions from the top down, then the wanted sets from
    the bottom up.

    After each write every group's set lies in its parent's and contains its children's.
    """
    writes = []
    now = dict(have)
    for path in sorted(placement_request, key=_depth):
        union = have[path] | placement_request[path]
        if union != now[path]:
            writes.append(KnobWrite(path=path, knob=knob, value=union.format()))
            now[path] = union
    for path in sorted(placement_request, key=_depth, reverse=True):
        if placement_request[path] != now[path]:
            writes.append(KnobWrite(path=path, knob=knob, value=placement_request[path].format()))
            now[path] = placement_request[path]
    return tuple(writes)
