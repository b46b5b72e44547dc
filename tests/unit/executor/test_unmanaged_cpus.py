"""Groups that colo did not make keep off the CPUs that LSE and LSR work has as its own, and get them back."""

import errno
from pathlib import Path

import pytest
from msgspec.structs import replace

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import replica_token
from colo_common.model.qos import PriorityBand, QosClass
from colo_executor.cgroup import CgroupError, CgroupTree
from colo_executor.journal import JournalFile
from colo_executor.kept_cpus import KeptCpus
from colo_executor.old_sets import in_put_back_order, sets_of, union_of
from colo_executor.online import CpuHold
from colo_executor.open_cpus import OpenCpus
from colo_executor.process.online import OnlineTier
from colo_executor.process.open_cpus import open_cpus, own_cpus_of
from colo_executor.process.settings import ProcessPolicy
from colo_executor.process.systemd_units import SystemdUnits
from colo_executor.process.tier import Tier
from colo_executor.process.unmanaged import UnmanagedTier
from colo_executor.process.unmanaged_cpus import UnmanagedCpus
from colo_executor.unmanaged import UnmanagedGroup, check_unmanaged
from colo_executor.unmanaged_cpus import NoCpuLeft, base_sets, cleared_sets
from tests.support.builders import a_placement
from tests.support.cgroup2_files import Cgroup2Files

GROUP = "user.slice"
CLEAR = UnmanagedGroup(group=GROUP, clear_of_own_cpus=True)
LSE, LSR = QosClass.LSE, QosClass.LSR


def sets(**lists: str) -> dict[str, CpuSet]:
    """Sets by path; `_` stands for the slash, `top` for the first group."""
    return {"" if name == "top" else name.replace("_", "/"): CpuSet.parse(text) for name, text in lists.items()}


ONLINE = CpuSet.parse("0-7")


@pytest.mark.parametrize(
    ("base", "own", "most", "target"),
    [
        (sets(top="0-7", pod="0-3", pod_c="1"), "0", "", sets(top="1-7", pod="1-3", pod_c="1")),
        (sets(top="0-7", pod="0-1", pod_c="1"), "0-1", "", sets(top="2-7", pod="2-7", pod_c="2-7")),
        (sets(top="0-7", pod="4-7"), "0-1", "0-3", sets(top="2-3", pod="2-3")),
        (sets(top="0-7", pod="4-7"), "", "", sets(top="0-7", pod="4-7")),
        (sets(top=""), "0-1", "", sets(top="2-7")),
        (sets(top=""), "", "", sets(top="")),
    ],
    ids=["without the own ones", "never empty", "of the operator's CPUs", "as before", "of all", "all again"],
)
def test_no_set_has_an_own_cpu_and_none_is_empty(
    base: dict[str, CpuSet], own: str, most: str, target: dict[str, CpuSet]
) -> None:
    assert cleared_sets(base, CpuSet.parse(own), ONLINE, CpuSet.parse(most)) == target


def test_a_group_whose_cpus_are_all_somebodys_own_keeps_them() -> None:
    with pytest.raises(NoCpuLeft):
        cleared_sets(sets(top="2-3"), CpuSet.parse("2-3"), ONLINE)


@pytest.mark.parametrize(
    ("present", "noted", "written", "base"),
    [
        (sets(top="2-7", pod="2-3"), sets(top="0-7", pod="0-3"), sets(), sets(top="0-7", pod="0-3")),
        (sets(top="2-7", pod="2-7"), sets(top="0-7"), sets(), sets(top="0-7", pod="0-7")),
        (sets(top="2-7", pod="3"), sets(top="0-7"), sets(), sets(top="0-7", pod="3")),
        (sets(top="2-4"), sets(top="0-7"), sets(top="2-7"), sets(top="2-4")),
        (sets(top="2-5"), sets(top="0-3"), sets(), sets(top="2-5")),
        (sets(top="2-6"), sets(top="0-8"), sets(top="2-8"), sets(top="2-6")),
        (sets(top="2-7"), sets(top="0-8"), sets(top="2-8"), sets(top="0-8")),
        (sets(top="2-7"), sets(top=""), sets(), sets(top="")),
        (sets(top="2-7", pod="2-7"), sets(top="0-7", pod="1"), sets(), sets(top="0-7", pod="1")),
        (sets(top="2-7", pod="2-7"), sets(top="0-7", pod="1"), sets(pod="2-7"), sets(top="0-7", pod="1")),
        (sets(top="2-7", pod="4"), sets(top="0-7", pod="1"), sets(), sets(top="0-7", pod="4")),
    ],
    ids=[
        "as noted",
        "made meanwhile",
        "made with a set of its own",
        "narrowed by somebody",
        "given others by somebody",
        "narrowed by somebody, beside a CPU that went offline",
        "a CPU went offline",
        "all of the parent",
        "moved, by an earlier executor",
        "moved",
        "moved by somebody",
    ],
)
def test_what_a_group_had_is_what_it_had_before_or_what_somebody_else_gave_it(
    present: dict[str, CpuSet], noted: dict[str, CpuSet], written: dict[str, CpuSet], base: dict[str, CpuSet]
) -> None:
    assert base_sets(present, noted, written, ONLINE) == base


