"""The control groups that are workloads: the executor's replicas, found by name, and the online groups that the operator lists."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from colo_collector.hierarchy import Hierarchy
from colo_collector.kernel_text import cpu_list
from colo_collector.parse_cgroup import cpuset_of_group, group_files
from colo_collector.sample import WatchedGroup
from colo_common.model.cpuset import CpuSet
from colo_common.model.host_applications import check_group_name, check_group_path
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import attempt_key, parse_replica_token
from colo_common.model.qos import ONLINE_CLASSES, PriorityBand, QosClass, default_band, parse_qos
from colo_common.model.topology import NodeTopology

__all__ = [
    "BATCH",
    "CpusetFiles",
    "Workload",
    "allowed_by",
    "batch_directory",
    "batch_workloads",
    "check_group",
    "check_path",
    "cpuset_files",
    "online_directory",
    "online_workloads",
    "parse_online_groups",
    "watched_group",
]

BATCH: Final = "batch"
"""The group below the subtree whose children are batch replicas; the executor makes it."""

ONLINE_SUFFIX: Final = "-online"
"""The name of the executor's group of online replicas is that of the subtree with this suffix."""

_SUBTREE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,230}", re.ASCII)
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_WORD: Final = re.compile(r"[A-Za-z_]+", re.ASCII)
_ONLINE_MAX: Final = 1_000
_REPLICAS_REMEMBERED: Final = 4_096
_ONLINE_CLASSES: Final = {qos.value.lower(): qos for qos in (QosClass.LSE, QosClass.LSR, QosClass.LS)}


class Workload(Struct, frozen=True, kw_only=True):
    """A watched control group. `path` is below every controller's mount point and begins with "/".

    `host_revision`: it is a host application, by this revision of the policy since `host_since_ms`, or by the setting (0). The
    `name` of a replica is its attempt ("job/task/0#1"), so that an ending attempt and its successor are two workloads. `pod` is
    "namespace/name" where a kubelet told it; `listed` is the name under which the operator lists the group of an attached replica.
    """

    name: str
    path: str
    qos: QosClass
    band: PriorityBand
    replica: str = ""
    attempt: int = 0
    pod: str = ""
    host_revision: int | None = None
    host_since_ms: int = 0
    listed: str = ""


class CpusetFiles(Struct, frozen=True, kw_only=True):
    """The files with the CPUs and memory zones that a group may use; "" where no cpuset controller is mounted."""

    cpus: str = ""
    mems: str = ""


def parse_online_groups(texts: Sequence[str], subtree: str) -> tuple[Workload, ...]:
    """The workloads of settings such as "web=/kubepods/pod1:LSR"; an entry without a class is LS.

    A word of letters after the last colon is the class; any other colon belongs to the path. Raises InvalidInput that names the
    entry for a bad form, name or class, for class BE (batch work is recognised by its group), for a name or path that comes twice,
    and for a path that contains, or lies within, another listed group or a group of the executor: its use would count twice.
    """
    if not _SUBTREE.fullmatch(subtree):
        raise InvalidInput("subtree", "must be letters, digits and _ . @ -, beginning with a letter or digit", subtree)
    if len(texts) > _ONLINE_MAX:
        raise InvalidInput("online_groups", f"may be at most {_ONLINE_MAX}", len(texts))
    found: list[Workload] = []
    for index, text in enumerate(texts):
        field = f"online_groups[{index}]"
        one = _online_group(text, field)
        check_group(one, subtree, found, field)
        found.append(one)
    return tuple(found)


def check_group(one: Workload, subtree: str, others: Iterable[Workload], field: str) -> None:
    """Raise InvalidInput for a name that one of the others has, and for a path that contains, or lies within, a path of another or
    of the executor: its use would count twice.
    """
    paths = [f"/{subtree}", f"/{subtree}{ONLINE_SUFFIX}"]
    for other in others:
        if one.name == other.name:
            raise InvalidInput(field, "a name may come once", one.name)
        paths.append(other.path)
    for path in paths:
        if _within(one.path, path) or _within(path, one.path):
            raise InvalidInput(field, f"must be neither within {path} nor around it", one.path)


def check_path(one: Workload, field: str) -> None:
    """Raise InvalidInput for a name, or a path below the controllers, that no group has."""
    check_group_name(one.name, field)
    check_group_path(one.path, field)


def batch_directory(hierarchy: Hierarchy, subtree: str) -> str:
    """The directory with the groups of batch replicas; "" on a machine without CPU accounting."""
    mount = hierarchy.controller("cpuacct")
    return "" if mount is None else _below(mount.mount_point, f"/{subtree}/{BATCH}")


def batch_workloads(names: Iterable[str], subtree: str) -> tuple[Workload, ...]:
    """The batch replicas among the names of groups, in their order; every other name is skipped."""
    found = (_batch_workload(name, subtree) for name in names)
    return tuple(one for one in found if one is not None)


