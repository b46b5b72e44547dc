"""The kernel's cpuset rules, modelled: a v1 tree that refuses as the kernel does, and v2's effective sets.

Source: linux:kernel/cgroup/cpuset.c and cpuset-v1.c, checked against a live 6.18 kernel.

For comparing with a kernel: simulated machines have no cgroup files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from colo_common.model.cpuset import CpuSet, InvalidCpuList

_MAX_NODES: Final = 1024
ROOT: Final = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpusetKnobs:
    """What one v1 cpuset group holds in its files."""

    cpus: CpuSet = field(default_factory=CpuSet)
    mems: CpuSet = field(default_factory=CpuSet)
    is_cpu_exclusive: bool = False
    is_mem_exclusive: bool = False

    def fits_in(self, other: CpusetKnobs) -> bool:
        """Say whether these knobs are legal below `other`."""
        return (
            self.cpus <= other.cpus
            and self.mems <= other.mems
            and self.is_cpu_exclusive <= other.is_cpu_exclusive
            and self.is_mem_exclusive <= other.is_mem_exclusive
        )


class CpusetV1Tree:
    """A v1 cpuset hierarchy. Every operation returns None when it succeeds, else the errno, and then changes nothing.

    Groups are named by their path below the root, without a leading slash; the root itself is "".
    """

    def __init__(self, root_cpus: CpuSet, root_mems: CpuSet) -> None:
        root = CpusetKnobs(cpus=root_cpus, mems=root_mems, is_cpu_exclusive=True, is_mem_exclusive=True)
        self._knobs: dict[str, CpusetKnobs] = {ROOT: root}
        self._tasks: dict[str, int] = {}

    def knobs(self, path: str) -> CpusetKnobs:
        """Return what a group holds. Raises KeyError for a group that does not exist."""
        return self._knobs[_normal(path)]

    def mkdir(self, path: str) -> str | None:
        """Create a group; it starts with empty sets."""
        path = _normal(path)
        if path in self._knobs:
            return "EEXIST"
        if _parent(path) not in self._knobs:
            return "ENOENT"
        self._knobs[path] = CpusetKnobs()
        return None

    def rmdir(self, path: str) -> str | None:
        """Remove a group that has neither children nor tasks."""
        path = _normal(path)
        if path not in self._knobs:
            return "ENOENT"
        if path == ROOT or self._tasks.get(path, 0) or any(self._children(path)):
            return "EBUSY"
        del self._knobs[path]
        return None

    def attach(self, path: str) -> str | None:
        """Move a task into a group; it needs CPUs and memory nodes to run on."""
        path = _normal(path)
        if path not in self._knobs:
            return "ENOENT"
        knobs = self._knobs[path]
        if not knobs.cpus or not knobs.mems:
            return "ENOSPC"
        self._tasks[path] = self._tasks.get(path, 0) + 1
        return None

    def write(self, path: str, knob: str, text: str) -> str | None:
        """Write one of cpus, mems, cpu_exclusive, mem_exclusive (also with the prefix "cpuset.")."""
        path = _normal(path)
        if path not in self._knobs:
            return "ENOENT"
        old = self._knobs[path]
        knob = knob.removeprefix("cpuset.")
        if path == ROOT and knob in ("cpus", "mems"):
            return "EACCES"
        try:
            trial = self._trial(old, knob, text)
        except InvalidCpuList as refused:
            return refused.errno_name
        if trial is None:
            return "EINVAL"
        if trial != old:
            refusal = self._refusal(path, old, trial)
            if refusal is not None:
                return refusal
            self._knobs[path] = trial
        return None

    def _trial(self, old: CpusetKnobs, knob: str, text: str) -> CpusetKnobs | None:
        root = self._knobs[ROOT]
        match knob:
            case "cpus":
                cpus = CpuSet.parse(text.strip(), "cpuset.cpus", nr_cpus=max(root.cpus, default=0) + 1)
                return replace(old, cpus=cpus) if cpus <= root.cpus else None
            case "mems":
                mems = CpuSet.parse(text.strip(), "cpuset.mems", nr_cpus=_MAX_NODES)
                return replace(old, mems=mems) if mems <= root.mems else None
            case "cpu_exclusive" | "mem_exclusive":
                if text.strip() not in ("0", "1"):
                    return None
                return _with_exclusive(old, knob, text.strip() == "1")
            case _:
                return None

    def _refusal(self, path: str, old: CpusetKnobs, trial: CpusetKnobs) -> str | None:
        """Return the first rule a change breaks, in the kernel's order."""
        if not all(self._knobs[child].fits_in(trial) for child in self._children(path)):
            return "EBUSY"
        if path == ROOT:
            return None
        if not trial.fits_in(self._knobs[_parent(path)]):
            return "EACCES"
        loses_all = (old.cpus and not trial.cpus) or (old.mems and not trial.mems)
        if loses_all and self._is_populated(path):
            return "ENOSPC"
        for sibling in self._children(_parent(path)):
            if sibling != path and _collides(trial, self._knobs[sibling]):
                return "EINVAL"
        return None

    def _is_populated(self, path: str) -> bool:
        return any(count and (name == path or name.startswith(f"{path}/")) for name, count in self._tasks.items())

    def _children(self, path: str) -> Iterator[str]:
        return (name for name in self._knobs if name != ROOT and _parent(name) == path)


def effective_cpus_v2(root: CpuSet, ancestors_first: Sequence[CpuSet]) -> CpuSet:
    """Return cpuset.cpus.effective of the last group: own set within the parent's, or the parent's where that is empty."""
    effective = root
    for own in ancestors_first:
        effective = own & effective or effective
    return effective


def _with_exclusive(old: CpusetKnobs, knob: str, value: bool) -> CpusetKnobs:
    if knob == "cpu_exclusive":
        return replace(old, is_cpu_exclusive=value)
    return replace(old, is_mem_exclusive=value)


def _collides(one: CpusetKnobs, other: CpusetKnobs) -> bool:
    is_cpu_exclusive = one.is_cpu_exclusive or other.is_cpu_exclusive
    is_mem_exclusive = one.is_mem_exclusive or other.is_mem_exclusive
    return (is_cpu_exclusive and bool(one.cpus & other.cpus)) or (is_mem_exclusive and bool(one.mems & other.mems))


def _normal(path: str) -> str:
    return path.strip("/")


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
