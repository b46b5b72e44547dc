"""The waits of online groups, over files that look like a cgroup v2 tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from colo_executor.process.stall_reader import StallReader, unified_root

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


def test_at_most_sixty_four_groups_are_read(tree: Tree) -> None:
    for number in range(70):
        tree.set(f"g{number:02}.slice", number)
    assert len(read(tree.reader(), 0)) == 64


def test_the_mount_is_found_below_the_controllers_of_v1(tmp_path: Path) -> None:
    assert unified_root(str(tmp_path)) is None
    (tmp_path / "unified").mkdir()
    (tmp_path / "unified/cgroup.controllers").write_text("")
    assert unified_root(str(tmp_path)) == str(tmp_path / "unified")
    (tmp_path / "cgroup.controllers").write_text("cpu")
    assert unified_root(str(tmp_path)) == str(tmp_path)
