"""The online tier over plain files that look like cgroup v2: pools follow who comes and goes, and nothing is left behind."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from colo_common.model.constraints import CpuPolicy
from colo_common.model.cpuset import CpuSet
from colo_common.model.placement import replica_token
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import Reason
from colo_executor.cgroup import CgroupError, CgroupTree
from colo_executor.desired import DesiredPolicy
from colo_executor.journal import JournalFile
from colo_executor.kept_cpus import KeptCpus
from colo_executor.local import Drift
from colo_executor.online import CpusRefused
from colo_executor.process.online import OnlineTier
from colo_executor.process.settings import ProcessPolicy
from colo_executor.process.tier import Tier
from tests.support.builders import GIB, a_placement
from tests.support.cgroup2_files import Cgroup2Files

LSE, LSR, LS = QosClass.LSE, QosClass.LSR, QosClass.LS


class Bench:
    """One executor's tiers on a machine of two zones with four CPUs each."""

    def __init__(
        self,
        directory: Path,
        files: Cgroup2Files,
        *,
        withheld: str = "",
        is_on: bool = True,
        desired: DesiredPolicy = DesiredPolicy(),
    ) -> None:
        self.files = files
        self.policy = ProcessPolicy(
            state_dir=str(directory / "state"),
            cgroup_root=str(files.root),
            sys_root=str(files.sys_root),
            desired=desired,
        )
        self.journal = JournalFile(Path(self.policy.state_dir))
        self.tier = Tier(self.policy, self.journal)
        self.online = OnlineTier(
            self.tier, self.policy.desired, is_on=is_on, kept=KeptCpus(withheld=CpuSet.parse(withheld))
        )
        self.known: dict[str, object] = {}

    def ready(self) -> "Bench":
        self.tier.prepare(self.online.batch_cpus)
        return self

    def start(self, index: int, qos: QosClass, cpus: str = "", *, mcpu: int = 2000, zone: int | None = None):
        """Online work in a zone; without one in the shared pool of the node."""
        policy = CpuPolicy.NONE if zone is None else CpuPolicy.DEFAULT
        placement = a_placement(f"web/main/{index}", mcpu=mcpu, zone=zone or 0)
        placement = replace(placement, qos=qos, band=PriorityBand.PROD, cpus=cpus, cpu_policy=policy)
        knobs = self.online.add(replica_token(placement.replica, 1), placement)
        self.known[replica_token(placement.replica, 1)] = placement
        return knobs

    def end(self, index: int) -> bool:
        token = replica_token(f"web/main/{index}", 1)
        return self.online.drop(token, self.known.pop(token))

    def batch(self, index: int, zone: int, cpus: str = "", policy: CpuPolicy = CpuPolicy.DEFAULT) -> None:
        placement = replace(a_placement(f"job/main/{index}", zone=zone), cpus=cpus, cpu_policy=policy)
        self.tier.add(replica_token(placement.replica, 1), placement)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cgroup2Files:
    return Cgroup2Files(tmp_path, monkeypatch)


@pytest.fixture
def bench(tmp_path: Path, files: Cgroup2Files) -> Bench:
    return Bench(tmp_path, files).ready()


def test_pools_follow_who_comes_and_goes(bench, files):
    bench.batch(0, 0)
    bench.batch(1, 1)
    assert files.cpus("colo/batch/job.main.0@1") == "0-3"
    bench.start(0, LS)
    bench.start(1, LSR, "4-5")
    assert files.cpus("colo-online/ls.web.main.0@1") == "0-3,6-7"
    assert files.cpus("colo/batch") == "0-7", "batch work may run on CPUs of LSR work"
    bench.start(2, LSE, "0-1")
    shown = {name: files.cpus(name) for name in files.groups()}
    assert shown == {
        "colo": "2-7",
        "colo-online": "0-7",
        "colo-online/ls.web.main.0@1": "2-3,6-7",
        "colo-online/lse.web.main.2@1": "0-1",
        "colo-online/lsr.web.main.1@1": "4-5",
        "colo/batch": "2-7",
        "colo/batch/job.main.0@1": "2-3",
        "colo/batch/job.main.1@1": "4-7",
    }
    assert bench.end(2)
    assert bench.end(1)
    assert files.cpus("colo/batch/job.main.0@1") == "0-3"
    assert files.cpus("colo-online/ls.web.main.0@1") == "0-7"
    bench.batch(2, 0)
    assert files.cpus("colo/batch/job.main.2@1") == "0-3"


