"""The kernel models: rules observed on a live kernel, one row per rule."""

from __future__ import annotations

import pytest

from colo_common.model.cpuset import CpuSet
from tests.parity.peers.cgroup_model import (
    UNLIMITED_BYTES,
    Bandwidth,
    child_quota_errno,
    write_cpu_max,
    write_memory_v1,
    write_memory_v2,
    write_v1,
    write_v2_core,
    write_v2_cpu,
)
from tests.parity.peers.cpuset_model import CpusetV1Tree, effective_cpus_v2
from tests.parity.peers.psi_model import PressureFile, StallAverages, parse_trigger, periods_to_threshold


@pytest.mark.parametrize(
    ("name", "text", "errno", "after"),
    [
        ("cpu.shares", "010", None, "8"),
        ("cpu.shares", "+5", None, "5"),
        ("cpu.shares", "0", None, "2"),
        ("cpu.shares", "", None, "7"),
        ("cpu.shares", "1024\n", None, "1024"),
        ("cpu.shares", "1024\n\n", "EINVAL", "7"),
        ("cpu.shares", "09", "EINVAL", "7"),
        ("cpu.shares", "0x", "EINVAL", "7"),
        ("cpu.shares", "-1", "EINVAL", "7"),
        ("cpu.shares", str(10**20), "ERANGE", "7"),
        ("cpu.cfs_quota_us", "999", "EINVAL", "7"),
        ("cpu.cfs_quota_us", str(2**44), "EINVAL", "7"),
        ("cpu.cfs_quota_us", "-7", None, "-1"),
        ("cpu.cfs_period_us", "1000001", "EINVAL", "7"),
        ("cpu.idle", "2", "EINVAL", "7"),
    ],
)
def test_a_v1_file_answers_as_the_kernel(name: str, text: str, errno: str | None, after: str) -> None:
    write = write_v1(name, text, "7")
    assert (write.errno, write.after) == (errno, after)


def test_shares_of_an_idle_group_cannot_be_written() -> None:
    assert write_v1("cpu.shares", "100", "3", is_idle=True).errno == "EINVAL"


@pytest.mark.parametrize(
    ("text", "errno", "after"),
    [
        ("max", None, "max 25000"),
        ("50000abc", None, "50000 25000"),
        ("50000 100000", None, "50000 100000"),
        ("50000 -5", None, "50000 25000"),
        ("50000 999", "EINVAL", "1000 25000"),
        ("999", "EINVAL", "1000 25000"),
        ("MAX", "EINVAL", "1000 25000"),
        ("-1", "EINVAL", "1000 25000"),
        ("\n", "EINVAL", "1000 25000"),
        ("", None, "1000 25000"),
    ],
)
def test_cpu_max_answers_as_the_kernel(text: str, errno: str | None, after: str) -> None:
    write = write_cpu_max(text, "1000 25000")
    assert (write.errno, write.after) == (errno, after)


def test_v2_weights_have_their_own_errors() -> None:
    results = [write_v2_cpu("cpu.weight", text, "100").errno for text in ("1", "0", "10001", "-1", "abc", "")]
    assert results == [None, "ERANGE", "ERANGE", "EINVAL", "EINVAL", None]
    assert write_v2_cpu("cpu.weight.nice", "-21", "0").errno == "ERANGE"


@pytest.mark.parametrize(
    ("text", "errno", "after"),
    [
        ("K", None, 0),
        ("010", None, 0),
        ("0x2000", None, 8192),
        ("10m", None, 10 * 2**20),
        ("16E", None, 0),
        ("1KK", "EINVAL", UNLIMITED_BYTES),
        ("08", "EINVAL", UNLIMITED_BYTES),
        ("1e3", "EINVAL", UNLIMITED_BYTES),
        ("-2", "EINVAL", UNLIMITED_BYTES),
    ],
)
def test_a_memory_limit_is_read_as_the_kernel_reads_it(text: str, errno: str | None, after: int) -> None:
    assert write_memory_v1(text) == (errno, after)


def test_v2_memory_shows_huge_values_as_max() -> None:
    assert write_memory_v2(str(UNLIMITED_BYTES)).after == "max"
    assert write_memory_v2(str(UNLIMITED_BYTES - 1)).after == str(UNLIMITED_BYTES - 4096)


