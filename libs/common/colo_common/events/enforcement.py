"""Facts about processes and control groups on a node. The executor publishes them."""

from typing import Literal

from msgspec import Struct

from colo_common.events.fact import Fact
from colo_common.model.qos import QosClass
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.units import Bytes, Mcpu, Ms, NodeName, Number, ReplicaName, Signed

__all__ = [
    "AttachedGroup",
    "AttachedGroupsChanged",
    "DriftCorrected",
    "EnforcementChanged",
    "KnobValue",
    "LikelyWriter",
    "MemoryTerms",
    "NodeRecovered",
    "OwnCpusOpened",
    "PlacementRefused",
    "ReplicaEnded",
    "ReplicaStarted",
    "ZoneCeiling",
    "ZoneTerms",
]


class KnobValue(Struct, frozen=True, kw_only=True):
    """One kernel control value as the kernel's file shows it after the write. `path` is relative to the cgroup root."""

    path: str
    value: str
    before: str = ""


class ZoneCeiling(Struct, frozen=True, kw_only=True):
    """How much CPU batch work may use in a NUMA zone, in whole CPUs, of what the zone has for it."""

    zone: Number
    ceiling_mcpu: Mcpu
    capacity_mcpu: Mcpu


class ZoneTerms(Struct, frozen=True, kw_only=True):
    """What the usage rule counted in a NUMA zone: `reserved_mcpu` is withheld there and not part of the zone's capacity.

    The zone's target is (capacity_mcpu + reserved_mcpu) * threshold_pct // 100 - online_used_mcpu - reserved_mcpu -
    system_used_mcpu; its ceiling is at most that in whole CPUs, rounded down, and one CPU at least. Where that CPU is too much,
    the ceiling of the node gives way too: it is at most `node_most_mcpu` (None: the zone's own ceiling is enough).
    """

    zone: Number
    online_used_mcpu: Mcpu = 0
    reserved_mcpu: Mcpu = 0
    system_used_mcpu: Mcpu = 0
    node_most_mcpu: Mcpu | None = None


class MemoryTerms(Struct, frozen=True, kw_only=True):
    """What all work on the CPUs of a NUMA zone read from memory and wrote to it, of the most that its operator says it sustains.

    At `mark_pct` percent of that or more the memory is full. `zone` None: all zones of the machine together.
    """

    zone: Number | None
    bytes_per_s: Bytes
    most_bytes_per_s: Bytes
    mark_pct: Number


class ReplicaStarted(Fact, frozen=True, kw_only=True):
    """The replica's process runs in its own control group, or in one that it was attached to, whose values were read back.

    `again`: it was started before and still runs: it was ordered once more, an executor found it at its start, or no order named it
    for long.
    """

    node: NodeName
    replica: ReplicaName
    job: str
    attempt: Number
    pid: Number = 0
    knobs: tuple[KnobValue, ...] = ()
    traceparent: str = ""
    again: bool = False


class ReplicaEnded(Fact, frozen=True, kw_only=True):
    """The attempt holds nothing on the node any more: its processes have exited and its control group is removed.

    Of an attached group the old values are back; its processes may run on, and `exit_code` is -1.

    `exit_code` is the process's, 128 + signal when a signal ended it, and `signal` is that signal (0: none, or an older executor).
    `cpu_used_ms` is CPU time (one CPU for 1 ms = 1), `memory_peak_bytes` the most memory that it had at once (0: not known).
    `decided_at_ms` is the placement's (0: the node had no order of it, or an older executor): another decision under this number
    is another work, of a job that came back under its id.
    """

    node: NodeName
    replica: ReplicaName
    job: str
    attempt: Number
    cause: EndCause
    exit_code: Signed
    reason: Reason | None = None
    eviction: str = ""
    cpu_used_ms: Ms = 0
    ran_ms: Ms = 0
    detail: str = ""
    signal: Number = 0
    memory_peak_bytes: Bytes = 0
    decided_at_ms: Ms = 0


class PlacementRefused(Fact, frozen=True, kw_only=True):
    """The node could not start the placed attempt. No process of it runs.

    `newest_over`: that attempt and all up to it were used here before (0: they were not), so only a newer one is started; with the
    reason older-attempt. The jobs service requests that. `decided_at_ms` is the placement's.
    """

    node: NodeName
    replica: ReplicaName
    job: str
    attempt: Number
    reason: Reason
    detail: str = ""
    newest_over: Number = 0
    decided_at_ms: Ms = 0


