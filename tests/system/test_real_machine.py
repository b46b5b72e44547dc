"""The readers on the machine that runs the tests, compared with what the operating system says another way."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from colo_collector.capabilities import Probe, capabilities, probe_paths
from colo_collector.files import FileReader
from colo_collector.hierarchy import parse_hierarchy, unified_point
from colo_collector.sample import read_sample, sample_paths
from colo_collector.topology import read_topology, topology_paths
from colo_collector.usage import rates_between
from colo_common.model.cpuset import CpuSet

pytestmark = pytest.mark.kernel


def test_this_machine_has_the_cpus_and_the_memory_that_the_system_reports() -> None:
    texts: dict[str, str | None] = {}
    with FileReader() as reader:
        for _ in range(4):
            texts.update(reader.read_all(topology_paths(texts), keep=False).texts)
    found = read_topology(texts).topology
    cpus = {one.cpu for one in found.cpus}
    assert len(cpus) == os.cpu_count()
    assert os.sched_getaffinity(0) <= cpus
    kib = next(int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in line)
    if len(found.zones) == 1:
        assert found.memory_capacity_bytes == kib * 1024
    else:
        assert found.memory_capacity_bytes == pytest.approx(kib * 1024, rel=0.05)


def test_two_samples_of_this_machine_show_the_work_done_between_them() -> None:
    with FileReader() as reader:
        paths = sample_paths((), ())
        first = reader.read_all(paths)
        # Work, not sleep: one CPU is busy with this process for the whole interval.
        while time.monotonic_ns() - first.started_ns < 400_000_000:
            sum(range(1000))
        second = reader.read_all(paths)
    readings = [read_sample(one.texts, one.inodes, (), (), one.started_ns).reading for one in (first, second)]
    rates = rates_between(
        readings[0], readings[1], {0: CpuSet.from_iterable(one.cpu for one in readings[0].ticks.cpus)}
    )
    assert rates.used.mcpu is not None
    assert 300 <= rates.used.mcpu <= 1000 * (os.cpu_count() or 1)
    assert rates.zones[0][1].mcpu is not None


def test_the_hierarchy_and_the_capabilities_of_this_machine_are_those_on_disk() -> None:
    with FileReader() as reader:
        mounts = reader.read("/proc/mounts") or ""
        own = reader.read("/proc/self/cgroup") or ""
        hierarchy = parse_hierarchy(mounts, own, reader.read(f"{unified_point(mounts)}/cgroup.controllers"))
        gathered = reader.read_all(probe_paths(hierarchy), keep=False)
    assert hierarchy.version != "none"
    for mount in hierarchy.controllers:
        assert Path(mount.mount_point, "cgroup.procs").exists()
    found = {one.name: one.present for one in capabilities(Probe(hierarchy=hierarchy, texts=gathered.texts))}
    assert found["psi"] == Path("/proc/pressure/cpu").exists()
    assert found["resctrl-l3"] == Path("/sys/fs/resctrl/info/L3").exists()
