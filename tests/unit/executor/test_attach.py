"""Which groups of others may be attached, what is kept there, and how a unit's group is found without systemd."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from colo_common.model.invalid import InvalidInput
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.workload import AttachSpec, ResourceLimits, RunSpec
from colo_common.runtime.settings import BadSettings, load
from colo_executor.attach import AttachRefused, attach_refusal, attached_values, check_attachable
from colo_executor.cgroup import CgroupError
from colo_executor.desired import DesiredPolicy
from colo_executor.knob_table import Knob
from colo_executor.process.attach_group import path_of
from colo_executor.process.systemd_units import SystemdUnits
from colo_executor.settings import ExecutorSettings
from colo_executor.unmanaged import AttachedGroupValues, UnmanagedGroup
from tests.support.builders import a_placement

ALLOWED = (
    "system.slice/*.service",
    "kubepods.slice/*/*pod*",
    "web",
    "shared/*=red|blue",
    "shared/one=green",
    "lone=default",
)
KEPT = (
    UnmanagedGroup(group="system.slice/fixed.service", cpus="0-1"),
    UnmanagedGroup(group="system.slice/some*.service", cpus="0-1"),
    UnmanagedGroup(group="system.slice/clear.service", clear_of_own_cpus=True),
    UnmanagedGroup(group="web/inner", clear_of_own_cpus=True),
)
REFUSALS = (
    ("system.slice/shop.service", ""),
    ("kubepods.slice/burstable.slice/pod7.slice", ""),
    ("system.slice/clear.service", ""),
    ("system.slice", "contains the executor's own group"),
    ("system.slice/shop.service/worker", "is none of the groups"),
    ("system.slice/.service", "is none of the groups"),
    ("user.slice", "is none of the groups"),
    ("", "is none of the groups"),
    ("../web", "is none of the groups"),
    ("colo/batch/j.main.0@1", "is a group of the executor's own"),
    ("colo-online", "is a group of the executor's own"),
    ("colour", "is none of the groups"),
    ("system.slice/colo-executor.service", "contains the executor's own group"),
    ("system.slice/db.service", "is the group system.slice/db.service, which is attached already"),
    ("system.slice/fixed.service", "whose CPUs process_unmanaged keeps"),
    ("system.slice/something.service", "whose CPUs process_unmanaged keeps"),
    ("web", "web is web/inner, whose CPUs process_unmanaged keeps, or contains it"),
)


@pytest.mark.parametrize(("path", "says"), REFUSALS, ids=[path or "the root" for path, _ in REFUSALS])
def test_only_what_the_operator_lists_may_be_attached(path: str, says: str) -> None:
    here = "system.slice/colo-executor.service"
    refusal = attach_refusal(path, "red", ALLOWED, "colo", here, ("system.slice/db.service",), KEPT)
    assert says in refusal
    assert bool(refusal) == bool(says)


@pytest.mark.parametrize(
    ("path", "tenants"),
    [
        ("web", {"red", "blue", "green", "default", ""}),
        ("shared/two", {"red", "blue"}),
        ("shared/one", {"red", "blue", "green"}),
        ("lone", {"default", ""}),
    ],
)
def test_a_group_is_for_every_tenant_or_for_those_that_its_entries_name(path: str, tenants: set[str]) -> None:
    for tenant in ("red", "blue", "green", "default", ""):
        refusal = attach_refusal(path, tenant, ALLOWED, "colo", "", (), ())
        says = f"{path} may not be attached by tenant {tenant or 'default'}: "
        assert bool(refusal) is (tenant not in tenants)
        assert not refusal or (refusal.startswith(says) and "(process_attach)" in refusal)


@pytest.mark.parametrize(
    ("pattern", "rule"),
    [
        ("/system.slice", "not begin with a slash"),
        ("system.slice/../colo", "must not have the names . and .."),
        ("*/web.service", "must begin with the name of a top group"),
        ("kubepods.slice/**", "must not have **"),
        ("colo/batch", "must not be a group of the executor's own"),
        ("colo-online/*", "must not be a group of the executor's own"),
        ("", "must be names of letters"),
        ("web=", 'must name a tenant behind "="'),
        ("web=red|", 'must name a tenant behind "="'),
        ("web=Red Team", "DNS-1123 label"),
        ("=red", "must be names of letters"),
    ],
)
def test_a_bad_entry_of_the_list_is_named(pattern: str, rule: str) -> None:
    with pytest.raises(InvalidInput, match=r"process_attach\[1\]") as error:
        check_attachable(("web", pattern), "colo", "process_attach")
    assert rule in str(error.value)
    check_attachable(ALLOWED, "colo", "process_attach")


def test_the_list_is_given_in_one_variable_or_as_a_list(tmp_path: Path) -> None:
    listed = ("system.slice/shop.service=red|blue", "web/*")
    variable = {"COLO_EXECUTOR_PROCESS_ATTACH": ",".join(listed)}
    assert load(ExecutorSettings, "executor", (), variable).process.attach == listed
    file = tmp_path / "colo.yaml"
    file.write_text("executor:\n  process_attach: [system.slice/shop.service=red|blue, web/*]\n")
    assert load(ExecutorSettings, "executor", (), {}, file).process.attach == listed
    with pytest.raises(BadSettings, match=r"process_attach\[0\]: must name a tenant"):
        load(ExecutorSettings, "executor", (), {"COLO_EXECUTOR_PROCESS_ATTACH": "web="})


def test_values_are_those_of_online_work_and_limits_only_where_the_job_has_some() -> None:
    policy = DesiredPolicy(memory_low_pct=50, memory_min_pct=25)
    limits = ResourceLimits(cpu_mcpu=3_000, memory_bytes=8 << 30)
    shared = replace(
        a_placement(mcpu=2_000), qos=QosClass.LS, band=PriorityBand.PROD, memory_bytes=4 << 30, run=RunSpec()
    )
    own = replace(shared, qos=QosClass.LSE, cpus="0-1", run=RunSpec(limits=replace(limits, cpu_mcpu=2_000)))
    low = AttachedGroupValues(group="web", weight_least=2_048, memory_low_bytes=2 << 30)
    assert attached_values(policy, shared, "web", 2, ()) == low
    assert attached_values(policy, shared, "web", 1, ()) == replace(low, memory_low_bytes=0)
    assert attached_values(policy, shared, "web", 2, (Knob.CPU_BVT,)) == replace(low, identity_least=2)
    assert attached_values(policy, shared, "web", 2, (Knob.CPU_BVT, Knob.CPU_IDLE)) == low
    limited = attached_values(policy, replace(shared, run=RunSpec(limits=limits)), "web", 2, ())
    assert limited == replace(low, cpu_most_mcpu=3_000, memory_most_bytes=8 << 30)
    owned = replace(low, memory_most_bytes=8 << 30, memory_min_bytes=1 << 30)
    assert attached_values(policy, own, "web", 2, ()) == owned


def test_a_unit_is_the_one_group_of_its_name_where_no_systemd_runs(tmp_path: Path) -> None:
    for group in (
        "system.slice/shop.service",
        "a.slice/twin.service",
        "b.slice/twin.service",
        "colo/batch/shop.service",
    ):
        (tmp_path / group).mkdir(parents=True)
    (tmp_path / "link.service").symlink_to(tmp_path / "system.slice")

    def found(unit: str) -> str:
        return path_of(AttachSpec(unit=unit), str(tmp_path), None, lambda top: top == "colo")

    assert found("shop.service") == "system.slice/shop.service"
    with pytest.raises(AttachRefused, match=r"may be a.slice/twin.service, b.slice/twin.service here"):
        found("twin.service")
    for unit in ("none.service", "link.service"):
        with pytest.raises(AttachRefused, match=f"there is no control group of the name {unit}"):
            found(unit)
    assert path_of(AttachSpec(cgroup="any/where"), str(tmp_path), None, lambda top: False) == "any/where"


def test_systemd_says_which_group_a_unit_has(tmp_path: Path) -> None:
    asked: list[list[str]] = []
    shown = {"shop.service": "/system.slice/shop.service\n", "over.service": "\n"}

    def systemctl(words: list[str]) -> str:
        asked.append(words)
        if words[-1] not in shown:
            raise CgroupError("systemctl: no answer")
        return shown[words[-1]]

    units = SystemdUnits(systemctl, lambda path, value: None)  # type: ignore[arg-type]
    found = path_of(AttachSpec(unit="shop.service"), str(tmp_path), units, lambda top: False)
    assert found == "system.slice/shop.service"
    assert asked == [["show", "--property=ControlGroup", "--value", "--", "shop.service"]]
    with pytest.raises(AttachRefused, match=r"systemd runs no unit over.service"):
        path_of(AttachSpec(unit="over.service"), str(tmp_path), units, lambda top: False)
    with pytest.raises(CgroupError):
        path_of(AttachSpec(unit="stuck.service"), str(tmp_path), units, lambda top: False)
