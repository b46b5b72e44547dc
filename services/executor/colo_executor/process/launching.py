"""Starts attempts: a process in a group of its own, in the journal before its command runs, or an attachment to one of others."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import Placement, replica_token
from colo_common.model.reasons import Reason
from colo_executor.attach import AttachRefused
from colo_executor.cgroup import CgroupError
from colo_executor.inventory import ShareRefused, check_shares
from colo_executor.journal import JournalFile
from colo_executor.journal_lines import Launched
from colo_executor.knob_table import Knob
from colo_executor.local import LaunchFailed, ReplicaLaunched
from colo_executor.online import CpusRefused, is_online
from colo_executor.process.attached import AttachedTier
from colo_executor.process.core_cookies import CoreCookies
from colo_executor.process.device_files import why_unfenced
from colo_executor.process.ending import RunningAttempt
from colo_executor.process.homes import Homes
from colo_executor.process.hygiene import settle
from colo_executor.process.launch import check_run, launch, make_attempt_dir
from colo_executor.process.machine import start_ticks
from colo_executor.process.namespaces import namespaces_prefix
from colo_executor.process.run_prefix import run_prefix
from colo_executor.process.settings import ProcessPolicy
from colo_executor.process.tier import Tier

__all__ = ["Launching"]

_BLOCKED_MOST: Final = 2
"""So many launches may keep a thread waiting for the kernel: kills, stops and the journal need the others."""

_Begun = tuple[RunningAttempt, ReplicaLaunched]


class Launching:
    """The launches of one executor. The constructor raises InvalidInput for namespaces that are asked for and not to be had.

    `running` are the attempts by token, as they are at each moment. `undo` removes the group of a launch that failed.
    """

    def __init__(
        self,
        policy: ProcessPolicy,
        tier: Tier,
        attached: AttachedTier,
        homes: Homes,
        journal: JournalFile,
        output_dir: Path,
        running: dict[str, RunningAttempt],
        undo: Callable[[RunningAttempt], object],
    ) -> None:
        self._policy = policy
        self._tier = tier
        self._attached = attached
        self._homes = homes
        self._journal = journal
        self._output_dir = output_dir
        self._running = running
        self._undo = undo
        self._given_up: set[asyncio.Task[_Begun]] = set()
        self._unfenced: set[str] = set()
        self._log = structlog.get_logger("executor")
        self._namespaces, refusal = namespaces_prefix(policy.hygiene.namespaces, policy.path)
        if refusal:
            self._log.info("no-namespaces", detail=refusal)
        self._cookies = CoreCookies(policy.hygiene.core_scheduling)
        if refusal := self._cookies.refusal:
            self._log.warning("no-core-scheduling", detail=refusal)

    async def launch(self, placement: Placement, now_ms: int) -> _Begun | LaunchFailed:
        """Start the placement in a new group. The command runs only after its process is in the group and in the journal.

        A kernel that does not answer within `launch_most_s` fails the launch, so that the kills and stops that come after it are
        not kept waiting; whatever it does later is undone, and the command never runs.
        """
        token = replica_token(placement.replica, placement.attempt)
        decision = threading.Lock()
        try:
            if token in self._running:
                raise CgroupError(f"another attempt already has the name {token}")
            if len(self._given_up) >= _BLOCKED_MOST:
                raise CgroupError(f"{_BLOCKED_MOST} earlier launches still wait for the kernel to take their processes")
            held = tuple(running.placement for running in self._running.values())
            launching = asyncio.create_task(asyncio.to_thread(self._launch, placement, token, held, now_ms, decision))
            done, _ = await asyncio.wait((launching,), timeout=self._policy.launch_most_s)
            if not done and decision.acquire(blocking=False):
                self._given_up.add(launching)
                launching.add_done_callback(self._undone)
                raise CgroupError(
                    f"the kernel did not take the process within {self._policy.launch_most_s:g} s: "
                    "a write to a control group is blocked"
                )
            return await launching
        except (AttachRefused, CpusRefused, ShareRefused) as error:
            return _failed(placement, error.reason, str(error))
        except InvalidInput as error:
            return _failed(placement, Reason.START_FAILED, str(error))
        except CgroupError as error:
            return _failed(placement, Reason.CGROUP_REFUSED, str(error))
        except OSError as error:
            return _failed(placement, Reason.START_FAILED, str(error))

    def cookies(self) -> tuple[int, int]:
        """The numbers of batch replicas with a core-scheduling cookie, and of those that should have one and have none."""
        return self._cookies.counts(one.pid for one in self._batch_started())

    # ------------------------------------------------------------ inside

    def _launch(
        self, placement: Placement, token: str, held: tuple[Placement, ...], now_ms: int, decision: threading.Lock
    ) -> _Begun:
        """Start the attempt up to its open gate. The first to take `decision`, this thread or the waiting one, decides."""
        if placement.run.attach is not None:
            return self._attached.launch(placement, token, now_ms, decision)
        places = {self._output_dir, *(one.output_dir for one in self._running.copy().values() if not one.attached)}
        account, prefix = run_prefix(self._policy, placement, self._namespaces, places)
        command = check_run(placement, prefix, self._policy.path)
        check_shares(placement, held, self._tier.inventory(placement))
        running = self._homes.of(placement)
        knobs = self._homes.make(running)
        gate = None
        try:
            running.keep_in(self._output_dir)
            directory = make_attempt_dir(self._output_dir, token)
            gate = launch(placement, command, directory, self._policy.path, prefix, account)
            settle(self._policy.hygiene, self._policy.proc_root, gate.pid, is_online=is_online(placement))
            running.tree.attach(running.group, gate.pid)
            if not is_online(placement):
                self._give_cookie(placement, gate.pid)
                self._warn_unfenced(placement)
            if gate.pid not in running.tree.pids(running.group):
                raise CgroupError(f"process {gate.pid} is not in {running.group} after it was written there")
            if not decision.acquire(blocking=False):
                raise CgroupError("the launch was given up before the kernel took the process")
            ticks = start_ticks(self._policy.proc_root, gate.pid) or 0
            devices = self._homes.devices_of(running)
            entry = Launched(
                placement=placement,
                pid=gate.pid,
                start_ticks=ticks,
                at_ms=now_ms,
                devices=devices,
                output_dir=str(self._output_dir),
            )
            self._journal.append(entry)
        except BaseException:
            if gate is not None:
                gate.close()
            self._undo(running)
            raise
        gate.open()
        running.pid = gate.pid
        return running, ReplicaLaunched(replica=placement.replica, attempt=placement.attempt, pid=gate.pid, knobs=knobs)

    def _undone(self, launching: asyncio.Task[_Begun]) -> None:
        """Note how a launch that was given up ended: its thread has undone it."""
        self._given_up.discard(launching)
        error = None if launching.cancelled() else launching.exception()
        self._log.warning("launch-undone", detail="cancelled" if error is None else str(error))

    def _batch_started(self) -> list[RunningAttempt]:
        return [one for one in self._running.copy().values() if one.pid and not is_online(one.placement)]

    def _warn_unfenced(self, placement: Placement) -> None:
        """Say that batch work which was given devices is kept from no others, once for each reason."""
        machine, lacking = self._tier.machine, ""
        if placement.devices and (machine is None or Knob.DEVICES not in machine.has):
            lacking = self._tier.tree.lacks_fence() or "the kernel has no rules of devices for a control group"
        why = why_unfenced(self._policy, placement, lacking)
        if why and why not in self._unfenced:
            self._unfenced.add(why)
            detail = f"{why}: it can open every device file that its user may open"
            self._log.warning("devices-not-fenced", replica=placement.replica, attempt=placement.attempt, detail=detail)

    def _give_cookie(self, placement: Placement, pid: int) -> None:
        """Let batch work share cores with its own only, by the operator's setting; a launch does not fail for it."""
        alike = (one.pid for one in self._batch_started() if one.placement.tenant == placement.tenant)
        if refusal := self._cookies.give(pid, alike):
            self._log.warning("no-core-cookie", replica=placement.replica, attempt=placement.attempt, detail=refusal)


def _failed(placement: Placement, reason: Reason, detail: str) -> LaunchFailed:
    return LaunchFailed(replica=placement.replica, attempt=placement.attempt, reason=reason, detail=detail)
