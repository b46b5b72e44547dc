"""Runs replicas as processes in control groups, and collects their exits."""

import asyncio
import contextlib
import os
import threading
from collections import deque
from pathlib import Path

from msgspec import Struct

from colo_common.events.enforcement import KnobValue, PlacementRefused
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import Placement, replica_token
from colo_common.model.reasons import Reason
from colo_executor.cgroup import CgroupError, CgroupTree
from colo_executor.inventory import ShareRefused, check_shares
from colo_executor.journal import JournalFile
from colo_executor.journal_lines import Accepted, Booted, EndedEntry, Launched, RefusedEntry, Restricted, Stopping
from colo_executor.local import (
    Adopted,
    AdoptedReplica,
    CeilingRefused,
    CeilingWritten,
    Drift,
    FastReading,
    LaunchFailed,
    RememberEnd,
    RememberPlacement,
    RememberRestrictions,
    ReplicaExited,
    ReplicaLaunched,
    ReplicasSuspended,
    SignalReplica,
    SuspendReplicas,
)
from colo_executor.online import CpusRefused, is_online, online_group
from colo_executor.process.fast import FastReader
from colo_executor.process.kill_tier import SUFFIX
from colo_executor.process.launch import (
    attempt_dir,
    check_run,
    exit_status,
    launch,
    make_attempt_dir,
    prune_attempts,
)
from colo_executor.process.machine import account_of_name, boot_id, is_same_process, start_ticks
from colo_executor.process.online import OnlineTier
from colo_executor.process.run_as import account_of, prefix_of
from colo_executor.process.settings import ProcessPolicy
from colo_executor.process.sibling_cgroups import SiblingCgroups
from colo_executor.process.stall_reader import StallReader, unified_root
from colo_executor.process.tier import Tier, group_of

__all__ = ["ProcessRuntime"]


class _Running(Struct, kw_only=True):
    placement: Placement
    token: str
    tree: CgroupTree
    group: str
    pid: int
    pidfd: int = -1


