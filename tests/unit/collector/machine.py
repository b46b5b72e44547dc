"""Reading a fake machine as the collector does: from a mapping, or through a FileReader."""

from __future__ import annotations

from collections.abc import Mapping

from colo_collector.files import FileReader, Gathered
from colo_collector.hierarchy import Hierarchy, parse_hierarchy, unified_point
from colo_collector.parse_cgroup import group_files
from colo_collector.sample import Sample, WatchedGroup, read_sample, sample_paths
from colo_collector.topology import MachineTopology, read_topology, topology_paths
from tests.support.machine_tree import MachineSpec, MachineTree


def gather_topology(source: Mapping[str, str]) -> dict[str, str | None]:
    """Ask for paths until nothing new is wanted.

    A machine needs two rounds; more than four would be an endless loop.
    """
    texts: dict[str, str | None] = {}
    for _ in range(4):
        wanted = topology_paths(texts)
        if not wanted:
            return texts
        texts.update({path: source.get(path) for path in wanted})
    raise AssertionError("topology_paths never ends")


def topology_of(spec: MachineSpec) -> MachineTopology:
    """The topology that is read from a fake machine's texts."""
    return read_topology(gather_topology(MachineTree(spec).texts()))


def hierarchy_of(source: Mapping[str, str]) -> Hierarchy:
    """The hierarchy that is read from texts."""
    mounts = source["/proc/mounts"]
    return parse_hierarchy(
        mounts, source["/proc/self/cgroup"], source.get(f"{unified_point(mounts)}/cgroup.controllers")
    )


def watched_groups(spec: MachineSpec, hierarchy: Hierarchy) -> tuple[WatchedGroup, ...]:
    """Where each workload's counters are."""
    groups = []
    for one in spec.workloads:
        directory: dict[str, str] = {}
        version = "v2"
        for name in ("cpu", "cpuacct", "memory"):
            mount = hierarchy.controller(name)
            directory[name] = "" if mount is None else f"{mount.mount_point}{one.path}"
            if mount is not None and name == "cpu":
                version = mount.version
        files = group_files(
            "v1" if version == "v1" else "v2",
            cpu_dir=directory["cpu"],
            cpuacct_dir=directory["cpuacct"],
            memory_dir=directory["memory"],
        )
        groups.append(WatchedGroup(workload=one.name, files=files))
    return tuple(groups)


def take(
    reader: FileReader, groups: tuple[WatchedGroup, ...], zones: tuple[int, ...], at_ns: int
) -> tuple[Sample, Gathered]:
    """Read one sample of the files on disk, as if the clock said `at_ns`."""
    gathered = reader.read_all(sample_paths(groups, zones))
    return read_sample(gathered.texts, gathered.inodes, groups, zones, at_ns), gathered
