"""A start at which the kernel refuses a value, or the rules leave batch work no CPU: what runs is looked after all the same."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from msgspec.structs import replace

from colo_common.model.cpuset import CpuSet
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import Reason
from colo_executor.cgroup import CgroupError, CgroupTree
from colo_executor.journal import JournalFile
from colo_executor.kept_cpus import KeptCpus
from colo_executor.local import CeilingWritten, Drift
from colo_executor.online import CpusRefused
from colo_executor.process.online import OnlineTier
from colo_executor.process.settings import ProcessPolicy
from colo_executor.process.tier import Tier
from tests.support.builders import a_placement
from tests.support.cgroup2_files import Cgroup2Files

GROUP = "colo/batch/job.main.0@1"
BATCH_WORK = a_placement("job/main/0", zone=0)
OWN = replace(a_placement("web/main/0"), qos=QosClass.LSE, band=PriorityBand.PROD, cpus="4-7", cpu_mcpu=4_000)
SHARED = replace(a_placement("web/main/1"), qos=QosClass.LS, band=PriorityBand.PROD)


class Started:
    """The tiers of one executor of a machine of eight CPUs, which finds what `runs` there; `remarks` is what its start says."""

    def __init__(self, files: Cgroup2Files, directory: Path, *runs: str, withheld: str = "") -> None:
        policy = ProcessPolicy(state_dir=str(directory), cgroup_root=str(files.root), sys_root=str(files.sys_root))
        self.tier = Tier(policy, JournalFile(directory))
        self.online = OnlineTier(self.tier, policy.desired, is_on=True, kept=KeptCpus(withheld=CpuSet.parse(withheld)))
        known = {"job.main.0@1": BATCH_WORK, "web.main.0@1": OWN, "web.main.1@1": SHARED}
        for token in runs:
            (self.tier if known[token] is BATCH_WORK else self.online).reserve_adopted(token, known[token])
        self.remarks = self.tier.prepare(self.online.batch_cpus)
        for token in runs:
            (self.tier if known[token] is BATCH_WORK else self.online).adopt(token, known[token])
        self.remarks += self.online.settle()

    def reconcile(self) -> list[Drift]:
        return [self.online.reconcile(), self.tier.reconcile()]

    def close(self) -> None:
        self.tier.close()


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cgroup2Files:
    return Cgroup2Files(tmp_path, monkeypatch)


def refuse(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let the kernel take no write to files of these names."""
    put = CgroupTree._put

    def refusing(tree: CgroupTree, mount: str, group: str | None, name: str, text: str) -> None:
        if name in names:
            raise OSError(errno.EINVAL, "Invalid argument", name)
        put(tree, mount, group, name, text)

    monkeypatch.setattr(CgroupTree, "_put", refusing)


def test_rules_that_leave_batch_work_no_cpu_leave_its_set_and_start_no_more_of_it(tmp_path, files):
    first = Started(files, tmp_path / "first")
    first.tier.add("job.main.0@1", BATCH_WORK)
    first.online.add("web.main.0@1", OWN)
    first.online.add("web.main.1@1", SHARED)
    first.close()
    shared = "colo-online/ls.web.main.1@1"
    assert [files.cpus(path) for path in ("colo/batch", GROUP, shared)] == ["0-3", "0-3", "0-3"]
    second = Started(files, tmp_path / "second", "job.main.0@1", "web.main.0@1", "web.main.1@1", withheld="0-3")
    (remark,) = second.remarks
    assert "of the CPUs 0-7" in remark
    assert "rules_reserved_cpus" in remark
    assert [files.cpus(path) for path in ("colo/batch", GROUP, shared)] == ["0-3", "0-3", "0-3"]
    assert isinstance(second.tier.set_ceiling(2_000), CeilingWritten)
    assert second.reconcile() == [Drift(), Drift()]
    with pytest.raises(CpusRefused, match="leave none to batch work") as refused:
        second.tier.add("job.main.1@1", a_placement("job/main/1", zone=0))
    assert refused.value.reason is Reason.CPUS_SHORT
    # The LSE work ends: its CPUs are batch work's.
    assert second.online.drop("web.main.0@1", OWN)
    assert [files.cpus(path) for path in ("colo/batch", GROUP, shared)] == ["4-7", "4-7", "4-7"]
    second.tier.add("job.main.1@1", a_placement("job/main/1", zone=1))


def test_a_first_start_with_such_rules_waits_for_others(tmp_path, files):
    node = Started(files, tmp_path / "state", withheld="0-7")
    assert len(node.remarks) == 1
    with pytest.raises(CpusRefused):
        node.tier.add("job.main.0@1", BATCH_WORK)
    with pytest.raises(CpusRefused):
        node.online.add("web.main.1@1", SHARED)
    node.online.keep(KeptCpus(withheld=CpuSet.parse("0")))
    node.tier.add("job.main.0@1", BATCH_WORK)
    assert [files.cpus(path) for path in ("colo/batch", GROUP)] == ["1-7", "1-3"]


@pytest.mark.parametrize(("name", "wanted"), [("cpu.idle", "1"), ("cpuset.cpus", "1-7")])
def test_a_value_that_the_kernel_refuses_at_a_restart_is_said_and_tried_again(
    tmp_path, files, monkeypatch, name, wanted
):
    first = Started(files, tmp_path / "first")
    first.tier.add("job.main.0@1", BATCH_WORK)
    first.close()
    (files.root / "colo" / "cpu.idle").write_text("0\n")
    with monkeypatch.context() as patch:
        refuse(patch, name)
        node = Started(files, tmp_path / "second", "job.main.0@1", withheld="0")
        assert any(name in remark for remark in node.remarks), node.remarks
        assert any(name in sentence for drift in node.reconcile() for sentence in drift.failed)
        assert isinstance(node.tier.set_ceiling(2_000), CeilingWritten)
    assert [drift.failed for drift in node.reconcile()] == [(), ()]
    assert files.text(f"colo/{name}") == wanted
    assert node.reconcile() == [Drift(), Drift()]


def test_sets_of_online_work_that_the_kernel_refuses_at_a_restart_are_tried_again(tmp_path, files, monkeypatch):
    first = Started(files, tmp_path / "first")
    first.online.add("web.main.1@1", SHARED)
    first.close()
    with monkeypatch.context() as patch:
        refuse(patch, "cpuset.cpus")
        node = Started(files, tmp_path / "second", "web.main.1@1", withheld="0")
        assert any("cpuset.cpus" in sentence for drift in node.reconcile() for sentence in drift.failed)
    node.reconcile()
    assert files.cpus("colo-online/ls.web.main.1@1") == "1-3"
    assert node.reconcile() == [Drift(), Drift()]


def test_a_new_group_that_lacks_what_it_cannot_be_without_ends_the_start(tmp_path, files, monkeypatch):
    refuse(monkeypatch, "cpuset.cpus")
    with pytest.raises((CgroupError, OSError), match=r"cpuset\.cpus"):
        Started(files, tmp_path / "state")
