"""Finds out what a machine's kernel can do: its cgroup hierarchies and the capability matrix.

`colo doctor` and the collector ask here, so that they give one answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from msgspec import Struct

from colo_collector.capabilities import Probe, capabilities, probe_paths
from colo_collector.discover import BATCH
from colo_collector.hierarchy import Hierarchy, parse_hierarchy, unified_point
from colo_common.events.node import Capability

__all__ = ["HOST_MOUNTS", "KernelProbed", "OWN_MOUNTS", "probe_kernel", "sees_tier"]

OWN_MOUNTS: Final = "/proc/mounts"
HOST_MOUNTS: Final = "/proc/1/mounts"
"""The mounts of the machine's first process: a container that sees the machine's /proc has other ones of its own."""


class _Texts(Protocol):
    @property
    def texts(self) -> Mapping[str, str | None]: ...


class ProbeReader(Protocol):
    """Reads files of the machine; a missing or refused one is None."""

    def read(self, path: str) -> str | None: ...
    def read_all(self, paths: Sequence[str], *, keep: bool = ...) -> _Texts: ...
    def list_directories(self, path: str, limit: int = ...) -> tuple[str, ...]: ...
    def is_writable(self, path: str) -> bool: ...


class KernelProbed(Struct, frozen=True, kw_only=True):
    """The hierarchies, the matrix, and whether an executor has made its groups. `assumed` has a sentence for what was assumed."""

    hierarchy: Hierarchy
    capabilities: tuple[Capability, ...]
    has_tier: bool
    assumed: tuple[str, ...] = ()


def probe_kernel(
    reader: ProbeReader,
    *,
    is_root: bool,
    subtree: str,
    admits_online: bool = True,
    is_host_mounted: bool = False,
    lacks_core_scheduling: str | None = None,
) -> KernelProbed:
    """Read the hierarchies and the matrix. `is_host_mounted`: the reader's root is another one than this process's.

    There the mounts of process 1 count. Where these may not be read (which needs the right to trace it), those of this process do.
    Raises InvalidInput for malformed mounts.
    """
    assumed: list[str] = []
    mounts = reader.read(HOST_MOUNTS) if is_host_mounted else None
    if mounts is None:
        mounts = reader.read(OWN_MOUNTS) or ""
        if is_host_mounted:
            assumed.append(f"{HOST_MOUNTS} may not be read; the mounts of this process count as the machine's")
    point = unified_point(mounts)
    controllers = reader.read(f"{point}/cgroup.controllers") if point else None
    hierarchy = parse_hierarchy(mounts, reader.read("/proc/self/cgroup") or "", controllers)
    has_tier = sees_tier(reader, hierarchy, subtree)
    probe = Probe(
        hierarchy=hierarchy,
        texts={**reader.read_all(probe_paths(hierarchy), keep=False).texts, OWN_MOUNTS: mounts},
        release=(reader.read("/proc/sys/kernel/osrelease") or "").strip(),
        is_root=is_root,
        writable=frozenset(
            mount.controller
            for mount in hierarchy.controllers
            if ".." not in mount.self_path.split("/")
            and reader.is_writable(f"{mount.mount_point}{mount.self_path.rstrip('/')}")
        ),
        has_tier=has_tier,
        admits_online=admits_online,
        lacks_core_scheduling=lacks_core_scheduling,
    )
    return KernelProbed(
        hierarchy=hierarchy, capabilities=capabilities(probe), has_tier=has_tier, assumed=tuple(assumed)
    )


def sees_tier(reader: ProbeReader, hierarchy: Hierarchy, subtree: str) -> bool:
    """Whether an executor has made its groups under the cpuset controller."""
    mount = hierarchy.controller("cpuset")
    return mount is not None and BATCH in reader.list_directories(f"{mount.mount_point.rstrip('/')}/{subtree}")
