"""The fast reading over files that look like cgroup v2, one of whose counters tells too little."""

from __future__ import annotations

from pathlib import Path

import pytest

from colo_common.model.cpuset import CpuSet
from colo_executor.local import FastReading
from colo_executor.process import fast
from colo_executor.process.fast import ClosedCpus, FastReader
from colo_executor.process.sibling_cgroups import SiblingCgroups
from colo_executor.suppress import SuppressPolicy, left_mcpu


class Files:
    """Counters in us of the root and of groups, and the time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now_ns = 1_000_000_000_000
        (directory / "proc").mkdir()
        (directory / "proc/stat").write_text("cpu  0 0 0 0 0 0 0 0 0 0\n")
        (directory / "sys/devices/system/cpu").mkdir(parents=True)
        (directory / "sys/devices/system/cpu/online").write_text("0-3\n")
        (directory / "cgroup").mkdir()

    def set(self, group: str, used_us: int) -> None:
        path = self.directory / "cgroup" / group
        path.mkdir(parents=True, exist_ok=True)
        (path / "cpu.stat").write_text(f"usage_usec {used_us}\nuser_usec {used_us}\n")

    def reader(self) -> FastReader:
        root = self.directory / "cgroup"
        return FastReader(
            total_path=str(root / "cpu.stat"),
            batch_path=str(root / "colo/batch/cpu.stat"),
            unit_ns=1_000,
            window_ms=100,
            proc_root=str(self.directory / "proc"),
            sys_root=str(self.directory / "sys"),
            siblings=SiblingCgroups(str(root), "colo"),
        )


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    made = Files(tmp_path)
    for group in ("", "colo", "colo/batch", "system.slice"):
        made.set(group, 0)
    monkeypatch.setattr(fast.time, "monotonic_ns", lambda: made.now_ns)
    return made


def online_after(files: Files, reader: FastReader, span_ms: int = 100) -> int:
    files.now_ns += span_ms * 1_000_000
    reading = reader.read(1)
    assert reading is not None
    return reading.online_used_mcpu


@pytest.mark.parametrize(
    ("total_us", "batch_us", "other_us", "online_mcpu"),
    [
        (300_000, 100_000, 200_000, 2_000),
        (300_000, 100_000, 0, 2_000),
        (180_000, 100_000, 200_000, 2_000),
        (60_000, 100_000, 200_000, 2_000),
        (60_000, 100_000, 0, 0),
    ],
    ids=["both agree", "online in the root", "ticks lost", "less than batch alone", "only batch"],
)
def test_online_use_is_the_larger_of_the_rest_and_of_the_other_groups(
    files: Files, total_us: int, batch_us: int, other_us: int, online_mcpu: int
) -> None:
    reader = files.reader()
    assert reader.read(1) is None
    files.set("", total_us)
    files.set("colo/batch", batch_us)
    files.set("system.slice", other_us)
    assert online_after(files, reader) == online_mcpu
    reader.close()


def test_a_group_that_comes_late_counts_from_when_it_is_seen(files: Files) -> None:
    reader = files.reader()
    reader.read(1)
    files.set("late.slice", 900_000)
    assert online_after(files, reader, 1_000) == 0
    files.set("late.slice", 950_000)
    assert online_after(files, reader) == 500
    reader.close()


def test_a_group_that_goes_takes_nothing_back(files: Files) -> None:
    files.set("short.slice", 0)
    reader = files.reader()
    reader.read(1)
    files.set("short.slice", 100_000)
    assert online_after(files, reader) == 1_000
    (files.directory / "cgroup/short.slice/cpu.stat").unlink()
    (files.directory / "cgroup/short.slice").rmdir()
    assert online_after(files, reader, 1_000) == 0
    files.set("system.slice", 50_000)
    assert online_after(files, reader) == 500
    reader.close()


def test_a_group_whose_counter_is_no_number_is_left_out_until_it_is_one(files: Files) -> None:
    (files.directory / "cgroup/odd.slice").mkdir()
    (files.directory / "cgroup/odd.slice/cpu.stat").write_text("usage_usec many\n")
    reader = files.reader()
    reader.read(1)
    files.set("odd.slice", 900_000)
    assert online_after(files, reader) == 0
    assert online_after(files, reader, 1_000) == 0
    files.set("odd.slice", 950_000)
    assert online_after(files, reader) == 500
    reader.close()


def test_of_many_groups_sixty_four_are_counted(files: Files) -> None:
    names = [f"unit-{number:03d}" for number in range(70)]
    for name in names:
        files.set(name, 0)
    reader = files.reader()
    reader.read(1)
    for name in names:
        files.set(name, 1_000)
    # system.slice comes first by name.
    assert online_after(files, reader) == 63 * 10
    reader.close()


STAT = "cpu  {0} 0 0 0 0 {1} 0 0 0 0\n{2}intr 1 2 3\n"


class Withheld:
    """A machine of four CPUs under cgroup v2 whose rules withhold CPUs 0 and 1, and the use of each of its CPUs in ticks."""

    def __init__(self, files: Files, *, is_kept: bool = True) -> None:
        self.files = files
        self.total_us = self.batch_us = self.interrupts = 0
        self.ticks = [0, 0, 0, 0]
        root = files.directory / "cgroup"
        closed = ClosedCpus(CpuSet(), (), CpuSet.parse("0-1"), is_kept)
        self.reader = FastReader(
            total_path=str(root / "cpu.stat"),
            batch_path=str(root / "colo/batch/cpu.stat"),
            unit_ns=1_000,
            window_ms=100,
            proc_root=str(files.directory / "proc"),
            sys_root=str(files.directory / "sys"),
            closed=lambda: closed,
        )
        self.write()
        self.reader.read(1)

    def write(self) -> None:
        self.files.set("", self.total_us)
        self.files.set("colo/batch", self.batch_us)
        lines = "".join(f"cpu{cpu} {used} 0 0 9 9 9 9 9 0 0\n" for cpu, used in enumerate(self.ticks))
        text = STAT.format(sum(self.ticks), self.interrupts, lines)
        (self.files.directory / "proc/stat").write_text(text)

    def after(self, *mcpu: int, batch_mcpu: int = 0, interrupt_mcpu: int = 0, span_ms: int = 1_000) -> FastReading:
        """The reading after a span in which the CPUs were used so much, one after the other."""
        self.files.now_ns += span_ms * 1_000_000
        self.total_us += sum(mcpu) * span_ms
        self.batch_us += batch_mcpu * span_ms
        self.interrupts += interrupt_mcpu * span_ms // 10_000
        self.ticks = [before + used * span_ms // 10_000 for before, used in zip(self.ticks, mcpu, strict=True)]
        self.write()
        reading = self.reader.read(1)
        assert reading is not None
        return reading


def target_of(reading: FastReading) -> int:
    """suppress(BE) = node.total x SLO % - LS.used - max(system.used, reserved)."""
    system_mcpu = max(reading.system_used_mcpu, reading.reserved_mcpu)
    policy = SuppressPolicy(threshold_pct=80)
    return left_mcpu(policy, reading.capacity_mcpu, reading.online_used_mcpu, system_mcpu)


@pytest.mark.parametrize(
    ("mcpu", "interrupt_mcpu", "shown", "target_mcpu"),
    [
        ((800, 700, 500, 0), 0, (500, 1_500, 2_000), 3_200 - 500 - 2_000),
        ((1_000, 1_000, 0, 0), 0, (0, 2_000, 2_000), 3_200 - 2_000),
        ((1_000, 1_000, 0, 0), 100, (0, 2_100, 2_000), 3_200 - 2_100),
        ((0, 0, 500, 500), 0, (1_000, 0, 2_000), 3_200 - 1_000 - 2_000),
    ],
    ids=["below the reservation", "all of it", "and interrupts", "none of it"],
)
def test_what_withheld_cpus_are_used_is_taken_off_once(
    files: Files, mcpu: tuple[int, ...], interrupt_mcpu: int, shown: tuple[int, ...], target_mcpu: int
) -> None:
    reading = Withheld(files).after(*mcpu, interrupt_mcpu=interrupt_mcpu)
    assert (reading.online_used_mcpu, reading.system_used_mcpu, reading.reserved_mcpu) == shown
    assert target_of(reading) == target_mcpu


def test_work_of_the_other_cpus_is_seen_at_once_and_the_withheld_ones_a_tenth_of_a_second_later(files: Files) -> None:
    machine = Withheld(files)
    machine.after(1_000, 1_000, 0, 0)
    reading = machine.after(0, 0, 1_000, 1_000, span_ms=100)
    assert (reading.online_used_mcpu, reading.system_used_mcpu) == (2_000, 0)


def test_batch_work_that_nothing_keeps_off_withheld_cpus_is_not_taken_for_the_systems(files: Files) -> None:
    reading = Withheld(files, is_kept=False).after(1_000, 0, 500, 0, batch_mcpu=1_000)
    assert (reading.online_used_mcpu, reading.system_used_mcpu, reading.reserved_mcpu) == (500, 0, 2_000)


def test_a_line_that_is_no_number_is_no_reading(files: Files) -> None:
    machine = Withheld(files)
    (files.directory / "proc/stat").write_text("cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 many 0 0\n")
    files.now_ns += 1_000_000_000
    assert machine.reader.read(1) is None
