"""The collector sees the machine that lscpu, numactl and lstopo see, and that was booted."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

from colo_common.model.cpuset import CpuSet
from tests.kernel.inside import observed_topology, reported, this_machine

pytestmark = pytest.mark.vm


def parts(pairs: Iterable[tuple[object, int]]) -> set[frozenset[int]]:
    """The sets of CPUs that share a number: whoever counts, the sets must be the same."""
    found: dict[object, set[int]] = defaultdict(set)
    for number, cpu in pairs:
        found[number].add(cpu)
    return {frozenset(cpus) for cpus in found.values()}


def test_cpus_cores_sockets_zones_and_caches_are_those_of_lscpu() -> None:
    topology, _ = observed_topology()
    lines = reported("lscpu", "-p=CPU,CORE,SOCKET,NODE,CACHE").splitlines()
    # The last column is one for each level of cache after an empty one, the L3's last: "0,0,0,0,,0,0,0,0".
    rows = [tuple(int(word) for word in line.split(",") if word) for line in lines if not line.startswith("#")]
    assert [(one.cpu, one.socket, one.zone) for one in topology.cpus] == [(row[0], row[2], row[3]) for row in rows]
    assert parts((one.core, one.cpu) for one in topology.cpus) == parts((row[1], row[0]) for row in rows)
    assert parts((one.l3, one.cpu) for one in topology.cpus) == parts((row[-1], row[0]) for row in rows)


def test_zones_memory_and_distances_are_those_of_numactl() -> None:
    topology, _ = observed_topology()
    text = reported("numactl", "-H")
    cpus = {int(zone): words.split() for zone, words in re.findall(r"^node (\d+) cpus:(.*)$", text, re.MULTILINE)}
    sizes = {int(zone): int(mib) for zone, mib in re.findall(r"^node (\d+) size: (\d+) MB$", text, re.MULTILINE)}
    rows = re.findall(r"^ +(\d+): +((?:\d+ *)+)$", text, re.MULTILINE)
    assert {zone.zone: [str(cpu) for cpu in CpuSet.parse(zone.cpus)] for zone in topology.zones} == cpus
    assert {zone.zone: zone.memory_bytes >> 20 for zone in topology.zones} == sizes
    assert {zone.zone: zone.distances for zone in topology.zones} == {
        int(zone): tuple(int(word) for word in words.split()) for zone, words in rows
    }


@pytest.mark.parametrize("kind", ["Package", "NUMANode", "L3Cache", "Core"])
def test_every_level_has_the_cpus_that_lstopo_draws(kind: str) -> None:
    topology, _ = observed_topology()
    root = ElementTree.fromstring(reported("lstopo", "--of", "xml", "--no-io", "-"))
    drawn = {
        frozenset(bits_of(node.attrib["cpuset"])) for node in root.iter("object") if node.attrib.get("type") == kind
    }
    number = {"Package": "socket", "NUMANode": "zone", "L3Cache": "l3", "Core": "core"}[kind]
    assert parts((getattr(one, number), one.cpu) for one in topology.cpus) == drawn


def bits_of(mask: str) -> list[int]:
    """The CPUs of a mask such as "0x0000ff00" or "0x1,0x000000ff": groups of 32 bits, the highest first."""
    whole = 0
    for group in mask.split(","):
        whole = whole << 32 | int(group or "0", 16)
    return [bit for bit in range(whole.bit_length()) if whole >> bit & 1]


def test_the_machine_is_the_one_that_was_booted() -> None:
    topology, _ = observed_topology()
    machine = this_machine()
    here = [cpu for cpu in range(machine.cpus) if cpu not in machine.offline]
    assert [one.cpu for one in topology.cpus] == here
    assert [zone.cpus for zone in topology.zones] == [
        CpuSet.from_iterable(set(CpuSet.parse(cpus)) - set(machine.offline)).format() for cpus in machine.zones
    ]
    assert len({one.socket for one in topology.cpus}) == machine.sockets
    assert len({one.l3 for one in topology.cpus}) == machine.sockets * machine.dies
    assert len({one.core for one in topology.cpus}) == machine.sockets * machine.dies * machine.cores


def test_capabilities_are_what_this_kernel_shows() -> None:
    _, found = observed_topology()
    machine = this_machine()
    v2 = machine.cgroup == "v2"
    mounted = {line.split()[1]: line.split()[2] for line in Path("/proc/mounts").read_text().splitlines()}
    assert mounted["/sys/fs/cgroup"] == ("cgroup2" if v2 else "tmpfs")
    assert found["cgroup"].detail == {"v2": "v2", "v1": "v1", "hybrid": "hybrid"}[machine.cgroup]
    for name in ("cpu", "cpuset", "memory"):
        assert found[f"cgroup-{name}"].present
        assert found[f"cgroup-{name}"].detail.startswith("v2 at" if v2 else "v1 at")
    assert found["psi"].present == Path("/proc/pressure/cpu").read_text().startswith("some")
    assert found["numa"].present == (len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) > 1)
    assert found["root"].present
    assert found["cgroup-write"].present
    resctrl = "resctrl" in Path("/proc/filesystems").read_text().split()
    assert resctrl or not found["resctrl-l3"].present


@pytest.mark.parametrize(
    ("capability", "v1", "v2"),
    [
        ("cpu-idle", "cpu/PROBE/cpu.idle", "PROBE/cpu.idle"),
        ("cpu-burst", "cpu/PROBE/cpu.cfs_burst_us", "PROBE/cpu.max.burst"),
        ("memory-high", "memory/PROBE/memory.high", "PROBE/memory.high"),
        ("psi-cgroup", "cpu/PROBE/cpu.pressure", "PROBE/cpu.pressure"),
    ],
    ids=["cpu-idle", "cpu-burst", "memory-high", "psi-cgroup"],
)
def test_a_knob_is_told_present_if_a_new_group_has_its_file(capability: str, v1: str, v2: str) -> None:
    pattern = v2 if this_machine().cgroup == "v2" else v1
    path = Path("/sys/fs/cgroup", pattern.replace("PROBE", "probe"))
    path.parent.mkdir()
    try:
        has = path.exists()
    finally:
        path.parent.rmdir()
    if this_machine().cgroup == "hybrid" and capability == "psi-cgroup":
        has = Path("/sys/fs/cgroup/unified/cpu.pressure").exists()
    _, found = observed_topology()
    assert found[capability].present == has, found[capability].detail
