"""Events and effects between the cores, their shell and the runtime; they never leave the node."""

from typing import Literal

from msgspec import Struct

from colo_common.events.enforcement import (
    KnobValue,
    LikelyWriter,
    MemoryTerms,
    PlacementRefused,
    ReplicaEnded,
    ZoneCeiling,
    ZoneTerms,
)
from colo_common.model.placement import Placement
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.restriction import Restriction
from colo_common.model.slo import OnlineViolation
from colo_executor.bandwidth import MemoryTraffic
from colo_executor.kept_cpus import KeptCpus
from colo_executor.located_devices import DeviceAddress
from colo_executor.stall import OnlineStalls
from colo_executor.zone_ceilings import ZoneReading

__all__ = [
    "Adopted",
    "AdoptedReplica",
    "Attempt",
    "CeilingFound",
    "CeilingMoved",
    "CeilingRefused",
    "CeilingWritten",
    "DiskOverused",
    "Drift",
    "FastReading",
    "FreezeRefused",
    "FreezeWritten",
    "FrozenFound",
    "FrozenMoved",
    "KeepCpus",
    "LaunchFailed",
    "LaunchReplica",
    "LocateDevices",
    "NoteMode",
    "NoteViolation",
    "RememberTerm",
    "Remembered",
    "RememberEnd",
    "RememberPlacement",
    "RenewLease",
    "ReplicaExited",
    "ReplicaLaunched",
    "SetCeiling",
    "SetFrozen",
    "SignalReplica",
    "ReplicasSuspended",
    "RememberRestrictions",
    "StopIntent",
    "SuspendReplicas",
]


Attempt = tuple[str, int]
"""Replica and number of an attempt."""

LowPriority = Literal["", "idle", "bvt", "weight"]
"""`idle`, `bvt`: batch work gets only CPU time that nothing else uses, by cpu.idle or by group identities. `weight`: next to none
while anything else wants it. "": more.
"""


class FastReading(Struct, frozen=True, kw_only=True):
    """CPU use over a short window, from a few kernel counters: the input of the reflex.

    `capacity_mcpu` leaves out CPUs of LSE work, which batch work never gets, also not while they are idle, and `online_used_mcpu`
    the use of that work; it is all other use but that of batch work and of the system (`system_used_mcpu`: interrupt and stolen
    time, and the use of withheld CPUs). Never negative. `reserved_mcpu` are the CPUs that the node's rules withhold.
    `low_priority`: what the kernel was read back to make batch work give way by. `stalls` None: what online work waits for cannot
    be read. `may_freeze`: batch work runs here that the kernel can freeze, and none of it is being ended. `zones` are the NUMA
    zones of a machine that has several and whose kernel can keep batch work off CPUs; empty elsewhere. `shares_cores`: threads of
    one core run batch and online work side by side, and batch work could keep to whole cores. `memory` is what memory carries, of
    the last second in which that was read; None: it is not read.
    """

    at_ms: int
    capacity_mcpu: int
    online_used_mcpu: int
    batch_used_mcpu: int = 0
    system_used_mcpu: int = 0
    reserved_mcpu: int = 0
    low_priority: LowPriority = ""
    stalls: OnlineStalls | None = None
    may_freeze: bool = False
    zones: tuple[ZoneReading, ...] = ()
    shares_cores: bool = False
    memory: MemoryTraffic | None = None


class SetCeiling(Struct, frozen=True, kw_only=True):
    """Effect: write the batch tier's CPU ceiling, and take CPUs of `zones`, which are below their capacity, from batch work.

    Batch work has all CPUs of its pool in zones that are not named; with `has_whole_cores` it has only as many whole cores as the
    ceiling needs. Answered by CeilingWritten or CeilingRefused.
    """

    ceiling_mcpu: int
    zones: tuple[ZoneCeiling, ...] = ()
    has_whole_cores: bool = False


class CeilingWritten(Struct, frozen=True, kw_only=True):
    """The kernel has this ceiling; `knobs` are the files as they were read back. `observed`: it would have it, and has not.

    `zones` are the ceilings of zones that the kernel has now, and `has_whole_cores` whether batch work keeps to whole cores: as
    before where it did not take the CPU sets, which `sets_refused` says.
    """

    ceiling_mcpu: int
    knobs: tuple[KnobValue, ...] = ()
    observed: bool = False
    zones: tuple[ZoneCeiling, ...] = ()
    has_whole_cores: bool = False
    sets_refused: str = ""


class CeilingFound(Struct, frozen=True, kw_only=True):
    """The kernel has another ceiling than the last one written: a watchdog or another program changed it. None: it has none."""

    ceiling_mcpu: int | None


class CeilingRefused(Struct, frozen=True, kw_only=True):
    """The kernel did not take the ceiling."""

    ceiling_mcpu: int
    detail: str


class SetFrozen(Struct, frozen=True, kw_only=True):
    """Effect: freeze all batch work, or let it run again. Answered by FreezeWritten or FreezeRefused."""

    is_frozen: bool


