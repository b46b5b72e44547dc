"""Putting back what somebody else changed, over plain files that look like cgroup v2."""

import errno
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace

from colo_common.events.enforcement import KnobValue, ZoneCeiling
from colo_common.model.cpuset import CpuSet
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.workload import ResourceLimits, RunSpec
from colo_executor.cgroup import CgroupError, CgroupTree
from colo_executor.desired import DesiredPolicy
from colo_executor.journal import JournalFile
from colo_executor.kept_cpus import KeptCpus
from colo_executor.knob_table import Knob
from colo_executor.local import CeilingRefused, CeilingWritten, Drift
from colo_executor.order import KnobWrite
from colo_executor.process.online import OnlineTier
from colo_executor.process.settings import ProcessPolicy
from colo_executor.process.tier import Tier
from tests.support.builders import a_placement
from tests.support.cgroup2_files import Cgroup2Files

GROUP = "colo/batch/job.main.0@1"


class Node:
    """A tier with two batch replicas, one in each zone."""

    def __init__(self, directory: Path, files: Cgroup2Files, desired: DesiredPolicy, ceiling_by="quota") -> None:
        policy = ProcessPolicy(
            state_dir=str(directory / "state"),
            cgroup_root=str(files.root),
            sys_root=str(files.sys_root),
            desired=desired,
            ceiling_by=ceiling_by,
        )
        self.files = files
        self.tier = Tier(policy, JournalFile(Path(policy.state_dir)))
        self.online = OnlineTier(self.tier, desired, is_on=True, kept=KeptCpus())
        self.tier.prepare(self.online.batch_cpus)
        for index in (0, 1):
            self.tier.add(f"job.main.{index}@1", a_placement(f"job/main/{index}", zone=index))
        self.tier.set_ceiling(2_000)
        files.writes.clear()

    def change(self, path: str, text: str) -> None:
        (self.files.root / path).write_text(text)

    def shown(self) -> dict[str, str]:
        """Every file of the groups, after a look."""
        return {
            str(path.relative_to(self.files.root)): path.read_text().strip()
            for path in sorted(self.files.root.glob("colo*/**/*"))
            if path.is_file()
        }


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cgroup2Files:
    return Cgroup2Files(tmp_path, monkeypatch, hugetlb=True)


@pytest.fixture
def node(tmp_path: Path, files: Cgroup2Files) -> Node:
    return Node(tmp_path, files, DesiredPolicy())


def test_nothing_is_written_when_nothing_changed(node):
    assert node.tier.reconcile() == Drift()
    assert node.online.reconcile() == Drift()
    assert node.files.writes == []


@pytest.mark.parametrize(
    ("path", "text", "belongs"),
    [
        ("colo/cpu.idle", "0\n", "1"),
        ("colo/batch/cpu.max", "max 100000\n", "200000 100000"),
        ("colo/batch/cpuset.cpus", "0-1\n", "0-7"),
        (f"{GROUP}/cpu.max", "20000 100000\n", "max 100000"),
        (f"{GROUP}/cpuset.mems", "1\n", "0"),
        (f"{GROUP}/memory.max", "max\n", str(1 << 30)),
        (f"{GROUP}/cpu.weight", "10000\n", "100"),
        (f"{GROUP}/pids.max", "max\n", "4096"),
        (f"{GROUP}/hugetlb.2MB.max", "max\n", "0"),
        (f"{GROUP}/hugetlb.1GB.rsvd.max", "1073741824\n", "0"),
    ],
)
def test_every_kind_of_value_is_put_back_and_reported_with_its_old_value(node, path, text, belongs):
    before = node.shown()
    node.change(path, text)
    drift = node.tier.reconcile()
    ((corrected,), failed) = drift.knobs, drift.failed
    assert (corrected.path, corrected.value, corrected.before, failed) == (path, belongs, text.strip(), ())
    assert node.shown() == before
    assert {write.split()[0] for write in node.files.writes} == {path}, "only what changed is written"
    assert node.tier.reconcile() == Drift()


