"""Facts about nodes. The collector and the overcommit service publish them."""

from typing import Literal

from msgspec import Struct

from colo_common.events.fact import Fact, FencedFact
from colo_common.model.constraints import Taint
from colo_common.model.freshness import Freshness
from colo_common.model.node_rules import UNRULED, NodeRules
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.stall import StallGate
from colo_common.model.topology import NodeTopology
from colo_common.model.units import Bytes, Mcpu, Ms, NodeName, Number, ReplicaName, Signed, Us, ZoneBytes

__all__ = [
    "AllocatableChanged",
    "BusinessMetric",
    "CacheUse",
    "Capability",
    "ClassUsage",
    "DeviceUse",
    "Explanation",
    "UnmanagedUse",
    "FreshnessChanged",
    "LeaseRenewed",
    "LoadPeak",
    "LoadSummary",
    "LoadWindow",
    "MachineDetail",
    "MemoryEventsGrew",
    "NodeFactsWanted",
    "NodeTopologyReported",
    "NodeUsageSampled",
    "PressureCrossed",
    "PressureReading",
    "PromiseRisk",
    "ResourceRisk",
    "SloViolations",
    "Term",
    "UsageWindow",
    "WorkloadDetail",
    "WorkloadUsage",
    "ZoneAllocatable",
    "ZoneMid",
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


class ZoneUsage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """CPU time per wall time and memory in use of one zone, all workloads together.

    `steal_mcpu` is what a hypervisor took of its CPUs, None: not known. `stall_pct` is the stall of the online workloads that may
    use this zone alone, by the rule of `colo_common.model.stall` over their sums; None: nobody's is known, as of work that may use
    several zones.
    """

    zone: Number
    cpu_used_mcpu: Mcpu
    memory_used_bytes: ZoneBytes
    steal_mcpu: Mcpu | None = None
    stall_pct: Number | None = None


class PressureReading(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Stall time of one resource in the interval (us), the kernel's averages over 10, 60 and 300 s in hundredths of a percent, and
    its totals since boot.
    """

    resource: Literal["cpu", "memory", "io"]
    some_us: Us
    full_us: Us
    some_avg10_centipct: Number = 0
    full_avg10_centipct: Number = 0
    some_avg60_centipct: Number = 0
    full_avg60_centipct: Number = 0
    some_avg300_centipct: Number = 0
    full_avg300_centipct: Number = 0
    some_total_us: Us = 0
    full_total_us: Us = 0


class WorkloadDetail(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What costs too much to read of every workload every period: each has its turn, and its growth covers `span_ms`.

    Every value was read in the pass of its sample; None: the kernel does not say. `run_us`, `wait_us` and `steal_us` are those of
    RunTimes. `numa_bytes` has (zone, bytes), `remote_pct` is the share of them outside the zones whose CPUs it may use. `disk_*`,
    `*_periods`, `*_switches` and `*_events` grew in the span.
    """

    span_ms: Ms = 0
    anon_bytes: Bytes | None = None
    file_bytes: Bytes | None = None
    shmem_bytes: Bytes | None = None
    numa_bytes: tuple[tuple[Number, Bytes], ...] = ()
    remote_pct: Number | None = None
    pressure: tuple[PressureReading, ...] = ()
    run_us: Us | None = None
    wait_us: Us | None = None
    steal_us: Us | None = None
    throttled_periods: Number | None = None
    periods: Number | None = None
    tasks: Number | None = None
    involuntary_switches: Number | None = None
    disk_read_bytes: Bytes | None = None
    disk_written_bytes: Bytes | None = None
    high_events: Number | None = None
    max_events: Number | None = None
    oom_events: Number | None = None
    oom_kill_events: Number | None = None


class SloViolations(Struct, frozen=True, kw_only=True):
    """How many values of a metric broke its SLO in a window: the violation rate is above / samples."""

    window_ms: Ms
    samples: Number
    above: Number


class BusinessMetric(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a workload says of itself, in thousandths, and how old that is.

    `slowdown_pct` compares it with the declared baseline, else (`is_own_baseline`) with the median of its own last half hour, once
    that has twenty values: 100 is as good, 150 half as slow again. `violations` are of `slo_milli`, the shortest window first;
    None: the metric has no SLO. `breaks_slo`: this value breaks it. `is_pushed`: the workload sent it, nobody asked.
    `slo_revision` is the revision of the colocation policy that gave the SLO, which this collector judges by since `slo_since_ms`;
    0: the SLO is declared with the metric, or is the collector's setting.
    """

    metric: str
    value_milli: Signed
    age_ms: Ms
    baseline_milli: Signed | None = None
    slowdown_pct: Number | None = None
    slo_milli: Signed | None = None
    violations: tuple[SloViolations, ...] = ()
    is_own_baseline: bool = False
    breaks_slo: bool = False
    is_pushed: bool = False
    slo_revision: Number = 0
    slo_since_ms: Ms = 0


class UsageWindow(Struct, frozen=True, kw_only=True):
    """The distribution of one number over a window that ends at the sample; percentiles are within two percent.

    `of` is "node", "system" (the use of no workload) or a QoS class, `what` is "cpu_mcpu", "memory_bytes" or "stall_pct".
    """

    of: str
    what: str
    window_ms: Ms
    samples: Number
    average: Number
    p50: Number
    p90: Number
    p95: Number
    p99: Number
    largest: Number


class WorkloadUsage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One workload of the node. Replicas that colo runs have `replica` and `attempt`; `zones` are the zones it may use.

    `stall_pct` is its stall by the rule of `colo_common.model.stall`, over `stall_span_ms`, which ended `stall_age_ms` before the
    sample; None: not measured. `stall_gate` says why it must blame nobody. `cpu_some_us` is for how long some of its threads waited
    for a CPU in the interval, from its control group. `pod` is "namespace/name" where a kubelet told it. `host_revision`: it is a
    host application, by this revision of the colocation policy since `host_since_ms`, or by the agent's setting (0).
    """

    workload: str
    qos: QosClass
    band: PriorityBand
    cpu_used_mcpu: Mcpu
    memory_used_bytes: Bytes
    zones: tuple[Number, ...] = ()
    replica: ReplicaName = ""
    attempt: Number = 0
    throttled_us: Us = 0
    stall_pct: Number | None = None
    stall_gate: StallGate = ""
    stall_span_ms: Ms = 0
    stall_age_ms: Ms = 0
    cpu_some_us: Us | None = None
    detail: WorkloadDetail | None = None
    pod: str = ""
    business: BusinessMetric | None = None
    host_revision: Number | None = None
    host_since_ms: Ms = 0


class ClassUsage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The workloads of one QoS class together, all of one sample.

    `stall_pct` is the rule of `colo_common.model.stall` over the sums of those that may blame others; None: nobody's is known.
    `satisfaction_pct`, of class BE alone, is the share that its threads got of the CPU time that they wanted: ran / (ran + waited +
    stolen), rounded down, where a ceiling that stopped them is waiting, too; 100 where they wanted none, None: nobody's is known.
    """

    qos: QosClass
    workloads: Number
    cpu_used_mcpu: Mcpu
    memory_used_bytes: Bytes
    stall_pct: Number | None = None
    throttled_us: Us = 0
    satisfaction_pct: Number | None = None


class CacheUse(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one resctrl group uses of one cache domain: bytes in the cache, and memory bandwidth over the interval.

    `group` is the path below the root of resctrl, "" the default group. None: not monitored, or the hardware had no answer.
    """

    group: str
    domain: Number
    llc_bytes: Bytes | None = None
    total_bytes_per_s: Bytes | None = None
    local_bytes_per_s: Bytes | None = None


class DeviceUse(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much a device of the topology is used, in one sample of ten.

    What grew covers `span_ms`; None: its driver does not say.
    """

    kind: str
    device: Number
    span_ms: Ms = 0
    busy_pct: Number | None = None
    memory_used_bytes: Bytes | None = None
    received_bytes: Bytes | None = None
    sent_bytes: Bytes | None = None


class MachineDetail(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The whole machine beside its use, of the pass of the sample; growth covers its interval. None: the kernel does not say.

    `run_us` and `wait_us` are those of all run queues together, `disk_*` of whole disks, `network_*` of devices that are no
    bridges, tunnels or loopbacks. `tasks` are threads.
    """

    run_us: Us | None = None
    wait_us: Us | None = None
    tasks: Number | None = None
    runnable: Number | None = None
    disk_read_bytes: Bytes | None = None
    disk_written_bytes: Bytes | None = None
    network_received_bytes: Bytes | None = None
    network_sent_bytes: Bytes | None = None
    oom_kill_events: Number | None = None
    context_switches: Number | None = None
    caches: tuple[CacheUse, ...] = ()
    devices: tuple[DeviceUse, ...] = ()


class NodeUsageSampled(Fact, frozen=True, kw_only=True):
    """One coherent sample: every number in it was read at one moment and rates cover the same `interval_ms`.

    `sample_seq` counts up within a boot of the collector. `cpu_used_mcpu` and `memory_used_bytes` are those of the whole machine;
    `system_*` is the part that belongs to no listed workload. `online_stall_us` is the time in the interval in which some thread of
    online work waited for a CPU (`some` of cpu.pressure, the largest of all its control groups); None: not measured.
    `monotonic_ms` is the machine's monotonic clock at `at_ms`, 0 where nobody said. `missing` names what could not be read or
    has no rate in this sample ("steal", "pressure-io"). `pressure` is of the whole node: under colocation it is high because batch
    work waits, so it is shown and decides nothing. `windows` come with one sample in thirty
    seconds.
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
    monotonic_ms: Ms = 0
    missing: tuple[str, ...] = ()
    classes: tuple[ClassUsage, ...] = ()
    detail: MachineDetail | None = None
    windows: tuple[UsageWindow, ...] = ()


class PressureCrossed(Fact, frozen=True, kw_only=True):
    """A stall signal rose over (`above`) or fell under its threshold. Published at once, with hysteresis."""

    node: NodeName
    signal: Literal["cpu_some", "cpu_full", "memory_some", "memory_full", "io_some", "io_full"]
    above: bool
    value_pct: Number
    threshold_pct: Number
    window_ms: Ms
    sample_seq: Number


class MemoryEventsGrew(Fact, frozen=True, kw_only=True):
    """A workload's memory was throttled (`high`), at its limit (`max`) or out of memory, or a process of it was killed.

    The numbers are the growth since the last such fact about it. Running out of memory is published at once, the others at most
    once in ten seconds.
    """

    node: NodeName
    workload: str
    replica: ReplicaName = ""
    attempt: Number = 0
    high_events: Number = 0
    max_events: Number = 0
    oom_events: Number = 0
    oom_kill_events: Number = 0
    sample_seq: Number = 0


class Term(Struct, frozen=True, kw_only=True, gc=False):
    """One named number of a formula. `zone` None: of the whole node. `source` names the place it was read from, or its setting.

    `age_ms` is how old what the source says was when the explanation was made, None where that is not known; `sample_seq` is the
    sample that the value was read from, None for what no sample says.
    """

    name: str
    value: Signed
    unit: Literal["mcpu", "bytes", "pct", "ms", "count"]
    source: str
    zone: Number | None = None
    age_ms: Ms | None = None
    sample_seq: Number | None = None


class Explanation(Struct, frozen=True, kw_only=True, gc=False):
    """A formula and its terms. They give the published numbers exactly."""

    formula: str
    terms: tuple[Term, ...]


class ZoneAllocatable(Struct, frozen=True, kw_only=True, gc=False):
    """The allocatable of batch work in a zone, including what batch work holds already. `headroom_*` may be negative."""

    zone: Number
    batch_cpu_mcpu: Mcpu
    batch_memory_bytes: Bytes
    headroom_cpu_mcpu: Signed
    headroom_memory_bytes: Signed


class ZoneMid(Struct, frozen=True, kw_only=True):
    """What the mid tier gets in a zone, beside the allocatable of batch work."""

    zone: Number
    cpu_mcpu: Mcpu
    memory_bytes: Bytes


class LoadWindow(Struct, frozen=True, kw_only=True, gc=False):
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


class LoadPeak(Struct, frozen=True, kw_only=True, gc=False):
    """The highest average over five minutes within a window that ends at the sample."""

    window_ms: Ms
    cpu_mcpu: Mcpu
    memory_bytes: Bytes


class LoadSummary(Struct, frozen=True, kw_only=True, gc=False):
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


class UnmanagedUse(Struct, frozen=True, kw_only=True, gc=False):
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


class AllocatableChanged(FencedFact, frozen=True, kw_only=True):
    """The allocatable of batch work on a node; node values are the sums of the zones. All numbers come from sample `sample_seq`.

    It is never below what running batch replicas hold. The bus keeps the last one of each node. `load` is the node's usage in this
    sample and the samples before it. `unmanaged` is the usage by online work that colo did not place; a zone that is not listed has
    none. With `unmanaged` None the usage is not known, and the scheduler places no online work on the node.
    With `risk` None the margins are the policy's and stay. `mid` is the mid tier by zone; () where it is off, and on a node that is
    not fresh.
    """

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
    mid: tuple[ZoneMid, ...] = ()


class LeaseRenewed(FencedFact, frozen=True, kw_only=True):
    """The control plane received sample `sample_seq` of the node, so batch work may go on for `lease_ms` from now. Lossy."""

    sample_seq: Number
    batch_cpu_mcpu: Mcpu
    lease_ms: Ms


class NodeFactsWanted(Fact, frozen=True, kw_only=True):
    """The bus has lost what only the node knows: its collector tells the topology again, its executor what runs there. Lossy.

    Overcommit asks so while samples come of a node without a topology, and when the stream of topologies was made again.
    """

    node: NodeName


class FreshnessChanged(FencedFact, frozen=True, kw_only=True):
    """The freshness of a node's samples changed. The jobs service requeues the replicas of a `lost` node."""

    freshness: Freshness
    previous: Freshness
    sample_seq: Number
    age_ms: Ms
