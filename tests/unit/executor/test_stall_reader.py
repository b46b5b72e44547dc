"""The waits of online groups, over files that look like a cgroup v2 tree, and from which source a machine has them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from colo_executor.cgroup import CgroupTree
from colo_executor.process.stall_reader import StallReader, stall_reader, unified_root
from colo_executor.stall import OnlineStalls

PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n"


class Tree:
    """A cgroup v2 mount and a /proc whose process is in the agent's own unit."""

    def __init__(self, directory: Path, own: str = "/system.slice/colo-executor.service") -> None:
        self.root, self.proc = directory / "cgroup", directory / "proc"
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "pressure").mkdir()
        (self.proc / "pressure/cpu").write_text(PRESSURE.format(1))
        (self.proc / "self/cgroup").write_text(f"1:name=systemd:/x\n0::{own}\n")
        self.root.mkdir()
        (self.root / "cgroup.controllers").write_text("")

    def set(self, group: str, total_us: int | str) -> None:
        path = self.root / group
        path.mkdir(parents=True, exist_ok=True)
        (path / "cpu.pressure").write_text(PRESSURE.format(total_us))

    def reader(self) -> StallReader:
        return StallReader(str(self.root), ("colo", "colo-leaving"), proc_root=str(self.proc))


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def read(reader: StallReader, at_ms: int) -> dict[str, int]:
    stalls = reader.read(at_ms)
    assert stalls is not None
    return dict(stalls.total_us)


def test_every_group_is_read_but_those_of_batch_work_and_of_the_agent_itself(tree: Tree) -> None:
    for group, total in {
        "colo/batch": 1,
        "colo-leaving": 2,
        "colo-online": 3,
        "system.slice/colo-executor.service": 4,
        "system.slice/nginx.service": 5,
        "machine.slice": 6,
        "kubepods.slice/kubepods-besteffort.slice": 7,
        "kubepods.slice/kubepods-burstable.slice": 8,
        "kubepods.slice/kubepods-pod1.slice": 9,
    }.items():
        tree.set(group, total)
    assert read(tree.reader(), 0) == {
        "colo-online": 3,
        "system.slice/nginx.service": 5,
        "machine.slice": 6,
        "kubepods.slice/kubepods-burstable.slice": 8,
        "kubepods.slice/kubepods-pod1.slice": 9,
    }


def test_it_reads_every_hundred_milliseconds_and_lists_every_second(tree: Tree) -> None:
    tree.set("a.slice", 10)
    reader = tree.reader()
    assert read(reader, 0) == {"a.slice": 10}
    tree.set("a.slice", 20)
    tree.set("b.slice", 1)
    assert read(reader, 99) == {"a.slice": 10}
    assert read(reader, 100) == {"a.slice": 20}
    assert read(reader, 1_000) == {"a.slice": 20, "b.slice": 1}
    (tree.root / "a.slice/cpu.pressure").unlink()
    (tree.root / "a.slice").rmdir()
    assert read(reader, 2_000) == {"b.slice": 1}
    reader.close()


@pytest.mark.parametrize("total", ["", "many", "-"], ids=["empty", "no number", "a dash"])
def test_a_file_that_is_none_is_left_out(tree: Tree, total: str) -> None:
    tree.set("a.slice", 10)
    tree.set("odd.slice", total)
    (tree.root / "bare.slice").mkdir()
    assert read(tree.reader(), 0) == {"a.slice": 10}


def test_a_clock_that_steps_back_stops_nothing(tree: Tree) -> None:
    tree.set("a.slice", 10)
    reader = tree.reader()
    assert read(reader, 3_600_000) == {"a.slice": 10}
    tree.set("a.slice", 20)
    assert read(reader, 0) == {"a.slice": 20}


def test_no_group_is_no_wait_and_a_kernel_without_pressure_says_nothing(tree: Tree) -> None:
    assert read(tree.reader(), 0) == {}
    (tree.proc / "pressure/cpu").unlink()
    assert tree.reader().read(0) is None


