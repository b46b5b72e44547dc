"""The collector on this very machine beside witnesses that nobody here wrote: lscpu, numactl, hwloc, systemd-cgtop, the kernel."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import pytest

from colo_collector.bounded_files import BoundedReader
from colo_collector.discover import parse_online_groups
from colo_collector.files import FileReader
from colo_collector.kernel_probe import probe_kernel
from colo_collector.machine import Machine
from colo_collector.parse_proc import parse_stat
from colo_collector.readings import SampleRead
from colo_common.model.topology import NodeTopology
from tests.support.manual_clock import ManualClock


@pytest.fixture(scope="module")
def topology() -> NodeTopology:
    """The topology of this machine."""
    with FileReader() as reader:
        machine = Machine(reader, subtree="colo", online=(), labels={}, clock=ManualClock(0))
        read = machine.observe().topology_read
    assert read is not None
    return read.topology


def lscpu(*words: str) -> list[dict[str, Any]]:
    """The rows of lscpu's JSON; skips where it is not installed."""
    if shutil.which("lscpu") is None:
        pytest.skip("lscpu is not installed")
    text = subprocess.run(
        ["lscpu", "--json", *words], capture_output=True, check=True, env={**os.environ, "LC_ALL": "C"}
    ).stdout
    rows: list[dict[str, Any]] = json.loads(text)["cpus" if words else "lscpu"]
    return rows


def test_lscpu_sees_the_same_cpus_cores_sockets_zones_and_caches(topology: NodeTopology) -> None:
    rows = lscpu("--extended=CPU,CORE,SOCKET,NODE,CACHE")
    assert [int(row["cpu"]) for row in rows] == [cpu.cpu for cpu in topology.cpus]

    def groups(values: dict[int, object]) -> set[frozenset[int]]:
        return {frozenset(cpu for cpu, other in values.items() if other == value) for value in values.values()}

    mine = {cpu.cpu: cpu for cpu in topology.cpus}
    for name, own in (("core", "core"), ("socket", "socket"), ("node", "zone")):
        theirs = {int(row["cpu"]): row.get(name) for row in rows}
        assert groups(theirs) == groups({cpu: getattr(one, own) for cpu, one in mine.items()}), name
    has_l3 = all(len(str(row.get("l1d:l1i:l2:l3", "")).split(":")) == 4 for row in rows)
    if has_l3:
        theirs = {int(row["cpu"]): str(row["l1d:l1i:l2:l3"]).split(":")[3] for row in rows}
        assert groups(theirs) == groups({cpu: one.l3 for cpu, one in mine.items()})


def test_lscpu_names_the_same_model(topology: NodeTopology) -> None:
    fields = {row["field"].rstrip(":"): row["data"] for row in _flat(lscpu())}
    if fields.get("Model name", "-") != "-" and topology.cpu_model and not topology.cpu_model.startswith("part "):
        assert fields["Model name"] == topology.cpu_model