class FreezeWritten(Struct, frozen=True, kw_only=True):
    """The kernel freezes batch work, or lets it run. `observed`: it would, and does not."""

    is_frozen: bool
    knobs: tuple[KnobValue, ...] = ()
    observed: bool = False


class FreezeRefused(Struct, frozen=True, kw_only=True):
    """The kernel did not freeze or thaw batch work, or a replica is being ended meanwhile."""

    is_frozen: bool
    detail: str


class FrozenFound(Struct, frozen=True, kw_only=True):
    """The kernel shows another state than the last one written: a watchdog or another program changed it."""

    is_frozen: bool


class FrozenMoved(Struct, frozen=True, kw_only=True):
    """The reflex froze batch work or let it run again, and why; an event of the executor core.

    `group` is the group of online work that waited for a CPU, `pct` its share of the time; or `workload` broke the SLO of its
    latency in `pct` percent of its values; without either `pct` is the use of the node by online work. `rule` decides the ceiling.
    """

    at_ms: int
    is_frozen: bool
    reason: Reason
    ceiling_mcpu: int
    capacity_mcpu: int
    online_used_mcpu: int = 0
    system_used_mcpu: int = 0
    reserved_mcpu: int = 0
    target_mcpu: int = 0
    threshold_pct: int = 0
    knobs: tuple[KnobValue, ...] = ()
    observed: bool = False
    rule: Literal["usage", "stall"] = "usage"
    group: str = ""
    workload: str = ""
    pct: int = 0


class CeilingMoved(Struct, frozen=True, kw_only=True):
    """The reflex changed the ceiling in the kernel, and why; an event of the executor core.

    `before_mcpu` is the node's capacity when there was no ceiling before. `rule` decided; `stall_group` is the group of online work
    that waited most for a CPU, and `stall_pct` its share, both of the stall rule only. `slo_workload` broke its SLO in
    `violation_pct` percent of its values, where that is the reason. `zone` is the one whose ceiling moved, None where none did,
    `zones` those that are below their capacity and those that are so no longer; then the ceiling may be the same as before.
    `zone_terms` are what the usage rule counted in the zones of the node. `has_whole_cores`: batch work keeps to whole cores.
    `memory` is what a zone's memory carries, where that is the reason.
    """

    at_ms: int
    reason: Reason
    ceiling_mcpu: int
    before_mcpu: int
    online_used_mcpu: int
    target_mcpu: int
    capacity_mcpu: int
    knobs: tuple[KnobValue, ...] = ()
    system_used_mcpu: int = 0
    reserved_mcpu: int = 0
    observed: bool = False
    rule: Literal["usage", "stall"] = "usage"
    threshold_pct: int = 0
    stall_group: str = ""
    stall_pct: int = 0
    slo_workload: str = ""
    violation_pct: int = 0
    zones: tuple[ZoneCeiling, ...] = ()
    zone: int | None = None
    zone_terms: tuple[ZoneTerms, ...] = ()
    has_whole_cores: bool = False
    memory: MemoryTerms | None = None


class RenewLease(Struct, frozen=True, kw_only=True):
    """The control plane renewed the lease: batch work may go on for `lease_ms` (0: the length of the last lease).

    It counts from `received_at_ms`, which the shell notes; None: from the moment at which the reflex is told.
    """

    lease_ms: int = 0
    received_at_ms: int | None = None


class NoteMode(Struct, frozen=True, kw_only=True):
    """How the node runs batch work by its rules. On a `vm` online work runs in other kernels, whose waits nobody sees here."""

    colocation_mode: Literal["container", "vm"]


class NoteViolation(Struct, frozen=True, kw_only=True):
    """What the node's newest sample says of the violation rate of online work."""

    violation: OnlineViolation


class StopIntent(Struct, frozen=True, kw_only=True):
    """Why an attempt is being stopped, and when the grace of `grace_ms` after SIGTERM ends (Unix ms).

    `kill_at_boot_ms`, in the journal, is the same moment by the machine's time since its boot, which nobody can set; 0: not known.
    `detail` is what the end says beside the reason.
    """

    cause: EndCause
    reason: Reason
    kill_at_ms: int
    eviction: str = ""
    grace_ms: int = 0
    kill_at_boot_ms: int = 0
    detail: str = ""


class LaunchReplica(Struct, frozen=True, kw_only=True):
    """Effect: start the placement. Answered by ReplicaLaunched or LaunchFailed. `sent_us` is when the command was sent."""

    placement: Placement
    sent_us: int = 0


class SignalReplica(Struct, frozen=True, kw_only=True):
    """Effect: "term" sends SIGTERM to every process of the attempt and journals the intent; "kill" sends SIGKILL."""

    replica: str
    attempt: int
    signal: Literal["term", "kill"]
    intent: StopIntent


class RememberPlacement(Struct, frozen=True, kw_only=True):
    """Effect: journal a placement that waits until an older attempt of its replica has exited."""

    placement: Placement


