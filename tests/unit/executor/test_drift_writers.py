"""Who changed a kernel file, by its path and by the property of the unit whose group it is."""

from __future__ import annotations

import pytest

from colo_common.events.enforcement import KnobValue
from colo_executor.drift_writers import asked_unit, kubelet_writers, writer_by_property

GROUP = "system.slice/shop.service"


@pytest.mark.parametrize(
    ("name", "before", "has", "writer"),
    [
        ("cpu.weight", "5", "5", "systemd"),
        ("cpu.weight", "5", "79", "unknown"),
        # Not set, systemd writes the kernel's default.
        ("cpu.weight", "100", "", "systemd"),
        ("cpu.weight", "99", "", "unknown"),
        ("cpu.max", "50000 100000", "50%", "systemd"),
        ("cpu.max", "25000 50000", "50%", "systemd"),
        ("cpu.max", "max 100000", "", "systemd"),
        ("cpu.max", "max 100000", "50%", "unknown"),
        ("memory.low", "0", "0", "systemd"),
        ("memory.low", "4096", "0", "unknown"),
        ("memory.max", "max", "infinity", "systemd"),
        ("memory.max", "8192", "infinity", "unknown"),
        ("cpuset.cpus", "0-1", "0-1", "systemd"),
        ("cpuset.cpus", "", "", "systemd"),
        ("cpuset.cpus", "0-3", "0-1", "unknown"),
        ("memory.max", "what", "infinity", None),
    ],
)
def test_systemd_wrote_what_its_property_says_and_nothing_else(
    name: str, before: str, has: str, writer: str | None
) -> None:
    change = KnobValue(path=f"{GROUP}/{name}", value="1", before=before)
    asked = asked_unit(change.path)
    assert asked is not None
    found = writer_by_property(asked[1], change, "shop.service", has)
    assert (None if found is None else found.writer) == writer
    if found is not None:
        assert "of shop.service is " in found.evidence


@pytest.mark.parametrize(
    "path",
    [
        "system.slice/shop.service/cpu.idle",
        "web/cpu.weight",
        "system.slice/cgroup.subtree_control",
        "colo/batch/cpu.max",
    ],
)
def test_what_systemd_has_no_property_or_no_unit_for_is_not_asked(path: str) -> None:
    assert asked_unit(path) is None


def test_what_is_in_the_tree_of_pods_is_the_kubelets() -> None:
    paths = (
        "kubepods/burstable/pod1/cpu.weight",
        "cpu/kubepods.slice/kubepods-pod1.slice/cpu.shares",
        "colo/batch/cpu.max",
        "mykubepods/cpu.max",
    )
    found = kubelet_writers(KnobValue(path=path, value="1") for path in paths)
    assert [(writer.path, writer.writer) for writer in found] == [(path, "kubelet") for path in paths[:2]]
