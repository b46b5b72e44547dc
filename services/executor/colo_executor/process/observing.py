"""The runtime of a node that only observes: it says what would be written and started, and writes no file and no group."""

import asyncio
import os
from collections.abc import Collection
from pathlib import Path
from typing import Final

from colo_common.events.enforcement import KnobValue, ZoneCeiling
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import Placement, replica_token
from colo_common.model.reasons import Reason
from colo_executor.attach import AttachRefused, attached_values
from colo_executor.batch_cpus import check_given
from colo_executor.cgroup import CgroupError, CgroupTree
from colo_executor.desired import BATCH, MachineFacts, replica_knobs, tier_knobs
from colo_executor.inventory import ShareRefused, check_shares
from colo_executor.kept_cpus import KeptCpus
from colo_executor.knob_table import Knob
from colo_executor.knobs import quota_us
from colo_executor.lease import LastLease
from colo_executor.local import (
    Adopted,
    Attempt,
    CeilingWritten,
    DiskOverused,
    Drift,
    FastReading,
    FreezeWritten,
    LaunchFailed,
    Remembered,
    ReplicaExited,
    ReplicasSuspended,
    SignalReplica,
    SuspendReplicas,
)
from colo_executor.located_devices import DeviceAddress
from colo_executor.online import (
    CpusRefused,
    given_cpus,
    is_online,
    online_group,
    online_knobs,
    online_top_knobs,
    pools_of,
)
from colo_executor.open_cpus import OpenCpus
from colo_executor.order import KnobWrite
from colo_executor.process.attach_group import checked_path
from colo_executor.process.device_files import device_knobs
from colo_executor.process.fast import ClosedCpus, FastReader
from colo_executor.process.group_identity import heeded_knobs
from colo_executor.process.kill_tier import SUFFIX
from colo_executor.process.launch import check_run
from colo_executor.process.machine import cpu_rows, huge_pages_asked, machine_of
from colo_executor.process.namespaces import namespaces_prefix
from colo_executor.process.readers import reader_of
from colo_executor.process.run_prefix import run_prefix
from colo_executor.process.settings import ProcessPolicy
from colo_executor.process.systemd_units import units_of_this_machine
from colo_executor.process.tier import ONLINE_SUFFIX, group_of
from colo_executor.process.unmanaged import UnmanagedTier
from colo_executor.suppress_cpus import narrowed

__all__ = ["ObservingRuntime", "WorkIsHere"]

_WORDS_MOST: Final = 200
_NO_CPUS: Final = CpuSet()


class WorkIsHere(Exception):
    """Replicas of colo run here, and an executor that writes nothing cannot look after them."""


