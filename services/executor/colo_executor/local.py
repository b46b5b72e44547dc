"""Events and effects that never leave the node: between the cores, their shell and the runtime."""

from typing import Literal

from msgspec import Struct

from colo_common.events.enforcement import KnobValue, PlacementRefused, ReplicaEnded
from colo_common.model.placement import Placement
from colo_common.model.reasons import EndCause, Reason

__all__ = [
    "Adopted",
    "AdoptedReplica",
    "CeilingMoved",
    "CeilingRefused",
    "CeilingWritten",
    "Drift",
    "FastReading",
    "LaunchFailed",
    "LaunchReplica",
    "RememberEnd",
    "RememberPlacement",
    "RenewLease",
    "ReplicaExited",
    "ReplicaLaunched",
    "SetCeiling",
    "SignalReplica",
    "StopIntent",
]


class FastReading(Struct, frozen=True, kw_only=True):
    """What a few kernel counters say about the last moment: the reflex's only input.

    `online_used_mcpu` is everything that is neither batch work nor the kernel's own interrupt and stolen time
    (`system_used_mcpu`). Never negative.
    """

    at_ms: int
    capacity_mcpu: int
    online_used_mcpu: int
    batch_used_mcpu: int = 0
    system_used_mcpu: int = 0


class SetCeiling(Struct, frozen=True, kw_only=True):
    """Effect: write the batch tier's CPU ceiling. Answered by CeilingWritten or CeilingRefused."""

    ceiling_mcpu: int


class CeilingWritten(Struct, frozen=True, kw_only=True):
    """The kernel shows this ceiling; `knobs` are the files as they were read back."""

    ceiling_mcpu: int
    knobs: tuple[KnobValue, ...] = ()


class CeilingRefused(Struct, frozen=True, kw_only=True):
    """The kernel did not take the ceiling."""

    ceiling_mcpu: int
    detail: str


class CeilingMoved(Struct, frozen=True, kw_only=True):
    """The reflex tells the other core what it did: the ceiling in the kernel changed, and why.

    `before_mcpu` is the node's capacity where there was no ceiling before.
    """

    at_ms: int
    reason: Reason
    ceiling_mcpu: int
    before_mcpu: int
    online_used_mcpu: int
    target_mcpu: int
    capacity_mcpu: int
    knobs: tuple[KnobValue, ...] = ()


class RenewLease(Struct, frozen=True, kw_only=True):
    """The control plane was heard: batch work may go on for `lease_ms` (0: for as long as the last lease said)."""

    lease_ms: int = 0


class StopIntent(Struct, frozen=True, kw_only=True):
    """Why an attempt is being stopped, and when SIGTERM's patience ends (Unix ms)."""

    cause: EndCause
    reason: Reason
    kill_at_ms: int
    eviction: str = ""


class LaunchReplica(Struct, frozen=True, kw_only=True):
    """Effect: start the placement. Answered by ReplicaLaunched or LaunchFailed. `sent_us` is the command's, for its span."""

    placement: Placement
    sent_us: int = 0


class SignalReplica(Struct, frozen=True, kw_only=True):
    """Effect: "term" asks every process of the attempt to end (and is journaled with its intent), "kill" ends them all."""

    replica: str
    attempt: int
    signal: Literal["term", "kill"]
    intent: StopIntent


class RememberPlacement(Struct, frozen=True, kw_only=True):
    """Effect: journal a placement that waits until an older attempt of its replica is gone."""

    placement: Placement


class RememberEnd(Struct, frozen=True, kw_only=True):
    """Effect: journal how an attempt ended, so that it can be told again after a crash."""

    fact: ReplicaEnded | PlacementRefused


class ReplicaLaunched(Struct, frozen=True, kw_only=True):
    """The attempt's process runs in its control group; `knobs` were read back."""

    replica: str
    attempt: int
    pid: int = 0
    knobs: tuple[KnobValue, ...] = ()


class LaunchFailed(Struct, frozen=True, kw_only=True):
    """Nothing was started, nothing was left behind."""

    replica: str
    attempt: int
    reason: Reason
    detail: str = ""


class ReplicaExited(Struct, frozen=True, kw_only=True):
    """No process of the attempt is left and its control group is gone.

    `exit_code` None: nobody knows it (the process ended while no executor watched). `cpu_used_ms` is CPU time.
    """

    replica: str
    attempt: int
    exit_code: int | None
    oom: bool = False
    cpu_used_ms: int = 0
    detail: str = ""


class Drift(Struct, frozen=True, kw_only=True):
    """Somebody else changed kernel files that the executor keeps: `knobs` are as they belong again, `before` is what they showed.

    `failed`: a sentence for each that could not be put back.
    """

    knobs: tuple[KnobValue, ...] = ()
    failed: tuple[str, ...] = ()


class AdoptedReplica(Struct, frozen=True, kw_only=True):
    """One attempt the journal knows. Not `alive`: its ReplicaExited follows."""

    placement: Placement
    pid: int
    launched_at_ms: int
    alive: bool = True
    stop: StopIntent | None = None


class Adopted(Struct, frozen=True, kw_only=True):
    """What a starting executor found: attempts, placements that waited, and ends that may not have been told."""

    replicas: tuple[AdoptedReplica, ...] = ()
    waiting: tuple[Placement, ...] = ()
    ended: tuple[ReplicaEnded | PlacementRefused, ...] = ()
