"""Lists the control groups of a machine with the values that the kernel holds for them, foreign groups too. Reads, never writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from msgspec import Struct

from colo_collector.discover import BATCH, ONLINE_SUFFIX, Workload, batch_workloads, online_workloads
from colo_collector.hierarchy import Hierarchy
from colo_common.events.kernel import KernelGroup
from colo_common.model.qos import QosClass

__all__ = ["GROUPS_MOST", "GroupsRead", "ReadGroups", "GroupFileReader", "read_groups"]

GROUPS_MOST: Final = 2_000
_DIRECTORIES_MOST: Final = 8_000
_DEPTH_MOST: Final = 16
_CONTROLLERS: Final = ("cpu", "cpuset", "memory")
# v1 shows "no limit" as a number near 2^63, rounded down to a page.
_V1_UNLIMITED_BYTES: Final = 1 << 62
_FAULTS_MOST: Final = 20


class ReadGroups(Struct, frozen=True, kw_only=True):
    """Effect: read the control groups for this request."""

    request: str


class GroupsRead(Struct, frozen=True, kw_only=True):
    """Event: the control groups that were read for the request. `left_out` counts those beyond the limit."""

    request: str
    groups: tuple[KernelGroup, ...]
    left_out: int = 0
    faults: tuple[str, ...] = ()
    simulated: bool = False


class _Texts(Protocol):
    @property
    def texts(self) -> Mapping[str, str | None]: ...


class GroupFileReader(Protocol):
    """Reads files and directories of the machine; a missing or refused one is None or empty."""

    def list_directories(self, path: str, limit: int = ...) -> tuple[str, ...]: ...
    def read_all(self, paths: Sequence[str], *, keep: bool = ...) -> _Texts: ...


def read_groups(
    reader: GroupFileReader, hierarchy: Hierarchy, subtree: str, online: Sequence[Workload], request: str
) -> GroupsRead:
    """Every group with processes, and the tiers of colo, by path.

    A group's CPUs and memory zones are those that hold for it: its own cpuset, or that of the nearest group above it that has one.
    """
    mounts = {
        name: mount.mount_point.rstrip("/")
        for name in _CONTROLLERS
        if (mount := hierarchy.controller(name)) is not None
    }
    versions = {mount.controller: mount.version for mount in hierarchy.controllers}
    paths, beyond = _walk(reader, dict.fromkeys(mounts.values()))
    processes = _processes(reader, dict.fromkeys(mounts.values()), paths)
    tiers = (f"/{subtree}", f"/{subtree}/{BATCH}", f"/{subtree}{ONLINE_SUFFIX}")
    wanted = [path for path in paths if processes[path] or path in tiers]
    shown = wanted[:GROUPS_MOST]
    known = {one.path: one for one in (*_replicas(shown, subtree), *online)}
    texts = reader.read_all(_files(mounts, versions, shown), keep=False).texts
    groups, faults = [], []
    for path in shown:
        try:
            groups.append(_group(path, mounts, versions, texts, known, tiers, processes[path]))
        except ValueError as error:
            faults.append(f"{path}: {error}")
    return GroupsRead(
        request=request,
        groups=tuple(groups),
        left_out=len(wanted) - len(shown) + beyond,
        faults=tuple(faults[:_FAULTS_MOST]),
    )


def _walk(reader: GroupFileReader, mounts: Iterable[str]) -> tuple[list[str], int]:
    """The paths of all groups below the mount points, sorted, and how many directories were not looked into."""
    found: dict[str, None] = {}
    beyond = 0
    for mount in mounts:
        waiting = [("", 0)]
        while waiting:
            path, depth = waiting.pop()
            for name in reader.list_directories(f"{mount}{path}"):
                child = f"{path}/{name}"
                if len(found) >= _DIRECTORIES_MOST or depth >= _DEPTH_MOST:
                    beyond += 1
                    continue
                found[child] = None
                waiting.append((child, depth + 1))
    return sorted(found), beyond


def _processes(reader: GroupFileReader, mounts: Iterable[str], paths: Sequence[str]) -> dict[str, int]:
    """How many processes each group itself has, by any controller."""
    roots = tuple(mounts)
    texts = reader.read_all([f"{root}{path}/cgroup.procs" for root in roots for path in paths], keep=False).texts
    return {
        path: max((len((texts[f"{root}{path}/cgroup.procs"] or "").split()) for root in roots), default=0)
        for path in paths
    }


def _replicas(paths: Sequence[str], subtree: str) -> tuple[Workload, ...]:
    """The replicas of colo among the groups."""
    batch, online = f"/{subtree}/{BATCH}/", f"/{subtree}{ONLINE_SUFFIX}/"
    names = {
        prefix: [path.removeprefix(prefix) for path in paths if path.startswith(prefix)] for prefix in (batch, online)
    }
    return (
        *batch_workloads((name for name in names[batch] if "/" not in name), subtree),
        *online_workloads((name for name in names[online] if "/" not in name), subtree),
    )


def _above(path: str) -> list[str]:
    """The group and those above it up to the root, nearest first."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(len(parts), 0, -1)]