def test_a_set_goes_back_through_steps_that_a_kernel_accepts(node):
    node.change("colo/cpuset.cpus", "0\n")
    node.change("colo/batch/cpuset.cpus", "0\n")
    node.change(f"{GROUP}/cpuset.cpus", "0\n")
    drift = node.tier.reconcile()
    assert [knob.path for knob in drift.knobs] == [
        "colo/cpuset.cpus",
        "colo/batch/cpuset.cpus",
        f"{GROUP}/cpuset.cpus",
    ]
    assert node.files.writes == [
        "colo/cpuset.cpus 0-7",
        "colo/batch/cpuset.cpus 0-7",
        f"{GROUP}/cpuset.cpus 0-3",
    ], "what grows is written from the top down"


def test_a_change_that_the_executor_then_wanted_itself_stays(node):
    # Somebody wrote it first; the executor found nothing to write and must not take it for a drift later.
    for path in ("colo", "colo/batch"):
        node.change(f"{path}/cpuset.cpus", "2-7\n")
    node.change(f"{GROUP}/cpuset.cpus", "2-3\n")
    node.tier.sets.set_pool(CpuSet.parse("2-7"), CpuSet())
    assert node.tier.reconcile() == Drift()
    assert node.files.cpus(GROUP) == "2-3"


def test_the_cpus_of_lsr_work_are_shared_with_be_and_with_no_ls_work_of_the_batch_tier(node):
    mid = replace(a_placement("job/main/2", zone=0), qos=QosClass.LS, band=PriorityBand.MID)
    node.tier.sets.set_pool(CpuSet.parse("0-7"), CpuSet.parse("0-1"))
    node.tier.add("job.main.2@1", mid)
    shared = "colo/batch/job.main.2@1"
    assert (node.files.cpus(GROUP), node.files.cpus(shared)) == ("0-3", "2-3")
    node.tier.sets.set_pool(CpuSet.parse("0-7"), CpuSet.parse("2-3"))
    assert (node.files.cpus(GROUP), node.files.cpus(shared)) == ("0-3", "0-1")
    node.tier.sets.set_pool(CpuSet.parse("0-7"), CpuSet.parse("0-7"))
    assert node.files.cpus(shared) == "0-3", "no work is ever without a CPU"
    assert node.tier.reconcile() == Drift()


GROUPS = ("colo", "colo/batch", GROUP, "colo/batch/job.main.1@1")
HALF = ZoneCeiling(zone=0, ceiling_mcpu=2_000, capacity_mcpu=4_000)


def test_the_ceiling_of_a_zone_takes_cpus_of_that_zone_alone_and_is_put_back(node):
    def cpus() -> list[str]:
        return [node.files.cpus(path) for path in GROUPS]

    written = node.tier.set_ceiling(6_000, (HALF,))
    assert isinstance(written, CeilingWritten)
    assert (written.zones, written.sets_refused) == ((HALF,), "")
    assert [(knob.path, knob.value, knob.before) for knob in written.knobs] == [
        ("colo/batch/cpu.max", "600000 100000", "200000 100000"),
        ("colo/cpuset.cpus", "0-1,4-7", "0-7"),
        ("colo/batch/cpuset.cpus", "0-1,4-7", "0-7"),
    ]
    assert cpus() == ["0-1,4-7", "0-1,4-7", "0-1", "4-7"]
    node.change("colo/batch/cpuset.cpus", "0-7\n")
    assert [knob.value for knob in node.tier.reconcile().knobs] == ["0-1,4-7"]
    # A replica that comes meanwhile, another quota, and a pool that shrinks: the zone keeps its ceiling.
    node.tier.add("job.main.2@1", a_placement("job/main/2", zone=0))
    assert node.files.cpus("colo/batch/job.main.2@1") == "0-1"
    node.tier.set_ceiling(3_000)
    node.tier.sets.set_pool(CpuSet.parse("1-7"), CpuSet())
    assert cpus() == ["1-2,4-7", "1-2,4-7", "1-2", "4-7"]
    least = replace(HALF, ceiling_mcpu=1_000)
    node.tier.set_ceiling(3_000, (least, replace(least, zone=1)))
    assert cpus() == ["1,4", "1,4", "1", "4"], "no replica is without a CPU of its zone"
    node.files.writes.clear()
    written = node.tier.set_ceiling(3_000, (least, replace(least, zone=1)))
    assert node.files.writes == []
    node.tier.set_ceiling(8_000, ())
    assert cpus() == ["1-7", "1-7", "1-3", "4-7"]