class RememberEnd(Struct, frozen=True, kw_only=True):
    """Effect: journal how an attempt ended, so that its end can be published again after a crash."""

    fact: ReplicaEnded | PlacementRefused


class ReplicaLaunched(Struct, frozen=True, kw_only=True):
    """The attempt's process runs in its control group; `knobs` were read back. `group` is that of an attached one."""

    replica: str
    attempt: int
    pid: int = 0
    knobs: tuple[KnobValue, ...] = ()
    group: str = ""


class SuspendReplicas(Struct, frozen=True, kw_only=True):
    """Effect: freeze every process of these attempts (pairs of replica and attempt), or let them run again.

    Answered by ReplicasSuspended. An attempt that has exited is no error.
    """

    attempts: tuple[tuple[str, int], ...]
    is_suspended: bool


class ReplicasSuspended(Struct, frozen=True, kw_only=True):
    """These attempts are suspended, or run again. `failed` has an attempt and a sentence for each that is not as it should be."""

    attempts: tuple[tuple[str, int], ...]
    is_suspended: bool
    failed: tuple[tuple[str, int, str], ...] = ()


class RememberRestrictions(Struct, frozen=True, kw_only=True):
    """Effect: journal the restrictions that concern this node, so that an executor without a bus honours them too."""

    revision: int
    restrictions: tuple[Restriction, ...]


class RememberTerm(Struct, frozen=True, kw_only=True):
    """Effect: journal the newest term that gave an order of this kind, so that the next executor refuses those of earlier ones.

    `order`: whose terms they are (`order_of`): "stop" those of jobs, "evict" those of the evictor.
    """

    order: str
    generation: int


Remembered = RememberPlacement | RememberEnd | RememberRestrictions | RememberTerm
"""What is to outlive a crash of the executor."""


class KeepCpus(Struct, frozen=True, kw_only=True):
    """Effect: give these CPUs of the node to nobody from now on, and journal them. What cannot be written is tried again."""

    kept: KeptCpus


class LocateDevices(Struct, frozen=True, kw_only=True):
    """Effect: find the files of the node's devices there from now on, and journal it."""

    devices: tuple[DeviceAddress, ...]


class LaunchFailed(Struct, frozen=True, kw_only=True):
    """Nothing was started, nothing was left behind."""

    replica: str
    attempt: int
    reason: Reason
    detail: str = ""


class ReplicaExited(Struct, frozen=True, kw_only=True):
    """The attempt has no process left and its control group is deleted.

    `exit_code` None: unknown, because no executor watched the end of the process. `cpu_used_ms` is CPU time.
    `memory_peak_bytes` 0: not known.
    """

    replica: str
    attempt: int
    exit_code: int | None
    oom: bool = False
    cpu_used_ms: int = 0
    detail: str = ""
    memory_peak_bytes: int = 0


class DiskOverused(Struct, frozen=True, kw_only=True):
    """The outputs and the working directory of the attempt take more of the disk than they may; `detail` has both amounts and whose
    limit it is. Said with each look at them, as long as the attempt runs.
    """

    replica: str
    attempt: int
    detail: str


class Drift(Struct, frozen=True, kw_only=True):
    """Kernel files that another program changed. `knobs` are the corrected files; their `before` is the changed value.

    `failed` has one sentence for each file that could not be put back. `observed`: all are left as they are. `yielded` are left as
    they are, because an operator has paused the work. `writers` are those who changed some of the files, as far as that is known.
    `withheld` would be written to groups of others by the operator's policy, and is not, because that rule only observes.
    `journal` is a sentence about the executor's own journal, where the disk takes nothing of it.
    """

    knobs: tuple[KnobValue, ...] = ()
    failed: tuple[str, ...] = ()
    observed: bool = False
    yielded: tuple[KnobValue, ...] = ()
    writers: tuple[LikelyWriter, ...] = ()
    withheld: tuple[KnobValue, ...] = ()
    journal: str = ""


class AdoptedReplica(Struct, frozen=True, kw_only=True):
    """A journaled attempt that was launched. When it is not `alive`, its ReplicaExited follows. `group`: as of ReplicaLaunched."""

    placement: Placement
    pid: int
    launched_at_ms: int
    alive: bool = True
    stop: StopIntent | None = None
    group: str = ""


class Adopted(Struct, frozen=True, kw_only=True):
    """What a start finds: attempts that were launched, waiting placements, and ends that may not have been published.

    `restrictions` are those of table `revision` that concern the node. `terms` has for each kind of order the newest term that gave
    one. `remarks` say what of it was not as it should be. `attaches`: groups of others may be attached here, so that somebody may
    believe of an earlier one that it is.
    """

    replicas: tuple[AdoptedReplica, ...] = ()
    waiting: tuple[Placement, ...] = ()
    ended: tuple[ReplicaEnded | PlacementRefused, ...] = ()
    revision: int = 0
    restrictions: tuple[Restriction, ...] = ()
    terms: tuple[tuple[str, int], ...] = ()
    remarks: tuple[str, ...] = ()
    attaches: bool = False
