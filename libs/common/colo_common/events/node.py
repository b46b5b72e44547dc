"""Facts about nodes. The collector and the overcommit service publish them."""

from typing import Literal

from msgspec import Struct

from colo_common.events.fact import Fact
from colo_common.model.constraints import Taint
from colo_common.model.freshness import Freshness
from colo_common.model.node_rules import UNRULED, NodeRules
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.topology import NodeTopology
from colo_common.model.units import Bytes, Mcpu, Ms, NodeName, Number, ReplicaName, Signed, Us, ZoneBytes

__all__ = [
    "AllocatableChanged",
    "Capability",
    "Explanation",
    "UnmanagedUse",
    "FreshnessChanged",
    "LeaseRenewed",
    "LoadPeak",
    "LoadSummary",
    "LoadWindow",
    "NodeTopologyReported",
    "NodeUsageSampled",
    "PressureCrossed",
    "PressureReading",
    "PromiseRisk",
    "ResourceRisk",
    "Term",
    "WorkloadUsage",
    "ZoneAllocatable",
    "ZoneUsage",
]


class Capability(Struct, frozen=True, kw_only=True):
    """A capability of the machine; when it is not `present`, `detail` names what is missing."""

    name: str
    present: bool
    detail: str = ""


class NodeTopologyReported(Fact, frozen=True, kw_only=True):
    """The topology and capabilities of a machine. Published at every start, after a change, and every hour or more often.

    The bus keeps the last report of each node.

    `simulated` nodes run simulated work only. `labels`, `taints` and `rules` are the operator's.
    """

    node: NodeName
    topology: NodeTopology
    capabilities: tuple[Capability, ...] = ()
    labels: dict[str, str] = {}
    simulated: bool = False
    taints: tuple[Taint, ...] = ()
    rules: NodeRules = UNRULED


class ZoneUsage(Struct, frozen=True, kw_only=True):
    """CPU time per wall time and memory in use of one zone, all workloads together."""

    zone: Number
    cpu_used_mcpu: Mcpu
    memory_used_bytes: ZoneBytes


class WorkloadUsage(Struct, frozen=True, kw_only=True):
    """One workload of the node. Replicas that colo runs have `replica` and `attempt`; `zones` are the zones it may use."""

    workload: str
    qos: QosClass
    band: PriorityBand
    cpu_used_mcpu: Mcpu
    memory_used_bytes: Bytes
    zones: tuple[Number, ...] = ()
    replica: ReplicaName = ""
    attempt: Number = 0
    throttled_us: Us = 0


class PressureReading(Struct, frozen=True, kw_only=True):
    """Stall time of one resource in the sample's interval (us), and the kernel's 10 s averages in hundredths of a percent."""

    resource: Literal["cpu", "memory", "io"]
    some_us: Us
    full_us: Us
    some_avg10_centipct: Number = 0
    full_avg10_centipct: Number = 0


class NodeUsageSampled(Fact, frozen=True, kw_only=True):
    """One coherent sample: every number in it was read at one moment and rates cover the same `interval_ms`.

    `sample_seq` counts up within a boot of the collector. `cpu_used_mcpu` and `memory_used_bytes` are those of the whole machine;
    `system_*` is the part that belongs to no listed workload. `online_stall_us` is the time in the interval in which some thread of
    online work waited for a CPU (`some` of cpu.pressure, the largest of all its control groups); None: not measured.
    """

    node: NodeName
    sample_seq: Number
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


class PressureCrossed(Fact, frozen=True, kw_only=True):
    """A stall signal rose over (`above`) or fell under its threshold. Published at once, with hysteresis."""

    node: NodeName
    signal: Literal["cpu_some", "cpu_full", "memory_some", "memory_full", "io_some", "io_full"]
    above: bool
    value_pct: Number
    threshold_pct: Number
    window_ms: Ms
    sample_seq: Number


class Term(Struct, frozen=True, kw_only=True):
    """One named number of a formula. `zone` None: of the whole node. `source` names the place it was read from, or its setting."""

    name: str
    value: Signed
    unit: Literal["mcpu", "bytes", "pct", "ms", "count"]
    source: str
    zone: Number | None = None


class Explanation(Struct, frozen=True, kw_only=True):
    """A formula and its terms. They give the published numbers exactly."""

    formula: str
    terms: tuple[Term, ...]