def test_both_kinds_of_ceilings_by_cpu_set_hold(tmp_path, files):
    node = Node(tmp_path, files, DesiredPolicy(), ceiling_by="cpuset")
    node.tier.set_ceiling(8_000, (HALF,))
    assert [node.files.cpus(path) for path in GROUPS] == ["0-1,4-7", "0-1,4-7", "0-1", "4-7"]
    node.tier.set_ceiling(3_000)
    assert [node.files.cpus(path) for path in GROUPS] == ["0,4-5", "0,4-5", "0", "4-5"]


def test_a_set_that_the_kernel_refuses_leaves_the_quota_and_the_old_sets(node, monkeypatch):
    put = CgroupTree._put

    def refusing(tree: CgroupTree, mount: str, group: str | None, name: str, text: str) -> None:
        if name == "cpuset.cpus" and text != "0-7":
            raise CgroupError("colo/batch/cpuset.cpus: write refused with EBUSY")
        put(tree, mount, group, name, text)

    with monkeypatch.context() as patch:
        patch.setattr(CgroupTree, "_put", refusing)
        written = node.tier.set_ceiling(6_000, (HALF,))
    assert isinstance(written, CeilingWritten)
    assert (written.ceiling_mcpu, written.zones) == (6_000, ())
    assert "EBUSY" in written.sets_refused
    assert node.files.cpus("colo/batch") == "0-7"
    # So does another thread that makes groups for longer than the reflex may wait.
    with node.tier.sets.turn:
        written = node.tier.set_ceiling(6_000, (HALF,))
    assert isinstance(written, CeilingWritten)
    assert (written.zones, written.sets_refused) == ((), "groups of batch work are being made or removed")
    assert node.tier.set_ceiling(6_000, (HALF,)) == CeilingWritten(
        ceiling_mcpu=6_000,
        zones=(HALF,),
        knobs=tuple(
            KnobValue(path=f"{group}/cpuset.cpus", value="0-1,4-7", before="0-7") for group in ("colo", "colo/batch")
        ),
    )


def test_ceilings_that_nobody_will_move_are_lifted_once_and_left_to_others(tmp_path, files):
    node = Node(tmp_path, files, DesiredPolicy())
    limited = replace(a_placement("job/main/2"), run=RunSpec(limits=ResourceLimits(cpu_mcpu=900)))
    node.tier.add("job.main.2@1", limited)
    node.tier.set_ceiling(500, (HALF,))
    node.tier.close()
    policy = replace(node.tier._policy, state_dir=str(tmp_path / "second"))
    second = Tier(policy, JournalFile(Path(policy.state_dir)))
    second.prepare()
    second.adopt("job.main.2@1", limited)
    assert second.ceiling_mcpu == 500
    assert second.lift_ceiling() == []
    assert (second.ceiling_mcpu, second.sets.zones) == (None, ())
    shown = [files.text(f"colo/batch{path}/cpu.max") for path in ("", "/job.main.2@1")]
    assert shown == ["max 100000", "90000 100000"]
    assert files.cpus("colo/batch") == "0-7"
    node.change("colo/batch/cpu.max", "40000 100000\n")
    assert second.reconcile() == Drift()


@pytest.mark.parametrize(("ceiling_by", "found"), [("quota", (HALF,)), ("cpuset", ())])
def test_the_next_executor_takes_over_what_a_zone_was_left(tmp_path, files, ceiling_by, found):
    node = Node(tmp_path, files, DesiredPolicy(), ceiling_by=ceiling_by)
    node.tier.set_ceiling(6_000, (HALF,))
    before = node.files.cpus("colo/batch")
    node.tier.close()
    policy = replace(node.tier._policy, state_dir=str(tmp_path / "second"))
    second = Tier(policy, JournalFile(Path(policy.state_dir)))
    second.prepare()
    assert second.sets.zones == found
    if found:
        assert node.files.cpus("colo/batch") == before == "0-1,4-7"
    second.set_ceiling(8_000, ())
    assert node.files.cpus("colo/batch") == "0-7"


