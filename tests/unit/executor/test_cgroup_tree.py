"""Control groups over a tree of plain files that looks like cgroup v2: delegation, reading back, and staying inside."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from colo_executor.cgroup import CgroupError, CgroupTree
from colo_executor.cgroup_hierarchy import find_hierarchy
from colo_executor.knob_table import Knob
from colo_executor.order import KnobWrite

FILES = {
    "cgroup.controllers": "cpu cpuset memory pids\n",
    "cgroup.subtree_control": "",
    "cgroup.procs": "",
    "cpu.weight": "100\n",
    "cpu.idle": "0\n",
    "cpu.max": "max 100000\n",
    "cpu.stat": "usage_usec 1234\nuser_usec 1000\n",
    "memory.max": "max\n",
    "memory.events": "low 0\noom 1\noom_kill 2\n",
}


def fill(directory: Path) -> None:
    """What the kernel does when a group is made."""
    directory.mkdir(exist_ok=True)
    for name, text in FILES.items():
        (directory / name).write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "cgroup"
    fill(root)
    (root / "cgroup.subtree_control").write_text("memory\n")
    return root


def noting(noted: list[tuple[str, str]]) -> Callable[[str, str], AbstractContextManager[None]]:
    """Notes path and old value before a first write."""

    @contextmanager
    def changing(path: str, value: str) -> Iterator[None]:
        noted.append((path, value))
        yield

    return changing


def test_making_a_group_hands_the_controllers_down_and_notes_what_it_changes(root):
    noted: list[tuple[str, str]] = []
    tree = CgroupTree(
        str(root),
        "colo",
        created=lambda path: noted.append(("made", path)),
        changing=noting(noted),
    )
    assert tree.version == 2
    tree.make("")
    assert noted == [("cgroup.subtree_control", "memory"), ("made", "colo")]
    # A plain file keeps what was written to it; the kernel would show the sum.
    assert (root / "cgroup.subtree_control").read_text().startswith("+cpu +cpuset +pids")


def test_a_value_is_written_once_and_read_back(root):
    fill(root / "colo")
    tree = CgroupTree(str(root), "colo")
    write = KnobWrite(path="", knob=Knob.CPU_IDLE, value=1)
    (root / "colo" / "cpu.idle").write_text("0")
    value = tree.write(write)
    assert (value.path, value.value, value.before) == ("colo/cpu.idle", "1", "0")
    (root / "colo" / "cpu.idle").chmod(0o400)
    assert tree.write(write).value == "1", "nothing is written when nothing changed"


def test_counters_are_read(root):
    fill(root / "colo")
    tree = CgroupTree(str(root), "colo")
    assert tree.cpu_used_us("") == 1_234
    assert tree.oom_kills("") == 2
    assert tree.quota_us("") == -1
    assert tree.pids("nowhere") == ()


def test_the_old_value_of_a_foreign_group_is_noted_before_it_is_changed(root):
    fill(root / "colo")
    noted: list[tuple[str, str]] = []
    tree = CgroupTree(str(root), "colo", changing=noting(noted))
    tree.write(KnobWrite(path="", knob=Knob.CPU_QUOTA, value=5_000))
    tree.write(KnobWrite(path="", knob=Knob.CPU_QUOTA, value=6_000))
    assert noted == [("colo/cpu.max", "max 100000")]
    (root / "colo" / "cpu.max").write_text("")
    tree.put_back("colo/cpu.max", "max 100000")
    assert (root / "colo" / "cpu.max").read_text() == "max 100000"


@pytest.mark.parametrize("group", ["..", "../x", "a/../../x", ".hidden", "a b", "x\n", "batch/" + "x" * 300])
def test_no_name_leads_out_of_the_subtree(root, group):
    fill(root / "colo")
    tree = CgroupTree(str(root), "colo")
    with pytest.raises((CgroupError, FileNotFoundError)):
        tree.make(group)
    with pytest.raises((CgroupError, FileNotFoundError)):
        tree.write(KnobWrite(path=group, knob=Knob.CPU_IDLE, value=1))
    assert sorted(path.name for path in root.parent.iterdir()) == ["cgroup"]


def test_links_inside_the_subtree_are_not_followed(root):
    fill(root / "colo")
    fill(root.parent / "victim")
    (root / "colo" / "batch").symlink_to(root.parent / "victim")
    (root / "colo" / "cpu.idle").unlink()
    (root / "colo" / "cpu.idle").symlink_to(root.parent / "victim" / "cpu.idle")
    tree = CgroupTree(str(root), "colo")
    for group in ("", "batch"):
        with pytest.raises((CgroupError, OSError)):
            tree.write(KnobWrite(path=group, knob=Knob.CPU_IDLE, value=1))
    assert (root.parent / "victim" / "cpu.idle").read_text() == "0\n"


def test_a_machine_without_the_controllers_is_named(tmp_path):
    with pytest.raises(CgroupError, match="cgroup v1 below .* lacks the controllers cpu, cpuacct, memory"):
        find_hierarchy(str(tmp_path))


def test_a_bad_subtree_name_is_refused(root):
    with pytest.raises(CgroupError, match="subtree name"):
        CgroupTree(str(root), "../colo")