class ZoneAllocatable(Struct, frozen=True, kw_only=True):
    """The allocatable of batch work in a zone, including what batch work holds already. `headroom_*` may be negative."""

    zone: Number
    batch_cpu_mcpu: Mcpu
    batch_memory_bytes: Bytes
    headroom_cpu_mcpu: Signed
    headroom_memory_bytes: Signed


class LoadWindow(Struct, frozen=True, kw_only=True):
    """Average (rounded down) and percentiles (nearest rank) of a node's usage over a window that ends at the sample.

    None: the publisher does not compute this percentile.
    """

    window_ms: Ms
    cpu_avg_mcpu: Mcpu
    memory_avg_bytes: Bytes
    cpu_p95_mcpu: Mcpu
    memory_p95_bytes: Bytes
    cpu_p50_mcpu: Mcpu | None = None
    memory_p50_bytes: Bytes | None = None
    cpu_p90_mcpu: Mcpu | None = None
    memory_p90_bytes: Bytes | None = None
    cpu_p99_mcpu: Mcpu | None = None
    memory_p99_bytes: Bytes | None = None


class LoadPeak(Struct, frozen=True, kw_only=True):
    """The highest average over five minutes within a window that ends at the sample."""

    window_ms: Ms
    cpu_mcpu: Mcpu
    memory_bytes: Bytes


class LoadSummary(Struct, frozen=True, kw_only=True):
    """The usage of a node: of the whole machine, its prod work, and the system part. `interval_ms` is the sample's."""

    interval_ms: Ms
    cpu_used_mcpu: Mcpu
    memory_used_bytes: Bytes
    prod_cpu_used_mcpu: Mcpu
    prod_memory_used_bytes: Bytes
    system_cpu_used_mcpu: Mcpu
    system_memory_used_bytes: Bytes
    windows: tuple[LoadWindow, ...] = ()
    peaks: tuple[LoadPeak, ...] = ()


class UnmanagedUse(Struct, frozen=True, kw_only=True):
    """The usage of a zone by online work that colo did not place: now, and the 95th percentile (nearest rank) of five minutes."""

    zone: Number
    cpu_mcpu: Mcpu
    memory_bytes: ZoneBytes
    cpu_p95_mcpu: Mcpu = 0
    memory_p95_bytes: ZoneBytes = 0


class ResourceRisk(Struct, frozen=True, kw_only=True):
    """The risk of one resource: its margin in millionths of a zone's capacity, and of the promises that were judged in the last 24
    hours how many were broken. `broken_most_ratio`: with 95 % confidence no larger share is broken; 1 before one was judged.
    """

    margin_millionths: Number
    judged: Number
    broken: Number
    broken_most_ratio: float = 1.0


class PromiseRisk(Struct, frozen=True, kw_only=True):
    """Risk control of a node: a promise is broken when less than was promised is left within `take_back_ms`.

    The margins are moved so that `target_ratio` of the promises are broken in the long run.
    """

    target_ratio: float
    take_back_ms: Ms
    cpu: ResourceRisk
    memory: ResourceRisk


class AllocatableChanged(Fact, frozen=True, kw_only=True):
    """The allocatable of batch work on a node; node values are the sums of the zones. All numbers come from sample `sample_seq`.

    It is never below what running batch replicas hold. The bus keeps the last one of each node. `load` is the node's usage in this
    sample and the samples before it. `unmanaged` is the usage by online work that colo did not place; a zone that is not listed has
    none. With `unmanaged` None the usage is not known, and the scheduler places no online work on the node.
    With `risk` None the margins are the policy's and stay.
    """

    node: NodeName
    sample_seq: Number
    sampled_at_ms: Ms
    freshness: Freshness
    batch_cpu_mcpu: Mcpu
    batch_memory_bytes: Bytes
    headroom_cpu_mcpu: Signed
    headroom_memory_bytes: Signed
    zones: tuple[ZoneAllocatable, ...]
    explanation: Explanation
    load: LoadSummary | None = None
    unmanaged: tuple[UnmanagedUse, ...] | None = None
    risk: PromiseRisk | None = None


class LeaseRenewed(Fact, frozen=True, kw_only=True):
    """The control plane received sample `sample_seq` of the node, so batch work may go on for `lease_ms` from now. Lossy."""

    node: NodeName
    sample_seq: Number
    batch_cpu_mcpu: Mcpu
    lease_ms: Ms


class FreshnessChanged(Fact, frozen=True, kw_only=True):
    """The freshness of a node's samples changed. The jobs service requeues the replicas of a `lost` node."""

    node: NodeName
    freshness: Freshness
    previous: Freshness
    sample_seq: Number
    age_ms: Ms