def sets(files, name: str) -> tuple[str, str]:
    return files.text(f"{name}/cpuset.cpus"), files.text(f"{name}/cpuset.mems")


def test_shared_work_stays_in_the_zone_that_was_chosen_with_its_memory(bench, files):
    bench.start(0, LS, zone=1)
    bench.start(1, LS, "5-6", zone=1)
    near, fixed = "colo-online/ls.web.main.0@1", "colo-online/ls.web.main.1@1"
    assert (sets(files, near), sets(files, fixed)) == (("4-7", "1"), ("5-6", "1"))
    bench.start(2, LSR, "4-5")
    assert (sets(files, near), sets(files, fixed)) == (("6-7", "1"), ("6", "1"))
    assert bench.end(2)
    assert bench.end(1)
    bench.start(3, LSE, "4-7")
    assert sets(files, near) == ("0-3", "1"), (
        "the zone has no shared CPU: work is never without a CPU, and its memory stays"
    )
    assert bench.end(3)
    assert sets(files, near) == ("4-7", "1")


def test_cpus_that_a_kubelet_pinned_are_batch_works_and_no_online_works(bench, files):
    bench.batch(0, 0)
    bench.start(0, LS, zone=0)
    bench.start(1, LS)
    bench.online.keep(KeptCpus(withheld=CpuSet.parse("7"), pinned=CpuSet.parse("0-1")))
    near, wide = "colo-online/ls.web.main.0@1", "colo-online/ls.web.main.1@1"
    shown = [files.cpus(name) for name in (near, wide, "colo/batch", "colo/batch/job.main.0@1")]
    assert shown == ["2-3", "2-6", "0-6", "0-3"]
    with pytest.raises(CpusRefused, match="1 are pinned by the kubelet to its pods"):
        bench.start(2, LSR, "1-2")
    with pytest.raises(CgroupError, match="none would be left to batch work"):
        bench.online.keep(KeptCpus(withheld=CpuSet.parse("0-7")))
    assert files.cpus("colo/batch") == "0-6"
    bench.online.keep(KeptCpus())
    assert [files.cpus(name) for name in (near, wide, "colo/batch")] == ["0-3", "0-7", "0-7"]


def protection(files, group: str) -> tuple[int, int]:
    return int(files.text(f"{group}/memory.min")), int(files.text(f"{group}/memory.low"))


