"""Batch work on whole cores: the sets that a tier writes on a machine whose cores have two threads."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from colo_common.events.enforcement import ZoneCeiling
from colo_common.model.cpuset import CpuSet
from colo_executor.cgroup import CgroupError, CgroupTree
from colo_executor.journal import JournalFile
from colo_executor.local import CeilingRefused, CeilingWritten
from colo_executor.process import tier as tier_module
from colo_executor.process.hygiene import Hygiene
from colo_executor.process.settings import ProcessPolicy
from colo_executor.process.tier import Tier
from colo_executor.zone_ceilings import SharedCores
from tests.support.builders import a_placement
from tests.support.cgroup2_files import Cgroup2Files

EMPTY_0 = ZoneCeiling(zone=0, ceiling_mcpu=0, capacity_mcpu=4_000)
ANYWHERE, SECOND = "colo/batch/job.main.0@1", "colo/batch/job.main.1@1"


class Machine:
    """Two zones of two cores with two threads: CPUs 0-3, of which 0 and 2 are a core, and 4-7."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.open: list[Tier | JournalFile] = []
        self.files = Cgroup2Files(directory, monkeypatch)
        for cpu in range(8):
            topology = self.files.sys_root / f"devices/system/cpu/cpu{cpu}/topology"
            topology.mkdir(parents=True)
            (topology / "core_id").write_text(f"{cpu // 4 * 2 + cpu % 2}\n")
            (topology / "physical_package_id").write_text("0\n")

    def tier(self, *, ceiling_by="quota", hygiene: Hygiene | None = None) -> Tier:
        policy = ProcessPolicy(
            state_dir=str(self.directory / "state"),
            cgroup_root=str(self.files.root),
            sys_root=str(self.files.sys_root),
            ceiling_by=ceiling_by,
            hygiene=hygiene or Hygiene(),
        )
        self.leave()
        journal = JournalFile(Path(policy.state_dir))
        tier = Tier(policy, journal)
        tier.prepare()
        self.open = [tier, journal]
        return tier

    def leave(self) -> None:
        """As an executor does that dies: what it wrote stays."""
        for each in self.open:
            each.close()
        self.open = []

    def cpus(self, *groups: str) -> list[str]:
        return [self.files.cpus(group) for group in groups]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    found = Machine(tmp_path, monkeypatch)
    yield found
    found.leave()


def written(tier: Tier, ceiling_mcpu: int, *zones: ZoneCeiling, cores: bool = False) -> CeilingWritten:
    found = tier.set_ceiling(ceiling_mcpu, zones, has_whole_cores=cores)
    assert not isinstance(found, CeilingRefused)
    return found


def test_batch_work_has_as_many_whole_cores_as_the_ceiling_needs(machine):
    tier = machine.tier()
    tier.add("job.main.0@1", replace(a_placement("job/main/0"), zones=()))
    assert not written(tier, 3_000).has_whole_cores
    assert machine.cpus("colo/batch", ANYWHERE) == ["0-7", "0-7"]
    assert written(tier, 3_000, cores=True).has_whole_cores
    assert machine.cpus("colo", "colo/batch", ANYWHERE) == ["0,2,4,6"] * 3
    # The set follows the ceiling in whole cores, and one core is the least.
    written(tier, 4_100, cores=True)
    assert machine.cpus("colo/batch") == ["0-4,6"]
    written(tier, 200, cores=True)
    assert machine.cpus("colo/batch") == ["0,2"]
    machine.files.writes.clear()
    written(tier, 200, cores=True)
    assert machine.files.writes == []
    # A replica that has to stay in a zone gets a core there, and the quota keeps the ceiling.
    tier.add("job.main.1@1", a_placement("job/main/1", zone=1))
    assert machine.cpus("colo/batch", ANYWHERE, SECOND) == ["0,2,4,6", "0,2,4,6", "4,6"]
    assert tier.drop("job.main.1@1")
    # So does the last ceiling of an executor that leaves, which says nothing of zones or cores.
    written(tier, 3_000, cores=True)
    tier.set_ceiling(200)
    assert machine.cpus("colo/batch") == ["0,2"]
    assert not written(tier, 8_000).has_whole_cores
    assert machine.cpus("colo/batch", ANYWHERE) == ["0-7", "0-7"]