class EnforcementChanged(Fact, frozen=True, kw_only=True):
    """The batch tier's CPU ceiling of a node changed, and why, with everything from which it can be computed again.

    `rule` `usage`: target = capacity_mcpu * threshold_pct // 100 - online_cpu_used_mcpu - max(system_cpu_used_mcpu,
    reserved_cpu_mcpu), within the floor and the cap; the ceiling falls to it at once and rises to it in steps. `rule` `stall`:
    `stall_group` is the control group of online work that waited most for a CPU, for `stall_pct` percent of the time. The use of
    CPUs that the node withholds, which are `reserved_cpu_mcpu`, is the system's and not online work's. For the reasons
    `online-slo...`, and where batch work was frozen for it, `slo_workload` broke its SLO in `violation_pct` percent of its values.
    For the reasons `memory-bandwidth...` `memory` has what was read. `capacity_mcpu` and the use of online work leave out the CPUs
    of LSE work; 0: an older executor sent the fact. `observed`: nothing was written, because the rule or the node only observes;
    `knobs` then hold what would be written. `frozen`: batch work is frozen and gets no CPU whatever the ceiling says. A fact with
    the same ceiling before and after tells that this began or ended, mostly for the reasons `batch-frozen` and `batch-thawed...`;
    where it has a `zone`, that the ceiling of a zone changed alone. `zones` are the NUMA zones in which batch work has fewer CPUs
    than there are for it, because online work waited that runs in that zone alone, or by rule `usage` because of what it used
    there, or because its memory was full; `ceiling_mcpu` is then at most what all zones together leave. `zone` is the one whose
    ceiling moved (None: none did); it is in `zones` also where batch work has all of it again. `whole_cores`: batch work has only
    as many whole cores as the ceiling needs, and shares no core with online work; a fact with the same ceiling before and after and
    the reason `online-stall-cores` tells that this began. `zone_terms` are what the usage rule counted in `zones`; none where
    another rule decided, or by an older executor.
    """

    node: NodeName
    reason: Reason
    ceiling_mcpu: Mcpu
    ceiling_before_mcpu: Mcpu
    online_cpu_used_mcpu: Mcpu
    target_mcpu: Signed
    knobs: tuple[KnobValue, ...] = ()
    rule: Literal["usage", "stall"] = "usage"
    capacity_mcpu: Mcpu = 0
    threshold_pct: Number = 0
    system_cpu_used_mcpu: Mcpu = 0
    stall_group: str = ""
    stall_pct: Number = 0
    reserved_cpu_mcpu: Mcpu = 0
    observed: bool = False
    slo_workload: str = ""
    violation_pct: Number = 0
    frozen: bool = False
    zones: tuple[ZoneCeiling, ...] = ()
    zone: Number | None = None
    zone_terms: tuple[ZoneTerms, ...] = ()
    whole_cores: bool = False
    memory: MemoryTerms | None = None


class LikelyWriter(Struct, frozen=True, kw_only=True):
    """Who changed the file `path`, by what speaks for it; `unknown`: what speaks against somebody whose file it is."""

    path: str
    writer: Literal["systemd", "kubelet", "unknown"]
    evidence: str


class DriftCorrected(Fact, frozen=True, kw_only=True):
    """Another program changed kernel files that the executor keeps, and the executor restored them.

    `knobs` are the restored files; their `before` is the changed value. `failed` has a sentence for each file that could not be
    restored, and one for the executor's own journal where the disk takes nothing of it. Nothing in either: all of that is over.
    `observed`: nothing was written, because an operator holds the node, or the rule or the whole node only observes; then
    `value` is what would be written, and a control group that would be made is in `knobs`, too.
    `count` is the number of files of both; `knobs` and `failed` together name at most 100 of them. `writers` are those who changed
    some of them, as far as that is known: the kernel keeps no author of a value.
    """

    node: NodeName
    count: Number
    knobs: tuple[KnobValue, ...] = ()
    failed: tuple[str, ...] = ()
    observed: bool = False
    writers: tuple[LikelyWriter, ...] = ()


class NodeRecovered(Fact, frozen=True, kw_only=True):
    """An executor (re)started. `running` are the attempts that still run on the node and that it adopted.

    `remarks` are sentences about what it did not find as it should be: a damaged journal, an attempt that the journal lacked, a
    control group that is none of colo's.
    """

    node: NodeName
    running: tuple[tuple[ReplicaName, Number], ...]
    remarks: tuple[str, ...] = ()


class AttachedGroup(Struct, frozen=True, kw_only=True):
    """The control group of an attempt that nobody started: `group` is its path below the cgroup root, without a first "/"."""

    replica: ReplicaName
    attempt: Number
    qos: QosClass
    group: str


class AttachedGroupsChanged(Fact, frozen=True, kw_only=True):
    """All control groups of a node that replicas were attached to, which colo did not make.

    Their processes run as somebody else started them; by this fact the collector counts their use as that of the replica. The last
    one of a node counts; it is published again every few minutes while there are any.
    """

    node: NodeName
    groups: tuple[AttachedGroup, ...] = ()


class OwnCpusOpened(Fact, frozen=True, kw_only=True):
    """On these CPUs, which LSE or LSR work has as its own, processes may run that colo did not start.

    `groups` are the control groups at the top that such processes are in ("/": in none), for the pods of a kubelet by class, ten at
    most. Both are empty when the CPUs are the work's alone again. The last one of a node counts; it is published again each hour
    while there are any.
    """

    node: NodeName
    cpus: str = ""
    groups: tuple[str, ...] = ()