def many(tree: Tree, second: int, used_ms: Mapping[str, int]) -> None:
    """70 groups after so many seconds, of which some use so much CPU in each of them."""
    for number in range(70):
        name = f"g{number:02}.slice"
        tree.set(name, number)
        used_us = second * used_ms.get(name, 0) * 1_000
        (tree.root / name / "cpu.stat").write_text(f"usage_usec {used_us}\nuser_usec 0\n")


@pytest.mark.parametrize(
    ("used_ms", "first_left_out", "unseen"),
    [
        pytest.param({}, ["g64", "g65", "g66", "g67", "g68", "g69"], [], id="none is busy"),
        pytest.param(
            {"g65.slice": 200, "g69.slice": 900},
            ["g62", "g63", "g64", "g66", "g67", "g68"],
            [],
            id="the last ones by name are busy",
        ),
        pytest.param(
            {f"g{number:02}.slice": 60 if number < 66 else 300 for number in range(70)},
            ["g60", "g61", "g62", "g63", "g64", "g65"],
            ["g60", "g61", "g62", "g63", "g64", "g65"],
            id="all are busy",
        ),
        pytest.param(
            {f"g{number:02}.slice": 100 if number < 64 else 30 for number in range(70)},
            ["g64", "g65", "g66", "g67", "g68", "g69"],
            [],
            id="those that use least are hardly busy",
        ),
    ],
)
def test_of_more_than_sixty_four_groups_the_busiest_are_read_and_the_other_busy_ones_are_unseen(
    tree: Tree, used_ms: dict[str, int], first_left_out: list[str], unseen: list[str]
) -> None:
    reader = tree.reader()
    for second in range(3):
        many(tree, second, used_ms)
        stalls = reader.read(second * 1_000)
        assert stalls is not None
        assert len(stalls.total_us) == 64
    left_out = {f"g{number:02}.slice" for number in range(70)} - dict(stalls.total_us).keys()
    assert sorted(left_out) == [f"{name}.slice" for name in first_left_out]
    assert stalls.unseen == tuple(f"{name}.slice" for name in unseen)
    reader.close()


def test_who_is_read_changes_only_for_one_that_uses_twice_as_much(tree: Tree) -> None:
    reader = tree.reader()
    used_ms = {f"g{number:02}.slice": 100 for number in range(64)}
    for second in range(2):
        many(tree, second, used_ms)
        reader.read(second * 1_000)
    for second, of_another in ((2, 190), (3, 410)):
        many(tree, second, used_ms)
        # What it used since the first listing, when it used nothing.
        used_us = sum((190, 410)[: second - 1]) * 1_000
        (tree.root / "g64.slice/cpu.stat").write_text(f"usage_usec {used_us}\n")
        stalls = reader.read(second * 1_000)
        assert stalls is not None
        is_read = "g64.slice" in dict(stalls.total_us)
        assert is_read is (of_another == 410)
        assert ("g64.slice" in stalls.unseen) is not is_read
    reader.close()


def test_where_groups_go_away_all_that_remain_are_read(tree: Tree) -> None:
    reader = tree.reader()
    for second in range(2):
        many(tree, second, {f"g{number:02}.slice": 100 for number in range(70)})
        stalls = reader.read(second * 1_000)
    assert stalls is not None
    assert len(stalls.unseen) == 6
    for number in range(6):
        shutil.rmtree(tree.root / f"g{number:02}.slice")
    assert len(read(reader, 2_000)) == 64
    stalls = reader.read(2_000)
    assert stalls is not None
    assert stalls.unseen == ()
    reader.close()


def test_the_mount_is_found_below_the_controllers_of_v1(tmp_path: Path) -> None:
    assert unified_root(str(tmp_path)) is None
    (tmp_path / "unified").mkdir()
    (tmp_path / "unified/cgroup.controllers").write_text("")
    assert unified_root(str(tmp_path)) == str(tmp_path / "unified")
    (tmp_path / "cgroup.controllers").write_text("cpu")
    assert unified_root(str(tmp_path)) == str(tmp_path)


MS = 1_000_000


