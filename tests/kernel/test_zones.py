"""The reflex in one NUMA zone: online work that waits there, or fills it, takes CPUs of batch work there, and none elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from colo_common.adapters.clock import SystemClock
from colo_common.events.enforcement import ZoneCeiling
from colo_common.model.cpuset import CpuSet
from colo_common.model.workload import RunSpec
from colo_common.runtime.metrics import Metrics
from colo_executor.cgroup import CgroupTree
from colo_executor.desired import DesiredPolicy
from colo_executor.freeze import FreezePolicy
from colo_executor.knob_table import Knob
from colo_executor.local import FastReading, RenewLease
from colo_executor.order import KnobWrite
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from colo_executor.reflex_policy import ReflexPolicy
from colo_executor.shell import ExecutorShell
from colo_executor.stall import OnlineStalls, StallPolicy
from colo_executor.suppress import SuppressPolicy
from tests.kernel.inside import CGROUP_ROOT, hogs, observed_topology, settings_of, this_machine
from tests.kernel.test_process import every_cpu
from tests.support.adopted import AS_ROOT
from tests.support.attempts import start
from tests.support.builders import a_placement
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.vm,
    pytest.mark.skipif(this_machine().cgroup != "v2", reason="groups of cgroup v1 have no pressure files"),
    pytest.mark.skipif(len(this_machine().zones) < 2, reason="a machine of one NUMA zone has no ceiling of zones"),
]

SUBTREE: Final = "colo-vm-zones"
WEB: Final = "web"
#: By the operator's rule: batch work is not of the idle class here, or it would not run beside other work.
POLICY: Final = ReflexPolicy(
    rule="stall", stall=StallPolicy(calm_ms=500, grow_step_pct=50), freeze=FreezePolicy(by="off"), blind_ms=60_000
)


BY_USE: Final = ReflexPolicy(
    rule="usage",
    suppress=SuppressPolicy(threshold_pct=60, grow_hold_ms=500, grow_interval_ms=100, grow_step_pct=50),
    freeze=FreezePolicy(by="off"),
    blind_ms=60_000,
)


@pytest.fixture
def zones() -> list[CpuSet]:
    """The CPUs of each zone of this machine."""
    topology, _ = observed_topology()
    return [CpuSet.parse(zone.cpus) for zone in topology.zones]


@pytest.fixture
def web(zones: list[CpuSet]) -> Iterator[CgroupTree]:
    """Online work of somebody else's that runs in zone 0 alone."""
    tree = CgroupTree(str(CGROUP_ROOT), WEB)
    tree.make("")
    tree.write(KnobWrite(path="", knob=Knob.CPUSET_CPUS, value=zones[0].format()))
    yield tree
    assert tree.remove("")


def shown(group: str, name: str = "cpuset.cpus.effective") -> CpuSet:
    return CpuSet.parse((CGROUP_ROOT / SUBTREE / group / name).read_text().strip())


class Felt(ProcessRuntime):
    """A runtime whose reflex is told that the web group waits half of the time, as long as batch work may run on one CPU.

    How long an emulated group waits depends on the machine below it; which group it is, in which zone, and what batch work uses
    there is the kernel's own word.
    """

    contended: int | None = None
    decided_by: FastReading | None = None
    """The last reading in which the group waits: what the reflex took CPUs for."""

    waited_us = 0
    at_ms = 0
    last: OnlineStalls | None = None

    def read_fast(self, now_ms: int) -> FastReading | None:
        reading = super().read_fast(now_ms)
        stalls = None if reading is None else reading.stalls
        if reading is None or stalls is None:
            return reading
        if stalls.at_ms == self.at_ms:
            return self._noted(replace(reading, stalls=self.last))
        if self._is_contended():
            self.waited_us += (stalls.at_ms - self.at_ms) * 500
        self.at_ms = stalls.at_ms
        total_us = tuple((name, self.waited_us if name == WEB else 0) for name, _ in stalls.total_us)
        self.last = replace(stalls, total_us=total_us, throttled_us=())
        return self._noted(replace(reading, stalls=self.last))

    def _is_contended(self) -> bool:
        return self.contended is not None and self.contended in shown("batch")

    def _noted(self, reading: FastReading) -> FastReading:
        if self._is_contended():
            self.decided_by = reading
        return reading


async def reflex_of(runtime: ProcessRuntime, policy: ReflexPolicy = POLICY) -> ExecutorShell:
    """A reflex whose lease outlives the slowest machine."""
    shell = ExecutorShell(runtime, SystemClock(), policy=policy, period_ms=20, metrics=Metrics())
    await shell.load()
    await shell.perform(RenewLease(lease_ms=600_000))
    return shell


def spin_on(cpu: int) -> RunSpec:
    return RunSpec(command=("taskset", "-c", str(cpu), "sh", "-c", "while :; do :; done"))