class ObservingRuntime:
    """Needs no right but to read. The constructor raises WorkIsHere where replicas run, CgroupError where an executor runs.

    Every launch is refused with what would have been started and written. `withheld` are CPUs that no placed work may use, until a
    collector names them. `reads_memory`: a rule asks what memory carries. The stall rule acts where batch work was read back to
    give way, which nobody sees to here: the ceiling follows the usage rule unless the operator chose the other one.
    """

    def __init__(
        self,
        policy: ProcessPolicy,
        *,
        admits_online: bool = True,
        withheld: CpuSet = _NO_CPUS,
        reads_memory: bool = False,
    ) -> None:
        self._policy = policy
        self._reads_memory = reads_memory
        self._admits_online = admits_online
        self._kept = KeptCpus(withheld=withheld)
        self._devices: tuple[DeviceAddress, ...] = ()
        self._rows = cpu_rows(policy.sys_root)
        self._cpus = CpuSet.from_iterable(row.cpu for row in self._rows)
        self._tree = self._open(policy.subtree)
        self._online = self._open(f"{policy.subtree}{ONLINE_SUFFIX}")
        self._unmanaged = UnmanagedTier(policy.unmanaged, self._open)
        self._units = units_of_this_machine(policy.cgroup_root, lambda path, value: None)
        self._ceiling_mcpu: int | None = None
        leaving = self._open(f"{policy.subtree}{SUFFIX}")
        here = [*self._tree.children(BATCH), *self._online.children(""), *leaving.children("")]
        if here:
            raise WorkIsHere(
                f"cannot be observe while replicas of colo run here ({', '.join(here[:3])}): drain the node first, or end them and "
                "put the kernel back with colo node restore --yes"
            )
        self._namespaces, _ = namespaces_prefix(policy.hygiene.namespaces, policy.path)
        self._lock_fd = self._tree.lock()
        self._fast = self._reader()

    def _open(self, name: str) -> CgroupTree:
        return CgroupTree(self._policy.cgroup_root, name)

    def _reader(self) -> FastReader:
        return reader_of(
            self._tree,
            self._policy,
            lambda: ClosedCpus(CpuSet(), (), self._kept.withheld),
            has_batch=False,
            sets=None,
            reads_memory=self._reads_memory,
        )

    @property
    def capacity_mcpu(self) -> int:
        """The capacity of the machine: 1000 mcpu for each online CPU."""
        return self._fast.capacity_mcpu

    @property
    def ceiling_mcpu(self) -> int | None:
        """The ceiling that the kernel would have."""
        return self._ceiling_mcpu

    @property
    def zone_ceilings(self) -> tuple[ZoneCeiling, ...]:
        """No zone has one."""
        return ()

    @property
    def has_whole_cores(self) -> bool:
        """No: no batch work runs."""
        return False

    @property
    def open_cpus(self) -> OpenCpus:
        """No work has CPUs of its own here."""
        return OpenCpus()

    @property
    def has_batch(self) -> bool:
        """No batch replica ever runs here."""
        return False

    async def adopt(self, now_ms: int) -> Adopted:
        """There is nothing to adopt."""
        return Adopted(remarks=("it only observes: nothing is written on this node, and no work is started",))

    async def launch(self, placement: Placement, now_ms: int) -> LaunchFailed:
        """Refuse the placement, with what would have become of it."""
        detail = await asyncio.to_thread(self._would_launch, placement)
        return LaunchFailed(
            replica=placement.replica, attempt=placement.attempt, reason=Reason.NODE_OBSERVES, detail=detail
        )

    async def signal(self, effect: SignalReplica) -> None:
        """Nothing runs that could be signalled."""

    async def suspend(self, effect: SuspendReplicas) -> ReplicasSuspended:
        """Nothing runs that could be suspended."""
        return ReplicasSuspended(attempts=effect.attempts, is_suspended=effect.is_suspended)

    async def locate_devices(self, devices: tuple[DeviceAddress, ...]) -> None:
        """Find the files of devices there from now on."""
        self._devices = devices

    async def keep_cpus(self, kept: KeptCpus) -> str:
        """Leave these CPUs out of both pools from now on."""
        self._kept = kept
        return ""

    async def remember(self, effect: Remembered) -> None:
        """Nothing is kept on a disk: nothing was begun that the next executor would have to know."""

    def continued_lease(self) -> LastLease:
        """Nothing is kept on a disk, and no batch work runs that would have too much."""
        return LastLease(age_ms=0)

    def note_lease(self, lease_ms: int) -> None:
        """Nothing is kept on a disk."""

    def poll_exits(self) -> tuple[ReplicaExited, ...]:
        """Nothing runs that could exit."""
        return ()

    def poll_overused(self) -> tuple[DiskOverused, ...]:
        """None: nothing runs here."""
        return ()

    def read_fast(self, now_ms: int) -> FastReading | None:
        """The CPU use over a short window."""
        return self._fast.read(now_ms)

    def set_ceiling(
        self, ceiling_mcpu: int, zones: tuple[ZoneCeiling, ...] | None = None, *, has_whole_cores: bool = False
    ) -> CeilingWritten:
        """Report the write of this ceiling, which is not made. Zones have none, and batch work shares no core: none of it runs that
        would be why somebody waits.
        """
        before_mcpu, self._ceiling_mcpu = self._ceiling_mcpu, ceiling_mcpu
        knob = self._tree.observed(KnobWrite(path=BATCH, knob=Knob.CPU_QUOTA, value=quota_us(ceiling_mcpu)))
        before = "" if before_mcpu is None else str(quota_us(before_mcpu))
        written = KnobValue(path=knob.path, value=knob.value, before=knob.before or before)
        sets = self._ceiling_sets(before_mcpu, ceiling_mcpu) if self._policy.ceiling_by == "cpuset" else ()
        return CeilingWritten(ceiling_mcpu=ceiling_mcpu, knobs=(written, *sets), observed=True)

    def read_ceiling(self) -> int | None:
        """The ceiling that the kernel would have."""
        return self._ceiling_mcpu

    def set_frozen(self, *, is_frozen: bool) -> FreezeWritten:
        """Report the freeze or thaw, which is not made: an executor that observes starts no batch work that could be frozen."""
        return FreezeWritten(is_frozen=is_frozen, observed=True)

    def read_frozen(self) -> bool:
        """Nothing is frozen."""
        return False

    async def reconcile(self, *, observes: bool = True, paused: Collection[Attempt] = ()) -> Drift | None:
        """All that a start would write now, as groups and values."""
        return await asyncio.to_thread(self._would_write)

    async def restore(self) -> tuple[ReplicaExited, ...]:
        """There is nothing to put back."""
        return ()

    async def close(self) -> None:
        """Close the open files."""
        self._fast.close()
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    # ------------------------------------------------------------ inside

    def _machine(self) -> MachineFacts:
        has = heeded_knobs(self._tree.has(), self._policy.proc_root)
        return machine_of(self._policy.sys_root, has, self._tree.huge_page_sizes())

    def _pool(self, machine: MachineFacts) -> MachineFacts:
        """The machine as batch work would have it."""
        be = pools_of(machine.cpus, (), self._kept).be
        if not be:
            raise CgroupError(f"of the CPUs {machine.cpus} none would be left to batch work")
        return MachineFacts(
            cpus=be, mems=machine.mems, zones=machine.zones, has=machine.has, huge_page_sizes=machine.huge_page_sizes
        )

    def _ceiling_sets(self, before_mcpu: int | None, ceiling_mcpu: int) -> tuple[KnobValue, ...]:
        """The CPUs that the batch tier's groups would have by the ceiling, where they would change."""
        be = pools_of(self._cpus, (), self._kept).be
        before = be if before_mcpu is None else narrowed(before_mcpu, be, CpuSet(), self._rows)
        cpus = narrowed(ceiling_mcpu, be, CpuSet(), self._rows)
        if cpus == before:
            return ()
        writes = [KnobWrite(path=path, knob=Knob.CPUSET_CPUS, value=cpus.format()) for path in ("", BATCH)]
        return tuple(
            KnobValue(path=knob.path, value=knob.value, before=knob.before or before.format())
            for knob in map(self._tree.observed, writes)
        )

    def _would_write(self) -> Drift:
        knobs: list[KnobValue] = []
        failed: list[str] = []
        try:
            machine = self._pool(self._machine())
            knobs += [*self._tree.to_make(""), *self._tree.to_make(BATCH)]
            knobs += self._changes(self._tree, tier_knobs(self._policy.desired, machine, None))
        except (CgroupError, InvalidInput, OSError, ValueError) as error:
            failed.append(str(error))
        unmanaged = self._unmanaged.keep(observes=True)
        return Drift(knobs=(*knobs, *unmanaged.knobs), failed=(*failed, *unmanaged.failed), observed=True)

    def _changes(self, tree: CgroupTree, writes: tuple[KnobWrite, ...]) -> list[KnobValue]:
        """What the writes would change. The weight of an idle group is the kernel's own."""
        is_idle = any(write.knob is Knob.CPU_IDLE and _is_there(tree.observed(write)) for write in writes)
        found = [
            tree.observed(write)
            for write in writes
            if not (is_idle and write.knob is Knob.CPU_WEIGHT) and not _is_new_groups_own(tree, write)
        ]
        return [knob for knob in found if knob.value != knob.before]

    def _would_launch(self, placement: Placement) -> str:
        try:
            if placement.run.attach is not None:
                return self._would_attach(placement)
            outputs = Path(self._policy.output_dir or self._policy.state_dir)
            account, prefix = run_prefix(self._policy, placement, self._namespaces, (outputs,))
            command = check_run(placement, prefix, self._policy.path)
            machine = self._machine()
            check_shares(placement, (), huge_pages_asked(self._policy.sys_root, placement, machine.huge_page_sizes))
            group, writes = self._would_put(placement, machine)
            values = ", ".join(_words_of(tree, write) for tree, write in writes if not _is_new_groups_own(tree, write))
        except (AttachRefused, CgroupError, CpusRefused, InvalidInput, OSError, ShareRefused, ValueError) as error:
            return f"would be refused here: {error}"
        words = " ".join((*(self._policy.command_prefix if account is None else ()), *command))
        words = words if len(words) <= _WORDS_MOST else f"{words[:_WORDS_MOST]}..."
        whom = "" if account is None else f" as the user {account.uid}"
        apart = ", with namespaces of its own," if self._namespaces else ""
        return f"would run {words}{whom}{apart} in {group} with {values}"

    def _would_attach(self, placement: Placement) -> str:
        """What would be written to a group that runs already. Its CPUs are left out: other work of colo decides of them."""
        path = checked_path(placement, self._policy, self._tree, self._units, ())
        top, _, group = path.partition("/")
        if not self._open(top).exists(group):
            raise AttachRefused(f"there is no control group {path} under the cpu controller of this node")
        values = attached_values(self._policy.desired, placement, path, self._tree.version, self._machine().has)
        would = UnmanagedTier((values,), self._open).keep(observes=True)
        if would.failed:
            raise CgroupError("; ".join(would.failed))
        words = ", ".join(f"{knob.path}={knob.value}" for knob in would.knobs)
        return f"would attach {path} with {words or 'the values that it has'}"

    def _would_put(
        self, placement: Placement, machine: MachineFacts
    ) -> tuple[str, tuple[tuple[CgroupTree, KnobWrite], ...]]:
        """The group, and every write in the order in which it would come; what online work takes leaves the batch tier first."""
        token = replica_token(placement.replica, placement.attempt)
        desired = self._policy.desired
        if not is_online(placement):
            group, pool = group_of(token), self._pool(machine)
            check_given(placement, pool, ())
            writes = replica_knobs(desired, pool, placement, group, self._ceiling_mcpu)
            writes = (*writes, *device_knobs(self._policy, machine.has, placement, group, self._devices))
            return f"{self._tree.name}/{group}", tuple((self._tree, write) for write in writes)
        if not self._admits_online:
            raise CgroupError("the operator of this node admits no online work (setting online)")
        group = online_group(placement.qos, token)
        hold = given_cpus(placement, placement.replica, machine, (), self._kept)
        pools = pools_of(machine.cpus, (hold,), self._kept)
        taken = () if pools.be == self._pool(machine).cpus or Knob.CPUSET_CPUS not in machine.has else (BATCH, "")
        left = [KnobWrite(path=path, knob=Knob.CPUSET_CPUS, value=pools.be.format()) for path in taken]
        writes = (
            *online_top_knobs(desired, machine, (hold,)),
            *online_knobs(desired, machine, placement, hold, pools, group),
        )
        return f"{self._online.name}/{group}", (
            *((self._tree, write) for write in left),
            *((self._online, write) for write in writes),
        )


def _words_of(tree: CgroupTree, write: KnobWrite) -> str:
    """The file and its value; of a group above that of the replica, which group it is."""
    knob = tree.observed(write)
    above = {"": f" of {tree.name}", BATCH: f" of {tree.name}/{BATCH}"}.get(write.path, "")
    return f"{os.path.basename(knob.path)}={'; '.join(knob.value.splitlines())}{above}"


def _is_new_groups_own(tree: CgroupTree, write: KnobWrite) -> bool:
    """Whether a group that is still to be made has the value by itself: no memory is protected."""
    return write.knob in (Knob.MEMORY_MIN, Knob.MEMORY_LOW) and write.value == 0 and not tree.observed(write).before


def _is_there(knob: KnobValue) -> bool:
    return knob.value == knob.before
