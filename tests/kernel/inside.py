"""What the tests inside the machine share: which machine it is, how the collector sees it, work of a known size, and snapshots."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import stat
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

from colo_collector.discover import Workload
from colo_collector.files import FileReader
from colo_collector.machine import Machine, Observation
from colo_common.adapters.clock import SystemClock
from colo_common.events.node import Capability
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.topology import NodeTopology
from colo_executor.cgroup import CgroupTree
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from tests.kernel.lab.variants import DEFAULT, Variant, variant_named
from tests.support.adopted import adopted
from tests.support.waiting import eventually_blocking

__all__ = [
    "CGROUP_ROOT",
    "collector",
    "hogs",
    "observed_topology",
    "online",
    "reported",
    "settings_of",
    "this_machine",
    "unchanged",
]

CGROUP_ROOT: Final = Path("/sys/fs/cgroup")
_SPIN: Final = "while :; do :; done"
#: Files that take an order or a trigger and show what they measure.
_REPORT: Final = re.compile(r"^(?:cpu|memory|io|irq)\.pressure$|usage|failcnt|force_empty")
_NOT_SETTINGS: Final = ("cgroup.procs", "cgroup.threads", "cgroup.kill", "tasks", "notify_on_release", "release_agent")


def this_machine() -> Variant:
    """The row of the table of variants by which this machine was booted."""
    return variant_named(os.environ.get("LAB_VARIANT", DEFAULT))


def reported(*command: str) -> str:
    """What a program of Debian's prints about this machine."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def online(path: str) -> Workload:
    """An online workload for the collector; its name is that of the group."""
    return Workload(name=path.strip("/"), path=path, qos=QosClass.LS, band=PriorityBand.PROD)


@contextlib.contextmanager
def collector(*workloads: Workload, subtree: str = "colo") -> Iterator[Machine]:
    """The collector's view of this machine."""
    machine = Machine(FileReader(), subtree=subtree, online=workloads, labels={}, clock=SystemClock())
    try:
        yield machine
    finally:
        machine.close()


def observed_topology() -> tuple[NodeTopology, dict[str, Capability]]:
    """Topology and capabilities as the collector reads them here."""
    with collector() as machine:
        observation: Observation = machine.observe()
    assert observation.topology_read is not None, observation
    return observation.topology_read.topology, {one.name: one for one in observation.topology_read.capabilities}


@contextlib.contextmanager
def hogs(tree: CgroupTree, group: str, cpus: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """One endless loop pinned to each of the CPUs, in a control group that exists, running when this returns; their pids."""
    started = []
    try:
        for cpu in cpus:
            process = subprocess.Popen(["sh", "-c", _SPIN], stdin=subprocess.DEVNULL, start_new_session=True)
            started.append(process)
            tree.attach(group, process.pid)
            # Afterwards: before Linux 6.2 a process that comes into a group with a CPU set gets all CPUs of that set.
            os.sched_setaffinity(process.pid, {cpu})
        before_us = tree.cpu_used_us(group)
        eventually_blocking(lambda: tree.cpu_used_us(group) - before_us > 100_000, "the loops to run", limit_s=120)
        yield tuple(process.pid for process in started)
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def settings_of(*directories: Path) -> dict[str, bytes]:
    """Every setting below the directories: the files that can be both read and written, byte by byte."""
    found = {}
    for directory in directories:
        for path in sorted(directory.rglob("*")):
            if not path.is_file() or path.name in _NOT_SETTINGS or _REPORT.search(path.name):
                continue
            if path.stat().st_mode & stat.S_IRUSR and path.stat().st_mode & stat.S_IWUSR:
                # Some settings answer only where they mean something (real-time budgets, for example).
                with contextlib.suppress(OSError):
                    found[str(path)] = path.read_bytes()
    return found


@contextlib.asynccontextmanager
async def unchanged(policy: ProcessPolicy) -> AsyncIterator[ProcessRuntime]:
    """An adopted runtime; whatever a test did, every setting of the machine is then what it was, byte by byte."""
    before = settings_of(CGROUP_ROOT)
    async with adopted(policy) as made:
        yield made
    assert settings_of(CGROUP_ROOT) == before
