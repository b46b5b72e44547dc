"""Huge pages of a real kernel: a replica gets those it asked for, in its zone, and none that are promised to others."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from colo_common.model.constraints import HugePages
from colo_common.model.placement import Placement, ZoneHugePages
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import Reason
from colo_common.model.workload import RunSpec
from colo_executor.cgroup import CgroupTree
from colo_executor.desired import DesiredPolicy
from colo_executor.knob_table import Knob
from colo_executor.local import LaunchFailed, ReplicaExited
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from tests.kernel.inside import CGROUP_ROOT, observed_topology, this_machine, unchanged
from tests.kernel.test_process import status_of
from tests.support.adopted import AS_ROOT
from tests.support.attempts import start
from tests.support.builders import a_placement
from tests.support.waiting import eventually

pytestmark = pytest.mark.vm

SUBTREE: Final = "colo-vm-huge"
MIB: Final = 1 << 20
PAGE: Final = 2 * MIB
SET_ASIDE: Final = 8
GROUP: Final = "batch/job.main.0@1"

# What a replica does: maps pages and says how that went; flag 0x40000 asks for huge pages, 0x4000 reserves none.
PROGRAM: Final = """
import mmap, sys, time

def take(pages, flags=0):
    try:
        return mmap.mmap(-1, pages << 21, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000 | flags)
    except OSError as error:
        return error.strerror

def touch(area):
    for at in range(0, len(area), 1 << 21):
        area[at] = 1

def say(*words):
    print(*words, flush=True)