def test_a_ceiling_by_cpu_set_leaves_the_other_cpus_to_online_work_and_is_put_back(tmp_path, files):
    node = Node(tmp_path, files, DesiredPolicy(), ceiling_by="cpuset")
    groups = ("colo", "colo/batch", GROUP, "colo/batch/job.main.1@1")

    def cpus() -> list[str]:
        return [node.files.cpus(path) for path in groups]

    assert cpus() == ["0,4", "0,4", "0", "4"]
    node.tier.set_ceiling(3_100)
    assert cpus() == ["0-1,4-5", "0-1,4-5", "0-1", "4-5"]
    node.tier.sets.set_pool(CpuSet.parse("0-7"), CpuSet.parse("0-3"))
    assert cpus() == ["0-1,4-5", "0-1,4-5", "0-1", "4-5"]
    node.change("colo/batch/cpuset.cpus", "0-7\n")
    assert [knob.value for knob in node.tier.reconcile().knobs] == ["0-1,4-5"]
    node.tier.set_ceiling(6_400)
    assert cpus() == ["0-2,4-7", "0-2,4-7", "0-2", "4-7"]
    assert node.shown()["colo/batch/cpu.max"] == "640000 100000"


def test_the_ceiling_of_now_is_put_back_and_not_an_older_one(node):
    node.tier.set_ceiling(3_000)
    node.change("colo/batch/cpu.max", "200000 100000\n")
    assert [knob.value for knob in node.tier.reconcile().knobs] == ["300000 100000"]


def test_what_an_operator_changes_of_paused_work_stays_and_is_told_and_the_rest_is_put_back(node):
    other = "colo/batch/job.main.1@1"
    for group, name, text in (
        (GROUP, "memory.max", "max\n"),
        (GROUP, "cpuset.cpus", "1\n"),
        (other, "memory.max", "max\n"),
        (other, "cpuset.cpus", "5\n"),
    ):
        node.change(f"{group}/{name}", text)
    before = node.shown()
    drift = node.tier.reconcile({"batch/job.main.0@1"})
    assert {knob.path: (knob.value, knob.before) for knob in drift.yielded} == {
        f"{GROUP}/memory.max": (str(1 << 30), "max"),
        f"{GROUP}/cpuset.cpus": ("0-3", "1"),
    }
    assert sorted(knob.path for knob in drift.knobs) == [f"{other}/cpuset.cpus", f"{other}/memory.max"]
    after = node.shown()
    assert {path for path in after if after[path] != before[path]} == {f"{other}/memory.max", f"{other}/cpuset.cpus"}
    again = node.tier.reconcile({"batch/job.main.0@1"})
    assert (again.knobs, again.failed, again.yielded) == ((), (), drift.yielded)
    assert {knob.path for knob in node.tier.reconcile().knobs} == {f"{GROUP}/memory.max", f"{GROUP}/cpuset.cpus"}
    assert node.files.cpus(GROUP) == "0-3", "when the pause is over, it is as it was"


def test_a_deleted_replica_is_no_drift(node):
    node.tier.drop("job.main.0@1")
    assert node.tier.reconcile() == Drift()
    node.tier.tree._rmdir(str(node.files.root), "batch/job.main.1@1")
    assert node.tier.reconcile() == Drift(), "removed by somebody else"


def test_a_refused_value_is_reported_and_the_rest_is_put_back(node, monkeypatch):
    put = CgroupTree._put

    def refusing(tree: CgroupTree, mount: str, group: str | None, name: str, text: str) -> None:
        if name == "memory.max":
            raise CgroupError("colo/batch/job.main.0@1/memory.max: write refused with EBUSY")
        put(tree, mount, group, name, text)

    monkeypatch.setattr(CgroupTree, "_put", refusing)
    node.change(f"{GROUP}/memory.max", "max\n")
    node.change(f"{GROUP}/pids.max", "max\n")
    drift = node.tier.reconcile()
    assert [knob.path for knob in drift.knobs] == [f"{GROUP}/pids.max"]
    assert drift.failed == ("colo/batch/job.main.0@1/memory.max: write refused with EBUSY",)


def test_a_deleted_file_of_an_existing_group_is_reported(node):
    # As when somebody takes a controller away from the groups.
    (node.files.root / GROUP / "memory.max").unlink()
    drift = node.tier.reconcile()
    assert drift.knobs == ()
    assert drift.failed == (f"{GROUP}/memory.max: shows '' and not '{1 << 30}'",)


