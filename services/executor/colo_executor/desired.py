"""The value of every knob that the tier and a replica should have."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from colo_common.model.cpuset import CpuSet
from colo_common.model.placement import Placement
from colo_executor.knobs import PERIOD_US, UNLIMITED, WEIGHT_LEAST, Knob, quota_us, weight_v1
from colo_executor.order import KnobWrite

__all__ = [
    "BATCH",
    "DesiredPolicy",
    "MachineFacts",
    "huge_page_knobs",
    "huge_page_zones",
    "replica_knobs",
    "replica_quota_us",
    "replica_sets",
    "tier_knobs",
]

BATCH: Final = "batch"
"""The tier's group, below the executor's own: it carries the ceiling, replicas are its children."""


class DesiredPolicy(Struct, frozen=True, kw_only=True):
    """`idle`: batch runs only when nothing else wants the CPU (cpu.idle), where the kernel can; else the least weight.

    `cap_at_request`: a replica may not use more CPU than it asked for, even when there is some. `pids_most` per replica.
    `huge_pages_only_asked`: huge pages that a replica did not ask for are refused to it, because they are promised to others; with
    False only what was asked for is a limit.
    """

    idle: bool = True
    cap_at_request: bool = False
    pids_most: int = 4_096
    huge_pages_only_asked: bool = True


class MachineFacts(Struct, frozen=True, kw_only=True):
    """What knobs depend on: all CPUs and memory zones the executor may use, the CPUs of each zone, and which files exist.

    `huge_page_sizes`: sizes in bytes that the kernel can limit.
    """

    cpus: CpuSet
    mems: CpuSet
    zones: Mapping[int, CpuSet]
    has: frozenset[Knob]
    huge_page_sizes: tuple[int, ...] = ()


def tier_knobs(policy: DesiredPolicy, machine: MachineFacts, ceiling_mcpu: int | None) -> tuple[KnobWrite, ...]:
    """Knobs of the executor's own group ("") and the tier, parent before child, each file after those it depends on.

    The weight stands on the own group, because that one competes with everything else; setting idle forbids to set the weight,
    so the weight comes first. Both groups get all CPUs and zones, without which v1 admits no process.
    """
    writes: list[KnobWrite] = []
    for path in ("", BATCH):
        writes.append(KnobWrite(path=path, knob=Knob.CPUSET_CPUS, value=machine.cpus.format()))
        writes.append(KnobWrite(path=path, knob=Knob.CPUSET_MEMS, value=machine.mems.format()))
    writes.append(KnobWrite(path="", knob=Knob.CPU_WEIGHT, value=WEIGHT_LEAST))
    if policy.idle:
        writes.append(KnobWrite(path="", knob=Knob.CPU_IDLE, value=1))
    writes.append(KnobWrite(path=BATCH, knob=Knob.CPU_PERIOD, value=PERIOD_US))
    if ceiling_mcpu is not None:
        writes.append(KnobWrite(path=BATCH, knob=Knob.CPU_QUOTA, value=quota_us(ceiling_mcpu)))
    return tuple(write for write in writes if write.knob in machine.has)


def replica_knobs(
    policy: DesiredPolicy, machine: MachineFacts, placement: Placement, path: str, ceiling_mcpu: int | None
) -> tuple[KnobWrite, ...]:
    """Knobs of one replica's group: sets, weight by request within the tier, memory limit = request, processes.

    No CPU quota of its own unless `cap_at_request`: a batch replica may use what is idle up to the tier's ceiling.
    """
    cpus, mems = replica_sets(machine, placement)
    writes = [
        KnobWrite(path=path, knob=Knob.CPUSET_CPUS, value=cpus.format()),
        KnobWrite(path=path, knob=Knob.CPUSET_MEMS, value=mems.format()),
        KnobWrite(path=path, knob=Knob.CPU_WEIGHT, value=weight_v1(placement.cpu_mcpu)),
        KnobWrite(path=path, knob=Knob.MEMORY_LIMIT, value=placement.memory_bytes),
        KnobWrite(path=path, knob=Knob.OOM_GROUP, value=1),
        KnobWrite(path=path, knob=Knob.PIDS_LIMIT, value=policy.pids_most),
        *huge_page_knobs(policy, machine, placement, path),
    ]
    quota = replica_quota_us(policy, placement.cpu_mcpu, ceiling_mcpu)
    if quota != UNLIMITED:
        writes.append(KnobWrite(path=path, knob=Knob.CPU_PERIOD, value=PERIOD_US))
        writes.append(KnobWrite(path=path, knob=Knob.CPU_QUOTA, value=quota))
    return tuple(write for write in writes if write.knob in machine.has)


def huge_page_knobs(
    policy: DesiredPolicy, machine: MachineFacts, placement: Placement, path: str
) -> tuple[KnobWrite, ...]:
    """Limits of huge pages of one replica: for every size the sum over its zones, 0 for what it did not ask for.

    Both what may be touched and what may be mapped: a mapping that nobody touches keeps pages from everybody else all the same.
    """
    writes = []
    for page_bytes in machine.huge_page_sizes:
        asked = sum(pages.total_bytes for pages in placement.huge_pages if pages.page_bytes == page_bytes)
        if not asked and not policy.huge_pages_only_asked:
            continue
        for knob in (Knob.HUGE_PAGES_LIMIT, Knob.HUGE_PAGES_RESERVED_LIMIT):
            writes.append(KnobWrite(path=path, knob=knob, value=asked, page_bytes=page_bytes))
    return tuple(write for write in writes if write.knob in machine.has)


def huge_page_zones(placement: Placement) -> CpuSet:
    """The zones of its huge pages, whose memory it must be able to use even where its CPUs are elsewhere."""
    return CpuSet.from_iterable(pages.zone for pages in placement.huge_pages)


def replica_sets(machine: MachineFacts, placement: Placement) -> tuple[CpuSet, CpuSet]:
    """CPUs and memory zones of a batch replica: those of its zones, or all where the machine lacks one or has none free there."""
    zones = [share.zone for share in placement.zones if share.zone in machine.zones]
    if zones and len(zones) == len(placement.zones):
        own = CpuSet()
        for zone in zones:
            own = own | machine.zones[zone]
        if own & machine.cpus and CpuSet.from_iterable(zones) <= machine.mems:
            return own & machine.cpus, CpuSet.from_iterable(zones) | huge_page_zones(placement) & machine.mems
    return machine.cpus, machine.mems


def replica_quota_us(policy: DesiredPolicy, cpu_mcpu: int, ceiling_mcpu: int | None) -> int:
    """A replica's own quota: UNLIMITED, or its request, no higher than the ceiling (v1 refuses a child above its parent)."""
    if not policy.cap_at_request:
        return UNLIMITED
    return quota_us(cpu_mcpu if ceiling_mcpu is None else min(cpu_mcpu, ceiling_mcpu))