"""
WITHIN_AND_BEYOND: Final = PROGRAM + "a = take(4); touch(a); say('touched', len(a)); say(take(1)); time.sleep(3600)"
MAP_ONE: Final = PROGRAM + "say(take(1))"
TOUCH_UNRESERVED: Final = PROGRAM + "a = take(1, 0x4000); say('mapped', len(a)); touch(a); say('touched')"


@pytest.fixture(scope="module", autouse=True)
def pages() -> Iterator[None]:
    """Pages in the first and the last zone; under v1 the hierarchy that limits them is mounted, as systemd would have."""
    counters = [counter(zone) for zone in sorted({first_zone(), last_zone()})]
    own_mount = CGROUP_ROOT / "hugetlb"
    mounts = this_machine().cgroup == "v1" and not own_mount.exists()
    if mounts:
        own_mount.mkdir()
        subprocess.run(["mount", "-t", "cgroup", "-o", "hugetlb", "cgroup", str(own_mount)], check=True)
    for path in counters:
        path.write_text(str(SET_ASIDE))
        assert path.read_text().strip() == str(SET_ASIDE), "the machine has no room for huge pages"
    yield
    for path in counters:
        path.write_text("0")
        assert path.read_text().strip() == "0", "somebody still holds huge pages"
    if mounts:
        subprocess.run(["umount", str(own_mount)], check=True)
        own_mount.rmdir()


@pytest.fixture
def policy(tmp_path: Path) -> ProcessPolicy:
    return ProcessPolicy(users=AS_ROOT, state_dir=str(tmp_path / "state"), subtree=SUBTREE)


@pytest.fixture
async def runtime(policy: ProcessPolicy) -> AsyncIterator[ProcessRuntime]:
    async with unchanged(policy) as made:
        yield made


def first_zone() -> int:
    return observed_topology()[0].zones[0].zone


def last_zone() -> int:
    return observed_topology()[0].zones[-1].zone


def counter(zone: int, name: str = "nr_hugepages") -> Path:
    return Path(f"/sys/devices/system/node/node{zone}/hugepages/hugepages-2048kB/{name}")


def free(zone: int) -> int:
    return int(counter(zone, "free_hugepages").read_text())


def running(program: str, *, asked: int = 0, zone: int = 0, **more: object) -> Placement:
    """A replica that asks for so many pages of a zone."""
    share = ZoneHugePages(zone=zone, page_bytes=PAGE, total_bytes=asked * PAGE)
    placement = replace(a_placement(zone=zone), run=RunSpec(command=(sys.executable, "-c", program)))
    return replace(placement, huge_pages=(share,) if asked else (), **more)


def output(policy: ProcessPolicy, name: str = "stdout") -> list[str]:
    return (Path(policy.state_dir) / "attempts" / "job.main.0@1" / name).read_text().splitlines()


async def the_end(runtime: ProcessRuntime) -> ReplicaExited:
    async def look() -> tuple[ReplicaExited, ...]:
        return runtime.poll_exits()

    (exited,) = await eventually(look, "the end", limit_s=120)
    return exited


def test_the_collector_offers_what_is_set_aside() -> None:
    topology, found = observed_topology()
    assert found["cgroup-hugetlb"].present, found["cgroup-hugetlb"].detail
    assert HugePages(page_bytes=PAGE, total_bytes=SET_ASIDE * PAGE) in topology.zones[-1].huge_pages


@pytest.mark.parametrize("qos", [QosClass.BE, QosClass.LS], ids=["batch", "online"])
async def test_a_replica_gets_the_pages_it_asked_for_and_not_one_more(
    runtime: ProcessRuntime, policy: ProcessPolicy, qos: QosClass
) -> None:
    zone, other = last_zone(), first_zone()
    band = PriorityBand.BATCH if qos is QosClass.BE else PriorityBand.PROD
    launched = await start(runtime, running(WITHIN_AND_BEYOND, asked=4, zone=zone, qos=qos, band=band))
    limits = {Path(knob.path).name: knob.value for knob in launched.knobs if "hugetlb" in knob.path}
    assert sorted(set(limits.values())) == ["0", str(4 * PAGE)]
    assert {name for name, value in limits.items() if value != "0"} == {name for name in limits if "2MB" in name}
    assert len(limits) >= 2, "what may be mapped is limited as well as what may be touched"

    async def reported() -> bool:
        return len(output(policy)) == 2

    await eventually(reported, "what the replica says", limit_s=120)
    assert output(policy) == [f"touched {4 * PAGE}", "Cannot allocate memory"]
    if zone != other:
        assert (free(zone), free(other)) == (SET_ASIDE - 4, SET_ASIDE), "they are of its own zone"
        assert status_of(launched.pid, "Mems_allowed_list") == str(zone)


async def test_a_replica_that_asked_for_none_can_map_none(runtime: ProcessRuntime, policy: ProcessPolicy) -> None:
    await start(runtime, running(MAP_ONE))
    assert (await the_end(runtime)).exit_code == 0
    assert output(policy) == ["Cannot allocate memory"]


async def test_a_mapping_that_reserves_nothing_does_not_get_around_it(
    runtime: ProcessRuntime, policy: ProcessPolicy
) -> None:
    await start(runtime, running(TOUCH_UNRESERVED))
    exited = await the_end(runtime)
    assert output(policy) == [f"mapped {PAGE}"]
    # 128 + SIGBUS: the kernel has no page for it.
    assert exited.exit_code == 135
    assert free(first_zone()) == SET_ASIDE


async def test_an_operator_may_leave_them_to_whoever_comes(policy: ProcessPolicy) -> None:
    policy = replace(policy, desired=DesiredPolicy(huge_pages_only_asked=False))
    async with unchanged(policy) as runtime:
        await start(runtime, running(TOUCH_UNRESERVED))
        assert (await the_end(runtime)).exit_code == 0
        assert output(policy) == [f"mapped {PAGE}", "touched"]


async def test_more_than_the_zone_has_left_is_refused_and_nothing_is_left_behind(runtime: ProcessRuntime) -> None:
    zone = last_zone()
    first = replace(running("import time; time.sleep(3600)", asked=6, zone=zone), replica="job/main/1")
    await start(runtime, first)
    answer = await runtime.launch(running(MAP_ONE, asked=3, zone=zone), 1)
    assert isinstance(answer, LaunchFailed)
    assert answer.reason is Reason.HUGE_PAGES_SHORT
    assert f"zone {zone} has {2 * PAGE} bytes left in pages of {PAGE}, {3 * PAGE} are asked for" in answer.detail
    tree = CgroupTree(str(CGROUP_ROOT), SUBTREE)
    assert tree.children("batch") == ("job.main.1@1",)
    assert Knob.HUGE_PAGES_RESERVED_LIMIT in tree.has()
