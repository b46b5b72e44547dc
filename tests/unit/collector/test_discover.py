"""Which groups are workloads, where their files are, and which zones their cpusets leave open."""

from __future__ import annotations

import pytest

from colo_collector.discover import (
    CpusetFiles,
    allowed_by,
    batch_directory,
    batch_workloads,
    cpuset_files,
    parse_online_groups,
    watched_group,
)
from colo_collector.hierarchy import Hierarchy
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import replica_token
from colo_common.model.qos import PriorityBand, QosClass
from tests.support.builders import a_topology
from tests.support.machine_tree import MachineSpec, MachineTree
from tests.unit.collector.machine import hierarchy_of

V1 = hierarchy_of(MachineTree(MachineSpec(cgroup="v1")).texts())
V2 = hierarchy_of(MachineTree(MachineSpec(cgroup="v2")).texts())
#: Two zones: CPUs 0-15 and 16-31.
TOPOLOGY = a_topology()
FILES = CpusetFiles(cpus="/c", mems="/m")


def test_replicas_are_the_groups_named_by_a_token_and_nothing_else() -> None:
    names = (replica_token("job-7/main/3", 2), "job-7.main.4@1", "batch", "job-7.main.4", "x@1", ".hidden")
    first, second = batch_workloads(names, "colo")
    assert (first.replica, first.attempt, first.name) == ("job-7/main/3", 2, "job-7/main/3#2")
    assert (first.qos, first.band) == (QosClass.BE, PriorityBand.BATCH)
    assert first.path == "/colo/batch/job-7.main.3@2"
    assert (second.replica, second.attempt) == ("job-7/main/4", 1)


def test_two_attempts_of_a_replica_are_two_workloads() -> None:
    found = batch_workloads(("j.t.0@1", "j.t.0@2"), "colo")
    assert [one.name for one in found] == ["j/t/0#1", "j/t/0#2"]
    assert {one.replica for one in found} == {"j/t/0"}


def test_on_v1_each_controller_has_the_group_below_its_own_mount_point() -> None:
    (workload,) = batch_workloads(("j.t.0@1",), "colo")
    files = watched_group(V1, workload).files
    assert batch_directory(V1, "colo") == "/sys/fs/cgroup/cpuacct/colo/batch"
    assert files.cpu_usage == "/sys/fs/cgroup/cpuacct/colo/batch/j.t.0@1/cpuacct.usage"
    assert files.cpu_stat == "/sys/fs/cgroup/cpu/colo/batch/j.t.0@1/cpu.stat"
    assert files.memory_usage == "/sys/fs/cgroup/memory/colo/batch/j.t.0@1/memory.usage_in_bytes"
    assert cpuset_files(V1, workload) == CpusetFiles(
        cpus="/sys/fs/cgroup/cpuset/colo/batch/j.t.0@1/cpuset.cpus",
        mems="/sys/fs/cgroup/cpuset/colo/batch/j.t.0@1/cpuset.mems",
    )


def test_on_v2_the_group_is_one_directory() -> None:
    (workload,) = batch_workloads(("j.t.0@1",), "tier-2")
    files = watched_group(V2, workload).files
    assert batch_directory(V2, "tier-2") == "/sys/fs/cgroup/tier-2/batch"
    assert files.cpu_usage == "/sys/fs/cgroup/tier-2/batch/j.t.0@1/cpu.stat"
    assert files.memory_usage == "/sys/fs/cgroup/tier-2/batch/j.t.0@1/memory.current"
    assert cpuset_files(V2, workload).mems == "/sys/fs/cgroup/tier-2/batch/j.t.0@1/cpuset.mems.effective"


def test_a_machine_without_control_groups_has_no_groups_to_list() -> None:
    nothing = Hierarchy(version="none")
    (workload,) = batch_workloads(("j.t.0@1",), "colo")
    assert batch_directory(nothing, "colo") == ""
    assert cpuset_files(nothing, workload) == CpusetFiles()
    assert watched_group(nothing, workload).files.sampled() == ()


@pytest.mark.parametrize(
    ("cpus", "mems", "zones"),
    [
        ("0-15", "0", (0,)),
        ("0-31", "0-1", (0, 1)),
        ("0-31", "1", (1,)),
        ("3", "0-1", (0,)),
        ("16", "0", (1,)),
        ("", "1", (1,)),
        ("17-20", "", (1,)),
        ("15-16", None, (0, 1)),
        (None, "0", (0,)),
        ("", "", ()),
        (None, None, ()),
        ("64", "", ()),
        ("0-15\n", "0\n", (0,)),
    ],
)
def test_the_zones_of_a_group_are_those_of_its_cpuset(
    cpus: str | None, mems: str | None, zones: tuple[int, ...]
) -> None:
    assert allowed_by(TOPOLOGY, FILES, {"/c": cpus, "/m": mems})[1] == zones


def test_a_group_without_a_cpuset_controller_has_no_zones() -> None:
    assert allowed_by(TOPOLOGY, CpusetFiles(), {})[1] == ()


def test_a_malformed_cpuset_names_its_file() -> None:
    with pytest.raises(InvalidInput) as caught:
        allowed_by(TOPOLOGY, FILES, {"/c": "0-", "/m": "0"})
    assert "/c" in caught.value.field


def test_online_groups_are_ls_unless_they_say_otherwise() -> None:
    web, db, pod, hls = parse_online_groups(
        ("web=/kubepods/web", "db=/db:LSE", "pod=/system.slice:cri:0abc", "core=/hls:HLS"), "colo"
    )
    assert (web.name, web.path, web.qos, web.band) == ("web", "/kubepods/web", QosClass.LS, PriorityBand.PROD)
    assert (db.path, db.qos) == ("/db", QosClass.LSE)
    assert (pod.path, pod.qos) == ("/system.slice:cri:0abc", QosClass.LS)
    assert hls.qos is QosClass.LSE
    assert parse_online_groups((), "colo") == ()


@pytest.mark.parametrize(
    ("texts", "rule"),
    [
        (("web",), "must read"),
        (("=/web",), "must read"),
        (("a/b=/web",), "must read"),
        (("web=kubepods",), "the path must begin"),
        (("web=/",), "the path must begin"),
        (("web=/a/../b",), "the path must begin"),
        (("web=/a//b",), "the path must begin"),
        (("web=/a/",), "the path must begin"),
        (("web=/web:LX",), "must be one of"),
        (("web=/web:BE",), "must not be best effort"),
        (("web=/a", "web=/b"), "a name may come once"),
        (("a=/a", "b=/a"), "neither within /a nor around it"),
        (("a=/a", "b=/a/b"), "neither within /a nor around it"),
        (("a=/a/b", "b=/a"), "neither within /a/b nor around it"),
        (("a=/colo/batch",), "neither within /colo nor around it"),
    ],
)
def test_an_online_group_that_breaks_a_rule_is_refused_by_its_place(texts: tuple[str, ...], rule: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_online_groups(texts, "colo")
    assert caught.value.field == f"online_groups[{len(texts) - 1}]"
    assert rule in caught.value.rule


def test_paths_that_only_begin_alike_are_not_within_one_another() -> None:
    assert len(parse_online_groups(("a=/web", "b=/web2", "c=/colo2"), "colo")) == 3


@pytest.mark.parametrize("subtree", ["", "/colo", "a/b", "..", ".colo", "a b"])
def test_a_subtree_must_be_one_safe_name(subtree: str) -> None:
    with pytest.raises(InvalidInput):
        parse_online_groups((), subtree)
