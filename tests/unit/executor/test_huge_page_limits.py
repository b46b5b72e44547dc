"""Limits of huge pages over plain files that look like cgroup v2 and v1: what was asked for, nothing else, and the way back."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from colo_common.model.placement import Placement, ZoneHugePages
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import Reason
from colo_executor.cgroup import CgroupTree
from colo_executor.desired import DesiredPolicy
from colo_executor.journal import JournalFile
from colo_executor.kept_cpus import KeptCpus
from colo_executor.knob_table import UNLIMITED, Knob, file_of, page_bytes_of, page_size_text
from colo_executor.knobs import agrees, text_of
from colo_executor.local import LaunchFailed
from colo_executor.order import KnobWrite
from colo_executor.process.machine import huge_pages_bytes
from colo_executor.process.online import OnlineTier
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from colo_executor.process.tier import Tier
from tests.support.builders import GIB, a_placement
from tests.support.cgroup2_files import Cgroup2Files

MIB = 1 << 20
GROUP = "colo/batch/job.main.0@1"
NAMES = ("hugetlb.2MB.max", "hugetlb.2MB.rsvd.max", "hugetlb.1GB.max", "hugetlb.1GB.rsvd.max")


def asking(*pages: tuple[int, int, int]) -> Placement:
    """Zone, page size and amount of each share."""
    shares = tuple(ZoneHugePages(zone=zone, page_bytes=size, total_bytes=total) for zone, size, total in pages)
    return replace(a_placement(), huge_pages=shares)


def a_policy(directory: Path, files: Cgroup2Files, **desired: bool) -> ProcessPolicy:
    return ProcessPolicy(
        state_dir=str(directory / "state"),
        cgroup_root=str(files.root),
        sys_root=str(files.sys_root),
        desired=DesiredPolicy(**desired),
    )


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cgroup2Files:
    return Cgroup2Files(tmp_path, monkeypatch, hugetlb=True)


def a_tier(directory: Path, files: Cgroup2Files, **desired: bool) -> Tier:
    policy = a_policy(directory, files, **desired)
    tier = Tier(policy, JournalFile(Path(policy.state_dir)))
    tier.prepare()
    return tier


def limits(files: Cgroup2Files, group: str = GROUP) -> list[str]:
    return [files.text(f"{group}/{name}") for name in NAMES]


@pytest.mark.parametrize(
    ("placement", "shown"),
    [
        (asking(), ["0", "0", "0", "0"]),
        (asking((0, 2 * MIB, 8 * MIB)), [str(8 * MIB), str(8 * MIB), "0", "0"]),
        (asking((0, 2 * MIB, 8 * MIB), (1, 2 * MIB, 4 * MIB)), [str(12 * MIB), str(12 * MIB), "0", "0"]),
        (asking((0, 2 * MIB, 2 * MIB), (1, GIB, GIB)), [str(2 * MIB), str(2 * MIB), str(GIB), str(GIB)]),
    ],
    ids=["none", "one zone", "two zones count together", "two sizes"],
)
def test_a_replica_may_have_the_huge_pages_of_its_zones_and_no_others(tmp_path, files, placement, shown):
    knobs = a_tier(tmp_path, files).add("job.main.0@1", placement)
    assert limits(files) == shown
    written = {knob.path: knob.value for knob in knobs if "hugetlb" in knob.path}
    assert written == {f"{GROUP}/{name}": value for name, value in zip(NAMES, shown, strict=True)}


def test_memory_of_a_zone_with_huge_pages_is_the_replicas_even_where_its_cpus_are_elsewhere(tmp_path, files):
    a_tier(tmp_path, files).add("job.main.0@1", asking((1, 2 * MIB, 2 * MIB)))
    assert (files.cpus(GROUP), files.text(f"{GROUP}/cpuset.mems")) == ("0-3", "0-1")


def test_an_operator_may_leave_huge_pages_alone_that_nobody_asked_for(tmp_path, files):
    tier = a_tier(tmp_path, files, huge_pages_only_asked=False)
    tier.add("job.main.0@1", asking((0, 2 * MIB, 2 * MIB)))
    assert limits(files) == [str(2 * MIB), str(2 * MIB), "max", "max"]


def test_online_work_is_held_to_its_huge_pages_too(tmp_path, files):
    tier = a_tier(tmp_path, files)
    online = OnlineTier(tier, DesiredPolicy(), is_on=True, kept=KeptCpus())
    placement = replace(asking((1, 2 * MIB, 4 * MIB)), qos=QosClass.LSE, band=PriorityBand.PROD, cpus="0-1")
    online.add("job.main.0@1", placement)
    group = "colo-online/lse.job.main.0@1"
    assert limits(files, group) == [str(4 * MIB), str(4 * MIB), "0", "0"]
    assert files.text(f"{group}/cpuset.mems") == "0-1"


def test_a_group_that_was_there_before_is_given_its_old_limits_back(tmp_path, files):
    CgroupTree(str(files.root), "colo").make("")
    before = [files.text(f"colo/{name}") for name in NAMES]
    # Somebody made it in advance: it has none of colo's groups in it.
    journal = JournalFile(tmp_path / "new")
    tier = Tier(a_policy(tmp_path, files), journal)
    tier.prepare()
    tier.tree.write(KnobWrite(path="", knob=Knob.HUGE_PAGES_LIMIT, value=0, page_bytes=GIB))
    assert files.text("colo/hugetlb.1GB.max") == "0"
    assert journal.state.pre_images["colo/hugetlb.1GB.max"] == "max"
    tier.tree.put_back("colo/hugetlb.1GB.max", "max")
    assert [files.text(f"colo/{name}") for name in NAMES] == before


def test_a_kernel_that_cannot_limit_them_writes_nothing(tmp_path, monkeypatch):
    files = Cgroup2Files(tmp_path, monkeypatch)
    a_tier(tmp_path, files).add("job.main.0@1", asking((0, 2 * MIB, 2 * MIB)))
    assert not [write for write in files.writes if "hugetlb" in write]


async def refused(directory: Path, files: Cgroup2Files, placement: Placement) -> LaunchFailed:
    runtime = ProcessRuntime(a_policy(directory, files))
    try:
        await runtime.adopt(1)
        before = files.groups()
        answer = await runtime.launch(replace(placement, run=replace(placement.run, command=("true",))), 1)
        assert isinstance(answer, LaunchFailed)
        assert files.groups() == before, "nothing was left behind"
        return answer
    finally:
        await runtime.close()


@pytest.mark.parametrize(
    ("placement", "refusal"),
    [
        (asking((0, 2 * MIB, 18 * MIB)), f"zone 0 has {16 * MIB} bytes left in pages of {2 * MIB}, {18 * MIB} are"),
        (asking((0, GIB, GIB)), f"zone 0 has 0 bytes left in pages of {GIB}, {GIB} are"),
        (asking((1, 2 * MIB, 2 * MIB), (5, 2 * MIB, 2 * MIB)), "zone 5 has 0 bytes"),
        (asking((0, 64 * 1_024, 64 * 1_024)), "zone 0 has 0 bytes left in pages of 65536"),
    ],
    ids=["more than are set aside", "a size that the zone lacks", "a zone that the node lacks", "a size without limit"],
)
async def test_pages_that_are_not_set_aside_are_refused_by_name(tmp_path, files, placement, refusal):
    answer = await refused(tmp_path, files, placement)
    assert answer.reason is Reason.HUGE_PAGES_SHORT
    assert refusal in answer.detail


async def test_without_the_controller_huge_pages_are_refused_with_what_is_lacking(tmp_path, monkeypatch):
    answer = await refused(tmp_path, Cgroup2Files(tmp_path, monkeypatch), asking((0, 2 * MIB, 2 * MIB)))
    assert answer.reason is Reason.RUNTIME_ABSENT
    assert "hugetlb controller is lacking" in answer.detail


def test_v1_has_a_file_for_each_size_in_a_hierarchy_of_its_own(tmp_path):
    root = tmp_path / "cgroup"
    for name in ("cpu", "cpuacct", "memory", "hugetlb"):
        (root / name / "colo").mkdir(parents=True)
        (root / name / "cgroup.procs").write_text("")
    for size in ("2MB", "1GB"):
        (root / "hugetlb/colo" / f"hugetlb.{size}.limit_in_bytes").write_text("9223372036854771712\n")
    tree = CgroupTree(str(root), "colo")
    assert tree.huge_page_sizes() == (2 * MIB, GIB)
    assert Knob.HUGE_PAGES_LIMIT in tree.has()
    assert Knob.HUGE_PAGES_RESERVED_LIMIT not in tree.has(), "Linux has it since 5.7"
    (root / "hugetlb/colo/hugetlb.2MB.limit_in_bytes").write_text("")
    written = tree.write(KnobWrite(path="", knob=Knob.HUGE_PAGES_LIMIT, value=4 * MIB, page_bytes=2 * MIB))
    assert (written.path, written.value) == ("hugetlb/colo/hugetlb.2MB.limit_in_bytes", str(4 * MIB))
    assert (root / "hugetlb/colo/hugetlb.1GB.limit_in_bytes").read_text() == "9223372036854771712\n"


@pytest.mark.parametrize(
    ("page_bytes", "text"),
    [(64 << 10, "64KB"), (2 * MIB, "2MB"), (512 * MIB, "512MB"), (GIB, "1GB"), (16 * GIB, "16GB")],
)
def test_sizes_are_written_as_the_kernel_writes_them(page_bytes, text):
    assert page_size_text(page_bytes) == text
    assert page_bytes_of(f"hugetlb.{text}.max") == page_bytes_of(f"hugetlb.{text}.limit_in_bytes") == page_bytes
    assert file_of(Knob.HUGE_PAGES_LIMIT, 2, page_bytes) == ("hugetlb", f"hugetlb.{text}.max")


@pytest.mark.parametrize(
    "name", ["hugetlb.2MB.rsvd.max", "hugetlb.2MB.current", "hugetlb.MB.max", "memory.max", "hugetlb.02MB.max"]
)
def test_other_files_tell_no_size(name):
    assert page_bytes_of(name) is None


def test_lifted_limits_read_as_the_kernel_shows_them():
    assert (text_of(Knob.HUGE_PAGES_LIMIT, 1, UNLIMITED), text_of(Knob.HUGE_PAGES_LIMIT, 2, UNLIMITED)) == ("-1", "max")
    assert agrees(Knob.HUGE_PAGES_LIMIT, 1, "-1", "9223372036854771712")
    assert not agrees(Knob.HUGE_PAGES_LIMIT, 1, str(4 * MIB), str(2 * MIB)), "a limit below the promise breaks it"


def test_what_is_set_aside_is_read_from_the_machine_where_it_has_no_zones(tmp_path):
    path = tmp_path / "kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
    path.parent.mkdir(parents=True)
    path.write_text("3\n")
    assert huge_pages_bytes(str(tmp_path), 0, 2 * MIB) == 6 * MIB
    assert huge_pages_bytes(str(tmp_path), 1, 2 * MIB) == 0
    path.write_text("absurd")
    assert huge_pages_bytes(str(tmp_path), 0, 2 * MIB) == 0