def test_batch_work_leaves_a_zone_where_none_of_it_has_to_run(machine):
    tier = machine.tier()
    tier.add("job.main.0@1", replace(a_placement("job/main/0"), zones=()))
    assert tier.sets.shared_cores() == SharedCores(threads=2)
    assert written(tier, 4_000, EMPTY_0).zones == (EMPTY_0,)
    assert machine.cpus("colo/batch", ANYWHERE) == ["4-7", "4-7"]
    # A replica of that zone alone that comes meanwhile gets a CPU of it, and the zone's memory.
    tier.add("job.main.1@1", a_placement("job/main/1", zone=0))
    assert machine.cpus("colo/batch", ANYWHERE, SECOND) == ["0,4-7", "0,4-7", "0"]
    assert machine.files.text(f"{SECOND}/cpuset.mems") == "0"
    assert tier.sets.shared_cores() == SharedCores(threads=2, held=frozenset({0}))
    assert tier.drop("job.main.1@1")
    assert tier.sets.shared_cores().held == frozenset()


def test_a_replica_that_cannot_be_made_leaves_the_zone_as_it_was(machine, monkeypatch):
    tier = machine.tier()
    written(tier, 4_000, EMPTY_0)
    make = CgroupTree.make

    def refusing(tree: CgroupTree, path: str) -> None:
        if path == "batch/job.main.1@1":
            raise CgroupError("EAGAIN")
        make(tree, path)

    monkeypatch.setattr(CgroupTree, "make", refusing)
    with pytest.raises(CgroupError, match="EAGAIN"):
        tier.add("job.main.1@1", a_placement("job/main/1", zone=0))
    assert machine.cpus("colo/batch") == ["4-7"]
    assert tier.sets.shared_cores().held == frozenset()


def test_sets_that_the_kernel_refuses_leave_batch_work_where_it_was(machine):
    tier = machine.tier()
    with tier.sets.turn:
        found = written(tier, 3_000, cores=True)
    assert (found.ceiling_mcpu, found.has_whole_cores) == (3_000, False)
    assert found.sets_refused == "groups of batch work are being made or removed"
    assert machine.cpus("colo/batch") == ["0-7"]


@pytest.mark.parametrize("cores", [True, False])
def test_what_an_earlier_executor_left_is_found(machine, cores):
    earlier = machine.tier()
    written(earlier, 3_000, *(() if cores else (EMPTY_0,)), cores=cores)
    before = machine.cpus("colo/batch")
    found = machine.tier()
    assert (found.sets.has_whole_cores, found.sets.zones) == ((True, ()) if cores else (False, (EMPTY_0,)))
    assert machine.cpus("colo/batch") == before


def test_no_core_is_shared_where_the_kernel_or_the_operator_keeps_the_two_apart(machine, monkeypatch):
    assert machine.tier(ceiling_by="cpuset").sets.shared_cores() == SharedCores()
    tier = machine.tier(hygiene=Hygiene(core_scheduling="tenant"))
    for lacking, threads in (("", 1), ("this kernel has none", 2)):
        monkeypatch.setattr(tier_module.core_scheduling, "lacking", lambda lacking=lacking: lacking)
        assert tier.sets.shared_cores().threads == threads
    # One thread of each core is offline, or not batch work's.
    tier.sets.set_pool(CpuSet.parse("0-1,4-5"), CpuSet())
    assert tier.sets.shared_cores().threads == 1


def test_on_a_machine_of_one_zone_what_a_watchdog_left_is_whole_cores(machine):
    nodes = machine.files.sys_root / "devices/system/node"
    (nodes / "node0/cpulist").write_text("0-7\n")
    (nodes / "node1/cpulist").write_text("\n")
    earlier = machine.tier()
    written(earlier, 3_000, cores=True)
    assert machine.cpus("colo/batch") == ["0-3"]
    # A watchdog writes the floor and no set.
    (machine.files.root / "colo/batch/cpu.max").write_text("20000 100000\n")
    found = machine.tier()
    assert (found.ceiling_mcpu, found.sets.has_whole_cores, found.sets.zones) == (200, True, ())
    assert machine.cpus("colo/batch") == ["0,2"]
