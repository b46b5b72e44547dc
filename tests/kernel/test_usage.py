"""Work of a known size is measured as what it is: the machine, its zones, its groups."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from colo_collector.machine import Machine
from colo_collector.readings import SampleRead
from colo_executor.cgroup import CgroupTree
from colo_executor.knob_table import Knob
from colo_executor.order import KnobWrite
from tests.kernel.inside import CGROUP_ROOT, collector, hogs, observed_topology, online
from tests.support.waiting import eventually_blocking

pytestmark = pytest.mark.vm

SPAN_US = 4_000_000
"""CPU time of one loop between two samples: long against the moment that passes between two files of a sample."""


Ticks = dict[int, int]


def sample_over(machine: Machine, tree: CgroupTree, group: str, loops: int) -> tuple[SampleRead, Ticks, Ticks]:
    """What the collector measures while the loops use SPAN_US each, and the ticks of each CPU that it must have seen, and may.

    It reads its files somewhere between the two readings of the kernel's ticks beside it, here and there.
    """
    before_first = busy_ticks()
    machine.observe()
    after_first = busy_ticks()
    before_us = tree.cpu_used_us(group)
    eventually_blocking(
        lambda: tree.cpu_used_us(group) - before_us >= SPAN_US * loops, "the loops to use their time", limit_s=120
    )
    before_last = busy_ticks()
    observation = machine.observe()
    after_last = busy_ticks()
    assert isinstance(observation.event, SampleRead), observation
    least = {cpu: before_last[cpu] - ticks for cpu, ticks in after_first.items()}
    return observation.event, least, {cpu: after_last[cpu] - ticks for cpu, ticks in before_first.items()}


def busy_ticks() -> Ticks:
    """Hundredths of a second that each CPU spent otherwise than idle. An emulated timer is late, and the kernel loses ticks."""
    found = {}
    for line in Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name != "cpu":
            user, nice, system, _idle, _wait, irq, softirq = (int(field) for field in fields[:7])
            found[int(name[3:])] = user + nice + system + irq + softirq
    return found


@pytest.fixture
def probe() -> Iterator[CgroupTree]:
    """A control group of an online workload."""
    tree = CgroupTree(str(CGROUP_ROOT), "probe")
    tree.make("")
    for knob, path in (
        (Knob.CPUSET_CPUS, "devices/system/cpu/online"),
        (Knob.CPUSET_MEMS, "devices/system/node/online"),
    ):
        with open(f"/sys/{path}", encoding="ascii") as file:
            tree.write(KnobWrite(path="", knob=knob, value=file.read().strip()))
    yield tree
    assert tree.remove("")


def test_three_busy_cpus_are_three_thousand_in_their_group_and_their_zones(probe: CgroupTree) -> None:
    topology, _ = observed_topology()
    others = [one for one in topology.cpus if one.zone == topology.zones[-1].zone and one.cpu > 1]
    chosen = (topology.cpus[1].cpu, others[0].cpu, others[1].cpu)
    # The test's own process stays away from the CPUs that it measures.
    os.sched_setaffinity(0, {topology.cpus[0].cpu})
    try:
        with collector(online("/probe")) as machine, hogs(probe, "", chosen):
            measured, least, most = sample_over(machine, probe, "", len(chosen))
    finally:
        os.sched_setaffinity(0, {one.cpu for one in topology.cpus})
    (workload,) = measured.workloads
    assert workload.cpu_used_mcpu == pytest.approx(3_000, rel=0.02)
    zone_of = {one.cpu: one.zone for one in topology.cpus}
    for zone in measured.zones:
        here = [cpu for cpu, of in zone_of.items() if of == zone.zone]
        counted = zone.cpu_used_mcpu * measured.interval_ms / 10_000
        # Each of a line's numbers is cut to whole ticks.
        low, high = (sum(ticks[cpu] for cpu in here) for ticks in (least, most))
        assert 0.98 * low - len(here) <= counted <= 1.02 * high + len(here)
    assert measured.cpu_used_mcpu == sum(zone.cpu_used_mcpu for zone in measured.zones)


HOLDER = """import sys
sys.stdin.readline()
block = bytearray(b"x") * int(sys.argv[1])
print("held", flush=True)
sys.stdin.readline()
"""


def tell(stream: IO[str], word: str) -> None:
    stream.write(f"{word}\n")
    stream.flush()


def test_memory_of_a_group_is_what_its_process_holds(probe: CgroupTree) -> None:
    held_bytes = 64 << 20
    command = [sys.executable, "-c", HOLDER, str(held_bytes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        # What it had before it came is charged elsewhere.
        probe.attach("", holder.pid)
        tell(holder.stdin, "go")
        assert holder.stdout.readline() == "held\n"
        with collector(online("/probe")) as machine:
            machine.observe()
            before_ns = time.monotonic_ns()
            eventually_blocking(lambda: time.monotonic_ns() - before_ns > 200_000_000, "a span between two samples")
            observation = machine.observe()
        tell(holder.stdin, "end")
    assert isinstance(observation.event, SampleRead), observation
    (workload,) = observation.event.workloads
    # The kernel charges a group in advance: up to 64 pages on each CPU that its processes have been on.
    in_advance_bytes = 64 * os.sysconf("SC_PAGESIZE") * (os.cpu_count() or 1)
    assert 0.98 * held_bytes <= workload.memory_used_bytes <= 1.02 * held_bytes + in_advance_bytes
