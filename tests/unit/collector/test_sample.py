"""Whole samples of a fake machine on disk: files, counters and rates agree with the load that was put on it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from colo_collector.files import FileReader
from colo_collector.sample import read_sample, sample_paths
from colo_collector.usage import Rate, Unknown, rates_between
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from tests.support.machine_tree import GIB, FakeWorkload, MachineSpec, MachineTree
from tests.unit.collector.machine import hierarchy_of, take, topology_of, watched_groups

S = 1_000_000_000
WEB = FakeWorkload(name="web", path="/kubepods/web", memory_bytes=GIB, inactive_file_bytes=GIB // 4)
BATCH = FakeWorkload(name="batch", path="/kubepods/besteffort/batch")


def machine(tmp_path: Path, cgroup: Literal["v1", "v2", "hybrid"]) -> MachineTree:
    spec = MachineSpec(sockets=2, cores_per_zone=2, threads=2, cgroup=cgroup, workloads=(WEB, BATCH))
    tree = MachineTree(spec, tmp_path)
    tree.write()
    return tree


@pytest.mark.parametrize("cgroup", ["v1", "v2", "hybrid"])
def test_the_load_put_on_a_machine_is_read_exactly(tmp_path: Path, cgroup: Literal["v1", "v2", "hybrid"]) -> None:
    tree = machine(tmp_path, cgroup)
    groups = watched_groups(tree.spec, hierarchy_of(tree.texts()))
    zones = {one.zone: CpuSet.parse(one.cpus) for one in topology_of(tree.spec).topology.zones}
    with FileReader(str(tmp_path)) as reader:
        first, _ = take(reader, groups, tuple(zones), 0)
        tree.advance(2000, zone_pct={0: 50, 1: 25}, workload_mcpu={"web": 1500, "batch": 250}, throttled_us=7000)
        tree.steal_ticks[1] = 20
        tree.write()
        second, gathered = take(reader, groups, tuple(zones), 2 * S)
    assert gathered.refused == {}
    assert gathered.cut == ()
    rates = rates_between(first.reading, second.reading, zones)
    assert rates.used == Rate(3000)
    assert rates.steal == Rate(100)
    assert rates.zones == ((0, Rate(2000)), (1, Rate(1000)))
    assert [(one.workload, one.used, one.throttled_us) for one in rates.groups] == [
        ("batch", Rate(250), 7000),
        ("web", Rate(1500), 7000),
    ]
    assert second.workload_memory_bytes == {"web": GIB * 3 // 4, "batch": 48 * 2**20}
    assert second.memory_used_bytes == 2 * GIB
    assert second.zone_memory_used_bytes == ((0, GIB), (1, GIB))
    assert second.faults == ()


@pytest.mark.parametrize("cgroup", ["v1", "v2"])
def test_a_workload_that_leaves_and_comes_back_is_never_given_a_false_rate(
    tmp_path: Path, cgroup: Literal["v1", "v2"]
) -> None:
    tree = machine(tmp_path, cgroup)
    groups = watched_groups(tree.spec, hierarchy_of(tree.texts()))
    with FileReader(str(tmp_path)) as reader:
        samples = [take(reader, groups, (), 0)[0]]
        tree.remove("batch")
        tree.write()
        samples.append(take(reader, groups, (), S)[0])
        tree.spec = MachineSpec(
            **{**tree.spec.__dict__, "workloads": (*tree.spec.workloads, FakeWorkload("batch", BATCH.path, S))}
        )
        tree.write()
        samples.append(take(reader, groups, (), 2 * S)[0])
    assert set(samples[1].workload_memory_bytes) == {"web"}
    reasons = [
        {one.workload: one.used.unknown for one in rates_between(before.reading, after.reading, {}).groups}
        for before, after in ((samples[0], samples[1]), (samples[1], samples[2]), (samples[0], samples[2]))
    ]
    assert [one["batch"] for one in reasons[:2]] == [Unknown.ABSENT, Unknown.FIRST]
    # The inode tells the new group from the old one where the file system did not use it again.
    if samples[0].reading.groups[1].identity != samples[2].reading.groups[1].identity:
        assert reasons[2]["batch"] is Unknown.REPLACED
    assert all(one["web"] is None for one in reasons)


def test_a_malformed_workload_file_costs_that_workload_only(tmp_path: Path) -> None:
    tree = machine(tmp_path, "v1")
    groups = watched_groups(tree.spec, hierarchy_of(tree.texts()))
    (tmp_path / "sys/fs/cgroup/cpuacct/kubepods/web/cpuacct.usage").write_text("lots\n")
    with FileReader(str(tmp_path)) as reader:
        sample, _ = take(reader, groups, (0, 1), 0)
    assert [one.workload for one in sample.reading.groups] == ["batch"]
    assert sample.faults[0].startswith("web: /sys/fs/cgroup/cpuacct/kubepods/web/cpuacct.usage")


def test_pressure_is_part_of_the_sample_and_a_malformed_file_of_it_is_left_out() -> None:
    texts: dict[str, str | None] = dict(MachineTree(MachineSpec()).texts())
    texts["/proc/pressure/memory"] = "some avg10=0.00 avg60=0.00\n"
    texts["/proc/pressure/io"] = None
    sample = read_sample(texts, {}, (), (0,), 0)
    assert [resource for resource, _ in sample.pressure] == ["cpu"]
    assert sample.faults[0].startswith("/proc/pressure/memory.some")


@pytest.mark.parametrize("path", ["/proc/stat", "/proc/meminfo", "/proc/sys/kernel/random/boot_id"])
def test_without_a_file_of_the_machine_itself_there_is_no_sample(path: str) -> None:
    texts: dict[str, str | None] = dict(MachineTree(MachineSpec()).texts())
    assert path in sample_paths((), (0,))
    texts[path] = None
    with pytest.raises(InvalidInput, match="must be readable") as caught:
        read_sample(texts, {}, (), (0,), 0)
    assert caught.value.field == path


def test_cpu_counters_are_read_before_memory_and_no_file_twice() -> None:
    spec = MachineSpec(cgroup="v2", workloads=(WEB, BATCH))
    paths = sample_paths(watched_groups(spec, hierarchy_of(MachineTree(spec).texts())), (0, 1))
    names = [path.rsplit("/", 1)[1] for path in paths]
    assert names == [
        "stat", "cpu.stat", "cpu.pressure", "cpu.stat", "cpu.pressure", "cpu", "memory", "io", "meminfo",
        "boot_id", "meminfo", "meminfo",
        "memory.current", "memory.stat", "memory.current", "memory.stat",
    ]  # fmt: skip
    assert len(set(paths)) == len(paths)


def test_the_only_zone_uses_what_the_machine_uses() -> None:
    texts = MachineTree(MachineSpec(), memory_used_bytes_per_zone=3 * GIB).texts()
    texts["/sys/devices/system/node/node0/meminfo"] = "Node 0 MemTotal: 7 kB\nNode 0 MemFree: 1 kB\n"
    sample = read_sample(texts, {}, (), (0,), 0)
    assert sample.zone_memory_used_bytes == ((0, sample.memory_used_bytes),) == ((0, 3 * GIB),)
