"""Stall information of single control groups: read, and told by the kernel at once."""

from __future__ import annotations

import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from colo_collector.parse_psi import parse_pressure
from colo_executor.cgroup import CgroupTree
from colo_executor.knob_table import Knob
from colo_executor.order import KnobWrite
from tests.kernel.inside import CGROUP_ROOT, hogs, this_machine
from tests.support.waiting import eventually_blocking

pytestmark = [
    pytest.mark.vm,
    pytest.mark.skipif(this_machine().cgroup != "v2", reason="groups of cgroup v1 have no pressure files"),
]

CROWDED = "crowded"
CALM = "calm"


@pytest.fixture
def tree() -> Iterator[CgroupTree]:
    """Two groups side by side, one with a quota of a tenth of a CPU."""
    tree = CgroupTree(str(CGROUP_ROOT), "stall")
    tree.make("")
    for group in (CROWDED, CALM):
        tree.make(group)
    tree.write(KnobWrite(path=CROWDED, knob=Knob.CPU_QUOTA, value=10_000))
    yield tree
    for group in (CROWDED, CALM, ""):
        assert tree.remove(group)


def pressure_of(group: str) -> Path:
    return CGROUP_ROOT / "stall" / group / "cpu.pressure"


def some_us(group: str) -> int:
    """How long some process of the group wanted a CPU and had none."""
    some = parse_pressure(pressure_of(group).read_text()).some
    assert some is not None
    return some.total_us


def test_only_the_group_that_waits_for_its_quota_stalls(tree: CgroupTree) -> None:
    with hogs(tree, CALM, (2,)), hogs(tree, CROWDED, (5,)):
        before = {group: some_us(group) for group in (CROWDED, CALM)}
        eventually_blocking(lambda: some_us(CROWDED) - before[CROWDED] > 1_000_000, "a second of stall", limit_s=120)
        assert some_us(CALM) - before[CALM] < 300_000


def test_the_kernel_tells_of_a_stall_of_one_group_by_itself(tree: CgroupTree) -> None:
    triggers = {group: pressure_of(group).open("r+b", buffering=0) for group in (CROWDED, CALM)}
    poll = select.poll()
    try:
        for trigger in triggers.values():
            # 100 ms of stall within one second.
            trigger.write(b"some 100000 1000000\0")
            poll.register(trigger, select.POLLPRI)
        with hogs(tree, CALM, (2,)), hogs(tree, CROWDED, (5,)):
            delivered = poll.poll(20_000)
        assert [descriptor for descriptor, _ in delivered] == [triggers[CROWDED].fileno()]
        assert delivered[0][1] & select.POLLPRI
    finally:
        for trigger in triggers.values():
            trigger.close()