def test_old_sets_grow_from_above_and_shrink_from_below_before_all_else() -> None:
    images = {"cpu/a/cpu.shares": "7", "cpuset/a/b/cpuset.cpus": "0-3", "cpuset/a/cpuset.cpus": "0-7"}
    assert sets_of(images) == [("cpuset/a/cpuset.cpus", "0-7"), ("cpuset/a/b/cpuset.cpus", "0-3")]
    assert [path for path, _ in in_put_back_order(images)] == [
        "cpuset/a/b/cpuset.cpus",
        "cpuset/a/cpuset.cpus",
        "cpu/a/cpu.shares",
    ]
    assert [union_of("2-3", "0-1"), union_of("0-3", "1"), union_of("2-3", ""), union_of("", "1")] == ["0-3", "", "", ""]


class Bench:
    """One executor on a machine of eight CPUs, and groups of others, as the operator's policy has them."""

    def __init__(self, directory: Path, files: Cgroup2Files) -> None:
        self.files = files
        self.policy = ProcessPolicy(
            state_dir=str(directory / "state"),
            cgroup_root=str(files.root),
            sys_root=str(files.sys_root),
            proc_root=str(directory / "proc"),
        )
        for group in (GROUP, "system.slice", "system.slice/daemon.service"):
            (files.root / group).mkdir()
            files._fill(files.root / group)
        self.start()

    def start(self, *groups: UnmanagedGroup, systemctl=None, is_observed: bool = False) -> None:
        self.journal = JournalFile(Path(self.policy.state_dir))
        self.tier = Tier(self.policy, self.journal)
        units = None if systemctl is None else SystemdUnits(systemctl, self.tier.old.note_first)
        self.tier.units = units
        self.online = OnlineTier(self.tier, self.policy.desired, is_on=True, kept=KeptCpus())
        self.unmanaged = UnmanagedCpus(
            self.tier,
            UnmanagedTier(groups, self.tier.open, units, is_observed=is_observed),
            self.online.own,
            self.policy,
        )
        self.online.own_changed = self.unmanaged.follow
        self.known = {}
        self.tier.prepare(self.online.batch_cpus)

    def again(self, *groups: UnmanagedGroup, systemctl=None, is_observed: bool = False) -> None:
        """The next executor, after the one before was killed."""
        self.tier.close()
        self.journal.close()
        self.start(*groups, systemctl=systemctl, is_observed=is_observed)

    def give(self, index: int, qos: QosClass, cpus: str) -> None:
        placement = replace(a_placement(f"web/main/{index}"), qos=qos, band=PriorityBand.PROD, cpus=cpus)
        self.known[index] = placement
        self.online.add(replica_token(placement.replica, 1), placement)

    def end(self, index: int) -> None:
        placement = self.known.pop(index)
        assert self.online.drop(replica_token(placement.replica, 1), placement)

    def failed(self) -> list[str]:
        return [sentence for drift in self.unmanaged.keep_all() for sentence in drift.failed]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, Cgroup2Files(tmp_path, monkeypatch))