def test_capped_replicas_keep_their_quota_below_that_of_the_tier(tmp_path, files):
    node = Node(tmp_path, files, DesiredPolicy(cap_at_request=True))
    node.change(f"{GROUP}/cpu.max", "max 100000\n")
    assert [(knob.path, knob.value) for knob in node.tier.reconcile().knobs] == [(f"{GROUP}/cpu.max", "100000 100000")]


def test_the_group_of_one_replica_that_somebody_deleted_keeps_no_other_from_shrinking(tmp_path, files):
    node = Node(tmp_path, files, DesiredPolicy(cap_at_request=True))
    shutil.rmtree(files.root / GROUP)
    assert isinstance(node.tier.set_ceiling(500), CeilingWritten)
    assert node.shown()["colo/batch/cpu.max"] == "50000 100000"
    assert node.shown()["colo/batch/job.main.1@1/cpu.max"] == "50000 100000"


def test_a_ceiling_that_has_no_group_is_refused(node):
    shutil.rmtree(node.files.root / "colo/batch")
    assert isinstance(node.tier.set_ceiling(500), CeilingRefused)
    assert node.tier.ceiling_mcpu == 2_000


@pytest.mark.parametrize("step", ["_mkdir", "_rmdir"])
def test_the_ceiling_waits_for_no_group_that_the_kernel_is_slow_to_make_or_to_remove(node, monkeypatch, step):
    is_slow, may_go_on = threading.Event(), threading.Event()
    real = getattr(CgroupTree, step)

    def slow(tree: CgroupTree, *arguments: object) -> object:
        is_slow.set()
        may_go_on.wait(30)
        return real(tree, *arguments)

    monkeypatch.setattr(CgroupTree, step, slow)
    with ThreadPoolExecutor(2) as pool:
        if step == "_mkdir":
            pool.submit(node.tier.add, "job.main.2@1", a_placement("job/main/2"))
        else:
            pool.submit(node.tier.drop, "job.main.0@1")
        try:
            assert is_slow.wait(5)
            assert isinstance(pool.submit(node.tier.set_ceiling, 500).result(5), CeilingWritten)
        finally:
            may_go_on.set()


def test_a_group_that_goes_while_it_is_written_is_one_that_is_gone(node, monkeypatch):
    def dying(tree: CgroupTree, *_: object) -> None:
        raise OSError(errno.ENODEV, "No such device")

    monkeypatch.setattr(CgroupTree, "_put", dying)
    with pytest.raises(FileNotFoundError, match="job.main.0"):
        node.tier.tree.write(KnobWrite(path="batch/job.main.0@1", knob=Knob.PIDS_LIMIT, value=7))


def test_online_work_is_reconciled_too(node):
    placement = replace(a_placement("web/main/0"), qos=QosClass.LSE, band=PriorityBand.PROD, cpus="0-1")
    node.online.add("web.main.0@1", placement)
    node.change("colo-online/lse.web.main.0@1/cpuset.cpus", "0-7\n")
    node.change("colo/batch/cpuset.cpus", "0-7\n")
    assert [knob.path for knob in node.online.reconcile().knobs] == ["colo-online/lse.web.main.0@1/cpuset.cpus"]
    assert [(knob.path, knob.value) for knob in node.tier.reconcile().knobs] == [("colo/batch/cpuset.cpus", "2-7")]


def test_attempts_of_an_earlier_executor_are_reconciled_too(tmp_path, files, node):
    policy = ProcessPolicy(state_dir=str(tmp_path / "later"), cgroup_root=str(files.root), sys_root=str(files.sys_root))
    placement = a_placement("job/main/0", zone=0)
    node.tier.close()
    later = Tier(policy, JournalFile(Path(policy.state_dir)))
    online = OnlineTier(later, DesiredPolicy(), is_on=True, kept=KeptCpus())
    later.reserve_adopted("job.main.0@1", placement)
    later.prepare(online.batch_cpus)
    # Changed while no executor lived.
    node.change(f"{GROUP}/memory.max", "max\n")
    later.adopt("job.main.0@1", placement)
    assert [knob.path for knob in later.reconcile().knobs] == [f"{GROUP}/memory.max"]