def test_a_child_is_compared_by_ratio() -> None:
    parent = Bandwidth(100_000, 100_000)
    assert child_quota_errno(parent, Bandwidth(50_000, 50_000)) is None
    assert child_quota_errno(parent, Bandwidth(50_001, 50_000)) == "EINVAL"
    assert child_quota_errno(parent, Bandwidth(-1)) is None
    assert child_quota_errno(parent, Bandwidth(500)) == "EINVAL"


def test_subtree_control_tells_unknown_from_unavailable() -> None:
    answers = [write_v2_core("cgroup.subtree_control", text) for text in ("+cpu", "+nosuch", "cpu", "+", "+cpu -cpu")]
    assert answers == ["ENOENT", "EINVAL", "EINVAL", "EINVAL", None]


def test_a_refused_cpuset_write_changes_nothing() -> None:
    tree = CpusetV1Tree(CpuSet.parse("0-7"), CpuSet.parse("0-1"))
    assert tree.mkdir("a") is None
    assert tree.mkdir("a") == "EEXIST"
    assert tree.mkdir("x/y") == "ENOENT"
    assert tree.attach("a") == "ENOSPC"
    assert tree.write("a", "cpuset.cpus", "0-3") is None
    before = tree.knobs("a")
    refused = [("cpus", "8"), ("cpus", "x"), ("mems", "2"), ("cpu_exclusive", "2"), ("nonsense", "1")]
    assert [tree.write("a", *knob) for knob in refused] == ["ERANGE", "EINVAL", "EINVAL", "EINVAL", "EINVAL"]
    assert tree.knobs("a") == before
    assert tree.write("", "cpus", "0") == "EACCES"
    assert tree.rmdir("a") is None


def test_a_task_in_a_child_keeps_the_parent_from_being_emptied() -> None:
    tree = CpusetV1Tree(CpuSet.parse("0-3"), CpuSet.parse("0"))
    for path in ("a", "a/b"):
        assert tree.mkdir(path) is None
        assert tree.write(path, "cpus", "0") is None
        assert tree.write(path, "mems", "0") is None
    assert tree.attach("a/b") is None
    assert tree.write("a/b", "mems", "") == "ENOSPC"
    assert tree.rmdir("a/b") == "EBUSY"
    assert tree.rmdir("a") == "EBUSY"


def test_a_disjoint_v2_set_inherits_the_parents() -> None:
    sets = [CpuSet.parse(text) for text in ("0-3", "6-7", "1")]
    assert effective_cpus_v2(CpuSet.parse("0-7"), sets).format() == "1"
    assert effective_cpus_v2(CpuSet.parse("0-7"), sets[:2]).format() == "0-3"


def test_a_constant_full_stall_needs_five_periods_to_pass_60_percent() -> None:
    averages = StallAverages()
    shown = []
    for _ in range(5):
        averages.add_period(2_000_000_000)
        shown.append(averages.printed()[0])
    assert shown == ["18.11", "32.94", "45.09", "55.04", "63.18"]
    assert periods_to_threshold(60, 2_000_000_000) == 5
    assert periods_to_threshold(60, 1_000_000_000) is None
    assert periods_to_threshold(100, 2_000_000_000) is None


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        ("some 150000 2000000\n", "ok"),
        ("some150000 2000000\n", "ok"),
        ("some 150000 2000000", "EINVAL"),
        ("some 12\n", "EINVAL"),
        ("some 150000,2000000\n", "EINVAL"),
        ("some 0 2000000\n", "EINVAL"),
        ("some 4294967297 2000000\n", "ok"),
        ("some                     1 2000000\n", "EINVAL"),
        ("", "EINVAL"),
    ],
)
def test_an_unprivileged_trigger_below_proc_is_answered_as_the_kernel_does(data: str, answer: str) -> None:
    assert str(PressureFile().write(data)) == answer


def test_a_lost_last_byte_makes_a_privileged_window_ten_times_smaller() -> None:
    opened = PressureFile(is_privileged=True)
    assert str(opened.write("some 150000 2000000")) == "ok"
    assert opened.trigger == parse_trigger("some 150000 200000")
    assert opened.poll_errors() == ()
    assert str(PressureFile(is_proc=False).write("some 150000 2000000")) == "ok"
