"""What one sample costs the collector: CPU time of reading, parsing and rates, with 250 workloads; and the memory it
holds.

`python -m tests.bench.bench_collector` uses files of a fake machine. `--kernel` makes real control groups below a
directory of
its own in the v1 hierarchies (root only), reads those, and removes them: the kernel's own work to print them counts then.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from colo_collector.files import FileReader
from colo_collector.hierarchy import parse_hierarchy, unified_point
from colo_collector.machine import Machine
from colo_collector.parse_cgroup import group_files
from colo_collector.pods import POD_ROOTS
from colo_collector.sample import Sample, WatchedGroup, read_sample, sample_paths
from colo_collector.stall import stalls_between
from colo_collector.usage import rates_between
from colo_common.adapters.clock import SystemClock
from colo_common.model.cpuset import CpuSet
from tests.support.machine_tree import FakeWorkload, MachineSpec, MachineTree

BUDGET_CORE_PCT = 2.0
BUDGET_RSS_BYTES = 64 * 2**20
PERIOD_S = 1.0
SCALE = (25, 100, 250, 500, 1_000)


@contextlib.contextmanager
def fake_machine(workloads: int, cgroup: str) -> Iterator[tuple[str, list[WatchedGroup], dict[int, CpuSet]]]:
    """A machine of 2 sockets, 4 zones and 128 CPUs on disk."""
    spec = MachineSpec(
        sockets=2,
        zones_per_socket=2,
        cores_per_zone=16,
        threads=2,
        cgroup="v2" if cgroup == "v2" else "v1",
        workloads=tuple(FakeWorkload(f"w{n:03}", f"/kubepods/pod{n:03}", cpu_usage_ns=n) for n in range(workloads)),
    )
    with tempfile.TemporaryDirectory() as root:
        MachineTree(spec, Path(root)).write()
        points = {name: "" if cgroup == "v2" else f"/{name}" for name in ("cpu", "cpuacct", "memory")}
        groups = [watched(one.name, cgroup, points, f"/sys/fs/cgroup{{}}{one.path}") for one in spec.workloads]
        zones = {
            zone: CpuSet.from_iterable(one.cpu for one in spec.cpus() if one.zone == zone) for zone in range(spec.zones)
        }
        yield root, groups, zones


@contextlib.contextmanager
def real_groups(workloads: int) -> Iterator[tuple[str, list[WatchedGroup], dict[int, CpuSet]]]:
    """Empty control groups of this machine, removed at the end."""
    with FileReader() as reader:
        mounts = reader.read("/proc/mounts") or ""
        controllers = reader.read(f"{unified_point(mounts)}/cgroup.controllers")
        hierarchy = parse_hierarchy(mounts, reader.read("/proc/self/cgroup") or "", controllers)
    points: dict[str, str] = {}
    for name in ("cpu", "cpuacct", "memory"):
        mount = hierarchy.controller(name)
        if mount is None or mount.version != "v1":
            raise SystemExit(f"--kernel needs the v1 controller {name}, which this machine has not mounted")
        points[name] = mount.mount_point
    parent = f"colo-bench-{os.getpid()}"
    names = [parent, *(f"{parent}/w{n:03}" for n in range(workloads))]
    made: list[Path] = []
    try:
        for point in sorted(set(points.values())):
            for name in names:
                Path(point, name).mkdir()
                made.append(Path(point, name))
        groups = [watched(name, "v1", points, f"{{}}/{name}") for name in names[1:]]
        yield "/", groups, {0: CpuSet.from_iterable(range(os.cpu_count() or 1))}
    finally:
        for directory in reversed(made):
            directory.rmdir()


def watched(name: str, cgroup: str, points: dict[str, str], pattern: str) -> WatchedGroup:
    """The files of one group; `pattern` takes each controller's part of the path."""
    files = group_files(
        "v2" if cgroup == "v2" else "v1",
        cpu_dir=pattern.format(points["cpu"]),
        cpuacct_dir=pattern.format(points["cpuacct"]),
        memory_dir=pattern.format(points["memory"]),
    )
    return WatchedGroup(workload=name, files=files)