def test_a_group_keeps_off_own_cpus_as_long_as_they_are_own(bench: Bench) -> None:
    bench.again(CLEAR)
    bench.give(0, LSE, "0-1")
    assert bench.files.cpus(GROUP) == "2-7"
    bench.give(1, LSR, "4")
    assert bench.files.cpus(GROUP) == "2-3,5-7"
    assert bench.files.cpus("system.slice") == "", "what the policy does not name is not touched"
    assert bench.failed() == []
    bench.end(0)
    assert bench.files.cpus(GROUP) == "0-3,5-7"
    bench.end(1)
    assert bench.files.cpus(GROUP) == ""
    assert bench.failed() == []
    assert GROUP not in str(bench.journal.state.pre_images)
    bench.files.writes.clear()
    assert bench.failed() == []
    assert bench.files.writes == [], "nothing is written when nothing has changed"


def test_a_policy_that_is_only_observed_says_whom_it_would_keep_off_own_cpus_and_writes_nothing(bench: Bench) -> None:
    bench.again(CLEAR, is_observed=True)
    before = bench.files.text(f"{GROUP}/cpuset.cpus")
    bench.give(0, LSE, "0-1")
    (knob,) = [knob for drift in bench.unmanaged.keep_all() for knob in drift.withheld]
    assert (knob.path, knob.value) == (f"{GROUP}/cpuset.cpus", "2-7")
    assert bench.files.text(f"{GROUP}/cpuset.cpus") == before
    assert not [drift for drift in bench.unmanaged.keep_all() if drift.knobs or drift.failed]
    bench.end(0)
    assert not [drift for drift in bench.unmanaged.keep_all() if drift.withheld]


def test_what_an_executor_wrote_before_the_policy_was_only_observed_is_given_back_when_nobody_needs_it(
    bench: Bench,
) -> None:
    bench.again(CLEAR)
    before = bench.files.text(f"{GROUP}/cpuset.cpus")
    bench.give(0, LSE, "0-1")
    assert bench.files.text(f"{GROUP}/cpuset.cpus") == "2-7"
    bench.again(CLEAR, is_observed=True)
    bench.unmanaged.keep_all()
    assert bench.files.text(f"{GROUP}/cpuset.cpus") in (before, "0-7")


def test_a_launch_that_fails_gives_the_cpus_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.again(CLEAR)

    def refuse(group: str) -> None:
        assert bench.files.cpus(GROUP) == "2-7"
        raise CgroupError("no")

    monkeypatch.setattr(bench.online.tree, "make", refuse)
    with pytest.raises(CgroupError):
        bench.give(0, LSE, "0-1")
    assert bench.files.cpus(GROUP) == ""


