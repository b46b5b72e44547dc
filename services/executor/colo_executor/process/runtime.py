"""Runs replicas as processes in control groups, and collects their exits."""

import asyncio
import threading
from collections import deque
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Final

import structlog
from msgspec.structs import replace

from colo_common.events.enforcement import ZoneCeiling
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import Placement, replica_token
from colo_executor.cgroup import CgroupError
from colo_executor.desired import BATCH
from colo_executor.drift_writers import kubelet_writers
from colo_executor.journal import JournalFile
from colo_executor.journal_lines import (
    Booted,
    KeptCpusEntry,
    Launched,
    LocatedDevices,
    Stopping,
    entry_of,
)
from colo_executor.kept_cpus import KeptCpus
from colo_executor.knob_table import Knob
from colo_executor.lease import LastLease
from colo_executor.local import (
    Adopted,
    AdoptedReplica,
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
    StopIntent,
    SuspendReplicas,
)
from colo_executor.located_devices import DeviceAddress
from colo_executor.not_restored import NotRestored
from colo_executor.online import is_online
from colo_executor.open_cpus import OpenCpus
from colo_executor.process.attached import AttachedTier
from colo_executor.process.boot_time import by_this_clock, with_boot_time
from colo_executor.process.disk_watch import DiskWatch
from colo_executor.process.earlier_subtree import check_earlier_subtree
from colo_executor.process.ended_dirs import EndedDirs
from colo_executor.process.ending import Ending, RunningAttempt
from colo_executor.process.exit_watch import ExitWatch
from colo_executor.process.fast import FastReader
from colo_executor.process.homes import Homes
from colo_executor.process.launch import (
    attempt_dir,
    reaped,
)
from colo_executor.process.launching import Launching
from colo_executor.process.lease_file import LeaseFile
from colo_executor.process.machine import boot_id, online_cpus
from colo_executor.process.online import OnlineTier
from colo_executor.process.output import keep_bounded
from colo_executor.process.readers import reader_of
from colo_executor.process.reconcile import changed_values
from colo_executor.process.settings import ProcessPolicy
from colo_executor.process.strangers import strangers
from colo_executor.process.suspending import suspended
from colo_executor.process.terminating import Terminating
from colo_executor.process.tier import Tier
from colo_executor.process.unknown_values import UnknownValues
from colo_executor.process.unmanaged import UnmanagedTier
from colo_executor.process.unmanaged_cpus import UnmanagedCpus

__all__ = ["ProcessRuntime"]

_REMARKS_MOST: Final = 20
_LOOK_S: Final = 1.0
_NO_CPUS: Final = CpuSet()