class ProcessRuntime:
    """The processes of one executor. The constructor raises JournalBusy, CgroupError or OSError when the machine refuses it.

    `admits_online` False refuses online work. `withheld` are CPUs of this machine that no placed work may use.
    """

    def __init__(self, policy: ProcessPolicy, *, admits_online: bool = True, withheld: CpuSet | None = None) -> None:
        self._policy = policy
        self._state_dir = Path(policy.state_dir)
        self._journal = JournalFile(self._state_dir)
        try:
            self._tier = Tier(policy, self._journal)
            self._tier.tree.check_writable()
            self._online = OnlineTier(
                self._tier, policy.desired, is_on=admits_online, withheld=CpuSet() if withheld is None else withheld
            )
        except BaseException:
            self._journal.close()
            raise
        self._running: dict[str, _Running] = {}
        self._batch: set[str] = set()
        self._exits: deque[ReplicaExited] = deque()
        self._collecting: set[asyncio.Task[None]] = set()
        self._fast: FastReader | None = None
        self._reconciling = threading.Lock()
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
    def has_batch(self) -> bool:
        """Whether a batch replica runs on this node."""
        return bool(self._batch)

    # ------------------------------------------------------------ start and end

    async def adopt(self, now_ms: int) -> Adopted:
        """Prepare the tiers, adopt the attempts of an earlier executor, and remove groups that are not in the journal."""
        state = self._journal.state
        boot = boot_id(self._policy.proc_root)
        same_boot = state.boot_id == boot
        left = [self._home_of(entry.placement, entry.pid) for entry in state.launched.values()]
        await asyncio.to_thread(self._prepare, boot, left if same_boot else [])
        found = []
        for running, (key, entry) in zip(left, list(state.launched.items()), strict=True):
            self._note(running)
            alive = same_boot and self._watch_again(running, entry.start_ticks)
            if alive:
                tier = self._online if is_online(entry.placement) else self._tier
                tier.adopt(running.token, entry.placement)
            if not alive:
                self._spawn_collect(running)
            found.append(
                AdoptedReplica(
                    placement=entry.placement,
                    pid=entry.pid,
                    launched_at_ms=entry.at_ms,
                    alive=alive,
                    stop=state.stopping.get(key),
                )
            )
        await asyncio.to_thread(self._remove_unknown)
        return Adopted(
            replicas=tuple(found),
            waiting=tuple(state.accepted.values()),
            ended=tuple(entry.fact for entry in state.ended.values()),
            revision=state.restricted.revision,
            restrictions=state.restricted.restrictions,
        )

    async def restore(self) -> tuple[ReplicaExited, ...]:
        """End every replica and put the kernel back. Raises CgroupError that names each value that could not be put back."""
        for task in tuple(self._collecting):
            task.cancel()
        running = tuple(self._running.values())
        for one in running:
            self._unwatch(one)
        self._is_over = True
        failures = await asyncio.to_thread(self._restore)
        exits = list(self.poll_exits())
        for one in running:
            exit_status(attempt_dir(self._state_dir, one.token), one.pid)
            exits.append(
                ReplicaExited(
                    replica=one.placement.replica,
                    attempt=one.placement.attempt,
                    exit_code=None,
                    detail="the executor left the machine and put it back",
                )
            )
        self._running.clear()
        self._batch.clear()
        if failures:
            raise CgroupError("; ".join(failures))
        return tuple(exits)

    async def close(self) -> None:
        """Stop watching; the processes go on."""
        tasks = tuple(self._collecting)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for running in self._running.values():
            self._unwatch(running)
        if self._fast is not None:
            self._fast.close()
        self._journal.close()

    # ------------------------------------------------------------ replicas

    async def launch(self, placement: Placement, now_ms: int) -> ReplicaLaunched | LaunchFailed:
        """Start the placement in a new group. The command runs only after its process is in the group and in the journal."""
        token = replica_token(placement.replica, placement.attempt)
        try:
            if token in self._running:
                raise CgroupError(f"another attempt already has the name {token}")
            held = tuple(running.placement for running in self._running.values())
            running, launched = await asyncio.to_thread(self._launch, placement, token, held, now_ms)
        except (CpusRefused, ShareRefused) as error:
            return _failed(placement, error.reason, str(error))
        except InvalidInput as error:
            return _failed(placement, Reason.START_FAILED, str(error))
        except CgroupError as error:
            return _failed(placement, Reason.CGROUP_REFUSED, str(error))
        except OSError as error:
            return _failed(placement, Reason.START_FAILED, str(error))
        self._note(running)
        self._watch(running)
        return launched

    async def signal(self, effect: SignalReplica) -> None:
        """Journal the stop and send SIGTERM to every process of the attempt, or send SIGKILL until its group is empty."""
        running = self._running.get(replica_token(effect.replica, effect.attempt))
        if running is None:
            return
        if effect.signal == "kill":
            await asyncio.to_thread(self._kill, running)
            return
        entry = Stopping(replica=effect.replica, attempt=effect.attempt, intent=effect.intent)
        await asyncio.to_thread(self._journal.append, entry)
        await asyncio.to_thread(self._terminate, running)

    async def suspend(self, effect: SuspendReplicas) -> ReplicasSuspended:
        """Freeze the control groups of the attempts, or thaw them. Without a freezer, SIGSTOP or SIGCONT to every process."""
        return await asyncio.to_thread(self._suspend, effect)

    async def remember(self, effect: RememberPlacement | RememberEnd | RememberRestrictions) -> None:
        """Append the placement, the end or the restrictions to the journal."""
        entry: Accepted | EndedEntry | RefusedEntry | Restricted
        if isinstance(effect, RememberRestrictions):
            entry = Restricted(revision=effect.revision, restrictions=effect.restrictions)
        elif isinstance(effect, RememberPlacement):
            entry = Accepted(placement=effect.placement)
        elif isinstance(effect.fact, PlacementRefused):
            entry = RefusedEntry(fact=effect.fact)
        else:
            entry = EndedEntry(fact=effect.fact)
        await asyncio.to_thread(self._journal.append, entry)

    def poll_exits(self) -> tuple[ReplicaExited, ...]:
        """The attempts that exited since the last call."""
        exits = []
        while self._exits:
            exits.append(self._exits.popleft())
        return tuple(exits)

    # ------------------------------------------------------------ reflex

    def read_fast(self, now_ms: int) -> FastReading | None:
        """The CPU use over a short window; takes tens of microseconds."""
        return None if self._fast is None else self._fast.read(now_ms)

    def set_ceiling(self, ceiling_mcpu: int) -> CeilingWritten | CeilingRefused:
        """Write the batch tier's quota; takes tens of microseconds."""
        return self._tier.set_ceiling(ceiling_mcpu)

    async def reconcile(self) -> Drift | None:
        """Read every kept file and put back the values that another program changed; None when nothing changed."""
        return await asyncio.to_thread(self._reconcile)

    # ------------------------------------------------------------ inside

    def _reconcile(self) -> Drift | None:
        with self._reconciling:
            if self._is_over:
                return None
            found: list[Drift] = []
            for tier in (self._tier, self._online):
                try:
                    found.append(tier.reconcile())
                except (CgroupError, OSError) as error:
                    found.append(Drift(failed=(str(error),)))
        knobs = tuple(knob for drift in found for knob in drift.knobs)
        failed = tuple(sentence for drift in found for sentence in drift.failed)
        return Drift(knobs=knobs, failed=failed) if knobs or failed else None

    def _restore(self) -> tuple[str, ...]:
        # A reconcile at the same time would write kept values over the old ones.
        with self._reconciling:
            return self._tier.restore()

    def _home_of(self, placement: Placement, pid: int = 0) -> _Running:
        token = replica_token(placement.replica, placement.attempt)
        if is_online(placement):
            tree, group = self._online.tree, online_group(placement.qos, token)
        else:
            tree, group = self._tier.tree, group_of(token)
        return _Running(placement=placement, token=token, tree=tree, group=group, pid=pid)

    def _note(self, running: _Running) -> None:
        self._running[running.token] = running
        if not is_online(running.placement):
            self._batch.add(running.token)

    def _add(self, running: _Running) -> tuple[KnobValue, ...]:
        tier = self._online if is_online(running.placement) else self._tier
        return tier.add(running.token, running.placement)

    def _drop(self, running: _Running) -> bool:
        if is_online(running.placement):
            return self._online.drop(running.token, running.placement)
        return self._tier.drop(running.token)

    def _prepare(self, boot: str, left: list[_Running]) -> None:
        self._journal.append(Booted(boot_id=boot))
        for running in left:
            tier = self._online if is_online(running.placement) else self._tier
            tier.reserve_adopted(running.token, running.placement)
        self._tier.prepare(self._online.batch_cpus)
        tree = self._tier.tree
        unified = unified_root(tree.root)
        own = (tree.name, f"{tree.name}{SUFFIX}")
        self._fast = FastReader(
            total_path=tree.usage_path("/"),
            batch_path=tree.usage_path("batch"),
            unit_ns=1 if tree.version == 1 else 1_000,
            window_ms=self._policy.window_ms,
            proc_root=self._policy.proc_root,
            sys_root=self._policy.sys_root,
            siblings=SiblingCgroups(tree.root, tree.name) if tree.version == 2 else None,
            idle_path=tree.idle_path,
            stalls=StallReader(unified, own, proc_root=self._policy.proc_root) if unified else None,
        )

    def _remove_unknown(self) -> None:
        known = frozenset(self._running)
        self._tier.remove_unknown(known)
        self._online.remove_unknown(known)

    def _terminate(self, running: _Running) -> None:
        if not is_online(running.placement):
            self._tier.boost_weight(running.token)
        running.tree.terminate(running.group)

    def _suspend(self, effect: SuspendReplicas) -> ReplicasSuspended:
        failed = []
        for replica, attempt in effect.attempts:
            running = self._running.get(replica_token(replica, attempt))
            if running is None:
                continue
            try:
                running.tree.freeze(running.group, is_frozen=effect.is_suspended)
            except FileNotFoundError:
                # It has just ended.
                continue
            except (CgroupError, OSError) as error:
                failed.append((replica, attempt, str(error)))
        return ReplicasSuspended(attempts=effect.attempts, is_suspended=effect.is_suspended, failed=tuple(failed))

    def _kill(self, running: _Running) -> bool:
        if is_online(running.placement):
            return running.tree.kill(running.group)
        return self._tier.kill(running.token)

    def _launch(
        self, placement: Placement, token: str, held: tuple[Placement, ...], now_ms: int
    ) -> tuple[_Running, ReplicaLaunched]:
        prefix = self._prefix_of(placement)
        command = check_run(placement, prefix, self._policy.path)
        check_shares(placement, held, self._tier.inventory(placement))
        running = self._home_of(placement)
        knobs = self._add(running)
        gate = None
        try:
            directory = make_attempt_dir(self._state_dir, token)
            gate = launch(placement, command, directory, self._policy.path, prefix)
            running.tree.attach(running.group, gate.pid)
            if gate.pid not in running.tree.pids(running.group):
                raise CgroupError(f"process {gate.pid} is not in {running.group} after it was written there")
            ticks = start_ticks(self._policy.proc_root, gate.pid) or 0
            self._journal.append(Launched(placement=placement, pid=gate.pid, start_ticks=ticks, at_ms=now_ms))
        except BaseException:
            if gate is not None:
                gate.close()
            self._drop(running)
            raise
        gate.open()
        running.pid = gate.pid
        return running, ReplicaLaunched(replica=placement.replica, attempt=placement.attempt, pid=gate.pid, knobs=knobs)

    def _prefix_of(self, placement: Placement) -> tuple[str, ...]:
        """What makes the command another user's: by the rule of users, else the prefix of the settings."""
        account = account_of(self._policy.users, placement.tenant, placement.job, account_of_name)
        return self._policy.command_prefix if account is None else prefix_of(account)

    def _watch(self, running: _Running) -> None:
        try:
            running.pidfd = os.pidfd_open(running.pid)
        except OSError:
            self._spawn_collect(running)
            return
        asyncio.get_running_loop().add_reader(running.pidfd, self._spawn_collect, running)

    def _watch_again(self, running: _Running, ticks: int) -> bool:
        """Watch a process of an earlier executor; False when it has exited."""
        if running.pid not in running.tree.pids(running.group):
            return False
        try:
            running.pidfd = os.pidfd_open(running.pid)
        except OSError:
            return False
        # Checked after the descriptor refers to the process, so that its pid cannot be reused in between.
        if not is_same_process(self._policy.proc_root, running.pid, ticks):
            os.close(running.pidfd)
            running.pidfd = -1
            return False
        asyncio.get_running_loop().add_reader(running.pidfd, self._spawn_collect, running)
        return True

    def _unwatch(self, running: _Running) -> None:
        if running.pidfd >= 0:
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop().remove_reader(running.pidfd)
            os.close(running.pidfd)
            running.pidfd = -1

    def _spawn_collect(self, running: _Running) -> None:
        self._unwatch(running)
        task = asyncio.get_running_loop().create_task(self._collect(running))
        self._collecting.add(task)
        task.add_done_callback(self._collecting.discard)

    async def _collect(self, running: _Running) -> None:
        exited = await asyncio.to_thread(self._gather, running)
        self._running.pop(running.token, None)
        self._batch.discard(running.token)
        self._exits.append(exited)
        in_use = frozenset(self._running)
        await asyncio.to_thread(prune_attempts, self._state_dir, self._policy.attempts_kept + len(in_use), in_use)

    def _gather(self, running: _Running) -> ReplicaExited:
        """Finish an attempt whose first process exited: kill the other processes, read its counters, remove its group."""
        tree, group = running.tree, running.group
        directory = attempt_dir(self._state_dir, running.token)
        remarks = []
        if not self._kill(running):
            remarks.append("processes of it did not die within the time of SIGKILL")
        exit_code = exit_status(directory, running.pid)
        cpu_used_ms, oom = 0, False
        with contextlib.suppress(CgroupError, OSError, ValueError):
            cpu_used_ms = tree.cpu_used_us(group) // 1_000
            oom = tree.oom_kills(group) > 0
        if not self._drop(running):
            remarks.append("its control group could not be removed")
        if exit_code is None:
            remarks.append("its exit code is not known, because no executor watched when it ended")
        sizes = [f"{name} {_size(directory / name)} bytes" for name in ("stdout", "stderr")]
        remarks.append(f"output in {directory} ({', '.join(sizes)})")
        return ReplicaExited(
            replica=running.placement.replica,
            attempt=running.placement.attempt,
            exit_code=exit_code,
            oom=oom,
            cpu_used_ms=cpu_used_ms,
            detail="; ".join(remarks),
        )


def _failed(placement: Placement, reason: Reason, detail: str) -> LaunchFailed:
    return LaunchFailed(replica=placement.replica, attempt=placement.attempt, reason=reason, detail=detail)


def _size(path: Path) -> int:
    try:
        return path.stat(follow_symlinks=False).st_size
    except OSError:
        return 0
