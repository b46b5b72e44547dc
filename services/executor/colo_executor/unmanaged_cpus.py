"""The CPU sets of groups that colo did not make, while LSE and LSR work has CPUs of its own: pure sets.

Groups are named by their path, "" for the top one. The empty set is that of a group of cgroup v2 that has all CPUs of its parent.
"""

from collections.abc import Iterable, Mapping

from colo_common.model.cpuset import CpuSet

__all__ = ["NoCpuLeft", "base_sets", "by_depth", "cleared_sets"]


class NoCpuLeft(Exception):
    """All CPUs of the group are somebody's own."""


def by_depth(paths: Iterable[str]) -> list[str]:
    """The paths with every group after the one that it is in."""
    return sorted(paths, key=lambda path: (path.count("/") + 1 if path else 0, path))


def _above(path: str) -> str:
    return path.rpartition("/")[0]


def base_sets(
    present: Mapping[str, CpuSet], noted: Mapping[str, CpuSet], written: Mapping[str, CpuSet], online: CpuSet
) -> dict[str, CpuSet]:
    """What each group has when no CPU is anybody's own.

    `noted` is what it had before its set was first changed, `written` what it was given last. Where it has another set by now, or
    when that is not known, CPUs that it did not have before, somebody else set it, and that counts. A group that was made meanwhile
    with the set of the group that it is in has what that one has. CPUs that are not `online` the kernel itself takes out of sets.
    """
    base: dict[str, CpuSet] = {}
    for path in by_depth(present):
        now, before, last = present[path], noted.get(path), written.get(path)
        above = _above(path)
        if before is not None:
            if last is not None:
                is_of_others = now not in (last, last & online)
            else:
                # Of a group whose CPUs are all somebody's own an earlier executor made what the group has that it is in.
                is_moved = bool(path) and not now & before and now == present.get(above)
                is_of_others = bool(before and now - before) and not is_moved
            base[path] = now if is_of_others else before
        elif path and above in present and now == present[above]:
            base[path] = base[above]
        else:
            base[path] = now
    return base


def cleared_sets(base: Mapping[str, CpuSet], own: CpuSet, online: CpuSet, most: CpuSet = CpuSet()) -> dict[str, CpuSet]:
    """The sets that keep a group, and those in it, clear of the CPUs `own`; no set is ever empty that was not.

    The first of the groups is the one that all others are in; `most`: it has these CPUs, whatever it had before. A group whose CPUs
    are all somebody's own gets those of the group that it is in, as the kernel does it under cgroup v2. Raises NoCpuLeft where
    nothing is left to the first one.
    """
    target: dict[str, CpuSet] = {}
    for path in by_depth(base):
        above = target.get(_above(path)) if target else None
        if not own and not most:
            target[path] = (base[path] & online) or base[path]
            continue
        free = ((base[path] if target or not most else most) or online) & online
        free = free - own
        if above is not None:
            free = (free & above) or above
        if not free:
            raise NoCpuLeft
        target[path] = free
    return target