class ProcessRuntime:
    """The processes of one executor. The constructor raises JournalBusy, CgroupError or OSError when the machine refuses it, and
    InvalidInput for settings that it cannot have here.

    `admits_online` False refuses online work. `withheld` are CPUs of this machine that no placed work may use, until a collector
    names them. `is_free`: no reflex will write ceilings, so those that an earlier executor left are lifted at the start.
    `leaves_others`: what differs in groups of others is only observed, so the start writes nothing there either;
    `leaves_unmanaged`: what the operator's policy says of them is. `reads_memory`: a rule asks what memory carries.
    """

    def __init__(
        self,
        policy: ProcessPolicy,
        *,
        admits_online: bool = True,
        withheld: CpuSet = _NO_CPUS,
        is_free: bool = False,
        leaves_others: bool = False,
        leaves_unmanaged: bool = False,
        reads_memory: bool = False,
    ) -> None:
        self._policy = policy
        self._is_free = is_free
        self._leaves_others = leaves_others
        self._reads_memory = reads_memory
        self._log = structlog.get_logger("executor")
        self._state_dir = Path(policy.state_dir)
        self._output_dir = Path(policy.output_dir or policy.state_dir)
        self._journal = JournalFile(self._state_dir)
        try:
            boot = boot_id(policy.proc_root)
            self._journal.note(Booted(boot_id=boot))
            self._lease = LeaseFile(self._state_dir, boot)
            self._tier = Tier(policy, self._journal)
            check_earlier_subtree(self._tier.tree, self._journal.state.created, self._tier.open)
            self._tier.tree.check_writable()
            self._online = OnlineTier(self._tier, policy.desired, is_on=admits_online, kept=KeptCpus(withheld=withheld))
        except BaseException:
            self._journal.close()
            raise
        is_left = leaves_others or leaves_unmanaged
        unmanaged = UnmanagedTier(
            policy.unmanaged, self._tier.open, self._tier.units, self._tier.old.value, is_observed=is_left
        )
        self._unmanaged = UnmanagedCpus(self._tier, unmanaged, self._online.own, policy)
        self._online.own_changed = self._unmanaged.follow
        self._unknown = UnknownValues(self._tier, self._journal, policy.state_dir, self._unmanaged.managed)
        self._reconciling = threading.Lock()
        self._attached = AttachedTier(
            self._tier, self._online, unmanaged, self._unmanaged, policy, self._journal, self._reconciling
        )
        self._running: dict[str, RunningAttempt] = {}
        self._homes = Homes(self._tier, self._online, self._attached, policy.proc_root)
        self._batch: set[str] = set()
        # Attempts of batch work that are being ended. A frozen process handles no SIGTERM, and under v1 does not die of SIGKILL.
        self._leaving: set[str] = set()
        self._exits: deque[ReplicaExited] = deque()
        self._ending = Ending(self._homes.kill_now, self._homes.drop, self._ended)
        try:
            self._launching = Launching(
                policy,
                self._tier,
                self._attached,
                self._homes,
                self._journal,
                self._output_dir,
                self._running,
                self._ending.undo,
            )
        except InvalidInput:
            self._tier.close()
            self._journal.close()
            raise
        self._ended_dirs = EndedDirs(self._output_dir, policy, lambda: frozenset(self._running.copy()))
        self._disk_watch = DiskWatch(policy.disk_limits, policy.disk_every_s, self._own_directories)
        self._terminating = Terminating(policy.proc_root)
        self._exit_watch = ExitWatch(policy.proc_root, self._collect)
        self._background: list[asyncio.Task[None]] = []
        self._fast: FastReader | None = None
        self._is_over = False

    @property
    def capacity_mcpu(self) -> int:
        """The capacity of the machine: 1000 mcpu for each online CPU."""
        return 0 if self._fast is None else self._fast.capacity_mcpu

    @property
    def ceiling_mcpu(self) -> int | None:
        """The batch ceiling in the kernel, None without one."""
        return self._tier.ceiling_mcpu

    @property
    def zone_ceilings(self) -> tuple[ZoneCeiling, ...]:
        """The zones whose CPUs batch work has not all, by its CPU set."""
        return self._tier.sets.zones

    @property
    def has_whole_cores(self) -> bool:
        """Whether batch work has only as many whole cores as its ceiling needs."""
        return self._tier.sets.has_whole_cores

    @property
    def open_cpus(self) -> OpenCpus:
        """The own CPUs of LSE and LSR work on which others may run, too, as the last `reconcile` found them."""
        return self._unmanaged.open

    @property
    def has_batch(self) -> bool:
        """Whether a batch replica runs on this node."""
        return bool(self._batch)

    def stuck(self) -> float:
        """The number of attempts that SIGKILL has not ended after ten seconds."""
        return float(self._ending.stuck_count)

    def journal_behind(self) -> float:
        """1 while the disk takes nothing of the journal, else 0."""
        return float(self._journal.is_behind)

    def cookies(self) -> tuple[int, int]:
        """The numbers of batch replicas with a core-scheduling cookie, and of those that should have one and have none."""
        return self._launching.cookies()

    # ------------------------------------------------------------ start and end

    async def adopt(self, now_ms: int) -> Adopted:
        """Prepare the tiers and adopt every attempt of an earlier executor: those of the journal, and those that the kernel shows.

        Of what is gone the end follows. Nothing that runs is ended here.
        """
        state = self._journal.state
        homes = {
            key: self._homes.of(entry.placement, entry.pid, entry.attached) for key, entry in state.launched.items()
        }
        found_here, remarks = await asyncio.to_thread(strangers, state, self._tier.tree, self._online.tree)
        unknown = [running for running in found_here if running.token not in {home.token for home in homes.values()}]
        for key, running in homes.items():
            self._find_outputs(running, state.launched[key].output_dir)
        for running in unknown:
            self._find_outputs(running)
        for running in (*homes.values(), *unknown):
            self._homes.reserve(running)
        await asyncio.to_thread(self._ended_dirs.begin, frozenset(one.token for one in (*homes.values(), *unknown)))
        self._attached.forget_replaced()
        self._online.kept_before(self._kept_before())
        refused = await asyncio.to_thread(self._prepare)
        found = []
        for key, running in homes.items():
            entry = state.launched[key]
            found.append(self._adopt(running, entry, by_this_clock(state.stopping.get(key), now_ms)))
        for running in unknown:
            ticks = self._exit_watch.first(running)
            entry = Launched(
                placement=running.placement,
                pid=running.pid,
                start_ticks=ticks,
                at_ms=now_ms,
                devices=self._homes.devices_of(running),
                output_dir=str(running.output_dir),
            )
            await asyncio.to_thread(self._journal.note, entry)
            found.append(self._adopt(running, entry, None))
        refused += await asyncio.to_thread(self._online.settle)
        if self._is_free:
            refused += await asyncio.to_thread(self._tier.lift_ceiling)
        self._background = [
            asyncio.get_running_loop().create_task(each)
            for each in (
                self._clear_left(),
                keep_bounded(self._output_dirs, self._policy.output_most_bytes),
                self._look(),
            )
        ]
        self._disk_watch.begin()
        return Adopted(
            replicas=tuple(found),
            waiting=tuple(state.accepted.values()),
            ended=tuple(entry.fact for entry in state.ended.values()),
            revision=state.restricted.revision,
            restrictions=state.restricted.restrictions,
            terms=tuple(sorted(state.terms.items())),
            remarks=tuple([*self._journal.remarks(), *self._unknown.remarks(), *refused, *remarks][:_REMARKS_MOST]),
            attaches=bool(self._policy.attach) or any(one.group for one in found),
        )

    def _kept_before(self) -> KeptCpus:
        """What an earlier executor was told last; nothing where it would leave no CPU of this machine."""
        entry = self._journal.state.kept_cpus
        try:
            kept = KeptCpus(withheld=CpuSet.parse(entry.withheld), pinned=CpuSet.parse(entry.pinned))
        except InvalidInput:
            return KeptCpus()
        return kept if online_cpus(self._policy.sys_root) - kept.withheld else KeptCpus()

    def _adopt(self, running: RunningAttempt, entry: Launched, stop: StopIntent | None) -> AdoptedReplica:
        self._note(running)
        is_alive = self._exit_watch.watch_again(running, entry.start_ticks)
        if not is_alive or stop is not None:
            self._leaves(running)
        if not is_alive:
            self._ending.collect(running)
        else:
            self._homes.adopt(running, entry.devices)
        return AdoptedReplica(
            placement=running.placement,
            pid=running.pid,
            launched_at_ms=entry.at_ms,
            alive=is_alive,
            stop=stop,
            group="" if running.attached is None else running.attached.to.group,
        )

    async def _look(self) -> None:
        """Collect what has ended and could not be watched, as attached groups, and undo failed launches whose group stayed."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self._exit_watch.look()
            await asyncio.to_thread(self._ending.undo_again)
            for running in await asyncio.to_thread(self._attached.ended):
                if self._running.get(running.token) is running:
                    self._collect(running)

    async def _clear_left(self) -> None:
        """End what an earlier executor was killing when it died."""
        wait_s = 0.001
        while not await asyncio.to_thread(self._tier.clear_left):
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, 1.0)

    async def restore(self) -> tuple[ReplicaExited, ...]:
        """End every replica and put the kernel back. Raises NotRestored that names each value that could not be put back.

        An attempt whose group the kernel does not give up has not ended: it is in the journal for the next executor.
        """
        await self._stop_ending()
        running = tuple(self._running.values())
        for one in running:
            self._exit_watch.unwatch(one)
        self._is_over = True
        failures = await asyncio.to_thread(self._restore)
        exits = list(self.poll_exits())
        for one in running:
            if one.attached is None and one.tree.exists(one.group):
                continue
            if one.attached is None:
                reaped(one.pid)
            exits.append(
                ReplicaExited(
                    replica=one.placement.replica,
                    attempt=one.placement.attempt,
                    exit_code=None,
                    detail="the executor left the machine and put it back",
                )
            )
            self._running.pop(one.token, None)
            self._batch.discard(one.token)
        if failures:
            raise NotRestored("; ".join(failures), tuple(exits))
        return tuple(exits)

    async def close(self) -> None:
        """Stop watching; the processes go on."""
        await self._stop_ending()
        for running in self._running.values():
            self._exit_watch.unwatch(running)
        if self._fast is not None:
            self._fast.close()
        self._ended_dirs.close()
        self._tier.close()
        self._journal.close()

    async def _stop_ending(self) -> None:
        self._disk_watch.close()
        await self._terminating.close()
        await self._ending.close()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        self._background = []

    def _output_dirs(self) -> list[Path]:
        return [directory for _, directory in self._own_directories()]

    def _own_directories(self) -> list[tuple[Placement, Path]]:
        """Those that have outputs and a working directory, with their directories. For any thread."""
        return [(one.placement, one.directory) for one in self._running.copy().values() if not one.attached]

    def _find_outputs(self, running: RunningAttempt, journaled: str = "") -> None:
        """Find the outputs of an attempt of an earlier executor: where the journal has them, else at either usual place."""
        is_here = attempt_dir(self._output_dir, running.token).exists()
        running.keep_in(Path(journaled) if journaled else self._output_dir if is_here else self._state_dir)

    # ------------------------------------------------------------ replicas

    async def launch(self, placement: Placement, now_ms: int) -> ReplicaLaunched | LaunchFailed:
        """Start the placement in a new group. The command runs only after its process is in the group and in the journal.

        A kernel that does not answer within `launch_most_s` fails the launch, so that the kills and stops that come after it are
        not kept waiting; whatever it does later is undone, and the command never runs.
        """
        outcome = await self._launching.launch(placement, now_ms)
        if isinstance(outcome, LaunchFailed):
            return outcome
        running, launched = outcome
        self._note(running)
        self._exit_watch.watch(running)
        return launched

    async def signal(self, effect: SignalReplica) -> None:
        """Journal the stop and send SIGTERM to every process of the attempt, or begin to kill it; neither waits for its end."""
        running = self._running.get(replica_token(effect.replica, effect.attempt))
        if running is None:
            return
        self._leaves(running)
        is_let_go = running.attached is not None and running.attached.let_go_or_kill(running.placement, effect.signal)
        if effect.signal == "kill" and not is_let_go:
            self._ending.kill(running)
            return
        entry = Stopping(replica=effect.replica, attempt=effect.attempt, intent=with_boot_time(effect.intent))
        await asyncio.to_thread(self._journal.note, entry)
        if is_let_go:
            self._collect(running)
            return
        pids, send_all = partial(running.tree.pids, running.group), partial(self._homes.terminate, running)
        await self._terminating.terminate(running.token, running.pid, pids, send_all)

    async def suspend(self, effect: SuspendReplicas) -> ReplicasSuspended:
        """Freeze the control groups of the attempts, or thaw them. Without a freezer, SIGSTOP or SIGCONT to every process."""
        return await asyncio.to_thread(suspended, effect, self._running.copy())

    async def locate_devices(self, devices: tuple[DeviceAddress, ...]) -> None:
        """Find the files of devices there from now on, and journal it."""
        self._tier.located = devices
        entry = LocatedDevices(devices=devices)
        if entry != self._journal.state.located:
            await asyncio.to_thread(self._journal.note, entry)

    async def keep_cpus(self, kept: KeptCpus) -> str:
        """Write both pools without these CPUs, and journal them."""
        try:
            await asyncio.to_thread(self._online.keep, kept)
        except (CgroupError, OSError) as error:
            return str(error)
        entry = KeptCpusEntry(withheld=kept.withheld.format(), pinned=kept.pinned.format())
        if entry != self._journal.state.kept_cpus:
            await asyncio.to_thread(self._journal.note, entry)
        return ""

    async def remember(self, effect: Remembered) -> None:
        """Journal it; a disk that takes nothing gets it when it does again."""
        await asyncio.to_thread(self._journal.note, entry_of(effect))

    def continued_lease(self) -> LastLease:
        """The lease as an executor of this boot last heard of it; where none did it begins now."""
        return self._lease.continued()

    def note_lease(self, lease_ms: int) -> None:
        """Keep it for the next executor that the lease was renewed now; takes tens of microseconds."""
        self._lease.renewed(lease_ms)

    def poll_exits(self) -> tuple[ReplicaExited, ...]:
        """The attempts that exited since the last call."""
        exits = []
        while self._exits:
            exits.append(self._exits.popleft())
        return tuple(exits)

    def poll_overused(self) -> tuple[DiskOverused, ...]:
        """The attempts that a look since the last call found above their limit of disk."""
        return self._disk_watch.found()

    # ------------------------------------------------------------ reflex

    def read_fast(self, now_ms: int) -> FastReading | None:
        """The CPU use over a short window; takes tens of microseconds."""
        reading = None if self._fast is None else self._fast.read(now_ms)
        if reading is None or not self._batch or self._leaving or not self._tier.can_freeze:
            return reading
        return replace(reading, may_freeze=True)

    def set_ceiling(
        self, ceiling_mcpu: int, zones: tuple[ZoneCeiling, ...] | None = None, *, has_whole_cores: bool = False
    ) -> CeilingWritten | CeilingRefused:
        """Write the batch tier's quota, in tens of microseconds, and where zones or cores moved the CPU sets of all replicas."""
        return self._tier.set_ceiling(ceiling_mcpu, zones, has_whole_cores=has_whole_cores)

    def read_ceiling(self) -> int | None:
        """The ceiling that the kernel shows; quotas that another program changed are known from then on."""
        return self._tier.read_ceiling()

    def set_frozen(self, *, is_frozen: bool) -> FreezeWritten | FreezeRefused:
        """Freeze the batch tier or let it run; takes tens of microseconds."""
        if is_frozen and self._leaving:
            return FreezeRefused(is_frozen=True, detail="a replica is being ended")
        return self._tier.set_frozen(is_frozen=is_frozen)

    def read_frozen(self) -> bool:
        """Whether the kernel freezes batch work."""
        return self._tier.read_frozen()

    @property
    def frozen_path(self) -> str:
        """The file that freezes and thaws batch work, "" without a freezer."""
        return self._tier.tree.frozen_path(BATCH)

    @property
    def quota_path(self) -> str:
        """The file with the quota of batch work."""
        return self._tier.tree.quota_path(BATCH)

    def take_watchdog(self, pid: int) -> str:
        """Move the watchdog into a control group of its own, and end those of earlier executors.

        Returns "", or why it stays in the executor's groups. After `restore` it does, because no group is made any more.
        """
        with self._reconciling:
            if self._is_over:
                return ""
            try:
                self._tier.take_watchdog(pid)
            except (CgroupError, OSError) as error:
                return str(error)
        return ""

    async def reconcile(self, *, observes: bool = False, paused: Collection[Attempt] = ()) -> Drift | None:
        """Read every kept file and put back the values that another program changed; None when nothing changed.

        `observes`: they are found and left as they are. So are those of the `paused` attempts.
        """
        return await asyncio.to_thread(self._reconcile, observes, paused)

    # ------------------------------------------------------------ inside

    def _reconcile(self, observes: bool, paused: Collection[Attempt]) -> Drift | None:
        running = [one for each in paused if (one := self._running.get(replica_token(*each))) is not None]
        with self._reconciling:
            if self._is_over:
                return None
            self._journal.catch_up()
            found = [] if observes else self._follow_cpus()
            for tier in (self._tier, self._online):
                try:
                    yields = frozenset(one.group for one in running if one.tree is tier.tree)
                    found.append(changed_values(tier.tree) if observes else tier.reconcile(yields))
                except (CgroupError, OSError) as error:
                    found.append(Drift(failed=(str(error),)))
            self._attached.forget_replaced()
            found += self._unmanaged.keep_all(observes=observes, yields=self._attached.yielded(paused))
        knobs = tuple(knob for drift in found for knob in drift.knobs)
        failed = tuple(sentence for drift in found for sentence in drift.failed)
        yielded = tuple(knob for drift in found for knob in drift.yielded)
        withheld = tuple(dict.fromkeys(knob for drift in found for knob in drift.withheld))
        writers = (*(writer for drift in found for writer in drift.writers), *kubelet_writers((*knobs, *yielded)))
        # Looked at last: the journal may have fallen behind meanwhile.
        journal = self._journal.trouble()
        drift = Drift(
            knobs=knobs,
            failed=failed,
            observed=observes,
            yielded=yielded,
            writers=writers,
            withheld=withheld,
            journal=journal,
        )
        return drift if knobs or failed or yielded or withheld or journal else None

    def _follow_cpus(self) -> list[Drift]:
        """Bring all sets up to date with CPUs that came or went; before the drifts, because the kernel itself takes CPUs away."""
        try:
            cpus = self._online.follow_cpus()
        except (CgroupError, InvalidInput, OSError) as error:
            return [Drift(failed=(str(error),))]
        if cpus is not None:
            self._log.warning("cpus-changed", online=str(cpus))
        return []

    def _restore(self) -> tuple[str, ...]:
        # A reconcile at the same time would write kept values over the old ones.
        with self._reconciling:
            self._attached.forget_replaced()
            self._tier.claim()
            is_new = self._unknown.note()
            unknown = self._journal.state.unknown
            self._unmanaged.give_back()
            return (*self._tier.restore(), *self._unknown.left(unknown, is_new=is_new))

    def _leaves(self, running: RunningAttempt) -> None:
        if not is_online(running.placement):
            self._leaving.add(running.token)

    def _note(self, running: RunningAttempt) -> None:
        self._running[running.token] = running
        if not is_online(running.placement):
            self._batch.add(running.token)

    def _prepare(self) -> list[str]:
        refused = self._tier.prepare(self._online.batch_cpus)
        self._unknown.note()
        machine = self._tier.machine
        if machine is not None and Knob.DEVICES not in machine.has and self._policy.devices == "given":
            self._log.info("devices-not-fenced", detail=self._tier.tree.lacks_fence())
        for kept in self._unmanaged.keep_all(observes=self._leaves_others):
            if kept.knobs or kept.failed or kept.withheld:
                self._log.info(
                    "unmanaged-groups",
                    paths=[knob.path for knob in kept.knobs],
                    failed=list(kept.failed),
                    observed=kept.observed,
                    withheld=[knob.path for knob in kept.withheld],
                )
        self._fast = reader_of(
            self._tier.tree,
            self._policy,
            self._online.closed,
            has_batch=True,
            sets=self._tier.sets if self._tier.sets.can_write else None,
            reads_memory=self._reads_memory,
        )
        return refused

    def _collect(self, running: RunningAttempt) -> None:
        self._exit_watch.unwatch(running)
        self._leaves(running)
        self._ending.collect(running)

    def _ended(self, running: RunningAttempt, exited: ReplicaExited) -> None:
        self._running.pop(running.token, None)
        self._batch.discard(running.token)
        self._leaving.discard(running.token)
        self._exits.append(exited)
        if running.attached is None:
            self._ended_dirs.ended(running.directory)
