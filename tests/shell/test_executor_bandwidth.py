"""A zone whose memory is full, by the files of resctrl: what the executor writes, tells and gives back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

import pytest
from msgspec.structs import replace

from colo_common.events.enforcement import EnforcementChanged, MemoryTerms, ZoneCeiling
from colo_common.events.fact_text import fact_text
from colo_common.events.node import LeaseRenewed
from colo_common.model.cpuset import CpuSet
from colo_common.model.reasons import Reason
from colo_executor.bandwidth import BandwidthPolicy
from colo_executor.local import FastReading
from colo_executor.process.bandwidth_reader import BandwidthReader
from colo_executor.settings import ExecutorSettings
from colo_executor.simulated import SimulatedRuntime
from tests.shell.test_executor_shell import NODE, Node, ZonesRuntime, work
from tests.support.machine_tree import MachineSpec, MachineTree
from tests.support.resctrl_tree import ResctrlTree
from tests.support.vloop import run_virtual

GB = 1_000_000_000
DOMAINS = ("mon_L3_00", "mon_L3_07")


class Memory:
    """Two zones of eight CPUs, of which one sustains 40 GB/s, and what they carry now."""

    def __init__(self, root: Path) -> None:
        MachineTree(MachineSpec(sockets=2, cores_per_zone=8, l3_ids=(0, 7)), root=root).write()
        self.tree = ResctrlTree(root, *DOMAINS)
        self.tree.make("batch")
        self.reader = BandwidthReader(str(root / "sys"), str(root / "proc"), lambda: 0)
        self.gb_per_s = (5, 5)

    async def carry(self, seconds: int) -> None:
        for _ in range(10 * seconds):
            for domain, rate in zip(DOMAINS, self.gb_per_s, strict=True):
                self.tree.add({("", domain): rate * GB // 20, ("batch", domain): rate * GB // 20})
            await asyncio.sleep(0.1)

    def read(self, reading: FastReading | None, now_ms: int) -> FastReading | None:
        self.reader.look(CpuSet.parse("0-15"))
        traffic = self.reader.read(now_ms * 1_000_000, now_ms)
        return None if reading is None else replace(reading, memory=traffic)


def settings(observe: tuple[Literal["ceiling"], ...] = ()) -> ExecutorSettings:
    return ExecutorSettings(
        period_ms=100, bandwidth=BandwidthPolicy(zone_bytes_per_s=40 * GB, hold_ms=5_000), observe=observe
    )


def facts(node: Node) -> list[EnforcementChanged]:
    return [fact for fact in node.reported(EnforcementChanged) if isinstance(fact, EnforcementChanged)]


@pytest.mark.parametrize("observe", [(), ("ceiling",)], ids=["written", "observed"])
def test_a_full_zone_takes_from_the_node_where_zones_have_no_ceilings_and_gives_back_in_calm(
    tmp_path: Path, observe: tuple[Literal["ceiling"], ...]
) -> None:
    memory = Memory(tmp_path)

    class MemoryRuntime(SimulatedRuntime):
        def read_fast(self, now_ms: int) -> FastReading | None:
            return memory.read(super().read_fast(now_ms), now_ms)

    async def story() -> None:
        node = Node(settings(observe))
        node.runtime = MemoryRuntime(node.machine, capacity_mcpu=16_000)
        await node.start()
        await node.apply(work())
        await node.order(LeaseRenewed(node=NODE, sample_seq=1, batch_cpu_mcpu=0, lease_ms=600_000))
        await memory.carry(5)
        before = node.machine.batch_quota_mcpu
        memory.gb_per_s = (5, 38)
        await memory.carry(5)
        figure = node.metrics.registry.get_sample_value
        assert figure("colo_executor_memory_traffic_bytes_per_s", {"zone": "0"}) == pytest.approx(5 * GB, rel=0.1)
        assert figure("colo_executor_memory_traffic_bytes_per_s", {"zone": "1"}) == pytest.approx(38 * GB, rel=0.1)
        fell = next(fact for fact in facts(node) if fact.reason is Reason.MEMORY_BANDWIDTH)
        assert fell.memory is not None
        assert fell.memory.zone == 1
        assert "memory of zone 1 carried 9" in fact_text(fell)
        assert fell.observed == bool(observe)
        if observe:
            assert node.machine.batch_quota_mcpu == before
        else:
            assert node.machine.batch_quota_mcpu < before
        memory.gb_per_s = (5, 10)
        await memory.carry(40)
        assert node.machine.batch_quota_mcpu == before
        assert Reason.MEMORY_BANDWIDTH_FELL in [fact.reason for fact in facts(node)]
        assert figure("colo_executor_reflex_moves_total", {"reason": "memory-bandwidth"}) == 2
        await node.leave()

    run_virtual(story())


def test_a_full_zone_takes_its_own_cpus_from_batch_work_where_zones_have_ceilings(tmp_path: Path) -> None:
    memory = Memory(tmp_path)

    class MemoryRuntime(ZonesRuntime):
        def read_fast(self, now_ms: int) -> FastReading | None:
            return memory.read(super().read_fast(now_ms), now_ms)

    async def story() -> None:
        node = Node(settings())
        node.runtime = MemoryRuntime(node.machine, capacity_mcpu=16_000)
        await node.start()
        await node.apply(work())
        await node.order(LeaseRenewed(node=NODE, sample_seq=1, batch_cpu_mcpu=0, lease_ms=600_000))
        await memory.carry(5)
        assert node.runtime.zones == ()
        memory.gb_per_s = (5, 38)
        await memory.carry(3)
        # A fifth of the zone's CPUs less than the four that batch work uses there.
        held = (ZoneCeiling(zone=1, ceiling_mcpu=2_000, capacity_mcpu=8_000),)
        assert node.runtime.zones == held
        fell = facts(node)[-1]
        assert (fell.reason, fell.zone, fell.zones) == (Reason.MEMORY_BANDWIDTH, 1, held)
        assert fell.memory == MemoryTerms(
            zone=1, bytes_per_s=fell.memory.bytes_per_s, most_bytes_per_s=40 * GB, mark_pct=85
        )
        memory.gb_per_s = (5, 10)
        await memory.carry(40)
        assert node.runtime.zones == ()
        assert facts(node)[-1].reason is Reason.MEMORY_BANDWIDTH_FELL
        await node.leave()

    run_virtual(story())
