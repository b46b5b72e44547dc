"""What a real machine does to a collector: stalls that must be felt, files that hang, break or lie elsewhere, mixed hierarchies."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from colo_cli.doctor import diagnose
from colo_collector.bounded_files import BoundedReader
from colo_collector.discover import parse_online_groups
from colo_collector.files import FileReader
from colo_collector.kernel_probe import probe_kernel
from colo_collector.machine import Machine, Observation
from colo_common.adapters import core_scheduling
from colo_common.events.node import WorkloadUsage
from colo_common.model.qos import QosClass
from colo_common.model.stall import worst_online_stall
from tests.support.machine_tree import GIB, MachineSpec, MachineTree
from tests.support.manual_clock import ManualClock
from tests.support.waiting import eventually_blocking
from tests.unit.collector.test_machine import REPLICA, WEB, Bench, sample

THREADS = ((101, 0, 0, 0), (102, 0, 0, 0))
ONLINE = replace(WEB, threads=THREADS, numa_bytes=(3 * GIB, GIB), anon_bytes=GIB, shmem_bytes=5)
BATCH = replace(REPLICA, threads=((201, 0, 0, 0),), numa_bytes=(GIB, GIB))


def usage(observation: Observation, name: str) -> WorkloadUsage:
    return next(one for one in sample(observation).workloads if one.workload == name)


def bench_of(root: Path, cgroup: Literal["v1", "v2", "hybrid"] = "v1") -> Bench:
    return Bench(root, cgroup=cgroup, online=("web=/web:LSR",), workloads=(ONLINE, BATCH))


# ------------------------------------------------------------ stall is measured, carried and used


@pytest.mark.parametrize("cgroup", ["v1", "v2"])
def test_each_workload_and_class_has_its_stall_by_the_time_its_threads_waited(
    tmp_path: Path, cgroup: Literal["v1", "v2"]
) -> None:
    bench = bench_of(tmp_path, cgroup)
    bench.observe()
    for _ in range(2):
        bench.tree.run("web", 1_000, run_pct=30, wait_pct=10)
        bench.tree.run("replica", 1_000, run_pct=10, wait_pct=90)
        observation = bench.second()
    web, batch = usage(observation, "web"), usage(observation, "job/main/0#1")
    assert (web.stall_pct, web.stall_gate, web.stall_span_ms, web.stall_age_ms) == (25, "", 1_000, 0)
    assert (batch.stall_pct, batch.stall_gate) == (90, "")
    assert [(one.qos, one.workloads, one.stall_pct, one.satisfaction_pct) for one in sample(observation).classes] == [
        (QosClass.LSR, 1, 25, None),
        (QosClass.BE, 1, 90, 10),
    ]
    # Batch work waits for nearly ever and online work is what counts.
    assert worst_online_stall(sample(observation).workloads) == ("web", 25)


def test_work_that_its_own_quota_stops_blames_nobody(tmp_path: Path) -> None:
    bench = bench_of(tmp_path)
    bench.observe()
    bench.tree.run("web", 1_000, run_pct=30, wait_pct=60, throttled_us=400_000)
    observation = bench.second()
    web = usage(observation, "web")
    assert web.stall_gate == "self-throttled"
    assert worst_online_stall(sample(observation).workloads) == ("", 0)
    assert sample(observation).classes[0].stall_pct is None


def test_batch_work_that_a_ceiling_stops_gets_less_than_it_wants(tmp_path: Path) -> None:
    bench = bench_of(tmp_path)
    bench.observe()
    bench.tree.run("web", 1_000, run_pct=30, wait_pct=0)
    bench.tree.run("replica", 1_000, run_pct=30, wait_pct=30, throttled_us=300_000)
    (batch,) = (one for one in sample(bench.second()).classes if one.qos is QosClass.BE)
    # Its own quota blames nobody, and it gets half of what it wants all the same.
    assert (batch.stall_pct, batch.satisfaction_pct) == (None, 50)


def test_idle_work_has_no_stall_however_long_its_few_threads_waited(tmp_path: Path) -> None:
    bench = bench_of(tmp_path)
    bench.observe()
    bench.tree.run("web", 1_000, run_pct=0, wait_pct=2)
    web = usage(bench.second(), "web")
    assert (web.stall_pct, web.stall_gate) == (0, "idle")


def test_a_stall_that_nobody_can_read_is_unknown_and_v2_has_the_pressure_of_the_group(tmp_path: Path) -> None:
    hidden = replace(ONLINE, threads=())
    for cgroup, stall_pct in (("v1", None), ("v2", 40)):
        root = tmp_path / cgroup
        bench = Bench(root, cgroup=cgroup, online=("web=/web:LSR",), workloads=(hidden,))  # type: ignore[arg-type]
        bench.observe()
        bench.change(replace(bench.tree.spec, workloads=(replace(hidden, cpu_some_us=400_000),)))
        assert usage(bench.second(), "web").stall_pct == stall_pct


def test_a_turn_tells_memory_by_kind_and_zone_and_what_grew(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, "v2")
    bench.observe()
    bench.tree.run("web", 1_000, run_pct=30, wait_pct=10)
    grown = [
        replace(one, disk_bytes=(4_096, 512), oom_kills=2) if one.name == "web" else one
        for one in bench.tree.spec.workloads
    ]
    bench.change(replace(bench.tree.spec, workloads=tuple(grown)))
    observation = bench.second()
    web, batch = usage(observation, "web").detail, usage(observation, "job/main/0#1").detail
    assert web is not None
    assert batch is not None
    assert (web.anon_bytes, web.file_bytes, web.shmem_bytes) == (GIB, GIB, 5)
    assert (web.numa_bytes, web.remote_pct) == (((0, 3 * GIB), (1, GIB)), 0)
    # The replica may use zone 1 only, and half of its memory is in zone 0.
    assert (batch.numa_bytes, batch.remote_pct) == (((0, GIB), (1, GIB)), 50)
    assert (web.disk_read_bytes, web.disk_written_bytes, web.oom_kill_events) == (4_096, 512, 2)
    assert (web.run_us, web.wait_us, web.tasks, web.involuntary_switches) == (600_000, 200_000, 2, 14)
    assert [(one.resource, one.some_us) for one in web.pressure] == [("cpu", 100_000), ("memory", 0), ("io", 0)]


# ------------------------------------------------------------ one bad file costs itself


def test_a_line_of_unknown_shape_and_a_stolen_time_that_went_back_cost_nothing_else(tmp_path: Path) -> None:
    bench = bench_of(tmp_path)
    bench.tree.steal_ticks[0] = 50
    bench.tree.write()
    bench.observe()
    bench.tree.steal_ticks[0] = 10
    bench.tree.advance(1_000, zone_pct={0: 50})
    bench.tree.write()
    meminfo = (bench.root / "proc/meminfo").read_text()
    bench.break_file("/proc/meminfo", f"What a kernel of 2031 may say = 7 pages\n{meminfo}")
    sampled = sample(bench.observe())
    assert sampled.missing == ("steal",)
    assert (sampled.steal_mcpu, sampled.cpu_used_mcpu) == (0, 2_000)


class HangingReader(FileReader):
    """Hangs in the files that it is told of until they are released."""

    hanging: dict[str, threading.Event] = {}

    def _content(self, path: str, keep: bool) -> tuple[bytes, int]:
        if path in self.hanging:
            self.hanging[path].wait()
        return super()._content(path, keep)

    def list_directories(self, path: str, limit: int = 10_000) -> tuple[str, ...]:
        if path in self.hanging:
            self.hanging[path].wait()
        return super().list_directories(path, limit)


def test_a_read_that_hangs_is_given_up_delays_nothing_and_is_read_again_when_it_returns(tmp_path: Path) -> None:
    tree = MachineTree(MachineSpec(workloads=(ONLINE,)), tmp_path)
    tree.write()
    path = "/sys/fs/cgroup/cpuacct/web/cpuacct.usage"
    released = threading.Event()
    HangingReader.hanging = {path: released}
    reader = BoundedReader(lambda: HangingReader(str(tmp_path)), deadline_ms=600)
    try:
        found = reader.read_all(("/proc/meminfo", path, "/proc/uptime"))
        assert (found.texts[path], found.refused) == (None, {path: 110})
        assert found.texts["/proc/meminfo"] is not None
        assert found.texts["/proc/uptime"] is not None
        # The next batch does not wait for it again.
        assert reader.read_all((path,)).refused == {path: 110}
        assert reader.hung == (path,)
        HangingReader.hanging = {}
        released.set()
        eventually_blocking(lambda: not reader.hung, "the read returns")
        assert reader.read_all((path,)).texts[path] == "0\n"
    finally:
        released.set()
        reader.close()


class PausedReader(FileReader):
    """While it reads a file the machine stands still for an hour; the read goes on when the waiting thread has looked."""

    paused_ns = 0

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.is_looked_at = threading.Event()

    @property
    def reading(self) -> tuple[str, int] | None:
        at = super().reading
        self.is_looked_at.set()
        return at

    def _content(self, path: str, keep: bool) -> tuple[bytes, int]:
        PausedReader.paused_ns = 3_600_000_000_000
        self.is_looked_at.wait()
        return super()._content(path, keep)


def test_a_directory_that_hangs_is_empty_and_those_beside_it_are_listed(tmp_path: Path) -> None:
    for name in ("a/one", "b/two", "c/three"):
        (tmp_path / name).mkdir(parents=True)
    released = threading.Event()
    HangingReader.hanging = {"/b": released}
    reader = BoundedReader(lambda: HangingReader(str(tmp_path)), deadline_ms=600)
    try:
        wanted = ("/a", "/b", "/c", "/missing")
        assert reader.list_each(wanted) == {"/a": ("one",), "/b": (), "/c": ("three",), "/missing": ()}
        assert reader.hung == ("/b",)
        HangingReader.hanging = {}
        released.set()
        eventually_blocking(lambda: not reader.hung, "the listing returns")
        assert reader.list_each(wanted)["/b"] == ("two",)
    finally:
        released.set()
        reader.close()


def test_a_machine_that_stood_still_gives_no_read_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = MachineTree(MachineSpec(workloads=(ONLINE,)), tmp_path)
    tree.write()
    real_ns = time.monotonic_ns
    monkeypatch.setattr(PausedReader, "paused_ns", 0)
    monkeypatch.setattr(time, "monotonic_ns", lambda: real_ns() + PausedReader.paused_ns)
    reader = BoundedReader(lambda: PausedReader(str(tmp_path)), deadline_ms=600)
    try:
        found = reader.read_all(("/proc/meminfo",))
        assert found.texts["/proc/meminfo"] is not None
        assert reader.hangs == 0
    finally:
        reader.close()


def test_a_machine_whose_group_hangs_has_its_sample_and_says_which_file(tmp_path: Path) -> None:
    tree = MachineTree(MachineSpec(workloads=(ONLINE, BATCH)), tmp_path)
    tree.write()
    path = "/sys/fs/cgroup/cpuacct/web/cpuacct.usage"
    HangingReader.hanging = {}
    reader = BoundedReader(lambda: HangingReader(str(tmp_path)), deadline_ms=600)
    machine = Machine(
        reader,
        subtree="colo",
        online=parse_online_groups(("web=/web",), "colo"),
        labels={},
        clock=ManualClock(0),
        user_hz=100,
    )
    released = threading.Event()
    try:
        machine.observe()
        HangingReader.hanging = {path: released}
        tree.advance(1_000)
        tree.write()
        observation = machine.observe()
        assert any(fault.startswith(f"{path}: ") for fault in observation.faults)
        assert path in reader.hung
        assert observation.workloads == 1
    finally:
        released.set()
        HangingReader.hanging = {}
        machine.close()


class SlowReader(FileReader):
    """A machine on which every batch takes as long as it is told."""

    spread_ns = 0
    batches = 0

    def read_all(self, paths, *, keep=True):  # type: ignore[no-untyped-def]
        found = super().read_all(paths, keep=keep)
        self.batches += keep
        return replace_times(found, self.spread_ns)


def replace_times(found, spread_ns: int):  # type: ignore[no-untyped-def]
    from msgspec import structs

    return structs.replace(found, finished_ns=found.started_ns + spread_ns)


def test_a_machine_whose_batches_are_slow_reads_them_once_and_one_that_was_disturbed_twice(tmp_path: Path) -> None:
    tree = MachineTree(MachineSpec(), tmp_path)
    tree.write()
    reader = SlowReader(str(tmp_path))
    reader.spread_ns = 30_000_000
    machine = Machine(reader, subtree="colo", online=(), labels={}, clock=ManualClock(0), user_hz=100)
    machine.observe()
    reader.batches = 0
    for _ in range(5):
        machine.observe()
    assert reader.batches == 5
    reader.spread_ns = 100_000_000
    machine.observe()
    assert reader.batches == 7


# ------------------------------------------------------------ other layouts


def test_a_container_reads_the_mounts_of_the_machine_and_says_so_where_it_may_not(tmp_path: Path) -> None:
    files = MachineTree(MachineSpec(cgroup="v2"), tmp_path)
    files.write()
    host = (tmp_path / "proc/mounts").read_text()
    (tmp_path / "proc/mounts").write_text("overlay / overlay rw 0 0\n")
    with FileReader(str(tmp_path)) as reader:
        blind = probe_kernel(reader, is_root=False, subtree="colo", is_host_mounted=True)
        assert blind.hierarchy.version == "none"
        assert blind.assumed[0].startswith("/proc/1/mounts may not be read")
        (tmp_path / "proc/1").mkdir()
        (tmp_path / "proc/1/mounts").write_text(host)
        seen = probe_kernel(reader, is_root=False, subtree="colo", is_host_mounted=True)
    assert (seen.hierarchy.version, seen.assumed) == ("v2", ())


def test_workloads_are_found_where_cpu_is_on_v1_and_memory_on_v2(tmp_path: Path) -> None:
    spec = MachineSpec(sockets=2, cores_per_zone=4, cgroup="hybrid", unified=("memory",), workloads=(ONLINE,))
    tree = MachineTree(spec, tmp_path)
    tree.write()
    assert not (tmp_path / "sys/fs/cgroup/memory/web").exists()
    bench = Bench(tmp_path / "other", cgroup="hybrid", online=("web=/web:LSR",), workloads=(ONLINE,))
    bench.change(spec)
    bench.observe()
    web = usage(bench.second(web=700), "web")
    assert (web.cpu_used_mcpu, web.memory_used_bytes) == (700, GIB)


def test_the_topology_says_which_cpus_are_offline_or_set_apart_and_who_shares_a_cache(tmp_path: Path) -> None:
    spec = MachineSpec(cores_per_zone=4, offline=(3,), isolated="2", nohz_full="1-2", cores_per_l3=2, l3_ids=(8, 16))
    tree = MachineTree(spec, tmp_path)
    tree.write()
    machine = Machine(FileReader(str(tmp_path)), subtree="colo", online=(), labels={}, clock=ManualClock(0))
    read = machine.observe().topology_read
    assert read is not None
    topology = read.topology
    assert (topology.offline, topology.isolated, topology.nohz_full) == ("3", "2", "1-2")
    assert [(one.cache, one.cpus) for one in topology.caches if one.level == 3] == [(8, "0-1"), (16, "2")]
    assert [(one.cache, one.cpus) for one in topology.caches if one.level == 2] == [(0, "0"), (1, "1"), (2, "2")]
    assert (topology.cpu_vendor, topology.cpu_model) == ("GenuineIntel", "Fake CPU @ 2.00GHz")
    # A CPU that comes is a change, not a crash.
    tree.spec = replace(spec, offline=())
    tree.write()
    again = machine.observe().topology_read
    assert again is not None
    assert (again.topology.offline, len(again.topology.cpus)) == ("", 4)


def test_the_doctor_and_the_collector_say_the_same_of_this_machine() -> None:
    with FileReader() as reader:
        lacks = core_scheduling.lacking()
        machine = Machine(
            reader, subtree="colo", online=(), labels={}, clock=ManualClock(0), lacks_core_scheduling=lacks
        )
        read = machine.observe().topology_read
    assert read is not None
    rows = {row["name"]: (row["present"], row["detail"]) for row in diagnose()}
    assert {one.name: (one.present, one.detail) for one in read.capabilities}.items() <= rows.items()