def measure(root: str, groups: list[WatchedGroup], zones: dict[int, CpuSet], samples: int) -> dict[str, float]:
    """CPU milliseconds of one sample after the first, by part; the first one opens the files and is told apart."""
    paths = sample_paths(groups, zones)
    spent = {"first": 0.0, "read": 0.0, "parse": 0.0, "rates": 0.0}
    previous: Sample | None = None
    with FileReader(root) as reader:
        for number in range(samples + 1):
            began = time.process_time()
            gathered = reader.read_all(paths)
            was_read = time.process_time()
            sample = read_sample(gathered.texts, gathered.inodes, groups, zones, gathered.started_ns)
            parsed = time.process_time()
            if previous is not None:
                rates = rates_between(previous.reading, sample.reading, zones)
                stalls_between(previous.pressure, sample.pressure, rates.interval_ns)
            ended = time.process_time()
            if len(sample.reading.groups) != len(groups) or sample.faults:
                raise SystemExit(f"only {len(sample.reading.groups)} groups were read: {sample.faults[:1]}")
            previous = sample
            if number == 0:
                spent["first"] = (ended - began) * 1000
            else:
                spent["read"] += (was_read - began) * 1000 / samples
                spent["parse"] += (parsed - was_read) * 1000 / samples
                spent["rates"] += (ended - parsed) * 1000 / samples
        spent["files"] = len(paths)
        spent["held"] = reader.held
    spent["sample"] = spent["read"] + spent["parse"] + spent["rates"]
    return spent


def whole(workloads: int, samples: int) -> tuple[float, float]:
    """CPU milliseconds of one whole observation with that many pods of two threads, and the longest, after the first two."""
    spec = MachineSpec(
        sockets=2,
        zones_per_socket=2,
        cores_per_zone=16,
        threads=2,
        workloads=tuple(
            FakeWorkload(
                f"w{n}",
                f"/kubepods/burstable/pod{n:08x}-0000-0000-0000-000000000000",
                threads=((100_000 + 2 * n, 1, 1, 1), (100_001 + 2 * n, 1, 1, 1)),
                cpus="0-31",
            )
            for n in range(workloads)
        ),
    )
    with tempfile.TemporaryDirectory() as root:
        MachineTree(spec, Path(root)).write()
        machine = Machine(
            FileReader(root), subtree="colo", online=(), labels={}, clock=SystemClock(), pod_roots=POD_ROOTS
        )
        spent = []
        for _ in range(samples + 2):
            began = time.process_time()
            observation = machine.observe()
            spent.append((time.process_time() - began) * 1000)
        if observation.workloads != workloads:
            raise SystemExit(f"only {observation.workloads} of {workloads} pods were read: {observation.faults[:1]}")
        machine.close()
    return sum(spent[2:]) / samples, max(spent[2:])


def growth(samples: int) -> bool:
    """Print what an observation costs from 25 to 1,000 workloads; whether the growth is linear, within half as much again."""
    found = {workloads: whole(workloads, samples) for workloads in SCALE}
    for workloads, (mean_ms, most_ms) in found.items():
        print(f"  whole observation of {workloads:>5} pods: {mean_ms:.2f} ms of CPU, at most {most_ms:.2f}")
    few, middle, many = SCALE[0], 250, SCALE[-1]
    few_ms, many_ms = found[few][0], found[many][0]
    slope = (found[middle][0] - few_ms) / (middle - few)
    straight_ms = few_ms + slope * (many - few)
    print(f"  a straight line through {few} and {middle} gives {straight_ms:.2f} ms for {many}, measured {many_ms:.2f}")
    return many_ms <= 1.5 * straight_ms


def main(arguments: list[str] | None = None) -> int:
    """Print the cost and compare it with the budget; 0 when it is kept, 1 when it is not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=int, default=250)
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--kernel", action="store_true", help="also real control groups (root, v1)")
    options = parser.parse_args(arguments)
    kinds = ["v1", "v2", *(["kernel"] if options.kernel else [])]
    print(f"collector: {options.workloads} workloads, one sample a second, mean of {options.samples} samples (CPU ms)")
    kept = True
    for kind in kinds:
        machine = real_groups(options.workloads) if kind == "kernel" else fake_machine(options.workloads, kind)
        with machine as (root, groups, zones):
            spent = measure(root, groups, zones, options.samples)
        core_pct = spent["sample"] / 10 / PERIOD_S
        kept = kept and core_pct <= BUDGET_CORE_PCT
        print(
            f"  {kind:<6} {spent['files']:.0f} files ({spent['held']:.0f} open): sample {spent['sample']:.2f}"
            f" = read {spent['read']:.2f} + parse {spent['parse']:.2f} + rates {spent['rates']:.2f};"
            f" first {spent['first']:.2f}; {core_pct:.2f} % of a core (budget {BUDGET_CORE_PCT:g} %)"
        )
    kept = growth(options.samples) and kept
    rss_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    kept = kept and rss_bytes <= BUDGET_RSS_BYTES
    print(f"  peak RSS of this process {rss_bytes / 2**20:.1f} MiB (budget {BUDGET_RSS_BYTES / 2**20:g} MiB)")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
