"""Observations of a fake machine while its CPUs, groups and files come and go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from msgspec import structs

from colo_collector.core import CollectorCore
from colo_collector.device_rules import parse_device_labels, parse_gpu_partitions
from colo_collector.discover import parse_online_groups
from colo_collector.files import FileReader, Gathered
from colo_collector.machine import Machine, Observation
from colo_collector.policy import CollectorPolicy
from colo_collector.readings import SampleRead, Skip, Unreadable
from colo_collector.usage import Unknown
from colo_common.model.constraints import HugePages, Taint
from colo_common.model.node_rules import UNRULED, NodeRules
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.topology import Device, DevicePartition
from tests.support.machine_tree import GIB, FakeWorkload, MachineSpec, MachineTree
from tests.support.manual_clock import ManualClock

WEB = FakeWorkload("web", "/web", memory_bytes=2 * GIB, inactive_file_bytes=GIB, cpus="0-7")
REPLICA = FakeWorkload("replica", "/colo/batch/job.main.0@1", memory_bytes=GIB, inactive_file_bytes=0, cpus="4-7")
SECOND = FakeWorkload("second", "/colo/batch/job.main.1@1", memory_bytes=GIB, inactive_file_bytes=0, cpus="0-3")


class TimedReader(FileReader):
    """Reads real files at a time that the test sets."""

    now_ns = 0

    def read_all(self, paths: Sequence[str], *, keep: bool = True) -> Gathered:
        found = super().read_all(paths, keep=keep)
        return structs.replace(found, started_ns=self.now_ns, finished_ns=self.now_ns + 1_000)


class Bench:
    """A fake machine of two zones with four CPUs each, and the Machine that reads it."""

    def __init__(
        self,
        root: Path,
        *,
        cgroup: Literal["v1", "v2", "hybrid"] = "v1",
        online: tuple[str, ...] = (),
        workloads: tuple[FakeWorkload, ...] = (WEB, REPLICA),
        rules: NodeRules = UNRULED,
        device_labels: tuple[str, ...] = (),
        gpu_partitions: tuple[str, ...] = (),
        kubelet_state: str = "",
    ) -> None:
        spec = MachineSpec(sockets=2, cores_per_zone=4, cgroup=cgroup, workloads=workloads)
        self.root = root
        self.tree = MachineTree(spec, root)
        self.tree.write()
        self.reader = TimedReader(str(root))
        self.clock = ManualClock(1_000_000)
        self.machine = Machine(
            self.reader,
            subtree="colo",
            online=parse_online_groups(online, "colo"),
            labels={"rack": "r1"},
            taints=(Taint(key="spot"),),
            rules=rules,
            device_labels=parse_device_labels(device_labels),
            gpu_partitions=parse_gpu_partitions(gpu_partitions),
            kubelet_state=kubelet_state,
            clock=self.clock,
            user_hz=100,
        )
        self.core = CollectorCore("n1", CollectorPolicy())

    def observe(self) -> Observation:
        """One observation a second after the last; the core accepts every event of it."""
        observation = self.machine.observe()
        self.reader.now_ns += 1_000_000_000
        self.clock.advance(1_000)
        if observation.topology_read is not None:
            self.core.handle(observation.topology_read, 0)
        self.core.handle(observation.event, 0)
        self.core.check()
        return observation

    def second(self, **use: int) -> Observation:
        """A second in which zone 0 is half busy and each workload uses what is given; then an observation."""
        self.tree.advance(1_000, zone_pct={0: 50}, workload_mcpu=use)
        self.tree.write()
        return self.observe()

    def change(self, spec: MachineSpec) -> None:
        """The machine is another now."""
        self.tree.spec = spec
        self.tree.write()

    def break_file(self, path: str, text: str) -> None:
        (self.root / path.lstrip("/")).write_text(text)


def sample(observation: Observation) -> SampleRead:
    assert isinstance(observation.event, SampleRead), observation
    return observation.event


@pytest.mark.parametrize("cgroup", ["v1", "v2", "hybrid"])
def test_the_topology_is_read_once_and_a_sample_every_time(
    tmp_path: Path, cgroup: Literal["v1", "v2", "hybrid"]
) -> None:
    bench = Bench(tmp_path, cgroup=cgroup, online=("web=/web:LSR",))
    first = bench.observe()
    assert first.event == Unreadable(reason=Skip.FIRST)
    assert first.topology_read is not None
    assert first.topology_read.labels == {"rack": "r1"}
    assert [zone.cpus for zone in first.topology_read.topology.zones] == ["0-3", "4-7"]
    assert {one.name for one in first.topology_read.capabilities} >= {"psi", "cgroup", "numa"}
    second = bench.second(web=700, replica=900)
    assert second.topology_read is None
    assert second.faults == ()
    sampled = sample(second)
    assert (sampled.at_ms, sampled.interval_ms) == (1_001_000, 1_000)
    assert [zone.cpu_used_mcpu for zone in sampled.zones] == [2_000, 0]
    replica, web = sampled.workloads
    assert (replica.workload, replica.replica, replica.attempt) == ("job/main/0#1", "job/main/0", 1)
    assert (replica.cpu_used_mcpu, replica.memory_used_bytes, replica.zones) == (900, GIB, (1,))
    assert (web.qos, web.cpu_used_mcpu, web.memory_used_bytes, web.zones) == (QosClass.LSR, 700, GIB, (0, 1))
    assert sampled.system_cpu_used_mcpu == 400
    assert sampled.system_memory_used_bytes == 0
    assert [one.resource for one in sampled.pressure] == ["cpu", "memory", "io"]


def test_a_replica_is_listed_from_its_second_sample_until_it_ends(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.observe()
    assert len(sample(bench.second()).workloads) == 1
    bench.change(replace(bench.tree.spec, workloads=(*bench.tree.spec.workloads, SECOND)))
    started = bench.second(second=500)
    assert started.left_out == (("job/main/1#1", Unknown.FIRST),)
    assert [one.workload for one in sample(started).workloads] == ["job/main/0#1"]
    listed = sample(bench.second(second=500)).workloads
    assert [(one.workload, one.cpu_used_mcpu, one.zones) for one in listed] == [
        ("job/main/0#1", 0, (1,)),
        ("job/main/1#1", 500, (0,)),
    ]
    held = bench.reader.held
    bench.tree.remove("second")
    assert [one.workload for one in sample(bench.second()).workloads] == ["job/main/0#1"]
    assert bench.reader.held < held


def test_a_cpu_that_goes_changes_the_topology_at_once_and_one_that_comes_costs_one_sample(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.observe()
    bench.second()
    whole = bench.tree.spec
    bench.change(replace(whole, offline=(7,)))
    without_cpu = bench.second()
    assert without_cpu.topology_read is not None
    assert [zone.cpus for zone in without_cpu.topology_read.topology.zones] == ["0-3", "4-6"]
    assert sample(without_cpu).cpu_used_mcpu == 2_000
    bench.change(replace(bench.tree.spec, offline=()))
    back = bench.second()
    assert back.topology_read is not None
    assert back.event == Unreadable(reason=Skip.CPU_CAME)
    assert sample(bench.second()).cpu_used_mcpu == 2_000


def test_plugged_memory_changes_the_topology_and_a_little_drift_does_not(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.observe()
    assert bench.second().topology_read is None
    size = bench.tree.spec.memory_bytes_per_zone
    bench.change(replace(bench.tree.spec, memory_bytes_per_zone=size + size // 200))
    assert bench.second().topology_read is None
    bench.change(replace(bench.tree.spec, memory_bytes_per_zone=2 * size))
    grown = bench.second()
    assert grown.topology_read is not None
    assert grown.topology_read.topology.memory_capacity_bytes == 4 * size
    assert bench.second().topology_read is None


def test_a_machine_file_that_breaks_costs_the_sample_and_heals(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.observe()
    bench.second()
    bench.break_file("/proc/meminfo", "nonsense\n")
    broken = bench.observe()
    assert isinstance(broken.event, Unreadable)
    assert broken.event.reason is Skip.UNREADABLE
    assert "/proc/meminfo" in broken.event.detail
    bench.tree.written.pop("/proc/meminfo")
    healed = sample(bench.second())
    # The gap belongs to the next sample: nothing is lost and nothing is counted twice.
    assert healed.interval_ms == 2_000
    assert healed.cpu_used_mcpu == 1_000
    assert bench.core.skipped == {Skip.FIRST: 1, Skip.UNREADABLE: 1}


def test_a_machine_that_cannot_be_read_at_the_start_has_its_topology_read_later(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.break_file("/sys/devices/system/cpu/online", "zero\n")
    first = bench.observe()
    assert isinstance(first.event, Unreadable)
    assert first.topology_read is None
    bench.tree.written.pop("/sys/devices/system/cpu/online")
    bench.tree.write()
    second = bench.observe()
    assert second.topology_read is not None
    assert second.event == Unreadable(reason=Skip.FIRST)


def test_a_topology_is_delivered_even_when_the_sample_after_it_fails(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.break_file("/proc/sys/kernel/random/boot_id", "nonsense\n")
    observation = bench.observe()
    assert observation.topology_read is not None
    assert isinstance(observation.event, Unreadable)
    assert bench.observe().topology_read is None


def test_a_group_file_that_breaks_costs_that_workload_only(tmp_path: Path) -> None:
    bench = Bench(tmp_path, online=("web=/web",))
    bench.observe()
    bench.second()
    bench.break_file("/sys/fs/cgroup/cpuacct/web/cpuacct.usage", "-3\n")
    observation = bench.observe()
    assert [one.workload for one in sample(observation).workloads] == ["job/main/0#1"]
    (fault,) = observation.faults
    assert fault.startswith("web: ")


def test_an_online_group_that_is_not_there_is_a_fault_until_it_comes(tmp_path: Path) -> None:
    bench = Bench(tmp_path, online=("db=/db",))
    assert bench.observe().faults == ("db: there is no control group /db",)
    assert bench.second().faults == ("db: there is no control group /db",)
    bench.change(replace(bench.tree.spec, workloads=(*bench.tree.spec.workloads, FakeWorkload("db", "/db"))))
    assert bench.second().faults == ()


def test_a_cpuset_that_cannot_be_read_is_a_fault_and_the_zones_stay(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.observe()
    bench.second()
    bench.break_file("/sys/fs/cgroup/cpuset/colo/batch/job.main.0@1/cpuset.cpus", "x\n")
    observation = bench.second()
    assert len(observation.faults) == 1
    assert sample(observation).workloads[0].zones == (1,)


def test_a_cpuset_that_changes_late_is_read_within_a_bounded_number_of_periods(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for _ in range(5):
        bench.second()
    moved = replace(REPLICA, cpus="0-3")
    bench.change(replace(bench.tree.spec, workloads=(WEB, moved)))
    zones = [sample(bench.second()).workloads[0].zones for _ in range(16)]
    assert zones[-1] == (0,)


def test_a_reboot_gives_no_sample_across_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.observe()
    bench.second()
    bench.tree.boot_id = "11111111-2222-3333-4444-555555555555"
    assert bench.second().event == Unreadable(reason=Skip.REBOOTED)
    assert sample(bench.second()).cpu_used_mcpu == 2_000


def test_a_machine_that_vanishes_is_unreadable_and_not_a_crash(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "here")
    bench.observe()
    (tmp_path / "here").rename(tmp_path / "gone")
    bench.reader.close()
    observation = bench.observe()
    assert isinstance(observation.event, Unreadable)
    assert observation.event.reason is Skip.UNREADABLE


def test_a_reading_that_was_interrupted_is_taken_again_once(tmp_path: Path) -> None:
    class Interrupted(TimedReader):
        spreads_ns = (30_000_000, 40_000_000, 50_000_000)
        batches = 0

        def read_all(self, paths: Sequence[str], *, keep: bool = True) -> Gathered:
            found = super().read_all(paths, keep=keep)
            if not keep:
                return found
            self.batches += 1
            return structs.replace(found, finished_ns=found.started_ns + self.spreads_ns[self.batches - 1])

    Bench(tmp_path)
    reader = Interrupted(str(tmp_path))
    machine = Machine(reader, subtree="colo", online=(), labels={}, clock=ManualClock(1), user_hz=100)
    assert machine.observe().spread_ns == 40_000_000
    assert reader.batches == 2


OWN = FakeWorkload("own", "/colo-online/lsr.web.main.0@2", memory_bytes=GIB, inactive_file_bytes=0, cpus="0-1")


@pytest.mark.parametrize("cgroup", ["v1", "v2"])
def test_online_replicas_have_the_class_of_their_group(tmp_path: Path, cgroup: Literal["v1", "v2"]) -> None:
    bench = Bench(tmp_path, cgroup=cgroup, workloads=(REPLICA, OWN))
    bench.observe()
    batch, own = sample(bench.second(own=700, replica=900)).workloads
    assert (batch.qos, batch.band) == (QosClass.BE, PriorityBand.BATCH)
    assert (own.qos, own.band, own.replica, own.attempt) == (QosClass.LSR, PriorityBand.PROD, "web/main/0", 2)
    assert (own.cpu_used_mcpu, own.memory_used_bytes, own.zones) == (700, GIB, (0,))


def test_the_operators_rules_are_published_as_far_as_they_fit_the_machine(tmp_path: Path) -> None:
    bench = Bench(tmp_path, rules=NodeRules(reserved_cpus="7-8", system_cpus="0,1"))
    observation = bench.observe()
    assert observation.topology_read is not None
    assert observation.topology_read.rules == NodeRules(reserved_cpus="7", system_cpus="0-1")
    assert observation.topology_read.taints == (Taint(key="spot"),)
    assert "rules_reserved_cpus names the CPUs 8, which are not online; they are left out" in observation.assumed


def test_devices_and_huge_pages_are_found_and_absurd_files_are_named(tmp_path: Path) -> None:
    bench = Bench(tmp_path, device_labels=("gpu:model=H100",), gpu_partitions=("0", "0-1"))
    gpu, card, absurd = "0000:81:00.0", "0000:01:00.1", "0000:02:00.0"
    files = {
        f"devices/pci0000:80/{gpu}": {"class": "0x030200\n", "vendor": "0x10de\n", "numa_node": "1\n"},
        f"devices/pci0000:00/{card}": {"class": "0x020000\n", "vendor": "0x8086\n", "numa_node": "-1\n"},
        f"devices/pci0000:00/{absurd}": {"class": "0x020000\n", "vendor": "0x8086\n", "numa_node": "99\n"},
        "devices/system/node/node0/hugepages/hugepages-2048kB": {"nr_hugepages": "512\n"},
        "devices/system/node/node1/hugepages/hugepages-1048576kB": {"nr_hugepages": "lots\n"},
    }
    for directory, texts in files.items():
        (tmp_path / "sys" / directory).mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (tmp_path / "sys" / directory / name).write_text(text)
    listed = tmp_path / "sys/bus/pci/devices"
    listed.mkdir(parents=True)
    for root, address in (("pci0000:80", gpu), ("pci0000:00", card), ("pci0000:00", absurd)):
        (listed / address).symlink_to(f"../../../devices/{root}/{address}")
    observation = bench.observe()
    assert observation.topology_read is not None
    assert observation.topology_read.topology.devices == (
        Device(
            kind="gpu", device=0, zone=1, pcie="pci0000:80", labels=(("model", "H100"), ("vendor", "10de")), address=gpu
        ),
        Device(kind="nic", device=0, zone=0, pcie="pci0000:00", labels=(("vendor", "8086"),), address=card),
    )
    assert observation.topology_read.topology.gpu_partitions == (DevicePartition(devices=(0,)),)
    assert "gpu_partitions names the GPUs 0-1, which the machine lacks in part; it is left out" in observation.assumed
    zones = observation.topology_read.topology.zones
    assert zones[0].huge_pages == (HugePages(page_bytes=2 << 20, total_bytes=GIB),)
    assert zones[1].huge_pages == ()
    named = "\n".join(observation.assumed)
    assert f"{absurd}/numa_node line 1: must be a zone of the machine, or -1 (got 99); nic 1 is left out" in named
    assert "node1/hugepages/hugepages-1048576kB/nr_hugepages line 1: must be an unsigned decimal number" in named


@pytest.mark.parametrize(("cgroup", "is_offered"), [("v1", True), ("v2", True), ("hybrid", False)])
def test_huge_pages_that_nobody_could_be_held_to_are_not_offered(
    tmp_path: Path, cgroup: Literal["v1", "v2", "hybrid"], is_offered: bool
) -> None:
    bench = Bench(tmp_path, cgroup=cgroup)
    directory = tmp_path / "sys/devices/system/node/node0/hugepages/hugepages-2048kB"
    directory.mkdir(parents=True)
    (directory / "nr_hugepages").write_text("512\n")
    observation = bench.observe()
    assert observation.topology_read is not None
    assert any(zone.huge_pages for zone in observation.topology_read.topology.zones) is is_offered
    capability = next(one for one in observation.topology_read.capabilities if one.name == "cgroup-hugetlb")
    assert capability.present is is_offered
    named = "the hugetlb controller is on v2 and cpu is not; huge pages are left out"
    assert (named in observation.assumed) is not is_offered


def test_an_executor_that_comes_makes_online_work_possible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, workloads=())
    monkeypatch.setattr(bench.reader, "is_writable", lambda path: False)

    def can(observation: Observation) -> bool:
        assert observation.topology_read is not None
        return next(one.present for one in observation.topology_read.capabilities if one.name == "online")

    assert not can(bench.observe())
    (tmp_path / "sys/fs/cgroup/cpuset/colo/batch").mkdir(parents=True)
    assert can(bench.observe())
    assert bench.observe().topology_read is None


def test_cpus_that_a_kubelet_pins_are_reserved_from_the_next_observation(tmp_path: Path) -> None:
    state = "/var/lib/kubelet/cpu_manager_state"
    bench = Bench(tmp_path, rules=NodeRules(kubelet_reserved_cpus="0"), kubelet_state=state)
    first = bench.observe()
    assert first.topology_read is not None
    assert first.topology_read.rules.kubelet_reserved_cpus == "0"
    assert any(state in each and "no CPU counts as pinned" in each for each in first.assumed)
    (tmp_path / "var/lib/kubelet").mkdir(parents=True)

    def pin(text: str) -> Observation:
        # As the kubelet does: another file takes the place of the old one.
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").rename(tmp_path / state.lstrip("/"))
        return bench.second()

    none = '{"policyName":"static","defaultCpuSet":"0-7","checksum":1}'
    pinned = '{"policyName":"static","defaultCpuSet":"0-1,4-7","entries":{"uid-1":{"app":"2-3"}},"checksum":2}'
    assert pin(none).topology_read is None
    with_pod = pin(pinned)
    assert with_pod.topology_read is not None
    assert with_pod.topology_read.rules.kubelet_reserved_cpus == "0,2-3"
    # CPUs that come back when the pod ends are listed apart from those that the operator keeps.
    assert with_pod.topology_read.rules.kubelet_pinned_cpus == "2-3"
    assert bench.second().topology_read is None
    # A file that is half written, or none at all, frees nothing.
    broken = pin("{")
    assert broken.topology_read is None
    after = pin(none)
    assert after.topology_read is not None
    assert after.topology_read.rules == NodeRules(kubelet_reserved_cpus="0")