def test_the_memory_that_was_requested_is_protected_and_the_tier_has_the_sum(tmp_path, files):
    bench = Bench(tmp_path, files, desired=DesiredPolicy(memory_min_pct=25)).ready()
    bench.batch(0, 0)
    bench.start(0, LS)
    bench.start(1, LSR, "4-5")
    top, ls, lsr = "colo-online", "colo-online/ls.web.main.0@1", "colo-online/lsr.web.main.1@1"
    assert [protection(files, each) for each in (ls, lsr, top)] == [
        (0, GIB),
        (GIB // 4, GIB),
        (GIB // 4, 2 * GIB),
    ]
    assert [protection(files, each) for each in ("colo", "colo/batch", "colo/batch/job.main.0@1")] == [(0, 0)] * 3
    files.writes.clear()
    assert bench.online.reconcile() == Drift()
    assert files.writes == []
    for path in (f"{top}/memory.low", f"{lsr}/memory.min", "colo/memory.low"):
        (files.root / path).write_text("4096\n")
    assert len(bench.online.reconcile().knobs) == 2
    assert len(bench.tier.reconcile().knobs) == 1
    assert (protection(files, top), protection(files, lsr)) == ((GIB // 4, 2 * GIB), (GIB // 4, GIB))
    assert protection(files, "colo") == (0, 0)
    assert bench.end(1)
    assert protection(files, top) == (0, GIB), "and no more when a replica has ended"


def test_the_protection_of_an_earlier_version_is_completed_at_the_next_start(tmp_path, files):
    bench = Bench(tmp_path, files, desired=DesiredPolicy(memory_low_pct=0)).ready()
    bench.start(0, LS)
    (token,) = bench.known
    placement = bench.known[token]
    bench.tier.close()
    bench.journal.close()
    after = Bench(tmp_path, files)
    after.online.reserve_adopted(token, placement)
    after.ready()
    after.online.adopt(token, placement)
    after.online.settle()
    assert protection(files, "colo-online") == (0, GIB)
    assert [knob.path.rpartition("/")[2] for knob in after.online.reconcile().knobs] == ["memory.low"]
    assert protection(files, f"colo-online/ls.{token}") == (0, GIB)


def test_a_kernel_without_the_files_protects_nothing_and_runs_online_work(tmp_path, files):
    for name in ("memory.min", "memory.low"):
        files.lacks(name)
    bench = Bench(tmp_path, files).ready()
    knobs = bench.start(0, LS)
    assert not any(knob.path.endswith(("memory.min", "memory.low")) for knob in knobs)
    assert bench.online.reconcile() == Drift()


def plug(files, online: str, zone_1: str) -> None:
    (files.sys_root / "devices/system/cpu/online").write_text(f"{online}\n")
    (files.sys_root / "devices/system/node/node1/cpulist").write_text(f"{zone_1}\n")


def test_cpus_that_go_offline_leave_all_sets_and_come_back(bench, files):
    bench.start(0, QosClass.LSE, "0-1")
    bench.start(1, QosClass.LS, zone=1)
    bench.batch(2, 1)
    top, ls, be = "colo-online", "colo-online/ls.web.main.1@1", "colo/batch/job.main.2@1"
    before = [files.cpus(group) for group in (top, ls, "colo", "colo/batch", be)]
    assert bench.online.follow_cpus() is None
    plug(files, "0-6", "4-6")
    assert bench.online.follow_cpus() == CpuSet.parse("0-6")
    assert [files.cpus(group) for group in (top, ls, "colo", "colo/batch", be)] == ["0-6", "4-6", "2-6", "2-6", "4-6"]
    assert bench.tier.reconcile() == bench.online.reconcile() == Drift()
    with pytest.raises(CpusRefused, match="7 are not online"):
        bench.start(3, QosClass.LSR, "7")
    plug(files, "0-7", "4-7")
    assert bench.online.follow_cpus() == CpuSet.parse("0-7")
    assert [files.cpus(group) for group in (top, ls, "colo", "colo/batch", be)] == before
    bench.start(3, QosClass.LSR, "7")
    assert bench.tier.reconcile() == bench.online.reconcile() == Drift()


def test_cpus_that_could_not_be_followed_are_tried_again(bench, files, monkeypatch):
    plug(files, "0-6", "4-6")
    with monkeypatch.context() as patched:
        patched.setattr(CgroupTree, "write", lambda tree, knob: _refuse(knob))
        with pytest.raises(CgroupError):
            bench.online.follow_cpus()
    assert bench.online.follow_cpus() == CpuSet.parse("0-6")
    assert files.cpus("colo/batch") == "0-6"


def test_kept_cpus_that_could_not_be_written_are_tried_again(bench, files, monkeypatch):
    bench.start(0, LS)
    write = CgroupTree.write
    monkeypatch.setattr(CgroupTree, "write", lambda tree, knob: _refuse(knob))
    with pytest.raises(CgroupError, match="EBUSY"):
        bench.online.keep(KeptCpus(pinned=CpuSet.parse("0")))
    monkeypatch.setattr(CgroupTree, "write", write)
    assert files.cpus("colo-online/ls.web.main.0@1") == "0-7"
    bench.online.reconcile()
    assert files.cpus("colo-online/ls.web.main.0@1") == "1-7"


def _refuse(knob):
    raise CgroupError(f"{knob.path}: EBUSY")


def test_a_batch_replica_whose_zone_is_given_away_runs_elsewhere(bench, files):
    bench.start(0, LSE, "0-3")
    bench.batch(0, 0)
    assert files.cpus("colo/batch/job.main.0@1") == "4-7"
    bench.end(0)
    assert files.cpus("colo/batch/job.main.0@1") == "0-3"


def test_batch_work_with_cpus_of_its_own_has_them_alone_among_batch_work(bench, files):
    def shown() -> list[str]:
        return [files.cpus(f"colo/batch/job.main.{index}@1") for index in range(3)]

    bench.batch(0, 0)
    bench.batch(1, 0, "0-1", CpuPolicy.EXCLUSIVE)
    bench.batch(2, 0, "2", CpuPolicy.IMMOVABLE)
    assert shown() == ["2-3", "0-1", "2"]
    for cpus, policy, refusal in (
        ("1-2", CpuPolicy.EXCLUSIVE, "1 are held by job/main/1"),
        ("1", CpuPolicy.IMMOVABLE, "1 are held by job/main/1"),
        ("2-3", CpuPolicy.EXCLUSIVE, "no CPU is left for job/main/2"),
        ("2-7", CpuPolicy.EXCLUSIVE, "no CPU is left for job/main/0"),
        ("8", CpuPolicy.EXCLUSIVE, "8 are not open to batch work"),
        ("nonsense", CpuPolicy.EXCLUSIVE, "must be a list"),
    ):
        with pytest.raises(CpusRefused, match=refusal):
            bench.batch(3, 0, cpus, policy)
    assert shown() == ["2-3", "0-1", "2"]
    bench.start(0, LSE, "0-1")
    assert shown() == ["2-3", "2-3", "2"], "online work comes first, and nobody is without a CPU"
    assert bench.end(0)
    assert shown() == ["2-3", "0-1", "2"]
    assert bench.tier.drop("job.main.1@1")
    assert files.cpus("colo/batch/job.main.0@1") == "0-3"


def test_online_work_is_never_idle_and_weighs_what_it_asked_for(bench, files):
    bench.start(0, LSR, "4-5", mcpu=2000)
    bench.start(1, LS, mcpu=1000)
    assert (files.text("colo/cpu.idle"), files.text("colo-online/cpu.idle")) == ("1", "0")
    assert files.text("colo-online/lsr.web.main.0@1/cpu.max") == "max 100000"
    weights = [files.text(f"colo-online/{name}cpu.weight") for name in ("", "lsr.web.main.0@1/", "ls.web.main.1@1/")]
    assert weights == ["300", "200", "100"]
    assert files.text("colo-online/lsr.web.main.0@1/cpuset.mems") == "1"
    bench.end(0)
    assert files.text("colo-online/cpu.weight") == "100"


def test_withheld_cpus_are_left_alone(tmp_path, files):
    bench = Bench(tmp_path, files, withheld="0,7").ready()
    bench.start(0, LS)
    assert files.cpus("colo/batch") == files.cpus("colo-online/ls.web.main.0@1") == "1-6"
    with pytest.raises(CpusRefused, match="7 are withheld"):
        bench.start(1, LSE, "6-7")


def test_a_refusal_changes_nothing(bench, files):
    bench.start(0, LSE, "0-1")
    files.writes.clear()
    for cpus, refusal in (("1-2", "held by web/main/0"), ("8", "not online"), ("", "was given none")):
        with pytest.raises(CpusRefused, match=refusal):
            bench.start(1, LSE, cpus)
    assert files.writes == []
    assert "colo-online/lse.web.main.1@1" not in files.groups()


def test_a_node_without_cpusets_or_without_leave_refuses_online_work_only(tmp_path, files, monkeypatch):
    bench = Bench(tmp_path, files, is_on=False).ready()
    with pytest.raises(CpusRefused, match="setting online") as refused:
        bench.start(0, LS)
    assert refused.value.reason is Reason.RUNTIME_ABSENT
    bench.batch(0, 0)
    bench.journal.close()
    bench.tier.close()
    (files.root / "cgroup.controllers").write_text("cpu memory\n")
    bench = Bench(tmp_path, files).ready()
    with pytest.raises(CpusRefused, match="lacks cpuset-cpus, cpuset-mems") as refused:
        bench.start(0, LSE, "0-1")
    assert refused.value.reason is Reason.RUNTIME_ABSENT
    assert not (files.root / "colo-online").exists()


def test_when_a_write_fails_everybody_has_their_cpus_back(bench, files, monkeypatch):
    bench.batch(0, 0)
    bench.start(0, LS)
    write = CgroupTree.write

    def failing(tree, knob):
        if knob.path == "lse.web.main.1@1" and knob.knob == "memory-limit-bytes":
            raise CgroupError("no")
        return write(tree, knob)

    monkeypatch.setattr(CgroupTree, "write", failing)
    with pytest.raises(CgroupError, match="no"):
        bench.start(1, LSE, "0-1")
    assert "colo-online/lse.web.main.1@1" not in files.groups()
    assert files.cpus("colo/batch/job.main.0@1") == "0-3"
    assert files.cpus("colo-online/ls.web.main.0@1") == "0-7"
    monkeypatch.setattr(CgroupTree, "write", write)
    bench.start(1, LSE, "0-1")


def test_a_failing_pool_write_is_undone(bench, files, monkeypatch):
    bench.batch(0, 0)
    write = CgroupTree.write

    def failing(tree, knob):
        if knob.path == "" and knob.value == "2-7" and tree.name == "colo":
            raise CgroupError("EBUSY")
        return write(tree, knob)

    monkeypatch.setattr(CgroupTree, "write", failing)
    with pytest.raises(CgroupError, match="EBUSY"):
        bench.start(0, LSE, "0-1")
    assert [files.cpus(name) for name in ("colo", "colo/batch", "colo/batch/job.main.0@1")] == ["0-7", "0-7", "0-3"]


def test_the_next_executor_never_lets_batch_work_onto_cpus_that_are_held(tmp_path, bench, files):
    bench.batch(0, 0)
    bench.start(0, LSE, "0-1")
    bench.start(1, LS)
    known = dict(bench.known)
    bench.journal.close()
    bench.tier.close()
    files.writes.clear()
    again = Bench(tmp_path, files)
    for token, placement in known.items():
        again.online.reserve_adopted(token, placement)
    again.tier.reserve_adopted("job.main.0@1", a_placement("job/main/0"))
    again.ready()
    again.online.settle()
    assert files.writes == [], "nothing has changed, so nothing is written"
    assert again.online.drop("web.main.0@1", known["web.main.0@1"])
    assert "colo-online/lse.web.main.0@1" not in files.groups()
    assert files.cpus("colo/batch/job.main.0@1") == "0-3"
    assert files.cpus("colo-online/ls.web.main.1@1") == "0-7"


def test_restore_leaves_nothing(bench, files):
    bench.batch(0, 0)
    bench.start(0, LSE, "0-1")
    bench.start(1, LS)
    assert bench.tier.restore() == ()
    assert files.groups() == []


BVT = "cpu.bvt_warp_ns"


def identities(files: Cgroup2Files) -> dict[str, str]:
    return {group: files.text(f"{group}/{BVT}") for group in files.groups()}


def test_on_a_kernel_with_identities_and_no_idle_class_they_tell_batch_work_from_online_work(tmp_path, files):
    files.lacks("cpu.idle")
    files.gains(BVT, "0\n")
    bench = Bench(tmp_path, files).ready()
    bench.batch(0, 0)
    bench.start(0, LS)
    expected = {
        "colo": "-1",
        "colo-online": "2",
        "colo-online/ls.web.main.0@1": "2",
        "colo/batch": "-1",
        "colo/batch/job.main.0@1": "-1",
    }
    assert identities(files) == expected
    files.writes.clear()
    for group in ("colo", "colo/batch/job.main.0@1"):
        (files.root / group / BVT).write_text("0\n")
    (files.root / "colo-online" / BVT).write_text("0\n")
    back = [*bench.tier.reconcile().knobs, *bench.online.reconcile().knobs]
    assert {(knob.path, knob.before, knob.value) for knob in back} == {
        (f"colo/{BVT}", "0", "-1"),
        (f"colo/batch/job.main.0@1/{BVT}", "0", "-1"),
        (f"colo-online/{BVT}", "0", "2"),
    }
    assert identities(files) == expected
    files.writes.clear()
    assert bench.tier.restore() == ()
    assert [write for write in files.writes if BVT in write] == [f"colo/{BVT} 0", f"colo/batch/{BVT} 0"]


@pytest.mark.parametrize(
    ("has_idle", "desired"), [(True, DesiredPolicy()), (False, DesiredPolicy(idle=False))], ids=["cpu.idle", "not idle"]
)
def test_no_identity_is_written_where_the_idle_class_does_it_or_nothing_is_to(tmp_path, files, has_idle, desired):
    if not has_idle:
        files.lacks("cpu.idle")
    files.gains(BVT, "0\n")
    bench = Bench(tmp_path, files, desired=desired).ready()
    bench.batch(0, 0)
    bench.start(0, LS)
    assert set(identities(files).values()) == {"0"}
    assert bench.tier.restore() == ()
    assert not [write for write in files.writes if BVT in write]


def test_the_old_identity_of_a_group_that_was_there_is_put_back(tmp_path, files):
    files.lacks("cpu.idle")
    files.gains(BVT, "0\n")
    CgroupTree(str(files.root), "colo").make("")
    (files.root / "colo" / BVT).write_text("1\n")
    bench = Bench(tmp_path, files).ready()
    assert files.text(f"colo/{BVT}") == "-1"
    assert bench.tier.restore() == ()
    assert files.text(f"colo/{BVT}") == "1"
