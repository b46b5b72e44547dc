"""Replicas whose processes somebody else started: the groups that they are attached to, and what is kept there.

Nothing is made, moved or removed. The values are those of groups of others (`unmanaged.py`), for as long as the replica is
attached: what was there before is journaled first, and put back at the end. What is attached ends when its group has no process.
"""

import threading
from collections.abc import Collection, Mapping

from colo_common.events.enforcement import KnobValue
from colo_common.model.placement import Placement, replica_token
from colo_common.model.reasons import Reason
from colo_executor.attach import AttachRefused, attached_values, is_cleared_above
from colo_executor.cgroup import CgroupError, CgroupTree
from colo_executor.desired import DesiredPolicy
from colo_executor.journal import JournalFile
from colo_executor.journal_lines import AttachedTo, Launched
from colo_executor.knob_table import Knob
from colo_executor.local import Attempt, ReplicaLaunched
from colo_executor.online import CpusRefused
from colo_executor.process.attach_group import checked_path
from colo_executor.process.attached_use import AttachedUse, attached_to
from colo_executor.process.ending import RunningAttempt
from colo_executor.process.found import first_process
from colo_executor.process.group_identity import heeded_knobs
from colo_executor.process.online import OnlineTier
from colo_executor.process.settings import ProcessPolicy
from colo_executor.process.tier import Tier
from colo_executor.process.unmanaged import UnmanagedTier
from colo_executor.process.unmanaged_cpus import Attached, UnmanagedCpus
from colo_executor.unmanaged import UnmanagedGroup
from colo_executor.unmanaged_cpus import NoCpuLeft

__all__ = ["AttachedTier"]


