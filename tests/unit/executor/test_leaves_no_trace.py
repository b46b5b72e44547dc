"""Nothing outside the executor's groups is ever written, also while names are exchanged; and restore leaves the tree as it was."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.workload import RunSpec
from colo_executor.cgroup import CgroupError, CgroupTree
from colo_executor.cgroup_hierarchy import check_file_system, find_hierarchy
from colo_executor.knob_table import Knob
from colo_executor.local import ReplicaLaunched, SuspendReplicas
from colo_executor.order import KnobWrite
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from colo_executor.unmanaged import UnmanagedGroup
from tests.kernel.inside import settings_of
from tests.support.builders import a_placement
from tests.support.written_files import WrittenFiles

ROOT = "/sys/fs/cgroup"
KNOBS = (
    "cpu.shares", "cpu.idle", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpuset.cpus", "cpuset.mems", "cpu.weight", "cpu.max",
    "memory.limit_in_bytes", "memory.max", "pids.max", "cgroup.subtree_control",
)  # fmt: skip


def texts(mounts: dict[str, str], names: tuple[str, ...]) -> dict[str, str]:
    """Every setting of these groups, byte by byte, every knob of the roots, and the names of all groups beside them."""
    found = {path: str(text) for path, text in settings_of(*groups_named(mounts, names)).items()}
    for mount in set(mounts.values()):
        for directory in (Path(mount), *(Path(mount, name) for name in names)):
            for knob in KNOBS:
                if (directory / knob).exists():
                    found[str(directory / knob)] = (directory / knob).read_text()
        found[mount] = " ".join(sorted(path.name for path in Path(mount).iterdir() if path.name.startswith(names[0])))
        for name in names:
            below = Path(mount, name)
            found[str(below)] = " ".join(sorted(path.name for path in below.iterdir())) if below.exists() else "-"
    return found


def groups_named(mounts: dict[str, str], names: tuple[str, ...]) -> list[Path]:
    """Those of the groups that are there, under every controller."""
    return [path for mount in sorted(set(mounts.values())) for name in names if (path := Path(mount, name)).exists()]


@pytest.fixture
def made_in_advance() -> Iterator[CgroupTree]:
    """A subtree that an operator made and set before colo came."""
    tree = CgroupTree(ROOT, f"colo-before-{os.getpid()}")
    tree.make("")
    tree.write(KnobWrite(path="", knob=Knob.CPU_WEIGHT, value=600))
    yield tree
    tree.kill("")
    assert tree.remove("")


@pytest.mark.kernel
@pytest.mark.parametrize("starts", [1, 2, 3], ids=["in order", "after a crash", "after a restart"])
async def test_restore_leaves_the_tree_as_it_was(made_in_advance: CgroupTree, tmp_path: Path, starts: int) -> None:
    name = made_in_advance.name
    mounts = made_in_advance.hierarchy.mounts
    names = (name, f"{name}-online", f"{name}-leaving")
    before = texts(mounts, names)
    policy = ProcessPolicy(state_dir=str(tmp_path / "state"), subtree=name)
    runtime = ProcessRuntime(policy)
    await runtime.adopt(1)
    run = RunSpec(command=("sleep", "60"))
    online = replace(a_placement("web/main/0"), qos=QosClass.LS, band=PriorityBand.PROD, run=run)
    for placement in (replace(a_placement(), run=run), online):
        assert isinstance(await runtime.launch(placement, 1), ReplicaLaunched)
    runtime.set_ceiling(700)
    assert texts(mounts, names) != before
    if starts > 1:
        # As a kill -9 leaves it: another executor finds the groups, and the journal of this one.
        await runtime.close()
        runtime = ProcessRuntime(policy)
    if starts > 2:
        await runtime.adopt(2)
    await runtime.restore()
    await runtime.close()
    assert texts(mounts, names) == before


@pytest.mark.kernel
async def test_a_service_that_the_policy_names_no_more_is_as_it_was(tmp_path: Path) -> None:
    name = f"colo-test-{os.getpid()}"
    service = CgroupTree(ROOT, f"{name}.service")
    service.make("")
    policy = ProcessPolicy(state_dir=str(tmp_path / "state"), subtree=name)
    named = UnmanagedGroup(group=service.name, weight_least=2_048, cpu_most_mcpu=1_000, memory_most_bytes=64 << 20)
    knobs = (Knob.CPU_WEIGHT, Knob.CPU_QUOTA, Knob.MEMORY_LIMIT)
    try:
        before = [service.value(knob, "") for knob in knobs]
        for groups, is_as_before in (((named,), False), ((), True)):
            runtime = ProcessRuntime(replace(policy, unmanaged=groups))
            try:
                await runtime.adopt(1)
                assert ([service.value(knob, "") for knob in knobs] == before) is is_as_before
                assert await runtime.reconcile() is None
                if not groups:
                    await runtime.restore()
            finally:
                await runtime.close()
    finally:
        assert service.remove("")


@pytest.mark.kernel
@pytest.mark.parametrize("rule", ["drift", "unmanaged"])
async def test_where_drift_or_the_policy_of_others_groups_is_only_observed_nothing_is_written_there(
    tmp_path: Path, rule: str
) -> None:
    name = f"colo-test-{os.getpid()}"
    service = CgroupTree(ROOT, f"{name}.service")
    service.make("")
    named = UnmanagedGroup(group=service.name, weight_least=2_048, memory_most_bytes=64 << 20)
    policy = ProcessPolicy(state_dir=str(tmp_path / "state"), subtree=name, unmanaged=(named,))
    knobs = (Knob.CPU_WEIGHT, Knob.MEMORY_LIMIT)
    runtime = ProcessRuntime(policy, leaves_others=rule == "drift", leaves_unmanaged=rule == "unmanaged")
    try:
        before = [service.value(knob, "") for knob in knobs]
        await runtime.adopt(1)
        drift = await runtime.reconcile(observes=rule == "drift")
        assert drift is not None
        assert not (drift.withheld if rule == "drift" else drift.knobs)
        assert {knob.path.rsplit("/", 1)[1] for knob in (*drift.knobs, *drift.withheld)} >= {
            service.path_of(knobs[0], "").rsplit("/", 1)[1]
        }
        assert [service.value(knob, "") for knob in knobs] == before
    finally:
        await runtime.restore()
        await runtime.close()
        assert service.remove("")


@pytest.mark.kernel
async def test_the_kernel_saw_no_write_outside_the_executors_own_groups(tmp_path: Path) -> None:
    name = f"colo-test-{os.getpid()}"
    mounts = set(find_hierarchy(ROOT).mounts.values())
    run = RunSpec(command=("sleep", "60"))
    online = replace(a_placement("web/main/0"), qos=QosClass.LS, band=PriorityBand.PROD, run=run)
    with WrittenFiles(mounts) as seen:
        runtime = ProcessRuntime(ProcessPolicy(state_dir=str(tmp_path / "state"), subtree=name, ceiling_by="cpuset"))
        await runtime.adopt(1)
        for placement in (replace(a_placement(), run=run), online):
            assert isinstance(await runtime.launch(placement, 1), ReplicaLaunched)
        runtime.set_ceiling(700)
        await runtime.suspend(SuspendReplicas(attempts=(("job/main/0", 1),), is_suspended=True))
        written = seen.by(os.getpid())
        await runtime.restore()
        await runtime.close()
        written |= seen.by(os.getpid())
    inside = {path for path in written for mount in mounts if path.startswith(f"{mount}/{name}")}
    # On v2 the controllers are handed down by the group above.
    outside = {path for path in written - inside if not path.endswith("/cgroup.subtree_control")}
    assert outside == set()
    assert {Path(path).name for path in inside} >= {"cgroup.procs", "cpu.idle"}


def test_while_names_are_exchanged_nothing_outside_is_written(tmp_path: Path) -> None:
    """Somebody exchanges a group for a link to another place, again and again, while the executor writes."""
    root, outside = tmp_path / "cgroup", tmp_path / "outside"
    files = {"cgroup.controllers": "cpu memory\n", "cgroup.subtree_control": "cpu memory\n", "cpu.weight": "100\n"}
    for directory in (root, root / "colo", root / "colo/batch", outside, outside / "batch"):
        directory.mkdir(parents=True)
        for file, text in files.items():
            (directory / file).write_text(text)
    tree = CgroupTree(str(root), "colo")
    link, real, aside = tmp_path / "link", root / "colo/batch", tmp_path / "aside"
    link.symlink_to(outside)
    over = threading.Event()

    def exchange() -> None:
        while not over.is_set():
            real.rename(aside)
            link.rename(real)
            real.rename(link)
            aside.rename(real)

    thread = threading.Thread(target=exchange)
    thread.start()
    refused = written = 0
    try:
        for _ in range(100_000):
            if refused and written:
                break
            for value in (2_800, 3_000):
                try:
                    tree.write(KnobWrite(path="batch", knob=Knob.CPU_WEIGHT, value=value))
                    written += 1
                except (CgroupError, OSError):
                    refused += 1
    finally:
        over.set()
        thread.join()
    assert refused
    assert written
    for directory in (outside, outside / "batch"):
        assert {file: (directory / file).read_text() for file in files} == files


def test_a_place_that_is_no_control_group_file_system_is_named(tmp_path: Path) -> None:
    with pytest.raises(CgroupError, match="lacks the controllers"):
        find_hierarchy(str(tmp_path))
    with pytest.raises(CgroupError, match="and no control group file system"):
        check_file_system(str(tmp_path), "/proc")


@pytest.mark.kernel
def test_what_is_mounted_over_the_control_groups_later_is_not_written(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "colo"):
        directory.mkdir(exist_ok=True)
        (directory / "cgroup.controllers").write_text("cpu memory\n")
        (directory / "cpu.weight").write_text("100\n")
    tree = CgroupTree(str(tmp_path), "colo")
    write = KnobWrite(path="", knob=Knob.CPU_WEIGHT, value=2_048)
    assert tree.write(write).value == "200"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", tmp_path], check=True)
    try:
        (tmp_path / "colo").mkdir()
        (tmp_path / "colo" / "cpu.weight").write_text("100\n")
        for _ in range(2):
            with pytest.raises(CgroupError, match="is tmpfs and no control group file system"):
                tree.write(write)
        assert (tmp_path / "colo" / "cpu.weight").read_text() == "100\n"
    finally:
        subprocess.run(["umount", tmp_path], check=True)
    assert tree.value(Knob.CPU_WEIGHT, "") == "200"


def test_another_file_system_inside_the_subtree_is_not_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for directory in (tmp_path, tmp_path / "colo"):
        directory.mkdir(exist_ok=True)
        (directory / "cgroup.controllers").write_text("cpu memory\n")
    tree = CgroupTree(str(tmp_path), "colo")
    assert tree.exists("")
    stat, inner = os.fstat, (tmp_path / "colo").stat().st_ino

    def mounted(fd: int) -> object:
        found = stat(fd)
        return SimpleNamespace(st_dev=found.st_dev + (found.st_ino == inner))

    text = ""
    with monkeypatch.context() as patched:
        patched.setattr(os, "fstat", mounted)
        try:
            tree.exists("")
        except CgroupError as error:
            text = str(error)
    assert text.endswith("colo is another file system mounted there")
