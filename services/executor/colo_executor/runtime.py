"""The port through which the shell runs replicas: as processes in control groups, or on a simulated machine."""

from collections.abc import Collection
from typing import Protocol

from colo_common.events.enforcement import ZoneCeiling
from colo_common.model.placement import Placement
from colo_executor.kept_cpus import KeptCpus
from colo_executor.lease import LastLease
from colo_executor.local import (
    Adopted,
    Attempt,
    CeilingRefused,
    CeilingWritten,
    DiskOverused,
    Drift,
    FastReading,
    FreezeRefused,
    FreezeWritten,
    LaunchFailed,
    Remembered,
    ReplicaExited,
    ReplicaLaunched,
    ReplicasSuspended,
    SignalReplica,
    SuspendReplicas,
)
from colo_executor.located_devices import DeviceAddress
from colo_executor.open_cpus import OpenCpus

__all__ = ["Runtime"]


class Runtime(Protocol):
    """Runs the replicas of one node. Coroutines may wait; the reflex makes the other calls every few milliseconds."""

    @property
    def capacity_mcpu(self) -> int:
        """The CPU capacity of the machine; known after `adopt`."""
        ...

    @property
    def ceiling_mcpu(self) -> int | None:
        """The batch ceiling of the machine, None without one; known after `adopt`."""
        ...

    @property
    def zone_ceilings(self) -> tuple[ZoneCeiling, ...]:
        """The ceilings of NUMA zones below their capacity on the machine; known after `adopt`."""
        ...

    @property
    def has_whole_cores(self) -> bool:
        """Whether batch work has only as many whole cores as its ceiling needs; known after `adopt`."""
        ...

    @property
    def open_cpus(self) -> OpenCpus:
        """The own CPUs of LSE and LSR work on which others may run, too, as the last `reconcile` found them."""
        ...

    @property
    def has_batch(self) -> bool:
        """Whether a batch replica runs on this node."""
        ...

    async def adopt(self, now_ms: int) -> Adopted:
        """Prepare the machine and return what an earlier executor left; attempts found dead appear in `poll_exits` later."""
        ...

    async def launch(self, placement: Placement, now_ms: int) -> ReplicaLaunched | LaunchFailed:
        """Start the placement; a failure leaves nothing behind."""
        ...

    async def signal(self, effect: SignalReplica) -> None:
        """Ask the attempt to end, or kill it. An attempt that has exited is no error."""
        ...

    async def suspend(self, effect: SuspendReplicas) -> ReplicasSuspended:
        """Freeze the attempts or let them run again; one that has exited is no error."""
        ...

    async def locate_devices(self, devices: tuple[DeviceAddress, ...]) -> None:
        """Find the files of devices there from now on."""
        ...

    async def keep_cpus(self, kept: KeptCpus) -> str:
        """Give these CPUs to nobody from now on. Returns "", or why it is not so yet; it is then tried again by `reconcile`."""
        ...

    async def remember(self, effect: Remembered) -> None:
        """Keep it over a crash of the executor."""
        ...

    def continued_lease(self) -> LastLease:
        """The lease as an earlier executor last heard of it; known after `adopt`. Where none did it begins now."""
        ...

    def note_lease(self, lease_ms: int) -> None:
        """Keep it over a crash of the executor that the lease was renewed now; `lease_ms` below 1: for as long as before."""
        ...

    def poll_exits(self) -> tuple[ReplicaExited, ...]:
        """The attempts that exited since the last call, each reported once."""
        ...

    def poll_overused(self) -> tuple[DiskOverused, ...]:
        """The attempts that a look since the last call found above their limit of disk."""
        ...

    def read_fast(self, now_ms: int) -> FastReading | None:
        """The newest reading; None at the first call, or when a counter could not be read."""
        ...

    def set_ceiling(
        self, ceiling_mcpu: int, zones: tuple[ZoneCeiling, ...] | None = None, *, has_whole_cores: bool = False
    ) -> CeilingWritten | CeilingRefused:
        """Write the batch ceiling, then the ceilings of the zones that are below their capacity, and read them back.

        With `has_whole_cores` batch work has as many whole cores as the ceiling needs. `zones` None leaves the zones and the cores
        as they are.
        """
        ...

    def read_ceiling(self) -> int | None:
        """The batch ceiling as the kernel shows it now, None without one. Raises OSError or CgroupError when it cannot be read."""
        ...

    def set_frozen(self, *, is_frozen: bool) -> FreezeWritten | FreezeRefused:
        """Freeze all batch work, or let it run again, and read that back. Refused while a replica is being ended."""
        ...

    def read_frozen(self) -> bool:
        """Whether the kernel freezes batch work now. Raises OSError or CgroupError when it cannot be read."""
        ...

    async def reconcile(self, *, observes: bool = False, paused: Collection[Attempt] = ()) -> Drift | None:
        """Put back the kernel files that another program changed; None, and nothing written, when none was changed.

        `observes`: only find them. So it is for the groups of the `paused` attempts.
        """
        ...

    async def restore(self) -> tuple[ReplicaExited, ...]:
        """End every replica, put every kernel file back, remove every control group. Returns the exits. Raises NotRestored."""
        ...

    async def close(self) -> None:
        """Release the machine; replicas run on."""
        ...