class AttachedTier:
    """The attached replicas of one executor. `turn` keeps `reconcile` and `restore` away while values are written."""

    def __init__(
        self,
        tier: Tier,
        online: OnlineTier,
        unmanaged: UnmanagedTier,
        cpus: UnmanagedCpus,
        policy: ProcessPolicy,
        journal: JournalFile,
        turn: threading.Lock,
    ) -> None:
        self._tier, self._online, self._unmanaged, self._cpus = tier, online, unmanaged, cpus
        self._policy = policy
        self._desired: DesiredPolicy = policy.desired
        self._journal = journal
        self._boot_id = journal.state.boot_id
        self._turn = turn
        self._runs: dict[str, RunningAttempt] = {}
        cpus.attached = self._cleared

    # ------------------------------------------------------------ start

    def launch(
        self, placement: Placement, token: str, now_ms: int, decision: threading.Lock
    ) -> tuple[RunningAttempt, ReplicaLaunched]:
        """Attach the placement: its line is in the journal before the first value of the group is written.

        Raises AttachRefused or CpusRefused, and nothing was changed, or CgroupError, OSError and InvalidInput, and it was put back.
        The first to take `decision`, this thread or the waiting one, decides.
        """
        with self._turn:
            path = self._checked(placement)
            tree, group = self._place(path)
            pids = tree.pids(group)
            if not pids:
                raise AttachRefused(f"{path} has no process on this node")
            first = first_process(self._policy.proc_root, pids)
            pid, ticks = (pids[0], 0) if first is None else first
            to = attached_to(tree, group, path, self._boot_id)
            running = self.home(placement, token, pid, to)
            self._online.attach(token, placement, tree.usage_path(group))
            try:
                entry = Launched(placement=placement, pid=pid, start_ticks=ticks, at_ms=now_ms, attached=to)
                self._journal.append(entry)
                self._keep(running)
                knobs = self._write(path)
                if not decision.acquire(blocking=False):
                    raise CgroupError("the launch was given up before the kernel took the values of the group")
            except BaseException:
                self._forget(running)
                raise
        launched = ReplicaLaunched(
            replica=placement.replica, attempt=placement.attempt, pid=pid, knobs=tuple(knobs), group=path
        )
        return running, launched

    def home(self, placement: Placement, token: str, pid: int, to: AttachedTo) -> RunningAttempt:
        """The attempt in the group that the journal names, or that was just found."""
        tree, group = self._place(to.group)
        use = AttachedUse(tree, group, to, self._boot_id)
        return RunningAttempt(placement=placement, token=token, tree=tree, group=group, pid=pid, attached=use)

    def reserve_adopted(self, running: RunningAttempt) -> None:
        """Keep the values of an attachment of an earlier executor, before the first write to the kernel."""
        if running.attached is not None and running.attached.is_there():
            self._online.reserve_attached(running.token, running.placement, running.tree.usage_path(running.group))
            self._keep(running)

    def forget_replaced(self) -> None:
        """Keep nothing in groups that are gone, and forget their old values: a later group of the same name has its own.

        For a caller that has the turn, before it writes what is to be kept or puts anything back.
        """
        for entry in self._journal.state.launched.copy().values():
            if entry.attached is None:
                continue
            running = self.home(entry.placement, "", 0, entry.attached)
            if running.attached is not None and not running.attached.is_there():
                token = replica_token(entry.placement.replica, entry.placement.attempt)
                self._unmanaged.attached.pop(token, None)
                self._forget_values(running)

    # ------------------------------------------------------------ end

    def ended(self) -> list[RunningAttempt]:
        """The attached attempts whose group is gone or has no process; reads what the others have used."""
        return [one for one in self._runs.copy().values() if one.attached is not None and not one.attached.runs()]

    def kill_now(self, running: RunningAttempt) -> bool:
        """Whether nothing is to be killed any more; else every process of the group gets SIGKILL.

        Only what the job lets a stop kill is killed, and no later group of the same name.
        """
        if running.attached is None or not running.attached.may_kill:
            return True
        return running.tree.kill_now(running.group)

    def terminate(self, running: RunningAttempt) -> None:
        """SIGTERM to every process of the group, and of no later group of its name."""
        if running.attached is not None and running.attached.is_there():
            running.tree.terminate(running.group)

    def drop(self, running: RunningAttempt) -> bool:
        """Give the group its old values back; what the kernel refuses now each `reconcile` tries again."""
        with self._turn:
            self._forget(running)
        return True

    def yielded(self, paused: Collection[Attempt]) -> frozenset[str]:
        """The groups of the attempts whose values an operator changes by hand."""
        found = ((one, (one.placement.replica, one.placement.attempt)) for one in self._runs.copy().values())
        return frozenset(one.attached.to.group for one, attempt in found if one.attached and attempt in paused)

    # ------------------------------------------------------------ inside

    def _checked(self, placement: Placement) -> str:
        """The path of the group. Raises AttachRefused unless it is there and may be attached."""
        attached = [one.attached.to.group for one in self._runs.values() if one.attached is not None]
        path = checked_path(placement, self._policy, self._tier.tree, self._tier.units, attached)
        tree, group = self._place(path)
        if not tree.exists(group):
            raise AttachRefused(f"there is no control group {path} under the cpu controller of this node")
        return path

    def _place(self, path: str) -> tuple[CgroupTree, str]:
        top, _, group = path.partition("/")
        return self._unmanaged.tree_of(top), group

    def _keep(self, running: RunningAttempt) -> None:
        """Let the values of the group be kept from now on."""
        if running.attached is None:
            return
        self._runs[running.token] = running
        path, version, machine = running.attached.to.group, running.tree.version, self._tier.machine
        # That of an earlier executor is kept before the machine is prepared.
        has = machine.has if machine is not None else heeded_knobs(self._tier.tree.has(), self._policy.proc_root)
        self._unmanaged.attached[running.token] = attached_values(self._desired, running.placement, path, version, has)

    def _write(self, path: str) -> list[KnobValue]:
        """Write what is to be kept there. Raises CgroupError, CpusRefused or OSError when it cannot be had."""
        try:
            knobs = self._cpus.clear_attached(path)
        except NoCpuLeft as error:
            raise CpusRefused(Reason.CPUS_SHORT, f"{path}: none of its CPUs is left to work of this class") from error
        kept = self._unmanaged.keep(only=path)
        if kept.failed:
            raise CgroupError("; ".join(kept.failed))
        return [*knobs, *kept.knobs]

    def _cleared(self) -> Attached:
        """What keeps attached work on the CPUs of its class, of groups that the policy does not keep clear itself."""
        found = []
        for token, one in self._runs.copy().items():
            use = one.attached
            if use is None or is_cleared_above(use.to.group, self._unmanaged.cleared) or not use.is_there():
                continue
            off, alone = self._online.attached_cpus(token)
            entry = UnmanagedGroup(group=use.to.group, cpus=alone.format(), clear_of_own_cpus=True)
            found.append((entry, off))
        return tuple(found)

    def _forget(self, running: RunningAttempt) -> None:
        """Keep nothing there any more, and give back what was there before."""
        self._runs.pop(running.token, None)
        self._unmanaged.attached.pop(running.token, None)
        self._online.release(running.token)
        if running.attached is not None:
            self._cpus.forget_attached(running.attached.to.group)
        self._forget_values(running)
        self._cpus.give_back_unkept()

    def _forget_values(self, running: RunningAttempt) -> None:
        if running.attached is None or running.attached.is_there():
            return
        files = _files_of(running, self._tier.old.values())
        if files:
            self._tier.old.forget(files)


def _files_of(running: RunningAttempt, old_values: Mapping[str, str]) -> list[str]:
    """The files of the group, and of those in it, whose old value is known."""
    paths = {running.tree.path_of(knob, running.group).rpartition("/")[0] for knob in Knob} - {""}
    return [file for file in old_values if any(file.startswith(f"{path}/") for path in paths)]
