"""The group identity of a group that online work is attached to, over plain files that look like cgroup v2."""

import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.workload import AttachSpec, RunSpec
from colo_executor.desired import DesiredPolicy
from colo_executor.journal import JournalFile
from colo_executor.journal_lines import Booted
from colo_executor.kept_cpus import KeptCpus
from colo_executor.process.attached import AttachedTier
from colo_executor.process.ending import RunningAttempt
from colo_executor.process.online import OnlineTier
from colo_executor.process.settings import ProcessPolicy
from colo_executor.process.tier import Tier
from colo_executor.process.unmanaged import UnmanagedTier
from colo_executor.process.unmanaged_cpus import UnmanagedCpus
from tests.support.builders import a_placement
from tests.support.cgroup2_files import Cgroup2Files

BVT = "cpu.bvt_warp_ns"
GROUP = "system.slice/shop.service"
TOKEN = "web.main.0@1"
ATTACHED = replace(
    a_placement("web/main/0"),
    qos=QosClass.LS,
    band=PriorityBand.PROD,
    zones=(),
    run=RunSpec(attach=AttachSpec(cgroup=GROUP)),
)


class Bench:
    """One executor, and a service of somebody else with a group in its group."""

    def __init__(self, directory: Path, files: Cgroup2Files, desired: DesiredPolicy = DesiredPolicy()) -> None:
        self.files = files
        self.policy = ProcessPolicy(
            state_dir=str(directory / "state"),
            cgroup_root=str(files.root),
            sys_root=str(files.sys_root),
            proc_root=str(directory / "proc"),
            attach=(GROUP,),
            desired=desired,
        )
        for group in ("system.slice", GROUP, f"{GROUP}/worker"):
            (files.root / group).mkdir()
            files._fill(files.root / group)
        (files.root / GROUP / "cgroup.procs").write_text("7\n")
        self.start()

    def start(self) -> None:
        self.journal = JournalFile(Path(self.policy.state_dir))
        self.journal.note(Booted(boot_id="boot"))
        self.tier = Tier(self.policy, self.journal)
        self.online = OnlineTier(self.tier, self.policy.desired, is_on=True, kept=KeptCpus())
        groups = UnmanagedTier((), self.tier.open, old_value=self.tier.old.value)
        self.cpus = UnmanagedCpus(self.tier, groups, self.online.own, self.policy)
        self.attached = AttachedTier(
            self.tier, self.online, groups, self.cpus, self.policy, self.journal, threading.Lock()
        )
        for entry in self.journal.state.launched.values():
            assert entry.attached is not None
            self.attached.reserve_adopted(self.attached.home(entry.placement, TOKEN, entry.pid, entry.attached))
        self.tier.prepare(self.online.batch_cpus)
        self.cpus.keep_all()

    def attach(self) -> RunningAttempt:
        running, _ = self.attached.launch(ATTACHED, TOKEN, 1, threading.Lock())
        return running

    def start_again(self) -> None:
        """As after SIGKILL: nothing is put back."""
        self.tier.close()
        self.journal.close()
        self.start()

    def identities(self) -> dict[str, str]:
        """The files as they are, byte by byte, of the service's group, of the one above and of the one in it."""
        found = {group: self.files.root / group / BVT for group in ("system.slice", GROUP, f"{GROUP}/worker")}
        return {group: path.read_text() for group, path in found.items() if path.exists()}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cgroup2Files:
    found = Cgroup2Files(tmp_path, monkeypatch)
    found.lacks("cpu.idle")
    found.gains(BVT, "0\n")
    return found


@pytest.mark.parametrize("before", ["0\n", "-1\n", "1\n"])
def test_it_is_that_of_online_work_until_the_group_is_let_go(tmp_path: Path, files: Cgroup2Files, before: str) -> None:
    bench = Bench(tmp_path, files)
    (files.root / GROUP / BVT).write_text(before)
    others = bench.identities()
    running = bench.attach()
    assert bench.identities() == others | {GROUP: "2"}
    assert bench.journal.state.pre_images[f"{GROUP}/{BVT}"] == before.strip()
    (files.root / GROUP / BVT).write_text("0\n")
    (knob,) = bench.cpus.keep_all()[-1].knobs
    assert (knob.path, knob.before, knob.value) == (f"{GROUP}/{BVT}", "0", "2"), "what somebody lowers is raised again"
    files.writes.clear()
    bench.start_again()
    assert [write for write in files.writes if BVT in write and GROUP in write] == [], "it is kept over a restart"
    assert bench.attached.drop(bench.attached.home(ATTACHED, TOKEN, 7, running.attached.to))
    assert {group: text.strip() for group, text in bench.identities().items()} == {
        group: text.strip() for group, text in others.items()
    }
    assert f"{GROUP}/{BVT}" not in bench.journal.state.pre_images


def test_restore_gives_it_back(tmp_path: Path, files: Cgroup2Files) -> None:
    bench = Bench(tmp_path, files)
    bench.attach()
    assert bench.identities()[GROUP] == "2"
    assert bench.tier.restore() == ()
    assert files.text(f"{GROUP}/{BVT}") == "0"


def test_one_that_is_already_that_of_online_work_is_neither_written_nor_put_back(
    tmp_path: Path, files: Cgroup2Files
) -> None:
    bench = Bench(tmp_path, files)
    (files.root / GROUP / BVT).write_text("2\n")
    running = bench.attach()
    bench.attached.drop(running)
    assert not [write for write in files.writes if BVT in write and GROUP in write]
    assert bench.identities()[GROUP] == "2\n"


@pytest.mark.parametrize("why", ["cpu.idle", "off", "switch"])
def test_it_is_left_alone_where_batch_work_does_not_give_way_by_it(
    tmp_path: Path, files: Cgroup2Files, why: str
) -> None:
    if why == "cpu.idle":
        files.gains("cpu.idle", "0\n")
    if why == "switch":
        (tmp_path / "proc/sys/kernel").mkdir(parents=True)
        (tmp_path / "proc/sys/kernel/sched_group_identity_enabled").write_text("0\n")
    bench = Bench(tmp_path, files, DesiredPolicy(idle=why != "off"))
    bench.attach()
    assert bench.identities()[GROUP] == "0\n"
    assert files.text(f"{GROUP}/cpu.weight") != "", "the rest is kept"
