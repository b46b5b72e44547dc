"""What the lab reads of control groups, in trees of either version."""

from pathlib import Path

import pytest

from colo_cli.lab_kernel import KernelView, differences
from colo_executor.cgroup import CgroupError

REPLICA = "batch/a.main.0@1"
V1 = {
    "cpu/lab/batch/cpu.cfs_quota_us": "25000",
    "cpu/lab/batch/cpu.cfs_period_us": "100000",
    f"cpu/lab/{REPLICA}/cpu.shares": "102",
    f"cpu/lab/{REPLICA}/cgroup.procs": "12\n13",
    f"memory/lab/{REPLICA}/memory.limit_in_bytes": "67108864",
}
V2 = {
    "lab/batch/cpu.max": "25000 100000",
    f"lab/{REPLICA}/cpu.weight": "4",
    f"lab/{REPLICA}/cgroup.procs": "12\n13",
    f"lab/{REPLICA}/memory.max": "67108864",
}


def a_tree(root: Path, version: int) -> Path:
    """A root of control groups with a subtree "lab" in which one replica runs."""
    if version == 2:
        (root / "cgroup.controllers").write_text("cpu memory pids\n")
    for controller in ("cpu", "cpuacct", "memory") if version == 1 else ():
        (root / controller).mkdir()
        (root / controller / "cgroup.procs").write_text("")
    for path, value in (V1 if version == 1 else V2).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"{value}\n")
    return root


@pytest.mark.parametrize("version", [1, 2])
def test_the_replicas_values_are_read_by_path(tmp_path: Path, version: int) -> None:
    view = KernelView("lab", str(a_tree(tmp_path, version)))
    assert view.version == version
    assert view.replicas() == (REPLICA,)
    assert view.processes(REPLICA) == (12, 13)
    expected = {path: value for path, value in (V1 if version == 1 else V2).items() if REPLICA in path}
    assert view.knobs(REPLICA) == {path: value for path, value in expected.items() if "procs" not in path}
    assert view.ceiling_mcpu() == 250


@pytest.mark.parametrize(("version", "path"), [(1, "cpu/lab/batch/cpu.cfs_quota_us"), (2, "lab/batch/cpu.max")])
def test_a_tier_without_a_quota_has_no_ceiling(tmp_path: Path, version: int, path: str) -> None:
    (a_tree(tmp_path, version) / path).write_text("-1\n" if version == 1 else "max 100000\n")
    assert KernelView("lab", str(tmp_path)).ceiling_mcpu() is None


@pytest.mark.parametrize("version", [1, 2])
def test_an_absent_group_is_empty_and_a_left_one_is_named(tmp_path: Path, version: int) -> None:
    root = str(a_tree(tmp_path, version))
    absent, there = KernelView("other", root), KernelView("lab", root)
    assert (absent.replicas(), absent.processes("batch"), absent.knobs(""), absent.ceiling_mcpu()) == ((), (), {}, None)
    assert absent.left() == ()
    assert there.left() == (
        (str(tmp_path / "lab"),) if version == 2 else (str(tmp_path / "cpu/lab"), str(tmp_path / "memory/lab"))
    )


def test_a_machine_without_control_groups_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CgroupError, match="lacks the controllers"):
        KernelView("lab", str(tmp_path))


def test_only_another_value_differs() -> None:
    assert differences({"a": "1", "b": "2", "deleted": "3"}, {"a": "1", "b": "4", "new": "5"}) == [
        "b: published 2, shows 4"
    ]


def test_an_attempt_that_was_told_to_end_may_show_the_greatest_weight() -> None:
    published = {"cpu/a/cpu.shares": "102", "b/cpu.weight": "4", "cpu/a/cpu.cfs_quota_us": "-1"}
    assert differences(published, published | {"cpu/a/cpu.shares": "262144", "b/cpu.weight": "10000"}) == []
    assert differences(published, published | {"cpu/a/cpu.shares": "1024", "cpu/a/cpu.cfs_quota_us": "262144"}) == [
        "cpu/a/cpu.cfs_quota_us: published -1, shows 262144",
        "cpu/a/cpu.shares: published 102, shows 1024",
    ]
