"""The fast reading over files that look like cgroup v2, one of whose counters tells too little."""

from __future__ import annotations

from pathlib import Path

import pytest

from colo_executor.process import fast
from colo_executor.process.fast import FastReader
from colo_executor.process.sibling_cgroups import SiblingCgroups


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
