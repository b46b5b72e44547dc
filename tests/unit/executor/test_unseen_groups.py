"""Busy groups that have no pressure file, and whose threads tell of their waits: over files that look like a machine's."""

from __future__ import annotations

from pathlib import Path

import pytest

from colo_executor.process.thread_waits import ThreadWaits
from colo_executor.process.unseen_groups import UnseenGroups, throttled_us

POD = "kubepods/burstable"
MS = 1_000_000


class Hybrid:
    """The mounts of cpu, cpuacct and cgroup v2, each with directories of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for mount in ("cpu", "cpuacct", "unified"):
            (directory / mount).mkdir()
        (directory / "proc/self").mkdir(parents=True)
        (directory / "proc/self/cgroup").write_text("2:cpuacct:/\n1:cpu:/agents/executor\n0::/elsewhere\n")

    def set(self, group: str, used_ms: int, *, has_pressure: bool = False) -> None:
        for mount in ("cpu", "cpuacct", *(["unified"] if has_pressure else [])):
            (self.directory / mount / group).mkdir(parents=True, exist_ok=True)
        (self.directory / "cpuacct" / group / "cpuacct.usage").write_text(f"{used_ms * 1_000_000}\n")
        if has_pressure:
            (self.directory / "unified" / group / "cpu.pressure").write_text("some total=1\n")

    def thread(self, group: str, number: int, run_ms: int, wait_ms: int = 0) -> None:
        (self.directory / "cpu" / group / "tasks").write_text(f"{number}\n")
        (self.directory / f"proc/{number}").mkdir(exist_ok=True)
        (self.directory / f"proc/{number}/schedstat").write_text(f"{run_ms * MS} {wait_ms * MS} 1\n")

    def reader(self, *, by_threads: bool = False, has_unified: bool = True) -> UnseenGroups:
        cpu, cpuacct, unified = (str(self.directory / mount) for mount in ("cpu", "cpuacct", "unified"))
        proc = str(self.directory / "proc")
        return UnseenGroups(
            cpu,
            cpuacct,
            1,
            unified if has_unified else None,
            ("colo", "colo-leaving"),
            proc_root=proc,
            threads=ThreadWaits(cpu, 1, proc_root=proc) if by_threads else None,
        )


@pytest.fixture
def hybrid(tmp_path: Path) -> Hybrid:
    return Hybrid(tmp_path)


def test_a_busy_pod_without_a_pressure_file_is_unseen_and_one_that_idles_is_not(hybrid: Hybrid) -> None:
    for group in (POD, "kubepods/besteffort", "kubepods/pod1", "colo", "agents/executor", "agents/other"):
        hybrid.set(group, 1_000)
    hybrid.set("system.slice", 1_000, has_pressure=True)
    reader = hybrid.reader()
    assert reader.read(0) == ()
    for group in (POD, "kubepods/besteffort", "colo", "agents/executor", "system.slice"):
        hybrid.set(group, 1_050, has_pressure=group == "system.slice")
    hybrid.set("kubepods/pod1", 1_049)
    assert reader.read(999) == ()
    assert reader.read(1_000) == (POD,)


def test_it_counts_for_a_minute_after_it_was_busy_or_until_it_is_gone(hybrid: Hybrid) -> None:
    hybrid.set(POD, 0)
    reader = hybrid.reader()
    reader.read(0)
    hybrid.set(POD, 500)
    assert reader.read(1_000) == (POD,)
    assert reader.read(60_999) == (POD,)
    assert reader.read(62_000) == ()
    hybrid.set(POD, 5_000)
    assert reader.read(63_000) == (POD,)
    # Whoever gives it a group of cgroup v2 lets it be seen.
    hybrid.set(POD, 6_000, has_pressure=True)
    assert reader.read(64_000) == ()


def test_what_a_new_group_used_before_and_a_clock_that_steps_back_make_nothing_busy(hybrid: Hybrid) -> None:
    reader = hybrid.reader()
    assert reader.read(10_000) == ()
    hybrid.set(POD, 9_000)
    assert reader.read(11_000) == ()
    hybrid.set(POD, 9_900)
    assert reader.read(1_000) == ()
    hybrid.set(POD, 9_990)
    assert reader.read(2_000) == (POD,)


def test_a_busy_group_whose_threads_are_known_is_seen_by_them(hybrid: Hybrid) -> None:
    reader = hybrid.reader(by_threads=True)
    for second in range(5):
        hybrid.set(POD, second * 100)
        hybrid.thread(POD, 10, 5_000 + second * 90, second * 200)
        assert reader.read(second * 1_000) == ()
    # Read from its first busy second on, and waits count from there.
    assert reader.waits_us(4_000) == ((POD, 600_000),)
    hybrid.set(POD, 400, has_pressure=True)
    reader.read(5_000)
    assert reader.waits_us(5_000) == (), "its pressure file tells it better"


def test_a_group_of_short_processes_is_unseen_from_its_second_busy_second_on(hybrid: Hybrid) -> None:
    reader = hybrid.reader(by_threads=True)
    found = []
    for second in range(4):
        hybrid.set(POD, second * 100)
        # What lives at a listing ran for less than half of what the group used.
        hybrid.thread(POD, 10, second * 49)
        found.append(reader.read(second * 1_000))
    assert found == [(), (), (POD,), (POD,)]


def test_a_kernel_that_shows_zeros_leaves_a_busy_group_unseen(hybrid: Hybrid) -> None:
    reader = hybrid.reader(by_threads=True)
    for second in range(3):
        hybrid.set(POD, second * 100)
        hybrid.thread(POD, 10, 0)
        found = reader.read(second * 1_000)
    assert found == (POD,)


def test_groups_beyond_those_that_are_read_by_threads_are_unseen(hybrid: Hybrid) -> None:
    reader = hybrid.reader(by_threads=True)
    names = [f"kubepods/pod{number:02}" for number in range(66)]
    for second in range(3):
        for number, name in enumerate(names):
            hybrid.set(name, second * 100)
            hybrid.thread(name, number + 1, second * 100)
        found = reader.read(second * 1_000)
    assert found == tuple(names[64:])
    assert len(reader.waits_us(3_000)) == 64


def test_what_hardly_runs_is_read_by_its_threads_and_never_unseen(hybrid: Hybrid) -> None:
    reader = hybrid.reader(by_threads=True)
    for second in range(3):
        for name, number, used_ms in (("kubepods/light", 1, 10), ("kubepods/idle", 2, 9)):
            hybrid.set(name, second * used_ms)
            hybrid.thread(name, number, 0)
        assert reader.read(second * 1_000) == ()
    assert reader.waits_us(2_000) == (("kubepods/light", 0),)


def test_without_a_hierarchy_of_version_2_every_group_is_looked_at(hybrid: Hybrid) -> None:
    hybrid.set(POD, 0, has_pressure=True)
    reader = hybrid.reader(by_threads=True, has_unified=False)
    reader.read(0)
    hybrid.set(POD, 100, has_pressure=True)
    hybrid.thread(POD, 10, 90)
    reader.read(1_000)
    assert reader.waits_us(1_000) == ((POD, 0),)
    reader.close()
    assert reader.waits_us(1_100) == ()


def test_closed_files_of_threads_are_opened_again_by_the_next_reading(hybrid: Hybrid) -> None:
    reader = hybrid.reader(by_threads=True)
    for second in range(2):
        hybrid.set(POD, second * 100)
        hybrid.thread(POD, 10, second * 100)
        reader.read(second * 1_000)
    reader.close()
    reader.read(1_100)
    assert reader.waits_us(1_100) == ((POD, 0),)


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("nr_periods 10\nnr_throttled 2\nthrottled_time 4567890\n", 4_567),
        ("usage_usec 1\nnr_periods 10\nthrottled_usec 4567\n", 4_567),
        ("usage_usec 1\n", 0),
        ("throttled_time much\n", 0),
        (None, 0),
    ],
    ids=["v1 counts ns", "v2 counts us", "no quota", "no number", "no file"],
)
def test_the_time_that_a_quota_stopped_a_group(tmp_path: Path, text: str | None, us: int) -> None:
    if text is not None:
        (tmp_path / "cpu.stat").write_text(text)
    assert throttled_us(str(tmp_path)) == us
