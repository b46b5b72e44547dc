"""What a machine tells the core, be it real or simulated: what it is, what it did in a period, or why that is not known."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from colo_collector.usage import Unknown
from colo_common.events.node import Capability, PressureReading, WorkloadUsage, ZoneUsage
from colo_common.model.constraints import Taint
from colo_common.model.node_rules import UNRULED, NodeRules
from colo_common.model.topology import NodeTopology
from colo_common.model.units import Bytes, Mcpu, Ms

__all__ = ["TopologyRead", "SampleRead", "Skip", "Unreadable"]


class Skip(StrEnum):
    """Why a period has no sample; a closed list, so that it can label a counter. The first ones are those of `Unknown`."""

    FIRST = Unknown.FIRST.value
    REBOOTED = Unknown.REBOOTED.value
    TIME_STOOD = Unknown.TIME_STOOD.value
    TIME_BACKWARDS = Unknown.TIME_BACKWARDS.value
    RESET = Unknown.RESET.value
    ABSURD = Unknown.ABSURD.value
    CPU_CAME = Unknown.CPU_CAME.value
    UNREADABLE = "unreadable"
    ZONE_MEMORY = "zone-memory-missing"
    NO_TOPOLOGY = "no-topology"


class TopologyRead(Struct, frozen=True, kw_only=True):
    """What the machine is now. Comes before the first Measured, and again whenever something of it may have changed."""

    topology: NodeTopology
    capabilities: tuple[Capability, ...] = ()
    labels: dict[str, str] = {}
    simulated: bool = False
    taints: tuple[Taint, ...] = ()
    rules: NodeRules = UNRULED


class SampleRead(Struct, frozen=True, kw_only=True):
    """One coherent sample: what NodeUsageSampled says, read at `at_ms` (the service's clock), rates over `interval_ms`.

    `zones` has exactly the zones of the last Inspected. Stall times (us) and `interval_ms` (at least 1) are of one clock, that of
    the machine. `workloads` and `pressure` have only what is known; what belongs to no listed workload is system.
    """

    at_ms: Ms
    interval_ms: Ms
    cpu_used_mcpu: Mcpu
    memory_used_bytes: Bytes
    zones: tuple[ZoneUsage, ...]
    workloads: tuple[WorkloadUsage, ...] = ()
    pressure: tuple[PressureReading, ...] = ()
    system_cpu_used_mcpu: Mcpu = 0
    system_memory_used_bytes: Bytes = 0
    steal_mcpu: Mcpu = 0


class Unreadable(Struct, frozen=True, kw_only=True):
    """A period without a sample. `detail` is a sentence for the log."""

    reason: Skip
    detail: str = ""
