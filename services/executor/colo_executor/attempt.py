"""One attempt of a replica on this node: its phases, its limits of stopping, and the first check of its placement."""

from enum import StrEnum
from typing import Final

from msgspec import Struct

from colo_common.events.enforcement import KnobValue
from colo_common.model.placement import Placement, parse_replica_token, replica_token
from colo_executor.inventory import malformed_share
from colo_executor.local import StopIntent

__all__ = ["KILLS_MOST", "KILL_RETRY_MS", "ReplicaAttempt", "AttemptPhase", "job_of", "refusal_of", "signal_of"]

KILL_RETRY_MS: Final = 1_000
"""Time between two SIGKILLs of an attempt that still runs."""

_SIGNAL_LAST: Final = 64
KILLS_MOST: Final = 10
"""The most SIGKILLs of an attempt. A process that survives them waits for a device; its exit is still received."""


class AttemptPhase(StrEnum):
    """launching -> running -> stopping. An attempt that ended moves to `Ended`."""

    LAUNCHING = "launching"
    RUNNING = "running"
    STOPPING = "stopping"


class ReplicaAttempt(Struct, frozen=True, kw_only=True):
    """The core's state of an active attempt. `next_kill_ms` None: no SIGKILL is due. `group`: the group that it is attached to."""

    placement: Placement
    phase: AttemptPhase
    since_ms: int
    pid: int = 0
    knobs: tuple[KnobValue, ...] = ()
    stop: StopIntent | None = None
    next_kill_ms: int | None = None
    kills: int = 0
    group: str = ""


def job_of(replica: str) -> str:
    """The job of a replica id "job/task/index"."""
    return replica.split("/", 1)[0]


def signal_of(exit_code: int | None) -> int:
    """The signal that ended a process, by the rule of a shell: 128 + signal; 0 for every other code."""
    return exit_code - 128 if exit_code is not None and 128 < exit_code <= 128 + _SIGNAL_LAST else 0


def refusal_of(placement: Placement, node: str) -> str:
    """Empty when this node can try the placement, else one sentence that names the field and the rule."""
    if placement.attempt < 1:
        return f"attempt: must be at least 1 (got {placement.attempt})"
    token = replica_token(placement.replica, placement.attempt)
    if parse_replica_token(token) != (placement.replica, placement.attempt):
        return f'replica: must be "job/task/index" of two DNS labels and a number (got {placement.replica[:80]!r})'
    if placement.node != node:
        return f"node: must be this node, {node} (got {placement.node[:80]!r})"
    if placement.cpu_mcpu < 1 or placement.memory_bytes < 1:
        return f"cpu_mcpu and memory_bytes: must be at least 1 (got {placement.cpu_mcpu}, {placement.memory_bytes})"
    return malformed_share(placement)
