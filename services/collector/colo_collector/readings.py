"""The readings of a real or simulated machine that the core handles: its topology, a sample, or why there is none."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from colo_collector.usage import Unknown
from colo_common.events.node import (
    Capability,
    ClassUsage,
    MachineDetail,
    PressureReading,
    UsageWindow,
    WorkloadUsage,
    ZoneUsage,
)
from colo_common.model.constraints import Taint
from colo_common.model.node_rules import UNRULED, NodeRules
from colo_common.model.topology import NodeTopology
from colo_common.model.units import Bytes, Mcpu, Ms, Us

__all__ = ["PressureRaised", "TopologyRead", "SampleRead", "Skip", "Unreadable"]


class Skip(StrEnum):
    """Why a period has no sample: a closed list that labels a counter. The first seven reasons are those of `Unknown`."""

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
    """The machine's topology, capabilities and rules. Comes before the first SampleRead, and again when they may have changed."""

    topology: NodeTopology
    capabilities: tuple[Capability, ...] = ()
    labels: dict[str, str] = {}
    simulated: bool = False
    taints: tuple[Taint, ...] = ()
    rules: NodeRules = UNRULED


class SampleRead(Struct, frozen=True, kw_only=True):
    """One coherent sample, the content of NodeUsageSampled, read at `at_ms` (the service's clock), with rates over `interval_ms`.

    `zones` has exactly the zones of the last TopologyRead. Stall times (us) and `interval_ms` (at least 1) are of the machine's
    clock. `workloads` and `pressure` list only known values; the use of no listed workload is system use.
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
    online_stall_us: Us | None = None
    monotonic_ms: Ms = 0
    missing: tuple[str, ...] = ()
    classes: tuple[ClassUsage, ...] = ()
    detail: MachineDetail | None = None
    windows: tuple[UsageWindow, ...] = ()


class PressureRaised(Struct, frozen=True, kw_only=True):
    """The kernel itself says, between two samples, that the stall of a watched signal reached its upper mark."""

    signal: str


class Unreadable(Struct, frozen=True, kw_only=True):
    """A period without a sample: the reason, and a sentence for the log."""

    reason: Skip
    detail: str = ""