async def test_who_waits_in_one_zone_takes_cpus_of_that_zone_alone_and_they_are_given_back(
    zones: list[CpuSet], web: CgroupTree, tmp_path: Path
) -> None:
    before = settings_of(CGROUP_ROOT)
    policy = ProcessPolicy(
        users=AS_ROOT, state_dir=str(tmp_path / "state"), subtree=SUBTREE, desired=DesiredPolicy(idle=False)
    )
    contended = list(zones[0])[-1]
    everywhere, elsewhere = every_cpu(), every_cpu() - zones[0]
    runtime = Felt(policy)
    try:
        shell = await reflex_of(runtime)
        for zone, cpu in ((0, contended), (1, list(zones[1])[-1])):
            placement = a_placement(f"job/main/{zone}", mcpu=1_000, zone=zone)
            await start(runtime, replace(placement, run=spin_on(cpu)))

        async def narrowed() -> tuple[ZoneCeiling, ...]:
            shell.turn()
            reflex = shell.reflex
            assert reflex is not None
            return () if any(zone.stall.trial_group for zone in reflex._zones) else reflex.zones

        with hogs(web, "", (next(iter(zones[0])),)):
            runtime.contended = contended
            held = await eventually(narrowed, "zone 0 to give up CPUs, which helps", limit_s=120)
            kept = shown("batch") & zones[0]
            assert runtime.decided_by is not None
            # Half of what it uses there in whole cores, one CPU at least; a slow machine takes what it uses for more than it is.
            used_mcpu = next(zone.batch_used_mcpu for zone in runtime.decided_by.zones if zone.zone == 0)
            threads = this_machine().threads
            assert len(kept) == max(1, used_mcpu // (2_000 * threads) * threads)
            ceiling = ZoneCeiling(zone=0, ceiling_mcpu=len(kept) * 1_000, capacity_mcpu=len(zones[0]) * 1_000)
            assert held == (ceiling,)
            assert kept
            assert contended not in kept
            assert shown("batch", "cpuset.cpus") == shown("batch") == kept | elsewhere
            assert shown("batch/job.main.0@1") == kept, "never without a CPU, and in its zone"
            assert shown("batch/job.main.1@1") == zones[1], "nothing was taken in the other zone"
            # The quota is what all zones leave together.
            assert runtime.read_ceiling() == len(kept | elsewhere) * 1_000
            # As if it had been killed: the next one finds what this one left, and counts it as a shrink.
            await runtime.close()
            runtime = Felt(policy)
            shell = await reflex_of(runtime)
            assert runtime.zone_ceilings == held
            assert shown("batch") == kept | elsewhere

        async def given_back() -> bool:
            shell.turn()
            return runtime.zone_ceilings == () and runtime.read_ceiling() == len(everywhere) * 1_000

        await eventually(given_back, "all CPUs to be batch work's again", limit_s=120)
        assert shown("batch") == everywhere
        assert shown("batch/job.main.0@1") == zones[0]
    finally:
        await runtime.restore()
        await runtime.close()
    assert settings_of(CGROUP_ROOT) == before


class Filled(ProcessRuntime):
    """A runtime whose reflex is told that online work uses half of zone 0, and batch work as much as it may run on, up to half.

    How much an emulated machine uses depends on the machine below it; which zones there are, of which the kernel tells what is
    used, and on which CPUs batch work runs is its own word.
    """

    is_filled = False
    known: tuple[bool, ...] = ()

    def read_fast(self, now_ms: int) -> FastReading | None:
        reading = super().read_fast(now_ms)
        if reading is None:
            return None
        self.known = tuple(zone.online_used_mcpu is not None for zone in reading.zones)
        changed = []
        for zone in reading.zones:
            half = zone.capacity_mcpu // 2 if zone.zone == 0 and self.is_filled else 0
            runs_on = len(shown("batch") & _zone_cpus(zone.zone)) * 1_000
            changed.append(replace(zone, online_used_mcpu=half, batch_used_mcpu=min(half, runs_on)))
        used = sum(zone.batch_used_mcpu for zone in changed)
        return replace(reading, online_used_mcpu=used, batch_used_mcpu=used, system_used_mcpu=0, zones=tuple(changed))


def _zone_cpus(zone: int) -> CpuSet:
    topology, _ = observed_topology()
    return CpuSet.parse(topology.zones[zone].cpus)


async def test_who_fills_one_zone_takes_cpus_of_that_zone_alone_and_they_are_given_back(
    zones: list[CpuSet], tmp_path: Path
) -> None:
    before = settings_of(CGROUP_ROOT)
    policy = ProcessPolicy(
        users=AS_ROOT, state_dir=str(tmp_path / "state"), subtree=SUBTREE, desired=DesiredPolicy(idle=False)
    )
    runtime = Filled(policy)
    try:
        shell = await reflex_of(runtime, BY_USE)
        for zone in (0, 1):
            placement = a_placement(f"job/main/{zone}", mcpu=1_000, zone=zone)
            await start(runtime, replace(placement, run=RunSpec(command=("sleep", "1000"))))

        async def known() -> bool:
            shell.turn()
            return runtime.known == (True, True)

        await eventually(known, "the kernel to tell the use of both zones", limit_s=120)
        assert runtime.zone_ceilings == ()
        assert shown("batch") == every_cpu()
        runtime.is_filled = True

        async def narrowed() -> tuple[ZoneCeiling, ...]:
            shell.turn()
            return runtime.zone_ceilings

        held = await eventually(narrowed, "zone 0 to give up CPUs", limit_s=120)
        # 60 % of eight CPUs are for all work, of which online work uses four.
        assert held == (ZoneCeiling(zone=0, ceiling_mcpu=1_000, capacity_mcpu=len(zones[0]) * 1_000),)
        kept = shown("batch") & zones[0]
        assert len(kept) == 1
        assert shown("batch") == shown("batch", "cpuset.cpus") == kept | zones[1]
        assert shown("batch/job.main.0@1") == kept, "never without a CPU, and in its zone"
        assert shown("batch/job.main.1@1") == zones[1], "nothing was taken in the other zone"
        runtime.is_filled = False

        async def given_back() -> bool:
            shell.turn()
            return runtime.zone_ceilings == ()

        await eventually(given_back, "all CPUs to be batch work's again", limit_s=120)
        assert shown("batch") == every_cpu()
        assert shown("batch/job.main.0@1") == zones[0]
    finally:
        await runtime.restore()
        await runtime.close()
    assert settings_of(CGROUP_ROOT) == before
