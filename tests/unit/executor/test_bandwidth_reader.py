"""What memory carries, over trees that look like resctrl and like the caches of /sys."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from colo_common.model.cpuset import CpuSet
from colo_executor.bandwidth import MemoryTraffic, ZoneTraffic
from colo_executor.process import bandwidth_reader
from colo_executor.process.bandwidth_reader import BandwidthReader
from tests.support.machine_tree import MachineSpec, MachineTree
from tests.support.resctrl_tree import ResctrlTree, mount_line

MB = 1_000_000


class Machine:
    """Two zones of four CPUs, each with a last-level cache of its own unless `spec` says something else."""

    def __init__(self, root: Path, *domains: str, spec: MachineSpec | None = None, kind: str = "resctrl") -> None:
        self.root = root
        self.spec = spec or MachineSpec(sockets=2, cores_per_zone=4, l3_ids=(0, 7))
        MachineTree(self.spec, root=root).write()
        self.resctrl = ResctrlTree(root, *domains, kind=kind)
        #: What each look at the clock of the reader adds to it.
        self.tick_ns = 0
        self.clock_ns = 0
        self.reader = BandwidthReader(str(root / "sys"), str(root / "proc"), self._clock)
        self.online = CpuSet.from_iterable(one.cpu for one in self.spec.online())
        self.now_ms = 1_000_000

    def _clock(self) -> int:
        self.clock_ns += self.tick_ns
        return self.clock_ns

    def read(self, after_ms: int = 1_000) -> dict[int | None, int] | None:
        """MB/s by zone."""
        self.now_ms += after_ms
        self.reader.look(self.online)
        found = self.reader.read(self.now_ms * MB, self.now_ms)
        return None if found is None else {each.zone: each.bytes_per_s // MB for each in found.zones}


def test_the_counters_of_all_control_groups_are_summed_by_zone(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "mon_L3_00", "mon_L3_07")
    machine.resctrl.make("batch")
    assert machine.read() is None
    machine.resctrl.add({("", "mon_L3_00"): 300 * MB, ("batch", "mon_L3_00"): 200 * MB, ("", "mon_L3_07"): 50 * MB})
    assert machine.read() == {0: 500, 1: 50}
    assert machine.read(2_000) == {0: 0, 1: 0}
    machine.resctrl.add({("batch", "mon_L3_07"): 80 * MB})
    # A pass each second; in between the last one stands.
    assert machine.read(900) == {0: 0, 1: 0}
    assert machine.read(100) == {0: 0, 1: 80}


def test_the_moment_is_that_of_the_pass_and_not_of_the_call(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "mon_L3_00", "mon_L3_07")
    machine.read()
    machine.read()
    machine.reader.look(machine.online)
    found = machine.reader.read((machine.now_ms + 500) * MB, machine.now_ms + 500)
    zones = tuple(ZoneTraffic(zone=zone, bytes_per_s=0) for zone in (0, 1))
    assert found == MemoryTraffic(at_ms=machine.now_ms, zones=zones)


@pytest.mark.parametrize("answer", ["Unavailable", "Unassigned", "Error", "", "-5", "0x10"])
def test_a_zone_with_a_counter_that_gives_no_answer_any_more_is_not_told_and_counts_as_before_later(
    tmp_path: Path, answer: str
) -> None:
    machine = Machine(tmp_path, "mon_L3_00", "mon_L3_07")
    machine.resctrl.make("batch")
    machine.read()
    machine.read()
    machine.resctrl.set("batch", "mon_L3_00", answer)
    machine.resctrl.add({("", "mon_L3_00"): 10 * MB, ("", "mon_L3_07"): 10 * MB})
    assert machine.read() == {1: 10}
    # What it counted meanwhile is spread over the time since its last answer.
    machine.resctrl.set("batch", "mon_L3_00", 60 * MB)
    machine.resctrl.add({("", "mon_L3_00"): 10 * MB})
    assert machine.read() == {0: 40, 1: 0}


def test_a_counter_that_is_silent_for_long_is_left_out_and_one_that_never_answered_too(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "mon_L3_00", "mon_L3_07")
    machine.resctrl.make("never", "Unassigned")
    machine.resctrl.make("batch")
    assert machine.read() is None
    assert machine.read() == {0: 0, 1: 0}
    machine.resctrl.set("batch", "mon_L3_07", "Unavailable")
    assert [machine.read() for _ in range(3)] == [{0: 0}, {0: 0}, {0: 0, 1: 0}]
    # Its next answer is a beginning.
    machine.resctrl.set("batch", "mon_L3_07", 900 * MB)
    assert machine.read() == {0: 0}
    assert machine.read() == {0: 0, 1: 0}


def test_a_counter_that_went_back_is_no_traffic(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "mon_L3_00", "mon_L3_07")
    machine.resctrl.set("", "mon_L3_00", 900 * MB)
    machine.read()
    machine.resctrl.set("", "mon_L3_00", 5 * MB)
    assert machine.read() == {1: 0}
    machine.resctrl.add({("", "mon_L3_00"): 7 * MB})
    assert machine.read() == {0: 7, 1: 0}


def test_a_group_that_vanishes_or_comes_back_under_its_name_is_another_one(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "mon_L3_00", "mon_L3_07")
    machine.resctrl.make("batch", 100 * MB)
    machine.read()
    assert machine.read() == {0: 0, 1: 0}
    machine.resctrl.remove("batch")
    machine.resctrl.add({("", "mon_L3_00"): 3 * MB})
    assert machine.read() == {0: 3, 1: 0}
    # Not the same directory: its counter, however high, is no traffic of the last second.
    machine.resctrl.make("batch", 5_000 * MB)
    assert machine.read() is None
    machine.resctrl.add({("batch", "mon_L3_07"): 4 * MB})
    assert machine.read() == {0: 0, 1: 4}


def test_a_group_that_vanishes_between_listing_and_reading_leaves_its_zones_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, "mon_L3_00", "mon_L3_07")
    machine.resctrl.make("batch")
    machine.read()
    machine.read()
    monkeypatch.setattr(bandwidth_reader, "_SLICE_COUNTERS", 2)
    assert machine.read() == {0: 0, 1: 0}
    machine.resctrl.remove("batch")
    assert machine.read(20) is None
    assert machine.read() == {0: 0, 1: 0}


def test_many_counters_are_read_over_several_calls_and_each_by_its_own_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bandwidth_reader, "_SLICE_COUNTERS", 3)
    machine = Machine(tmp_path, "mon_L3_00", "mon_L3_07")
    for name in ("a", "b", "c"):
        machine.resctrl.make(name)
    assert [machine.read(20) for _ in range(4)] == [None] * 4
    machine.resctrl.add({(group, "mon_L3_00"): 10 * MB for group in ("", "a", "b", "c")})
    found = [machine.read(after_ms) for after_ms in (940, 20, 20)]
    assert found == [None, None, {0: 40, 1: 0}]


def test_many_groups_at_once_are_found_over_several_passes(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "mon_L3_00", "mon_L3_07")
    for number in range(10):
        machine.resctrl.make(f"g{number}")
    machine.read()
    machine.resctrl.add({("g6", "mon_L3_00"): MB, ("g9", "mon_L3_00"): 2 * MB})
    # The last three of the eleven are new then, and what they count of the zones makes these unknown.
    assert machine.read() is None
    machine.resctrl.add({("g6", "mon_L3_00"): MB, ("g9", "mon_L3_00"): 2 * MB})
    assert machine.read() == {0: 3, 1: 0}


def test_more_groups_and_counters_than_are_read_are_left_out_and_the_default_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bandwidth_reader, "_GROUPS_MOST", 3)
    monkeypatch.setattr(bandwidth_reader, "_COUNTERS_MOST", 5)
    machine = Machine(tmp_path, "mon_L3_00", "mon_L3_07")
    for name in ("a", "b", "c"):
        machine.resctrl.make(name)
    machine.read()
    machine.resctrl.add({(group, domain): MB for group in ("", "a", "b", "c") for domain in machine.resctrl.domains})
    assert machine.read() == {0: 3, 1: 2}


def test_several_caches_of_a_zone_are_summed_whatever_ids_the_kernel_gives_them(tmp_path: Path) -> None:
    spec = MachineSpec(sockets=2, cores_per_zone=4, cores_per_l3=2, l3_ids=(1, 40, 16, 3))
    machine = Machine(tmp_path, "mon_L3_01", "mon_L3_40", "mon_L3_16", "mon_L3_03", spec=spec)
    machine.read()
    machine.resctrl.add({("", domain): 1 << at for at, domain in enumerate(machine.resctrl.domains, 20)})
    machine.read()
    found = machine.reader.read(machine.now_ms * MB, machine.now_ms)
    assert found is not None
    assert [(each.zone, each.bytes_per_s) for each in found.zones] == [(0, 3 << 20), (1, 3 << 22)]


def test_parts_of_a_divided_cache_are_zones_and_not_counted_twice(tmp_path: Path) -> None:
    spec = MachineSpec(zones_per_socket=2, cores_per_zone=4, cores_per_l3=8)
    parts = ("mon_L3_00/mon_sub_L3_00", "mon_L3_00/mon_sub_L3_01")
    machine = Machine(tmp_path, "mon_L3_00", *parts, spec=spec)
    machine.read()
    machine.resctrl.add({("", "mon_L3_00"): 30 * MB, ("", parts[0]): 10 * MB, ("", parts[1]): 20 * MB})
    assert machine.read() == {0: 10, 1: 20}


@pytest.mark.parametrize("domain", ["mon_L3_00", "mon_L3_55"])
def test_a_domain_of_no_one_zone_makes_it_the_traffic_of_the_machine(tmp_path: Path, domain: str) -> None:
    spec = MachineSpec(zones_per_socket=2, cores_per_zone=4, cores_per_l3=8)
    machine = Machine(tmp_path, domain, spec=spec)
    machine.read()
    machine.resctrl.add({("", domain): 30 * MB})
    assert machine.read() == {None: 30}
    found = machine.reader.read(machine.now_ms * MB, machine.now_ms)
    assert found is not None
    assert found.zones[0].zones == 2


def test_a_machine_of_one_zone_needs_no_ids_of_caches(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "mon_L3_00", "mon_L3_09", spec=MachineSpec(has_l3=False, has_numa=False))
    machine.read()
    machine.resctrl.add({("", "mon_L3_00"): 30 * MB, ("", "mon_L3_09"): 1 * MB})
    assert machine.read() == {0: 31}


def test_what_is_no_resctrl_is_not_read_and_a_mount_is_found_later(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "mon_L3_00", "mon_L3_07", kind="sysfs")
    machine.read()
    machine.resctrl.add({("", "mon_L3_00"): 30 * MB})
    assert machine.read() is None
    moved = machine.resctrl.root.rename(tmp_path / "elsewhere")
    assert machine.read() is None
    (tmp_path / "proc/self/mountinfo").write_text(mount_line(moved))
    moved.rename(machine.resctrl.root)
    assert machine.read() is None
    assert machine.read() == {0: 0, 1: 0}
    shutil.rmtree(machine.resctrl.root)
    assert machine.read() is None


def test_a_machine_without_monitoring_has_no_traffic(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert [machine.read() for _ in range(3)] == [None] * 3


def test_cpus_that_come_or_go_begin_anew(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "mon_L3_00", "mon_L3_07")
    machine.read()
    assert machine.read() == {0: 0, 1: 0}
    machine.online = machine.online - CpuSet.parse("7")
    machine.resctrl.add({("", "mon_L3_00"): 30 * MB})
    assert machine.read() is None
    assert machine.read() == {0: 0, 1: 0}


def test_a_slow_pass_makes_the_next_one_rarer(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "mon_L3_00", "mon_L3_07")
    # Each look at the clock is 4 ms later, so that a call reads one counter, and a pass of two calls has taken 12 ms.
    machine.tick_ns = 4 * MB
    machine.read()
    machine.read(20)
    began = machine.now_ms - 20
    found = [machine.read(after_ms) for after_ms in (1_170, 10, 20)]
    assert (machine.now_ms - began, found) == (1_220, [None, None, {0: 0, 1: 0}])


def test_it_writes_nothing_and_leaves_no_file_open(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "mon_L3_00", "mon_L3_07")
    machine.resctrl.make("batch")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    opened = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        machine.read()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert len(list(Path("/proc/self/fd").iterdir())) == opened
