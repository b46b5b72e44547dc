"""Control groups of both versions as the same counters, and which hierarchy is mounted where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colo_collector.hierarchy import parse_controllers, parse_hierarchy, parse_self_cgroup, unified_point
from colo_collector.parse_cgroup import (
    cpuset_of_group,
    group_files,
    parse_cpu_usage_ns,
    parse_group_memory,
    parse_throttled_us,
)
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from tests.support.machine_tree import MachineSpec, MachineTree
from tests.unit.collector.machine import hierarchy_of


def test_throttled_time_is_microseconds_from_both_versions() -> None:
    assert parse_throttled_us("a", "nr_periods 5\nnr_throttled 2\nthrottled_time 1999\nburst_time 5000\n") == 1
    assert parse_throttled_us("a", "usage_usec 77\nnr_periods 5\nnr_throttled 2\nthrottled_usec 1999\n") == 1999
    assert parse_throttled_us("a", "usage_usec 77\n") == 0


def test_cpu_usage_is_nanoseconds_from_both_versions() -> None:
    assert parse_cpu_usage_ns("cpuacct.usage", "123456789\n") == 123456789
    assert parse_cpu_usage_ns("cpu.stat", "usage_usec 123\nuser_usec 1\n") == 123_000


@pytest.mark.parametrize(
    ("text", "field"),
    [("", "f"), ("user_usec 1\n", "f"), ("12 13\n", "f line 1"), ("usage_usec x\n", "f line 1"), ("-5\n", "f line 1")],
)
def test_a_malformed_cpu_usage_is_refused(text: str, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_cpu_usage_ns("f", text)
    assert caught.value.field == field


def test_the_working_set_is_usage_without_inactive_file_pages_of_the_whole_subtree() -> None:
    v1 = "inactive_file 7\ncache 1\ntotal_inactive_file 300\ntotal_active_file 9\n"
    assert parse_group_memory("u", "1000\n", "s", v1).working_set_bytes == 700
    assert parse_group_memory("u", "1000\n", "s", "anon 1\ninactive_file 250\n").working_set_bytes == 750
    assert parse_group_memory("u", "1000\n", "s", "total_inactive_file 10").working_set_bytes == 990


def test_a_working_set_is_never_negative_and_needs_no_statistics() -> None:
    assert parse_group_memory("u", "100\n", "s", "inactive_file 250\n").working_set_bytes == 0
    assert parse_group_memory("u", "100\n", "s", None).working_set_bytes == 100
    assert parse_group_memory("u", "100\n", "s", "anon 5\n").working_set_bytes == 100


def test_a_malformed_line_of_memory_stat_is_named() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_group_memory("u", "100\n", "memory.stat", "anon 5\nfile 6\ninactive_file many\n")
    assert caught.value.field == "memory.stat line 3"


@given(st.integers(0, 2**63), st.integers(0, 2**63), st.integers(0, 40))
def test_the_searched_key_is_found_wherever_it_stands(usage: int, inactive: int, at: int) -> None:
    lines = [f"key{number} {number}" for number in range(40)] + ["xinactive_file 1", "inactive_file_x 2"]
    lines.insert(at, f"inactive_file {inactive}")
    memory = parse_group_memory("u", str(usage), "s", "\n".join(lines))
    assert memory.inactive_file_bytes == inactive
    assert 0 <= memory.working_set_bytes <= usage


def test_a_cpuset_file_names_itself_when_it_is_malformed() -> None:
    assert cpuset_of_group("f", "0-3,8\n") == CpuSet.from_iterable((0, 1, 2, 3, 8))
    assert not cpuset_of_group("f", "\n")
    with pytest.raises(InvalidInput) as caught:
        cpuset_of_group("/sys/fs/cgroup/cpuset.cpus", "3-1\n")
    assert caught.value.field == "/sys/fs/cgroup/cpuset.cpus line 1"


def test_a_controller_that_is_not_mounted_has_no_files() -> None:
    files = group_files("v1", cpu_dir="/cg/cpu/a", cpuacct_dir="/cg/cpuacct/a", memory_dir="")
    assert files.sampled() == ("/cg/cpuacct/a/cpuacct.usage", "/cg/cpu/a/cpu.stat")
    v2 = group_files("v2", cpu_dir="/cg/a", cpuacct_dir="", memory_dir="/cg/a")
    assert v2.sampled() == ("/cg/a/cpu.stat", "/cg/a/cpu.pressure", "/cg/a/memory.current", "/cg/a/memory.stat")


@pytest.mark.parametrize(
    ("cgroup", "cpu", "unified"),
    [
        ("v1", ("v1", "/sys/fs/cgroup/cpu"), ""),
        ("v2", ("v2", "/sys/fs/cgroup"), "/sys/fs/cgroup"),
        ("hybrid", ("v1", "/sys/fs/cgroup/cpu"), "/sys/fs/cgroup/unified"),
    ],
)
def test_the_hierarchy_of_a_machine_follows_from_its_mounts(cgroup: str, cpu: tuple[str, str], unified: str) -> None:
    hierarchy = hierarchy_of(MachineTree(MachineSpec(cgroup=cgroup)).texts())  # type: ignore[arg-type]
    assert hierarchy.version == cgroup
    assert hierarchy.unified == unified
    mount = hierarchy.controller("cpu")
    assert mount is not None
    assert (mount.version, mount.mount_point) == cpu
    assert mount.self_path == "/system.slice/colo.service"


def test_v2_answers_for_cpuacct_with_cpu() -> None:
    hierarchy = hierarchy_of(MachineTree(MachineSpec(cgroup="v2")).texts())
    assert hierarchy.controller("cpuacct") == hierarchy.controller("cpu")
    assert hierarchy.controller("net_cls") is None


def test_joint_controllers_renamed_mounts_and_blanks_in_a_path_are_understood() -> None:
    mounts = (
        "cgroup /cg/cpu,cpuacct cgroup rw,nosuid,cpu,cpuacct 0 0\n"
        "cgroup /other cgroup rw,cpu,cpuacct 0 0\n"
        "cgroup2 /my\\040cg cgroup2 rw 0 0\n"
    )
    hierarchy = parse_hierarchy(mounts, "4:cpu,cpuacct:/a:b\n0::/x\n", "memory cpu\n")
    assert unified_point(mounts) == hierarchy.unified == "/my cg"
    found = {one.controller: (one.version, one.mount_point, one.self_path) for one in hierarchy.controllers}
    assert found == {
        "cpu": ("v1", "/cg/cpu,cpuacct", "/a:b"),
        "cpuacct": ("v1", "/cg/cpu,cpuacct", "/a:b"),
        "memory": ("v2", "/my cg", "/x"),
    }


def test_a_machine_without_cgroups_has_an_empty_hierarchy() -> None:
    assert parse_hierarchy("proc /proc proc rw 0 0\n", "", None).version == "none"


@pytest.mark.parametrize(
    ("mounts", "own", "field"),
    [
        ("cgroup /cg\n", "", "/proc/mounts line 1"),
        ("", "1:cpu\n", "/proc/self/cgroup line 1"),
        ("", "x:cpu:/\n", "/proc/self/cgroup line 1"),
        ("", "1:cpu:relative\n", "/proc/self/cgroup line 1"),
        ("cgroup2 /cg cgroup2 rw 0 0\n", "", "/cg/cgroup.controllers line 1"),
    ],
)
def test_a_malformed_hierarchy_is_refused(mounts: str, own: str, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_hierarchy(mounts, own, "cpu ../x\n")
    assert caught.value.field == field


def test_controllers_and_own_groups_are_read() -> None:
    assert parse_controllers("f", "memory cpu cpu\n") == ("cpu", "memory")
    assert parse_self_cgroup("9:name=systemd:/\n4:cpu,cpuacct:/a\n0::/b\n") == {
        "name=systemd": "/",
        "cpu": "/a",
        "cpuacct": "/a",
        "": "/b",
    }
