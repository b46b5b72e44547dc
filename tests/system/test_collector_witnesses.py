"""The collector beside witnesses that nobody here wrote: lscpu, numactl and the kernel's own sums, of this very machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from colo_collector.bounded_files import BoundedReader
from colo_collector.files import FileReader
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