def test_a_kernel_that_takes_no_empty_list_from_a_group_with_processes_gets_a_list_of_all_cpus(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = CgroupTree._put

    def refuse(tree: CgroupTree, mount: str, group: str | None, name: str, text: str) -> None:
        if name == "cpuset.cpus" and tree.name == GROUP and not text:
            raise OSError(errno.ENOSPC, "No space left on device")
        put(tree, mount, group, name, text)

    monkeypatch.setattr(CgroupTree, "_put", refuse)
    bench.again(CLEAR)
    bench.give(0, LSE, "0-1")
    bench.end(0)
    assert bench.files.cpus(GROUP) == "0-7"
    bench.files.writes.clear()
    assert [(drift.knobs, drift.failed) for drift in bench.unmanaged.keep_all()] == [((), ())] * 3
    assert bench.files.writes == [], "it is as before, and nobody's drift"
    assert GROUP not in str(bench.journal.state.pre_images)
    bench.give(1, LSR, "4")
    assert bench.files.cpus(GROUP) == "0-3,5-7"
    bench.again(CLEAR)
    assert bench.tier.restore() == ()
    assert bench.files.cpus(GROUP) == "0-7"


@pytest.mark.parametrize("still_named", [True, False])
def test_the_next_executor_gives_back_what_one_that_was_killed_had_taken(bench: Bench, still_named: bool) -> None:
    path = bench.files.root / GROUP / "cpuset.cpus"
    path.write_text("0-5\n")
    bench.again(CLEAR)
    bench.give(0, LSE, "0-1")
    assert bench.files.cpus(GROUP) == "2-5"
    bench.again(*([CLEAR] if still_named else []))
    assert bench.failed() == []
    assert bench.files.cpus(GROUP) == "0-5"


def test_the_next_executor_keeps_the_group_clear_of_work_that_still_runs(bench: Bench) -> None:
    bench.again(CLEAR)
    bench.give(0, LSE, "0-1")
    placement = bench.known[0]
    bench.again(CLEAR)
    bench.online.reserve_adopted(replica_token(placement.replica, 1), placement)
    assert bench.failed() == []
    assert bench.files.cpus(GROUP) == "2-7"
    assert bench.unmanaged.give_back().failed == ()
    assert bench.files.cpus(GROUP) == ""
    assert bench.tier.restore() == ()
    assert bench.files.cpus(GROUP) == ""


def test_what_somebody_sets_meanwhile_is_cleared_too_and_is_what_comes_back(bench: Bench) -> None:
    bench.again(CLEAR)
    bench.give(0, LSE, "0-1")
    (bench.files.root / GROUP / "cpuset.cpus").write_text("0-3\n")
    (knob,) = bench.unmanaged.follow(observes=True).knobs
    assert (knob.path, knob.value, knob.before) == (f"{GROUP}/cpuset.cpus", "2-3", "0-3")
    assert bench.files.cpus(GROUP) == "0-3"
    assert bench.failed() == []
    assert bench.files.cpus(GROUP) == "2-3"
    bench.end(0)
    assert bench.files.cpus(GROUP) == "0-3"


def test_the_operators_cpus_count_without_the_own_ones(bench: Bench) -> None:
    bench.again(replace(CLEAR, cpus="0-3"))
    assert bench.failed() == []
    assert bench.files.cpus(GROUP) == "0-3"
    bench.give(0, LSE, "0-1")
    assert bench.files.cpus(GROUP) == "2-3"
    bench.end(0)
    assert bench.failed() == []
    assert bench.files.cpus(GROUP) == "0-3"
    bench.again()
    assert bench.failed() == []
    assert bench.files.cpus(GROUP) == ""


def test_a_group_that_would_have_no_cpu_keeps_what_it_has_and_it_is_said(bench: Bench) -> None:
    (bench.files.root / GROUP / "cpuset.cpus").write_text("0-1\n")
    bench.again(CLEAR)
    bench.give(0, LSE, "0-1")
    assert bench.files.cpus(GROUP) == "0-1"
    assert bench.failed() == [
        f"{GROUP}: keeps its CPUs: all of them are LSE or LSR work's own, and no group may be without a CPU"
    ]


def test_cpus_that_a_kubelet_pinned_meanwhile_stay_with_its_pods(bench: Bench) -> None:
    bench.again(CLEAR)
    bench.give(0, LSE, "0-1")
    bench.online.keep(KeptCpus(pinned=CpuSet.parse("1")))
    assert bench.files.cpus(GROUP) == "1-7"


def test_what_cannot_be_journaled_is_not_changed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.again(CLEAR)

    def full(*entries: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bench.journal, "append", full)
    bench.online._holds["x"] = CpuHold(owner="web/main/0", qos=LSE, cpus=CpuSet.parse("0-1"), cpu_mcpu=2_000)
    (failure,) = bench.unmanaged.follow().failed
    assert failure.startswith(f"{GROUP}: keeps its CPUs: nothing is changed: the old values cannot be kept")
    assert bench.files.cpus(GROUP) == ""


class FakeSystemd:
    """One systemd that owns a slice; `says` is what `show` prints of its properties."""

    def __init__(self) -> None:
        self.says = {"AllowedCPUs": "0-3 5", "LoadState": "loaded", "ControlGroup": f"/{GROUP}"}
        self.set: list[str] = []

    def __call__(self, words: list[str]) -> str:
        if words[0] == "show":
            return self.says[words[1].removeprefix("--property=")] + "\n"
        self.set += list(words[4:])
        return ""


def test_a_unit_of_systemd_gets_the_property_with_the_next_reconcile_and_its_old_one_back(bench: Bench) -> None:
    systemd = FakeSystemd()
    bench.again(CLEAR, systemctl=systemd)
    bench.give(0, LSE, "0-1")
    assert systemd.set == [], "a launch does not wait for systemd"
    assert bench.failed() == []
    assert bench.failed() == []
    assert systemd.set == ["AllowedCPUs=2-7"]
    bench.end(0)
    assert bench.failed() == []
    assert systemd.set == ["AllowedCPUs=2-7", "AllowedCPUs=0-3 5"]


def test_a_controller_that_a_unit_lacks_is_asked_of_systemd(bench: Bench) -> None:
    (bench.files.root / GROUP / "cpuset.cpus").unlink()
    systemd = FakeSystemd()
    systemd.says["AllowedCPUs"] = ""
    bench.again(CLEAR, systemctl=systemd)
    bench.give(0, LSE, "0-1")
    assert bench.failed() == []
    assert systemd.set == ["AllowedCPUs=2-7"]
    # systemd has made the file.
    (bench.files.root / GROUP / "cpuset.cpus").write_text("2-7\n")
    bench.give(1, LSR, "4")
    assert bench.files.cpus(GROUP) == "2-3,5-7"
    bench.end(0)
    bench.end(1)
    assert bench.failed() == []
    assert (bench.files.cpus(GROUP), systemd.set[-1]) == ("", "AllowedCPUs=")


def test_a_group_without_the_controller_is_refused_in_words(bench: Bench) -> None:
    (bench.files.root / GROUP / "cpuset.cpus").unlink()
    bench.again(CLEAR, replace(CLEAR, group="absent.slice"))
    bench.give(0, LSE, "0-1")
    assert bench.failed() == [f"{GROUP}: keeps its CPUs: cgroup v2 has no file for cpuset-cpus there"]


def test_own_cpus_on_which_others_run_are_told(bench: Bench) -> None:
    root, own = bench.files.root, CpuSet.parse("0-1")
    for path, cpus, pids in (
        ("cgroup.procs", "0-7", "2\n3\n"),
        ("user.slice", "2-7", "9\n"),
        ("system.slice", "0-7", ""),
        ("system.slice/daemon.service", "1-7", "10\n"),
        ("kubepods.slice/kubepods-burstable.slice/pod", "0-7", "11\n"),
        ("colo/batch", "0-7", "12\n"),
        ("colo-online/lse.x", "0-1", "13\n"),
    ):
        directory = root if path == "cgroup.procs" else root / path
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "cpuset.cpus.effective").write_text(f"{cpus}\n")
        (directory / "cgroup.procs").write_text(pids)
    proc = Path(bench.policy.proc_root)
    for pid, command in (("2", b""), ("3", b"")):
        (proc / pid).mkdir(parents=True)
        (proc / pid / "cmdline").write_bytes(command)
    (root / "colo-online" / "lse.web.main.0@1").mkdir()
    (root / "colo-online" / "lse.web.main.0@1" / "cpuset.cpus").write_text("0-1\n")
    assert own_cpus_of(bench.tier.online_tree) == own, "without what colo gives to nobody, and that of others"
    found = open_cpus(bench.tier.tree, own, bench.policy.proc_root)
    assert found == OpenCpus(cpus=own, groups=("kubepods.slice/kubepods-burstable.slice", "system.slice"))
    assert open_cpus(bench.tier.tree, CpuSet.parse("0"), bench.policy.proc_root).groups == (
        "kubepods.slice/kubepods-burstable.slice",
    )
    attached = {"kubepods.slice/kubepods-burstable.slice/pod": CpuSet.parse("0")}
    assert open_cpus(bench.tier.tree, CpuSet.parse("0"), bench.policy.proc_root, attached) == OpenCpus()
    (proc / "3" / "cmdline").write_bytes(b"sshd\0")
    assert "/" in open_cpus(bench.tier.tree, own, bench.policy.proc_root).groups


@pytest.mark.parametrize(
    ("inner", "field"),
    [
        (UnmanagedGroup(group=f"{GROUP}/a", cpus="1"), "process_unmanaged[1].cpus"),
        (UnmanagedGroup(group=f"{GROUP}/a", clear_of_own_cpus=True), "process_unmanaged[1].clear_of_own_cpus"),
    ],
)
def test_cpus_of_a_group_in_a_cleared_one_are_the_cleared_ones(inner: UnmanagedGroup, field: str) -> None:
    check_unmanaged([CLEAR, replace(inner, weight_least=1_024, cpus="", clear_of_own_cpus=False)], "colo", "x")
    with pytest.raises(InvalidInput) as refused:
        check_unmanaged([CLEAR, inner], "colo", "process_unmanaged")
    assert (refused.value.field, "must not be set within user.slice" in refused.value.rule) == (field, True)