def _names(controller: str, version: str) -> tuple[str, ...]:
    if controller == "cpuset":
        suffix = ".effective" if version == "v2" else ""
        return (f"cpuset.cpus{suffix}", f"cpuset.mems{suffix}")
    if controller == "memory":
        return ("memory.max",) if version == "v2" else ("memory.limit_in_bytes",)
    if version == "v2":
        return ("cpu.weight", "cpu.idle", "cpu.max")
    return ("cpu.shares", "cpu.idle", "cpu.cfs_quota_us", "cpu.cfs_period_us")


def _files(mounts: Mapping[str, str], versions: Mapping[str, str], paths: Sequence[str]) -> list[str]:
    wanted: dict[str, None] = {}
    for controller, mount in mounts.items():
        for path in paths:
            for place in _above(path) if controller == "cpuset" else (path,):
                for name in _names(controller, versions[controller]):
                    wanted[f"{mount}{place}/{name}"] = None
    return list(wanted)


def _group(
    path: str,
    mounts: Mapping[str, str],
    versions: Mapping[str, str],
    texts: Mapping[str, str | None],
    known: Mapping[str, Workload],
    tiers: Sequence[str],
    processes: int,
) -> KernelGroup:
    """The group from its files. Raises ValueError for a file that holds no number."""

    def text(controller: str, name: str) -> str:
        mount = mounts.get(controller)
        found = None if mount is None else texts.get(f"{mount}{path}/{name}")
        return "" if found is None else found.strip()

    def cpuset(index: int) -> str:
        mount = mounts.get("cpuset")
        if mount is None:
            return ""
        name = _names("cpuset", versions["cpuset"])[index]
        return next((found.strip() for place in _above(path) if (found := texts.get(f"{mount}{place}/{name}"))), "")

    workload = known.get(path)
    is_v2 = versions.get("cpu") == "v2"
    weight = text("cpu", "cpu.weight" if is_v2 else "cpu.shares")
    return KernelGroup(
        name=workload.name if workload is not None else path.rpartition("/")[2],
        path=path,
        version=2 if is_v2 else 1,
        qos=workload.qos if workload is not None else _unmanaged_class(path, known),
        is_colo=path in tiers or (workload is not None and bool(workload.replica)),
        replica=workload.replica if workload is not None else "",
        attempt=workload.attempt if workload is not None else 0,
        cpus=cpuset(0),
        mems=cpuset(1),
        weight=int(weight) if weight else None,
        idle=text("cpu", "cpu.idle") == "1",
        cpu_quota_mcpu=_quota_mcpu(text, is_v2=is_v2),
        memory_limit_bytes=_memory_limit(text),
        processes=processes,
    )


def _unmanaged_class(path: str, known: Mapping[str, Workload]) -> QosClass | None:
    """The class of a group that colo did not make: that of a declared group around it, or what its place among systemd's and the
    kubelet's groups says (a pod that names no class of its own is LS, a best-effort one BE).
    """
    for place in _above(path):
        if place in known:
            return known[place].qos
    parts = path.split("/")
    if any(part.startswith("kubepods") for part in parts):
        return QosClass.BE if any("besteffort" in part for part in parts) else QosClass.LS
    return QosClass.SYSTEM if {"system.slice", "init.scope"} & set(parts) else None


def _quota_mcpu(text: _Read, *, is_v2: bool) -> int | None:
    """The CPU limit, rounded down to milli-CPU; None without one."""
    if is_v2:
        quota, _, period = text("cpu", "cpu.max").partition(" ")
    else:
        quota, period = text("cpu", "cpu.cfs_quota_us"), text("cpu", "cpu.cfs_period_us")
    if quota in ("", "max") or int(quota) < 0 or not period or int(period) == 0:
        return None
    return int(quota) * 1_000 // int(period)


def _memory_limit(text: _Read) -> int | None:
    limit = text("memory", "memory.max") or text("memory", "memory.limit_in_bytes")
    return None if limit in ("", "max") or int(limit) >= _V1_UNLIMITED_BYTES else int(limit)


class _Read(Protocol):
    def __call__(self, controller: str, name: str, /) -> str: ...
