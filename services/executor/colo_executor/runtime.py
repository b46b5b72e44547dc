"""What the shell needs of something that runs replicas: real processes in control groups, or a simulated machine."""

from typing import Protocol

from colo_common.model.placement import Placement
from colo_executor.local import (
    Adopted,
    CeilingRefused,
    CeilingWritten,
    Drift,
    FastReading,
    LaunchFailed,
    RememberEnd,
    RememberPlacement,
    ReplicaExited,
    ReplicaLaunched,
    SignalReplica,
)

__all__ = ["Runtime"]


class Runtime(Protocol):
    """Calls that may wait are coroutines; the others return at once and are made every few milliseconds by the reflex."""

    @property
    def capacity_mcpu(self) -> int:
        """CPU of the machine; known after `adopt`."""
        ...

    @property
    def ceiling_mcpu(self) -> int | None:
        """The batch ceiling the machine has; None when it has none. Known after `adopt`."""
        ...

    @property
    def has_batch(self) -> bool:
        """Whether any replica is here."""
        ...

    async def adopt(self, now_ms: int) -> Adopted:
        """Prepare the machine and tell what an earlier executor left; attempts found dead appear in `poll_exits` later."""
        ...

    async def launch(self, placement: Placement, now_ms: int) -> ReplicaLaunched | LaunchFailed:
        """Start the placement; a failure leaves nothing behind."""
        ...

    async def signal(self, effect: SignalReplica) -> None:
        """Ask the attempt to end, or end it. An attempt that is gone is no error."""
        ...

    async def remember(self, effect: RememberPlacement | RememberEnd) -> None:
        """Keep it over a crash of the executor."""
        ...

    def poll_exits(self) -> tuple[ReplicaExited, ...]:
        """Attempts that are over since the last call, each told once."""
        ...

    def read_fast(self, now_ms: int) -> FastReading | None:
        """The newest reading, or None when there is none yet (the first call) or it could not be read."""
        ...

    def set_ceiling(self, ceiling_mcpu: int) -> CeilingWritten | CeilingRefused:
        """Write the batch ceiling and read it back."""
        ...

    async def reconcile(self) -> Drift | None:
        """Put back what somebody else changed of the kernel files; None when nothing was, and then nothing was written."""
        ...

    async def restore(self) -> tuple[ReplicaExited, ...]:
        """End every replica, put every kernel file back, remove every own control group; what ended by it."""
        ...

    async def close(self) -> None:
        """Let go; replicas run on."""
        ...
