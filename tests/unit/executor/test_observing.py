"""A node that only observes: every decision is made and told, and no file, group or process of the machine is touched."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from colo_common.adapters.clock import SystemClock
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.node_rules import NodeRules
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import Reason
from colo_common.model.workload import AttachSpec, RunSpec
from colo_common.runtime.metrics import Metrics
from colo_executor.cgroup import CgroupTree
from colo_executor.cgroup_hierarchy import find_hierarchy
from colo_executor.kept_cpus import KeptCpus
from colo_executor.knob_table import Knob
from colo_executor.local import CeilingMoved, Drift, KeepCpus, LaunchFailed, LaunchReplica
from colo_executor.main import open_observing
from colo_executor.order import KnobWrite
from colo_executor.process.hygiene import Hygiene
from colo_executor.process.namespaces import OWN_NAMESPACES
from colo_executor.process.observing import ObservingRuntime
from colo_executor.process.settings import ProcessPolicy
from colo_executor.reflex_policy import ReflexPolicy
from colo_executor.settings import ExecutorSettings
from colo_executor.shell import OBSERVE_NODE, ExecutorShell
from colo_executor.suppress import SuppressPolicy
from colo_executor.unmanaged import UnmanagedGroup
from tests.support.builders import a_placement
from tests.support.cgroup2_files import Cgroup2Files
from tests.support.waiting import eventually
from tests.support.written_files import WrittenFiles

ROOT = "/sys/fs/cgroup"
RUN = RunSpec(command=("sleep", "3600"))
BATCH = replace(a_placement(), run=RUN)
ONLINE = replace(a_placement("web/main/0"), qos=QosClass.LS, band=PriorityBand.PROD, run=RUN)
ORDERS = (
    LaunchReplica(placement=BATCH),
    LaunchReplica(placement=ONLINE),
    LaunchReplica(placement=replace(BATCH, run=RunSpec(command=("no-such-program",)))),
)


def a_shell(runtime: ObservingRuntime) -> ExecutorShell:
    return ExecutorShell(
        runtime,
        SystemClock(),
        policy=ReflexPolicy(suppress=SuppressPolicy(threshold_pct=65)),
        period_ms=20,
        metrics=Metrics(),
        observes=(OBSERVE_NODE,),
    )


async def all_that_it_says(shell: ExecutorShell) -> list[Struct]:
    """Everything that a node is asked in its life: its start, orders, CPUs that are kept, the reflex, a reconcile, its end."""
    published = [*await shell.load()]

    async def note(event: Struct) -> None:
        published.append(event)

    for order in ORDERS:
        published += await shell.perform(order)
    await shell.perform(KeepCpus(kept=KeptCpus(withheld=CpuSet.parse("0"))))
    await shell.reconcile(note)

    async def has_ceiling() -> bool:
        shell.tick()
        return shell.reflex is not None and shell.reflex.ceiling_mcpu is not None

    await eventually(has_ceiling, "the reflex has read the load twice")
    published += await shell.leave()
    return published


def contents(directories: list[Path]) -> dict[str, str]:
    """Every file of the groups, and the groups in them."""
    found = {}
    for directory in directories:
        for path in sorted(directory.rglob("*")):
            try:
                found[str(path)] = "" if path.is_dir() else path.read_text()
            except OSError as error:
                # Files that can only be written, and those of a controller that is off.
                found[str(path)] = str(error.errno)
    return found


@pytest.fixture
def service() -> Iterator[CgroupTree]:
    """A group of a service that colo did not start, with a weight that somebody lowered, and the subtree made in advance."""
    name = f"colo-observed-{os.getpid()}"
    tree, own = CgroupTree(ROOT, f"sshd-{os.getpid()}.service"), CgroupTree(ROOT, name)
    for each in (tree, own):
        each.make("")
        each.write(KnobWrite(path="", knob=Knob.CPU_WEIGHT, value=100))
    yield own
    assert tree.remove("")
    assert own.remove("")


@pytest.mark.kernel
async def test_not_one_file_of_the_kernel_is_written(service: CgroupTree, tmp_path: Path) -> None:
    group = f"sshd-{os.getpid()}.service"
    state = tmp_path / "state"
    policy = ProcessPolicy(
        state_dir=str(state),
        subtree=service.name,
        unmanaged=(UnmanagedGroup(group=group, weight_least=1_024, cpu_most_mcpu=1_000),),
    )
    mounts = sorted(set(find_hierarchy(ROOT).mounts.values()))
    groups = [Path(mount, name) for mount in mounts for name in (service.name, group)]
    siblings = [Path(mount, f"{service.name}{suffix}") for mount in mounts for suffix in ("-online", "-leaving")]
    before = contents(groups)
    assert before
    with WrittenFiles(mounts) as seen:
        runtime = ObservingRuntime(policy)
        published = await all_that_it_says(a_shell(runtime))
        await runtime.restore()
        await runtime.close()
        assert seen.by(os.getpid()) == set()
    assert contents(groups) == before
    assert not [path for path in (*siblings, state) if path.exists()]
    drift = next(event for event in published if isinstance(event, Drift))
    assert drift.observed
    assert drift.failed == ()
    would = {knob.path.split("/", 1)[1] if service.version == 1 else knob.path: knob for knob in drift.knobs}
    assert would[f"{service.name}/batch"].value == "a control group"
    weight = "cpu.shares" if service.version == 1 else "cpu.weight"
    assert would[f"{service.name}/{weight}"].before == ("100" if service.version == 1 else "4")
    assert would[f"{group}/{weight}"].value == ("1024" if service.version == 1 else "100")
    assert [type(event) for event in published if isinstance(event, CeilingMoved)], "the ceiling is told"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cgroup2Files:
    made = Cgroup2Files(tmp_path, monkeypatch)
    (made.root / "system.slice").mkdir()
    made._fill(made.root / "system.slice")
    return made


def settings_of(files: Cgroup2Files, directory: Path) -> ProcessPolicy:
    return ProcessPolicy(
        state_dir=str(directory / "state"),
        cgroup_root=str(files.root),
        sys_root=str(files.sys_root),
        users={"*": "65533"},
        hygiene=Hygiene(namespaces="no"),
    )


async def test_it_says_what_it_would_make_write_and_start(files: Cgroup2Files, tmp_path: Path) -> None:
    before = contents([files.root])
    runtime = ObservingRuntime(settings_of(files, tmp_path))
    published = await all_that_it_says(a_shell(runtime))
    await runtime.close()
    assert (files.writes, contents([files.root])) == ([], before)
    drift = next(event for event in published if isinstance(event, Drift))
    assert [(knob.path, knob.value) for knob in drift.knobs] == [
        ("colo", "a control group"),
        ("colo/batch", "a control group"),
        ("colo/cpuset.cpus", "1-7"),
        ("colo/cpuset.mems", "0-1"),
        ("colo/batch/cpuset.cpus", "1-7"),
        ("colo/batch/cpuset.mems", "0-1"),
        ("colo/cpu.weight", "1"),
        ("colo/cpu.idle", "1"),
    ]
    moved = next(event for event in published if isinstance(event, CeilingMoved))
    assert (moved.observed, moved.rule) == (True, "usage")
    assert [knob.path for knob in moved.knobs] == ["colo/batch/cpu.max"]
    batch, online, absent = (event for event in published if isinstance(event, LaunchFailed))
    assert {batch.reason, online.reason, absent.reason} == {Reason.NODE_OBSERVES}
    assert batch.detail.startswith(
        "would run sleep 3600 as the user 65533 in colo/batch/job.main.0@1 with cpuset.cpus=0-3, cpuset.mems=0, cpu.weight="
    )
    assert " in colo-online/ls.web.main.0@1 with " in online.detail
    assert absent.detail.startswith("would be refused here: run.command[0]: must be a program that exists")


@pytest.mark.parametrize(
    ("words", "prefix", "says"),
    [
        ((), (), "would run sleep 3600 as the user 65533 in colo/batch/"),
        (OWN_NAMESPACES, (), "would run sleep 3600 as the user 65533, with namespaces of its own, in colo/batch/"),
        ((), ("env", "A=b"), "would run env A=b sleep 3600 in colo/batch/"),
    ],
)
async def test_it_says_as_whom_and_how_far_apart_a_job_would_run(
    files: Cgroup2Files,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    prefix: tuple[str, ...],
    says: str,
) -> None:
    monkeypatch.setattr("colo_executor.process.observing.namespaces_prefix", lambda *_: (words, ""))
    users = {} if prefix else {"*": "65533"}
    runtime = ObservingRuntime(replace(settings_of(files, tmp_path), users=users, command_prefix=prefix))
    failed = await runtime.launch(replace(a_placement(), run=RUN), 1)
    await runtime.close()
    assert failed.detail.startswith(says), failed.detail


async def test_it_says_that_a_tenant_of_no_rule_would_be_refused(files: Cgroup2Files, tmp_path: Path) -> None:
    runtime = ObservingRuntime(replace(settings_of(files, tmp_path), users={"blue": "65533"}))
    failed = await runtime.launch(replace(a_placement(), run=RUN, tenant="red"), 1)
    await runtime.close()
    assert failed.detail.startswith("would be refused here: process_users: "), failed.detail


ATTACHED = (
    "would attach system.slice/web.service with system.slice/memory.low=1073741824, "
    "system.slice/web.service/cpu.weight=400, system.slice/web.service/memory.low=1073741824"
)


@pytest.mark.parametrize(
    ("attach", "says"),
    [
        (AttachSpec(cgroup="system.slice/web.service"), ATTACHED),
        (AttachSpec(unit="web.service"), ATTACHED),
        (AttachSpec(cgroup="system.slice/db.service"), "would be refused here: there is no control group"),
        (AttachSpec(cgroup="system.slice"), "would be refused here: system.slice is none of the groups"),
    ],
)
async def test_it_says_what_it_would_write_to_a_group_that_it_would_attach(
    files: Cgroup2Files, tmp_path: Path, attach: AttachSpec, says: str
) -> None:
    (files.root / "system.slice/web.service").mkdir()
    files._fill(files.root / "system.slice/web.service")
    before = contents([files.root])
    runtime = ObservingRuntime(replace(settings_of(files, tmp_path), attach=("system.slice/*.service",)))
    failed = await runtime.launch(replace(ONLINE, cpu_mcpu=4_000, run=RunSpec(attach=attach)), 1)
    await runtime.close()
    assert (failed.reason, failed.detail.startswith(says)) == (Reason.NODE_OBSERVES, True), failed.detail
    assert contents([files.root]) == before


def test_it_does_not_begin_where_work_of_colo_runs(files: Cgroup2Files, tmp_path: Path) -> None:
    for group in ("colo", "colo/batch", "colo/batch/job.main.0@1"):
        (files.root / group).mkdir()
        files._fill(files.root / group)
    settings = ExecutorSettings(process=settings_of(files, tmp_path), rules=NodeRules(enforcement="observe"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("colo_executor.main.check_file_system", lambda *_: None)
        with pytest.raises(InvalidInput) as refused:
            open_observing(settings)
    assert refused.value.field == "rules_enforcement"
    assert "colo node restore --yes" in refused.value.rule


async def test_it_says_what_it_would_write_to_controllers_that_no_group_has_yet(
    files: Cgroup2Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under systemd, which hands down cpuset for the first unit that asks for it."""
    monkeypatch.setattr("colo_executor.new_group._release", lambda: (5, 14))
    (files.root / "cgroup.subtree_control").write_text("memory pids\n")
    for group in (files.root, files.root / "system.slice"):
        for name in ("cpuset.cpus", "cpuset.mems", "cpu.weight", "cpu.idle", "cpu.max"):
            (group / name).unlink()
    runtime = ObservingRuntime(replace(settings_of(files, tmp_path), ceiling_by="cpuset"))
    drift = await runtime.reconcile()
    assert drift is not None
    assert [(knob.path, knob.value) for knob in drift.knobs] == [
        ("cgroup.subtree_control", "+cpu +cpuset"),
        ("colo", "a control group"),
        ("colo/batch", "a control group"),
        ("colo/cpuset.cpus", "0-7"),
        ("colo/cpuset.mems", "0-1"),
        ("colo/batch/cpuset.cpus", "0-7"),
        ("colo/batch/cpuset.mems", "0-1"),
        # This Linux has no cpu.idle.
        ("colo/cpu.weight", "1"),
    ]
    own = replace(ONLINE, replica="own/main/0", qos=QosClass.LSE, cpus="2-3", cpu_mcpu=2_000)
    refused = await runtime.launch(own, 1)
    assert isinstance(refused, LaunchFailed)
    assert (
        "colo-online/lse.own.main.0@1 with cpuset.cpus=0-1,4-7 of colo/batch, cpuset.cpus=0-1,4-7 of colo, "
        in refused.detail
    )
    assert "cpuset.cpus=2-3, cpuset.mems=0, " in refused.detail
    assert len(runtime.set_ceiling(8_000).knobs) == 1
    _, *narrowed = runtime.set_ceiling(3_000).knobs
    assert [(knob.path, len(CpuSet.parse(knob.value)), knob.before) for knob in narrowed] == [
        ("colo/cpuset.cpus", 3, "0-7"),
        ("colo/batch/cpuset.cpus", 3, "0-7"),
    ]
    assert len(runtime.set_ceiling(2_500).knobs) == 1, "as many CPUs as before"
    await runtime.close()
    assert files.writes == []
