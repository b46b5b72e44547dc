"""The runtime of a simulated node: the calls of the port, on a simulated machine."""

from collections import deque
from collections.abc import Collection, Sequence
from typing import Protocol

from colo_common.events.enforcement import KnobValue, ZoneCeiling
from colo_common.model.cpu_topology import CpuRow
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import Placement, attempt_key
from colo_common.model.qos import QosClass
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.topology import NodeTopology
from colo_executor.inventory import MachineInventory, ShareRefused, check_shares, inventory_of
from colo_executor.journal_lines import (
    JournalState,
    Launched,
    Stopping,
    entry_of,
)
from colo_executor.kept_cpus import KeptCpus
from colo_executor.lease import LastLease
from colo_executor.local import (
    Adopted,
    AdoptedReplica,
    Attempt,
    CeilingRefused,
    CeilingWritten,
    DiskOverused,
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
from colo_executor.online import is_online
from colo_executor.open_cpus import OpenCpus
from colo_executor.suppress_cpus import left_by_zones, zones_left
from colo_executor.zone_ceilings import ZoneReading

__all__ = [
    "SimulatedReading",
    "MachineReplica",
    "SimulatedUsage",
    "SimulatedExit",
    "SimulatedMachine",
    "SimulatedRuntime",
]

_MCPU_MS_PER_CPU_MS = 1_000


class SimulatedExit(Protocol):
    """A replica that ended on a simulated machine. `cause` "oom": it was killed for lack of memory."""

    @property
    def replica(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def code(self) -> int: ...
    @property
    def cause(self) -> str: ...
    @property
    def used_mcpu_ms(self) -> int: ...


class MachineReplica(Protocol):
    """A replica that runs on a simulated machine."""

    @property
    def replica(self) -> str: ...
    @property
    def attempt(self) -> int: ...


class SimulatedUsage(Protocol):
    """CPU time used since the machine's `boot`, at one moment, also by zone; the reflex reads it many times a second."""

    @property
    def at_ms(self) -> int: ...
    @property
    def boot(self) -> int: ...
    @property
    def online_usage_ns(self) -> int: ...
    @property
    def batch_usage_ns(self) -> int: ...
    @property
    def zone_online_ns(self) -> Sequence[int]: ...
    @property
    def zone_batch_ns(self) -> Sequence[int]: ...


class SimulatedReading(Protocol):
    """The replicas that run on a machine at one moment."""

    @property
    def boot(self) -> int: ...
    @property
    def replicas(self) -> Sequence[MachineReplica]: ...


class SimulatedMachine(Protocol):
    """The port to a simulated machine. Refusals raise InvalidInput and change nothing."""

    @property
    def at_ms(self) -> int: ...
    @property
    def batch_quota_mcpu(self) -> int | None: ...
    @property
    def batch_cpus(self) -> str: ...
    @property
    def is_batch_frozen(self) -> bool: ...
    def advance(self, now_ms: int) -> None: ...
    def counters(self) -> SimulatedReading: ...
    def usage(self) -> SimulatedUsage: ...
    def set_batch_quota_mcpu(self, quota_mcpu: int | None) -> None: ...
    def set_batch_cpus(self, cpus: str | None) -> None: ...
    def set_batch_frozen(self, *, is_frozen: bool) -> None: ...
    def start_replica(
        self, replica: str, attempt: int, zones: tuple[int, ...], cpu_mcpu: int, memory_bytes: int, work_mcpu_ms: int
    ) -> None: ...
    def start_online_replica(
        self,
        replica: str,
        attempt: int,
        zones: tuple[int, ...],
        cpu_mcpu: int,
        memory_bytes: int,
        work_mcpu_ms: int,
        qos: QosClass,
        cpus: str,
    ) -> None: ...
    def stop_replica(self, replica: str, grace_ms: int, *, is_eviction: bool = False) -> bool: ...
    def kill_replica(self, replica: str) -> bool: ...
    def suspend_replica(self, replica: str, *, is_suspended: bool) -> bool: ...
    def poll_exits(self) -> Sequence[SimulatedExit]: ...


class SimulatedRuntime:
    """Runs replicas on a simulated machine, and advances the machine to the time of every call.

    `journal` survives the executor: its successor must get the same one. `topology` has the devices and huge pages of the machine;
    without a topology the machine has none.
    """

    def __init__(
        self,
        machine: SimulatedMachine,
        *,
        capacity_mcpu: int,
        journal: JournalState | None = None,
        admits_online: bool = True,
        topology: NodeTopology | None = None,
        ahead_ms: int = 0,
    ) -> None:
        """`ahead_ms`: how far the executor's clock is ahead of the machine's."""
        self._inventory = MachineInventory(devices={}) if topology is None else inventory_of(topology)
        self.journal = JournalState() if journal is None else journal
        self._admits_online = admits_online
        self._machine = machine
        self._capacity_mcpu = capacity_mcpu
        self._ahead_ms = ahead_ms
        self._boot = 0
        self._last: SimulatedUsage | None = None
        cpus = () if topology is None else topology.cpus
        self._rows = tuple(CpuRow(cpu.cpu, cpu.core, cpu.zone, cpu.socket) for cpu in cpus)
        self._zones: dict[int, CpuSet] = {}
        for zone in () if topology is None or len(topology.zones) < 2 else topology.zones:
            self._zones[zone.zone] = CpuSet.parse(zone.cpus)
        self._exits: deque[ReplicaExited] = deque()

    @property
    def capacity_mcpu(self) -> int:
        """The CPU capacity of the machine."""
        return self._capacity_mcpu

    @property
    def ceiling_mcpu(self) -> int | None:
        """The machine's quota of batch work, None without one."""
        return self._machine.batch_quota_mcpu

    @property
    def zone_ceilings(self) -> tuple[ZoneCeiling, ...]:
        """The zones in which the machine's batch work has fewer CPUs than there are for it."""
        pool = self._pool()
        return zones_left(CpuSet.parse(self._machine.batch_cpus) & pool, pool, self._rows)

    @property
    def has_whole_cores(self) -> bool:
        """No: a simulated machine's readings show no shared core."""
        return False

    @property
    def open_cpus(self) -> OpenCpus:
        """None: nobody else's processes run on a simulated machine."""
        return OpenCpus()

    @property
    def has_batch(self) -> bool:
        """Whether a batch replica runs on this node."""
        return any(not is_online(entry.placement) for entry in self.journal.launched.values())

    async def adopt(self, now_ms: int) -> Adopted:
        """The attempts that an earlier executor started; `alive` for those that still run."""
        self._catch_up(now_ms)
        reading = self._machine.counters()
        self._boot = reading.boot
        self._machine.set_batch_frozen(is_frozen=False)
        self._note_exits()
        alive = {(found.replica, found.attempt) for found in reading.replicas}
        collected = {(exited.replica, exited.attempt) for exited in self._exits}
        replicas = []
        for key, entry in self.journal.launched.items():
            name = (entry.placement.replica, entry.placement.attempt)
            if name not in alive and name not in collected:
                self._exits.append(_unknown_end(*name))
            replicas.append(
                AdoptedReplica(
                    placement=entry.placement,
                    pid=0,
                    launched_at_ms=entry.at_ms,
                    alive=name in alive,
                    stop=self.journal.stopping.get(key),
                )
            )
        return Adopted(
            replicas=tuple(replicas),
            waiting=tuple(self.journal.accepted.values()),
            ended=tuple(entry.fact for entry in self.journal.ended.values()),
            revision=self.journal.restricted.revision,
            restrictions=self.journal.restricted.restrictions,
            terms=tuple(sorted(self.journal.terms.items())),
        )

    async def launch(self, placement: Placement, now_ms: int) -> ReplicaLaunched | LaunchFailed:
        """Start the placement with its amount of work."""
        self._catch_up(now_ms)
        refusal, reason = "", Reason.START_FAILED
        if placement.run.work_mcpu_ms < 1:
            refusal, reason = "run.work_mcpu_ms: must be at least 1 on a simulated node", Reason.RUNTIME_ABSENT
        elif is_online(placement) and not self._admits_online:
            refusal, reason = "the operator of this node admits no online work", Reason.RUNTIME_ABSENT
        else:
            try:
                check_shares(placement, [entry.placement for entry in self.journal.launched.values()], self._inventory)
                self._start(placement)
            except ShareRefused as error:
                refusal, reason = str(error), error.reason
            except InvalidInput as error:
                refusal = str(error)
                reason = Reason.CPUS_SHORT if error.field == "cpus" else reason
        if refusal:
            return LaunchFailed(replica=placement.replica, attempt=placement.attempt, reason=reason, detail=refusal)
        self.journal.add(Launched(placement=placement, pid=0, start_ticks=0, at_ms=now_ms))
        return ReplicaLaunched(replica=placement.replica, attempt=placement.attempt)

    def _start(self, placement: Placement) -> None:
        zones = tuple(sorted(share.zone for share in placement.zones))
        name, attempt, work_mcpu_ms = placement.replica, placement.attempt, placement.run.work_mcpu_ms
        cpu_mcpu, memory_bytes = placement.cpu_mcpu, placement.memory_bytes
        if not is_online(placement):
            self._machine.start_replica(name, attempt, zones, cpu_mcpu, memory_bytes, work_mcpu_ms)
            return
        self._machine.start_online_replica(
            name, attempt, zones, cpu_mcpu, memory_bytes, work_mcpu_ms, placement.qos, placement.cpus
        )

    async def signal(self, effect: SignalReplica) -> None:
        """Ask or force the replica to end; `poll_exits` returns its exit."""
        if attempt_key(effect.replica, effect.attempt) not in self.journal.launched:
            return
        if effect.signal == "kill":
            self._machine.kill_replica(effect.replica)
            return
        self.journal.add(Stopping(replica=effect.replica, attempt=effect.attempt, intent=effect.intent))
        # The machine ends the grace by itself; the SIGKILL of the executor comes at the same time.
        grace_ms = max(1, effect.intent.kill_at_ms - self._ahead_ms - self._machine.at_ms)
        is_eviction = effect.intent.cause is EndCause.EVICTED
        self._machine.stop_replica(effect.replica, grace_ms, is_eviction=is_eviction)

    async def suspend(self, effect: SuspendReplicas) -> ReplicasSuspended:
        """Take all CPU from the attempts, or give it back."""
        for replica, attempt in effect.attempts:
            if attempt_key(replica, attempt) in self.journal.launched:
                self._machine.suspend_replica(replica, is_suspended=effect.is_suspended)
        return ReplicasSuspended(attempts=effect.attempts, is_suspended=effect.is_suspended)

    async def locate_devices(self, devices: tuple[DeviceAddress, ...]) -> None:
        """A simulated device has no files."""

    async def keep_cpus(self, kept: KeptCpus) -> str:
        """Do nothing: the scheduler keeps work off them, and a simulated machine has no pools."""
        return ""

    async def remember(self, effect: Remembered) -> None:
        """Add it to the journal, for the next executor."""
        self.journal.add(entry_of(effect))

    def continued_lease(self) -> LastLease:
        """A simulated machine begins with a new lease."""
        return LastLease(age_ms=0)

    def note_lease(self, lease_ms: int) -> None:
        """The next executor begins with a new lease."""

    def poll_exits(self) -> tuple[ReplicaExited, ...]:
        """The replicas that ended since the last call."""
        self._note_exits()
        exits = []
        while self._exits:
            exits.append(self._exits.popleft())
        return tuple(exits)

    def poll_overused(self) -> tuple[DiskOverused, ...]:
        """None: work on a simulated machine writes nothing."""
        return ()

    def read_fast(self, now_ms: int) -> FastReading | None:
        """The CPU use between the last two calls (mcpu, online use rounded up), without LSE work, which uses all of its CPUs."""
        self._catch_up(now_ms)
        reading, last = self._machine.usage(), self._last
        if reading.boot != self._boot:
            self._rebooted(self._machine.counters())
            last = None
        if last is not None and reading.at_ms <= last.at_ms:
            return None
        self._last = reading
        if last is None:
            return None
        span_us = (reading.at_ms - last.at_ms) * 1_000
        lse = self._exclusive()
        lse_mcpu = len(lse) * _MCPU_MS_PER_CPU_MS
        return FastReading(
            at_ms=now_ms,
            capacity_mcpu=self._capacity_mcpu - lse_mcpu,
            online_used_mcpu=max(0, -(-(reading.online_usage_ns - last.online_usage_ns) // span_us) - lse_mcpu),
            batch_used_mcpu=(reading.batch_usage_ns - last.batch_usage_ns) // span_us,
            may_freeze=self.has_batch and not self._is_ending(),
            zones=self._read_zones(reading, last, span_us, lse),
        )

    def _read_zones(
        self, now: SimulatedUsage, last: SimulatedUsage, span_us: int, lse: CpuSet
    ) -> tuple[ZoneReading, ...]:
        """The use of each zone without its CPUs of LSE work; none on a machine of one zone."""
        found = []
        for zone, cpus in self._zones.items():
            online_mcpu = -(-(now.zone_online_ns[zone] - last.zone_online_ns[zone]) // span_us)
            batch_mcpu = (now.zone_batch_ns[zone] - last.zone_batch_ns[zone]) // span_us
            found.append(
                ZoneReading(
                    zone=zone,
                    capacity_mcpu=len(cpus - lse) * _MCPU_MS_PER_CPU_MS,
                    batch_used_mcpu=batch_mcpu,
                    online_used_mcpu=max(0, online_mcpu - len(cpus & lse) * _MCPU_MS_PER_CPU_MS),
                )
            )
        return tuple(found)

    def _exclusive(self) -> CpuSet:
        """The CPUs of LSE work."""
        placements = [entry.placement for entry in self.journal.launched.values()]
        return CpuSet.from_iterable(
            cpu for placement in placements if placement.qos is QosClass.LSE for cpu in CpuSet.parse(placement.cpus)
        )

    def _pool(self) -> CpuSet:
        return CpuSet.from_iterable(row.cpu for row in self._rows) - self._exclusive()

    def set_ceiling(
        self, ceiling_mcpu: int, zones: tuple[ZoneCeiling, ...] | None = None, *, has_whole_cores: bool = False
    ) -> CeilingWritten | CeilingRefused:
        """Limit the machine's batch work to the ceiling, and to the CPUs that the ceilings of `zones` leave (None: as it is).

        The threads of a core do not slow each other down on a simulated machine, so nothing asks for whole cores.
        """
        before = self._machine.batch_quota_mcpu
        try:
            self._machine.set_batch_quota_mcpu(ceiling_mcpu)
        except InvalidInput as error:
            return CeilingRefused(ceiling_mcpu=ceiling_mcpu, detail=str(error))
        shown = "max" if before is None else str(before)
        knobs = [KnobValue(path="simulated/batch_quota_mcpu", value=str(ceiling_mcpu), before=shown)]
        if zones is not None and self._zones:
            cpus_before = self._machine.batch_cpus
            cpus = left_by_zones(zones, self._pool(), CpuSet(), self._rows).format() if zones else None
            self._machine.set_batch_cpus(cpus)
            if self._machine.batch_cpus != cpus_before:
                knobs.append(KnobValue(path="simulated/batch_cpus", value=self._machine.batch_cpus, before=cpus_before))
        return CeilingWritten(ceiling_mcpu=ceiling_mcpu, knobs=tuple(knobs), zones=zones or ())

    def read_ceiling(self) -> int | None:
        """The machine's quota of batch work."""
        return self._machine.batch_quota_mcpu

    def set_frozen(self, *, is_frozen: bool) -> FreezeWritten | FreezeRefused:
        """Take all CPU from the machine's batch work, or give it back."""
        if is_frozen and self._is_ending():
            return FreezeRefused(is_frozen=True, detail="a replica is being ended")
        before = self._machine.is_batch_frozen
        self._machine.set_batch_frozen(is_frozen=is_frozen)
        knob = KnobValue(path="simulated/batch_frozen", value=str(int(is_frozen)), before=str(int(before)))
        return FreezeWritten(is_frozen=is_frozen, knobs=(knob,))

    def read_frozen(self) -> bool:
        """Whether the machine's batch work is frozen."""
        return self._machine.is_batch_frozen

    def _is_ending(self) -> bool:
        return any(key in self.journal.launched for key in self.journal.stopping)

    async def reconcile(self, *, observes: bool = False, paused: Collection[Attempt] = ()) -> None:
        """Do nothing: no other program writes to a simulated machine."""

    async def restore(self) -> tuple[ReplicaExited, ...]:
        """End every replica, and lift the freeze, the quota and the limits of zones."""
        self._machine.set_batch_frozen(is_frozen=False)
        for entry in self.journal.launched.values():
            self._machine.kill_replica(entry.placement.replica)
        self._machine.set_batch_quota_mcpu(None)
        self._machine.set_batch_cpus(None)
        return self.poll_exits()

    async def close(self) -> None:
        """Do nothing: the machine runs on."""

    def _catch_up(self, now_ms: int) -> None:
        if now_ms - self._ahead_ms > self._machine.at_ms:
            self._machine.advance(now_ms - self._ahead_ms)

    def _note_exits(self) -> None:
        for exited in self._machine.poll_exits():
            self._exits.append(
                ReplicaExited(
                    replica=exited.replica,
                    attempt=exited.attempt,
                    exit_code=exited.code,
                    oom=exited.cause == "oom",
                    cpu_used_ms=exited.used_mcpu_ms // _MCPU_MS_PER_CPU_MS,
                )
            )

    def _rebooted(self, reading: SimulatedReading) -> None:
        """Note an exit for every replica that a power loss of the machine ended."""
        self._boot = reading.boot
        alive = {(found.replica, found.attempt) for found in reading.replicas}
        for entry in self.journal.launched.values():
            name = (entry.placement.replica, entry.placement.attempt)
            if name not in alive:
                self._exits.append(_unknown_end(*name))


def _unknown_end(replica: str, attempt: int) -> ReplicaExited:
    return ReplicaExited(replica=replica, attempt=attempt, exit_code=None, detail="the machine lost it without a word")
