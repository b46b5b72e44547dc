"""The matrix of what a kernel can do, and the words for what it lacks."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from colo_collector.capabilities import Probe, capabilities, huge_pages_lacking, probe_paths
from tests.support.machine_tree import MachineSpec, MachineTree
from tests.unit.collector.machine import hierarchy_of

NAMES = [
    "cgroup", "cgroup-cpu", "cgroup-cpuacct", "cgroup-cpuset", "cgroup-memory", "cgroup-hugetlb", "psi", "psi-cgroup",
    "cpu-idle", "cpu-burst", "cpu-bvt", "cgroup-freezer", "memory-high", "resctrl-l3", "resctrl-mb", "resctrl-monitor",
    "resctrl-l2", "resctrl-cdp", "resctrl-mpam", "numa", "root", "cgroup-write", "online", "kernel", "virtual", "cgroup-driver",
    "cpu-quota", "cpu-uclamp", "memory-min", "memory-low", "memory-reclaim", "io-cost", "schedstat", "perf",
    "cgroup-devices", "psi-triggers", "core-scheduling", "memory-swap",
]  # fmt: skip
ALL_WRITABLE = frozenset({"cpu", "cpuset", "memory"})


def matrix(
    spec: MachineSpec,
    *,
    without: tuple[str, ...] = (),
    is_root: bool = True,
    writable: frozenset[str] = ALL_WRITABLE,
    has_tier: bool = False,
    admits_online: bool = True,
) -> dict[str, tuple[bool, str]]:
    """The matrix of a fake machine, from exactly the files that probe_paths asks for."""
    texts = MachineTree(spec).texts()
    hierarchy = hierarchy_of(texts)
    asked = {path: None if path in without else texts.get(path) for path in probe_paths(hierarchy)}
    probe = Probe(
        hierarchy=hierarchy,
        texts=asked,
        release=spec.release,
        is_root=is_root,
        writable=writable,
        has_tier=has_tier,
        admits_online=admits_online,
    )
    found = capabilities(probe)
    assert [one.name for one in found] == NAMES
    assert all(one.present != one.detail.startswith("skipped: ") for one in found)
    return {one.name: (one.present, one.detail) for one in found}


@pytest.mark.parametrize("cgroup", ["v1", "v2", "hybrid"])
def test_a_full_machine_lacks_only_what_is_of_vendor_kernels(cgroup: Literal["v1", "v2", "hybrid"]) -> None:
    found = matrix(MachineSpec(sockets=2, cgroup=cgroup, has_resctrl=True))
    lacking = {name for name, (present, _) in found.items() if not present}
    bare = {"core-scheduling", "psi-triggers"}
    bare |= {"cpu-bvt", "virtual", "cpu-uclamp", "perf", "resctrl-l2", "resctrl-cdp", "resctrl-mpam"}
    of_v2 = {"memory-high", "memory-min", "memory-low", "memory-reclaim", "io-cost"}
    expected = {
        "v1": {"memory-swap", "cgroup-freezer", "cgroup-devices", "psi-cgroup", "cgroup-driver", *of_v2},
        "v2": {"io-cost"},
        "hybrid": {"memory-swap", "cgroup-hugetlb", "cgroup-devices", "cgroup-freezer", "cgroup-driver", *of_v2},
    }
    assert lacking == bare | expected[cgroup]
    assert found["cgroup"] == (True, cgroup)
    assert found["numa"] == (True, "2 zones")
    assert found["resctrl-l3"] == (True, "mask fffff, at least 1 bits, 16 closids, shared with devices c0000")
    assert found["resctrl-mb"] == (True, "at least 10, percent, steps of 10, 8 closids")
    assert found["resctrl-monitor"] == (True, "llc_occupancy mbm_total_bytes mbm_local_bytes, 160 groups")


def test_a_bare_machine_lists_what_each_capability_would_need() -> None:
    spec = MachineSpec(has_psi=False, has_numa=False)
    without = ("/sys/fs/cgroup/cpu/cpu.idle", "/sys/fs/cgroup/cpu/cpu.cfs_burst_us")
    found = matrix(spec, without=without, is_root=False, writable=frozenset({"cpu"}))
    assert found["psi"][1] == "skipped: kernel lacks /proc/pressure (CONFIG_PSI, and psi=1 where it is off by default)"
    assert found["cpu-idle"] == (False, "skipped: kernel lacks cpu.idle")
    assert found["cpu-burst"] == (False, "skipped: kernel lacks cpu.max.burst and cpu.cfs_burst_us")
    assert found["numa"] == (False, "skipped: kernel lacks NUMA (CONFIG_NUMA)")
    assert found["resctrl-mb"] == (False, "skipped: kernel lacks resctrl (or the CPU lacks it)")
    assert found["root"] == (False, "skipped: this process is not root")
    assert found["cgroup-write"] == (False, "skipped: this process may not write the groups of cpuset memory")


def test_swap_is_limited_where_the_kernel_counts_it() -> None:
    lacks = matrix(MachineSpec(cgroup="v2"), without=("/sys/fs/cgroup/system.slice/memory.swap.max",))["memory-swap"]
    assert lacks == (
        False,
        "skipped: kernel lacks memory.swap.max and memory.memsw.limit_in_bytes (CONFIG_SWAP, before 6.1 swapaccount=1)",
    )
    assert matrix(MachineSpec(cgroup="v2"))["memory-swap"] == (True, "/sys/fs/cgroup/system.slice/memory.swap.max")


def test_resctrl_that_is_not_mounted_tells_how_to_mount_it() -> None:
    texts = MachineTree(MachineSpec(has_resctrl=True)).texts()
    hierarchy = hierarchy_of(texts)
    asked: dict[str, str | None] = {path: texts.get(path) for path in probe_paths(hierarchy)}
    asked["/proc/mounts"] = "proc /proc proc rw 0 0\n"
    found = {one.name: one.detail for one in capabilities(Probe(hierarchy=hierarchy, texts=asked))}
    assert found["resctrl-l3"] == "skipped: resctrl is not mounted (mount -t resctrl resctrl /sys/fs/resctrl)"


@pytest.mark.parametrize(
    ("release", "has_idle"), [("5.14.0-70.el9", False), ("5.15.0", True), ("6.1.0-13-amd64", True), ("weird", False)]
)
def test_on_v2_without_child_groups_the_release_decides(release: str, has_idle: bool) -> None:
    slice_files = tuple(f"/sys/fs/cgroup/system.slice/{name}" for name in ("cpu.idle", "cpu.max.burst", "memory.high"))
    found = matrix(MachineSpec(cgroup="v2", release=release), without=slice_files)
    assert found["cpu-idle"][0] is has_idle
    assert found["memory-high"] == (True, "v2; no child group to look in")


def test_on_v2_a_child_group_without_the_file_outweighs_the_release() -> None:
    found = matrix(MachineSpec(cgroup="v2"), without=("/sys/fs/cgroup/system.slice/cpu.max.burst",))
    assert found["cpu-idle"][0]
    assert found["cpu-burst"] == (False, "skipped: kernel lacks cpu.max.burst and cpu.cfs_burst_us")


def test_pressure_that_answers_with_an_error_text_is_not_present() -> None:
    texts: dict[str, str | None] = {f"/proc/pressure/{name}": "" for name in ("cpu", "memory", "io")}
    hierarchy = hierarchy_of(MachineTree(MachineSpec()).texts())
    found = {one.name: one.present for one in capabilities(Probe(hierarchy=hierarchy, texts=texts))}
    assert not found["psi"]


@pytest.mark.parametrize(
    ("given", "detail"),
    [
        ({}, "cpu cpuset memory"),
        ({"writable": frozenset(), "has_tier": True}, "an executor has made its groups"),
        ({"admits_online": False}, "skipped: the operator admits no online work here (setting online)"),
        (
            {"writable": frozenset({"cpu", "memory"})},
            "skipped: no executor has made its groups, and this process may not make any",
        ),
    ],
)
@pytest.mark.parametrize("cgroup", ["v1", "v2"])
def test_online_work_needs_an_executor_that_may_write_and_leave_of_the_operator(
    cgroup: Literal["v1", "v2"], given: dict[str, Any], detail: str
) -> None:
    assert matrix(MachineSpec(cgroup=cgroup), **given)["online"] == (not detail.startswith("skipped"), detail)


@pytest.mark.parametrize(
    ("cgroup", "detail"),
    [
        ("v1", "v1 at /sys/fs/cgroup/hugetlb"),
        ("v2", "v2 at /sys/fs/cgroup"),
        ("hybrid", "skipped: the hugetlb controller is on v2 and cpu is not"),
    ],
)
def test_huge_pages_can_be_limited_where_the_controller_is_beside_that_of_the_cpu(
    cgroup: Literal["v1", "v2", "hybrid"], detail: str
) -> None:
    assert matrix(MachineSpec(cgroup=cgroup))["cgroup-hugetlb"] == (not detail.startswith("skipped"), detail)


def test_a_kernel_without_the_controller_cannot_limit_huge_pages() -> None:
    texts = MachineTree(MachineSpec(cgroup="v2")).texts() | {"/sys/fs/cgroup/cgroup.controllers": "cpu cpuset memory\n"}
    lacking = huge_pages_lacking(hierarchy_of(texts))
    assert lacking == "no mounted hierarchy has the hugetlb controller"


def test_online_work_needs_cpusets() -> None:
    texts = MachineTree(MachineSpec(cgroup="v2")).texts() | {"/sys/fs/cgroup/cgroup.controllers": "cpu memory\n"}
    hierarchy = hierarchy_of(texts)
    asked = {path: texts.get(path) for path in probe_paths(hierarchy)}
    found = capabilities(Probe(hierarchy=hierarchy, texts=asked, writable=ALL_WRITABLE))
    online = next(one for one in found if one.name == "online")
    assert (online.present, online.detail) == (False, "skipped: no mounted hierarchy has the controllers cpuset")


@pytest.mark.parametrize(
    ("status", "may"),
    [
        ("CapPrm:\t0000000000000000\nCapEff:\t0000000001000000\n", True),
        ("CapPrm:\t0000000001000000\nCapEff:\t0000000000000000\n", False),
        ("CapEff:\tnothing\n", False),
        ("", False),
    ],
)
def test_pressure_is_told_at_once_to_who_has_the_right(status: str, may: bool) -> None:
    texts = {"/proc/pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n", "/proc/self/status": status}
    found = capabilities(Probe(hierarchy=hierarchy_of(MachineTree(MachineSpec()).texts()), texts=texts))
    (shown,) = (each for each in found if each.name == "psi-triggers")
    assert (shown.present, "sample tells" in shown.detail) == (may, True)


@pytest.mark.parametrize(
    ("lacks", "shown"),
    [
        (None, (False, "skipped: the kernel was not asked")),
        ("no core has a second thread", (False, "skipped: no core has a second thread")),
        ("", (True, "prctl(PR_SCHED_CORE); used where process_hygiene_core_scheduling says so")),
    ],
)
def test_core_scheduling_is_what_the_kernel_said_when_it_was_asked(lacks: str | None, shown: tuple[bool, str]) -> None:
    probe = Probe(
        hierarchy=hierarchy_of(MachineTree(MachineSpec(sockets=1, cgroup="v2")).texts()),
        texts={},
        lacks_core_scheduling=lacks,
    )
    (found,) = (each for each in capabilities(probe) if each.name == "core-scheduling")
    assert (found.present, found.detail) == shown