class Kernel:
    """A machine with one group, web.slice, in which a thread runs and waits for half of the time each."""

    def __init__(self, root: Path, version: int, *, pressure: str, schedstat: str) -> None:
        self.root, self.version, self.proc = root, version, root / "proc"
        self._has_schedstat = bool(schedstat)
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "self/cgroup").write_text("1:cpu:/\n0::/\n")
        if schedstat:
            (self.proc / "self/schedstat").write_text(schedstat)
        if pressure:
            (self.proc / "pressure").mkdir()
            (self.proc / "pressure/cpu").write_text(PRESSURE.format(1))
        for mount in ("cpu", "cpuacct", "memory") if version == 1 else ():
            (root / mount / "web.slice").mkdir(parents=True)
            (root / mount / "cgroup.procs").write_text("")
        unified = {1: root / "unified", 2: root}[version]
        if version == 2 or pressure:
            (unified / "web.slice").mkdir(parents=True)
            (unified / "cgroup.controllers").write_text("cpu memory\n" if version == 2 else "")
        if pressure == "of the group":
            (unified / "web.slice/cpu.pressure").write_text(PRESSURE.format(1))
        self.at(0)

    def at(self, ms: int) -> int:
        """Let so much time have passed."""
        cpu = self.root / "cpu/web.slice" if self.version == 1 else self.root / "web.slice"
        if self.version == 1:
            (self.root / "cpuacct/web.slice/cpuacct.usage").write_text(f"{ms * MS // 2}\n")
            (cpu / "tasks").write_text("7\n")
            (cpu / "cpu.stat").write_text(f"nr_throttled 3\nthrottled_time {ms * MS // 10}\n")
        else:
            (cpu / "cgroup.threads").write_text("7\n")
            (cpu / "cpu.stat").write_text(f"usage_usec {ms * 500}\nthrottled_usec {ms * 100}\n")
        if self._has_schedstat:
            (self.proc / "7").mkdir(exist_ok=True)
            (self.proc / "7/schedstat").write_text(f"{ms * MS // 2} {ms * MS // 2} 9\n")
        return ms

    def stalls(self) -> OnlineStalls | None:
        """What is read after three seconds."""
        reader = stall_reader(CgroupTree(str(self.root), "colo"), ("colo",), str(self.proc))
        if reader is None:
            return None
        found = None
        for tick in range(31):
            found = reader.read(self.at(tick * 100))
        reader.close()
        return found


BY_THREADS, BY_FILE, UNSEEN = "by threads", "by its file", "unseen"


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("pressure", "schedstat", "v1", "v2"),
    [
        ("of the group", "1 2 3", BY_FILE, BY_FILE),
        ("of the machine", "1 2 3", BY_THREADS, ""),
        ("of the machine", "0 0 0", UNSEEN, ""),
        ("of the machine", "", UNSEEN, ""),
        ("", "1 2 3", BY_THREADS, BY_THREADS),
        ("", "0 0 0", None, None),
        ("", "", None, None),
    ],
    ids=[
        "pressure of groups",
        "a group outside of version 2",
        "and threads that tell nothing",
        "and no times of threads",
        "no pressure",
        "no pressure, and threads that tell nothing",
        "neither",
    ],
)
def test_a_machine_has_the_source_that_its_kernel_gives(
    tmp_path: Path, version: int, pressure: str, schedstat: str, v1: str | None, v2: str | None
) -> None:
    stalls = Kernel(tmp_path, version, pressure=pressure, schedstat=schedstat).stalls()
    expected = {1: v1, 2: v2}[version]
    if expected is None:
        assert stalls is None
        return
    assert stalls is not None
    name = "web.slice"
    assert (name in stalls.by_threads, name in stalls.unseen) == (expected == BY_THREADS, expected == UNSEEN)
    if expected == BY_THREADS:
        # From the first busy second on; its own quota stopped it for a tenth of all the time.
        assert stalls.total_us == ((name, 1_000_000),)
        assert stalls.throttled_us == ((name, 300_000),)
    elif expected == BY_FILE:
        assert stalls.total_us == ((name, 1),)