@lru_cache(maxsize=_REPLICAS_REMEMBERED)
def _batch_workload(name: str, subtree: str) -> Workload | None:
    """The same names come every period."""
    token = parse_replica_token(name)
    if token is None:
        return None
    replica, attempt = token
    return Workload(
        name=attempt_key(replica, attempt),
        path=f"/{subtree}/{BATCH}/{name}",
        qos=QosClass.BE,
        band=PriorityBand.BATCH,
        replica=replica,
        attempt=attempt,
    )


def online_directory(hierarchy: Hierarchy, subtree: str) -> str:
    """The directory with the groups of online replicas; "" on a machine without CPU accounting."""
    mount = hierarchy.controller("cpuacct")
    return "" if mount is None else _below(mount.mount_point, f"/{subtree}{ONLINE_SUFFIX}")


def online_workloads(names: Iterable[str], subtree: str) -> tuple[Workload, ...]:
    """The online replicas among the names of groups ("lsr.job.main.0@1"), in their order; every other name is skipped."""
    found: list[Workload] = []
    for name in names:
        word, _, rest = name.partition(".")
        qos, token = _ONLINE_CLASSES.get(word), parse_replica_token(rest)
        if qos is None or token is None:
            continue
        replica, attempt = token
        found.append(
            Workload(
                name=attempt_key(replica, attempt),
                path=f"/{subtree}{ONLINE_SUFFIX}/{name}",
                qos=qos,
                band=PriorityBand.PROD,
                replica=replica,
                attempt=attempt,
            )
        )
    return tuple(found)


def watched_group(hierarchy: Hierarchy, workload: Workload) -> WatchedGroup:
    """The workload with the files of its counters: the same path below each controller's mount point.

    The CPU pressure is read of online work only: what batch work waits for is no harm.
    """
    cpu, memory_mount = hierarchy.controller("cpu"), hierarchy.controller("memory")
    directories = {}
    for name in ("cpu", "cpuacct", "memory"):
        mount = hierarchy.controller(name)
        directories[name] = "" if mount is None else _below(mount.mount_point, workload.path)
    files = group_files(
        "v1" if cpu is None or cpu.version == "v1" else "v2",
        cpu_dir=directories["cpu"],
        cpuacct_dir=directories["cpuacct"],
        memory_dir=directories["memory"],
        memory_version=None if memory_mount is None else memory_mount.version,
    )
    if workload.qos not in ONLINE_CLASSES:
        files = replace(files, cpu_pressure="")
    return WatchedGroup(workload=workload.name, files=files)


def cpuset_files(hierarchy: Hierarchy, workload: Workload) -> CpusetFiles:
    """The files with the CPUs and zones of the workload. Under v2 these are the effective sets, which are never empty."""
    mount = hierarchy.controller("cpuset")
    if mount is None:
        return CpusetFiles()
    directory = _below(mount.mount_point, workload.path)
    suffix = ".effective" if mount.version == "v2" else ""
    return CpusetFiles(cpus=f"{directory}/cpuset.cpus{suffix}", mems=f"{directory}/cpuset.mems{suffix}")


def allowed_by(
    topology: NodeTopology, files: CpusetFiles, texts: Mapping[str, str | None]
) -> tuple[CpuSet, tuple[int, ...]]:
    """The CPUs of the group's cpuset, and the zones in which it may run, ascending; empty when it has neither CPUs nor zones.

    The zones of its CPUs count, narrowed to its memory zones where the two overlap; without CPUs the memory zones count alone.
    Raises InvalidInput for a malformed list.
    """
    cpus = _set_of(files.cpus, texts)
    mems = _set_of(files.mems, texts)
    by_mems = [zone.zone for zone in topology.zones if zone.zone in mems]
    if not cpus:
        return cpus, tuple(by_mems)
    by_cpus = [zone.zone for zone in topology.zones if not cpu_list("topology.zones", zone.cpus).is_disjoint(cpus)]
    both = [zone for zone in by_cpus if zone in by_mems]
    return cpus, tuple(both or by_cpus)


def _set_of(path: str, texts: Mapping[str, str | None]) -> CpuSet:
    text = texts.get(path) if path else None
    return CpuSet() if text is None else cpuset_of_group(path, text)


def _online_group(text: str, field: str) -> Workload:
    name, equals, rest = text.partition("=")
    if not equals or not _NAME.fullmatch(name):
        raise InvalidInput(
            field, 'must read "name=/path" or "name=/path:CLASS", the name of letters, digits and . _ -', text
        )
    path, colon, word = rest.rpartition(":")
    qos = QosClass.LS
    if colon and _WORD.fullmatch(word):
        qos = parse_qos(word, field)
    else:
        path = rest
    workload = Workload(name=name, path=path, qos=qos, band=default_band(qos))
    check_path(workload, field)
    if qos is QosClass.BE:
        raise InvalidInput(field, "must not be best effort: such a group is listed under host_applications", text)
    return workload


def _within(path: str, other: str) -> bool:
    return path == other or path.startswith(f"{other}/")


def _below(mount_point: str, path: str) -> str:
    return f"{mount_point.rstrip('/')}{path}"
