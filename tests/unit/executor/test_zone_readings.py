"""What each zone has and batch work uses of it, and which groups run in one zone, over files that look like a kernel's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from colo_common.model.cpuset import CpuSet
from colo_executor.cgroup import CgroupTree
from colo_executor.process.group_zones import GroupZones
from colo_executor.process.stall_reader import StallReader
from colo_executor.process.zone_reader import ZoneReader
from colo_executor.zone_ceilings import ZoneReading

S_NS = 1_000_000_000
ALL = CpuSet.parse("0-7")
ZONES = {0: CpuSet.parse("0-3"), 1: CpuSet.parse("4-7")}


class Files:
    """A machine of two zones with four CPUs each, or one of one zone, and its groups."""

    def __init__(self, directory: Path, zones: tuple[str, ...] = ("0-3", "4-7")) -> None:
        self.sys_root, self.batch = directory / "sys", directory / "cgroup/colo/batch"
        for zone, cpus in enumerate(zones):
            self._put(self.sys_root / f"devices/system/node/node{zone}/cpulist", f"{cpus}\n")
        self.batch.mkdir(parents=True)

    def replica(self, name: str, cpus: str, used_ms: int) -> None:
        self._put(self.batch / name / "cpuset.cpus.effective", f"{cpus}\n")
        self._put(self.batch / name / "cpu.stat", f"usage_usec {used_ms * 1_000}\nuser_usec 0\n")

    def percpu(self, *used_ms: int, group: str = "") -> str:
        """What batch work, or another group beside it, used on each CPU."""
        path = self.batch / group / "cpuacct.usage_percpu"
        self._put(path, " ".join(str(each * 1_000_000) for each in used_ms) + " \n")
        return str(path)

    def stat(self, *used_ms: int) -> str:
        """What all work used on each CPU, in ticks: a third each as user, nice and system, and as much again as interrupts."""
        path = self.sys_root / "stat"
        parts = [round(each * os.sysconf("SC_CLK_TCK") / 3_000) for each in used_ms]
        lines = [f"cpu{cpu} {part} {part} {part} 700 9 {3 * part} 0 0 0 0" for cpu, part in enumerate(parts)]
        self._put(path, "\n".join(["cpu  1 2 3 4 5 6 7 0 0 0", *lines, "intr 12 34", ""]))
        return str(path)

    def _put(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def used(found: tuple[ZoneReading, ...]) -> list[int]:
    return [each.batch_used_mcpu for each in found]


def test_a_machine_of_one_zone_reads_nothing_of_replicas(tmp_path: Path) -> None:
    files = Files(tmp_path, ("0-7",))
    reader = ZoneReader(str(files.sys_root), batch_dir=str(tmp_path / "nowhere"))
    reader.look(S_NS, ALL, ALL, CpuSet())
    assert reader.zones == {}
    assert reader.read(S_NS, 4_000) == ()


def test_a_zone_has_the_cpus_that_batch_work_may_get(files: Files) -> None:
    reader = ZoneReader(str(files.sys_root), batch_dir=str(files.batch))
    reader.look(S_NS, ALL, CpuSet.parse("0-1,4-7"), CpuSet())
    assert [(each.zone, each.capacity_mcpu) for each in reader.read(S_NS, 0)] == [(0, 2_000), (1, 4_000)]
    # CPUs that go offline are in no zone, and a zone without a CPU is none.
    reader.look(2 * S_NS, CpuSet.parse("0-5"), CpuSet.parse("0-5"), CpuSet())
    assert [each.capacity_mcpu for each in reader.read(2 * S_NS, 0)] == [4_000, 2_000]
    reader.look(3 * S_NS, CpuSet.parse("0-3"), CpuSet.parse("0-3"), CpuSet())
    assert reader.read(3 * S_NS, 0) == ()


def test_v1_tells_what_batch_work_uses_on_each_cpu(files: Files) -> None:
    path = files.percpu(*[0] * 8)
    reader = ZoneReader(str(files.sys_root), percpu_path=path)
    reader.look(S_NS, ALL, ALL, CpuSet())
    assert used(reader.read(S_NS, 3_000)) == [3_000, 3_000], "at most that, as long as there is one reading"
    files.percpu(100, 50, 0, 0, 200, 0, 0, 0)
    assert used(reader.read(S_NS + S_NS // 20, 3_000)) == [3_000, 3_000], "sooner than after 100 ms nothing is read"
    assert used(reader.read(S_NS + S_NS // 5, 3_000)) == [750, 1_000]
    (files.batch / "cpuacct.usage_percpu").unlink()
    assert used(reader.read(2 * S_NS, 5_000)) == [4_000, 4_000]


def test_v2_tells_of_replicas_what_they_use_and_of_a_zone_at_most_what_may_run_there(files: Files) -> None:
    reader = ZoneReader(str(files.sys_root), batch_dir=str(files.batch))
    for name, cpus in (("a", "0-3"), ("b", "4-7"), ("c", "0-7")):
        files.replica(name, cpus, 1_000)
    reader.look(S_NS, ALL, ALL, CpuSet())
    assert used(reader.read(S_NS, 9_000)) == [4_000, 4_000], "nobody knows yet, and no zone has more than its CPUs"
    files.replica("a", "0-3", 1_500)
    files.replica("b", "4-7", 3_000)
    files.replica("c", "0-7", 1_300)
    reader.look(2 * S_NS, ALL, ALL, CpuSet())
    # c may use its 0.3 CPU in both.
    assert used(reader.read(2 * S_NS, 2_800)) == [800, 2_300]
    # What b uses more is at once a reason in zone 1; what a used within the last second is there at least.
    assert used(reader.read(2 * S_NS, 3_800)) == [1_800, 3_300]
    assert used(reader.read(2 * S_NS, 100)) == [500, 2_000]
    reader.close()
    assert used(reader.read(2 * S_NS, 100)) == [100, 100]


def online(found: tuple[ZoneReading, ...]) -> list[int | None]:
    return [each.online_used_mcpu for each in found]


def test_v1_tells_what_everything_else_uses_of_the_cpus_that_batch_work_may_get(files: Files) -> None:
    total, batch = files.percpu(*[0] * 8, group="all"), files.percpu(*[0] * 8)
    reader = ZoneReader(str(files.sys_root), percpu_path=batch, total_percpu_path=total)
    reader.look(S_NS, ALL, ALL - CpuSet.parse("0"), CpuSet.parse("0"))
    first = reader.read(S_NS, 0)
    assert online(first) == [None, None], "one reading tells nothing"
    assert [each.reserved_mcpu for each in first] == [1_000, 0]
    files.percpu(200, 150, 0, 0, 200, 100, 0, 0, group="all")
    files.percpu(0, 50, 0, 0, 0, 100, 0, 0)
    assert online(reader.read(S_NS + S_NS // 5, 750)) == [500, 1_000], "what a withheld CPU is used for is none of it"
    (files.batch / "all/cpuacct.usage_percpu").unlink()
    found = reader.read(2 * S_NS, 750)
    assert online(found) == [None, None]
    assert used(found) == [0, 0], "what batch work uses is still known"


def test_v2_tells_the_use_of_each_cpu_of_which_what_batch_work_may_not_have_used_is_others(files: Files) -> None:
    path = files.stat(*[300] * 8)
    reader = ZoneReader(str(files.sys_root), batch_dir=str(files.batch), stat_path=path)
    files.replica("a", "0-3", 1_000)
    reader.look(S_NS, ALL, ALL, CpuSet())
    assert online(reader.read(S_NS, 0)) == [None, None]
    files.stat(600, 600, 300, 300, 600, 300, 300, 300)
    assert online(reader.read(S_NS + S_NS // 10, 0)) == [None, None], "sooner than after 200 ms nothing is read"
    files.replica("a", "0-3", 1_400)
    reader.look(S_NS + S_NS, ALL, ALL, CpuSet())
    assert online(reader.read(S_NS + S_NS, 400)) == [200, 300]
    Path(path).unlink()
    assert online(reader.read(3 * S_NS, 400)) == [None, None]


class Groups:
    """Groups with their effective CPU sets, under either version."""

    def __init__(self, directory: Path, version: int) -> None:
        self.root = directory / "groups"
        self.name = "cpuset.cpus.effective" if version == 2 else "cpuset.effective_cpus"
        self.mount = self.root if version == 2 else self.root / "cpuset"
        for controller in ("cpu", "cpuacct", "cpuset", "memory") if version == 1 else ("",):
            (self.root / controller).mkdir(parents=True, exist_ok=True)
            (self.root / controller / "cgroup.procs").write_text("")
        if version == 2:
            (self.root / "cgroup.controllers").write_text("cpu cpuset memory\n")
        self.set("", "0-7")

    def set(self, group: str, cpus: str) -> None:
        (self.mount / group).mkdir(parents=True, exist_ok=True)
        (self.mount / group / self.name).write_text(f"{cpus}\n")

    def zones(self, zones: dict[int, CpuSet] | None = None) -> GroupZones:
        return GroupZones(CgroupTree(str(self.root), "colo"), "colo-online", lambda: ZONES if zones is None else zones)


@pytest.mark.parametrize("version", [1, 2])
def test_a_group_is_in_the_zone_that_has_all_of_its_cpus(tmp_path: Path, version: int) -> None:
    groups = Groups(tmp_path, version)
    for name, cpus in {"near": "4-5", "far": "3-4", "all": "0-7", "none": "", "odd": "x", "pods": "0-3"}.items():
        groups.set(name, cpus)
    (groups.mount / "pods/bare").mkdir()
    names = ["near", "far", "all", "none", "odd", "pods", "pods/bare", "gone"]
    inherited = (("pods/bare", 0),) if version == 2 else ()
    assert groups.zones().of(names) == (("near", 1), ("pods", 0), *inherited)
    assert groups.zones({}).of(names) == ()


def test_without_the_cpuset_controller_no_group_is_in_one_zone_alone(tmp_path: Path) -> None:
    groups = Groups(tmp_path, 1)
    groups.set("near", "4-5")
    (groups.mount / "cgroup.procs").unlink()
    assert groups.zones().of(["near"]) == ()


def test_online_work_of_colo_is_judged_by_replica_where_there_are_several_zones(tmp_path: Path) -> None:
    groups = Groups(tmp_path, 2)
    for name in ("colo-online/LS.a@1", "colo-online/LS.b@1"):
        groups.set(name, "0-3")
    listed = {"web", "colo-online"}
    split = {"web", "colo-online/LS.a@1", "colo-online/LS.b@1"}
    assert groups.zones().split(str(groups.root), listed, 3) == split
    assert groups.zones().split(str(groups.root), listed, 2) == listed, "no group is left out for it"
    assert groups.zones({}).split(str(groups.root), listed, 3) == listed
    assert groups.zones().split(str(tmp_path), listed, 3) == listed, "a hierarchy without these groups"
    assert groups.zones().split(str(groups.root), {"web"}, 3) == {"web"}


def test_the_waits_of_groups_come_with_their_zones(tmp_path: Path) -> None:
    groups = Groups(tmp_path, 2)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    for name, cpus in {"colo": "0-7", "web": "0-3", "db": "0-7", "colo-online/LS.a@1": "6"}.items():
        groups.set(name, cpus)
        (groups.root / name / "cpu.pressure").write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n")
    reader = StallReader(str(groups.root), ("colo",), proc_root=str(tmp_path / "proc"), zones=groups.zones())
    stalls = reader.read(0)
    assert stalls is not None
    assert stalls.total_us == (("colo-online/LS.a@1", 5), ("db", 5), ("web", 5))
    assert stalls.zones == (("colo-online/LS.a@1", 1), ("web", 0))
    groups.set("web", "3-4")
    later = reader.read(1_000)
    assert later is not None
    assert later.zones == (("colo-online/LS.a@1", 1),)