def _flat(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Newer releases nest their rows."""
    return [each for row in rows for each in (row, *_flat(row.get("children") or []))]


def test_numactl_sees_the_same_zones(topology: NodeTopology) -> None:
    if shutil.which("numactl") is None:
        pytest.skip("numactl is not installed")
    text = subprocess.run(["numactl", "-H"], capture_output=True, check=True, text=True).stdout
    for zone in topology.zones:
        (line,) = [line for line in text.splitlines() if line.startswith(f"node {zone.zone} cpus:")]
        assert [int(word) for word in line.partition(":")[2].split()] == [
            cpu.cpu for cpu in topology.cpus if cpu.zone == zone.zone
        ]


# ------------------------------------------------------------ hwloc

#: What hwloc 2 prints of a machine of two packages with a zone and an L3 cache each, and two threads a core.
HWLOC_XML: Final = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x000000ff" complete_cpuset="0x000000ff">
    <info name="Backend" value="Linux"/>
    <object type="Package" os_index="0" cpuset="0x00000033" gp_index="3">
      <object type="NUMANode" os_index="0" cpuset="0x00000033" local_memory="1"/>
      <object type="L3Cache" cpuset="0x00000033" cache_size="1">
        <object type="Core" os_index="0" cpuset="0x00000011"><object type="PU" os_index="0" cpuset="0x00000001"/></object>
        <object type="Core" os_index="1" cpuset="0x00000022"/>
      </object>
    </object>
    <object type="Package" os_index="1" cpuset="0x00000001,0x000000cc">
      <object type="NUMANode" os_index="1" cpuset="0x000000cc"/>
    </object>
  </object>
</topology>
"""


def hwloc_sets(text: str) -> dict[str, set[frozenset[int]]]:
    """The CPUs of each object of hwloc's XML, by the object's type."""
    found: dict[str, set[frozenset[int]]] = {}
    for each in ElementTree.fromstring(text).iter("object"):
        mask = 0
        # Words of 32 bits, the highest first; the infinite set that hwloc may print is of no object with CPUs.
        for word in each.get("cpuset", "0x0").split(","):
            mask = mask << 32 | int(word or "0", 16)
        cpus = frozenset(cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1)
        found.setdefault(each.get("type", ""), set()).add(cpus)
    return found


def test_the_form_of_hwloc_is_read() -> None:
    found = hwloc_sets(HWLOC_XML)
    assert found["NUMANode"] == {frozenset({0, 1, 4, 5}), frozenset({2, 3, 6, 7})}
    assert found["L3Cache"] == {frozenset({0, 1, 4, 5})}
    assert found["Core"] == {frozenset({0, 4}), frozenset({1, 5})}
    assert frozenset({2, 3, 6, 7, 32}) in found["Package"]


def test_hwloc_sees_the_same_packages_zones_cores_and_caches(topology: NodeTopology) -> None:
    program = next(
        (found for name in ("lstopo-no-graphics", "lstopo", "hwloc-ls") if (found := shutil.which(name))), None
    )
    if program is None:
        pytest.skip("lstopo is not installed")
    text = subprocess.run(
        [program, "--of", "xml", "--no-io"],
        capture_output=True,
        check=True,
        text=True,
        env={**os.environ, "DISPLAY": ""},
    ).stdout
    theirs = hwloc_sets(text)
    for kind, field in (("Package", "socket"), ("NUMANode", "zone"), ("Core", "core"), ("L3Cache", "l3")):
        # Where the machine has no objects of a kind (no L3 in a small VM), hwloc lists none and colo takes all CPUs as one.
        if kind in theirs:
            mine: dict[int, set[int]] = {}
            for cpu in topology.cpus:
                mine.setdefault(getattr(cpu, field), set()).add(cpu.cpu)
            assert {frozenset(cpus) for cpus in mine.values()} == theirs[kind], kind


# ------------------------------------------------------------ systemd-cgtop


@pytest.fixture
def own_group() -> Iterator[tuple[str, list[Path]]]:
    """A control group of the test's own below every controller that is sampled: its path, and its directories."""
    with FileReader() as reader:
        hierarchy = probe_kernel(reader, is_root=os.geteuid() == 0, subtree="colo", admits_online=False).hierarchy
    mounts = [hierarchy.controller(name) for name in ("cpu", "cpuacct", "memory")]
    points = sorted({mount.mount_point for mount in mounts if mount is not None})
    path = f"/colo-witness-{os.getpid()}"
    made: list[Path] = []
    try:
        for point in points:
            directory = Path(f"{point}{path}")
            try:
                directory.mkdir()
            except OSError:
                pytest.skip("this process may not make control groups")
            made.append(directory)
        yield path, made
    finally:
        for directory in made:
            directory.rmdir()


def cgtop_ns(group: str) -> int:
    """The CPU time of a group as systemd-cgtop tells it, which is in whole microseconds."""
    words = ["systemd-cgtop", "--batch", "--raw", "--iterations=1", "--cpu=time", "--depth=1", "--order=path"]
    text = subprocess.run(words, capture_output=True, check=True, text=True).stdout
    (row,) = [line.split() for line in text.splitlines() if line.split()[:1] == [group]]
    return int(row[2]) * 1_000


def test_systemd_cgtop_sees_the_same_cpu_time_of_a_group(own_group: tuple[str, list[Path]]) -> None:
    if shutil.which("systemd-cgtop") is None:
        pytest.skip("systemd-cgtop is not installed")
    path, directories = own_group
    machine = Machine(
        FileReader(),
        subtree="colo",
        online=parse_online_groups((f"witness={path}",), "colo"),
        labels={},
        clock=ManualClock(0),
    )
    # It takes memory in its new group first: cgtop leaves out what has none.
    held = "input(); held = b'x' * (1 << 24); print('held', flush=True); "
    code = held + "input(); sum(number * number for number in range(2_000_000)); print('done', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as work:
        assert work.stdin is not None
        assert work.stdout is not None
        try:
            for directory in directories:
                (directory / "cgroup.procs").write_text(str(work.pid))
            print(file=work.stdin, flush=True)
            assert work.stdout.readline() == "held\n"
            outer_before = cgtop_ns(path)
            machine.observe()
            inner_before = cgtop_ns(path)
            print(file=work.stdin, flush=True)
            assert work.stdout.readline() == "done\n"
            inner_after = cgtop_ns(path)
            event = machine.observe().event
            outer_after = cgtop_ns(path)
        finally:
            work.kill()
            work.wait()
            machine.close()
    assert isinstance(event, SampleRead), event
    (witness,) = event.workloads
    used_ns = witness.cpu_used_mcpu * event.interval_ms * 1_000
    # Rates are rounded down to a milli-CPU, the interval to the nearest millisecond, and cgtop's times to a microsecond.
    slack_ns = (event.interval_ms + witness.cpu_used_mcpu + 2) * 1_000
    assert inner_after - inner_before > 0
    assert inner_after - inner_before - slack_ns <= used_ns <= outer_after - outer_before + slack_ns


def test_the_kernels_own_sum_over_the_same_interval_agrees() -> None:
    """The sum line of /proc/stat is read around the collector's readings, so its interval holds the collector's within it."""
    reader = BoundedReader(FileReader, deadline_ms=5_000)
    machine = Machine(reader, subtree="colo", online=(), labels={}, clock=ManualClock(0))
    stat = Path("/proc/stat")
    try:
        outer_before = parse_stat(stat.read_text()).total.busy
        machine.observe()
        inner_before = parse_stat(stat.read_text()).total.busy
        # Work, so that there is something to see; its amount does not matter.
        sum(number * number for number in range(3_000_000))
        inner_after = parse_stat(stat.read_text()).total.busy
        event = machine.observe().event
        outer_after = parse_stat(stat.read_text()).total.busy
    finally:
        machine.close()
    assert isinstance(event, SampleRead), event
    hz = os.sysconf("SC_CLK_TCK")
    busy_ticks = event.cpu_used_mcpu * event.interval_ms * hz / 1_000_000
    cpus = os.cpu_count() or 1
    # One tick a CPU may be late at each end; rates are rounded down, and the interval to the nearest millisecond.
    slack = 2 * cpus + event.cpu_used_mcpu * hz / 1_000_000 + 1
    assert inner_after - inner_before - slack <= busy_ticks <= outer_after - outer_before + slack
