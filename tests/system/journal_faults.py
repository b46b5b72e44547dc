"""An executor that dies at one write of its journal, and the one after it: `python -m tests.system.journal_faults STATE SUBTREE`.

For every write of a story and every way to die at it (half of the bytes on the disk, or all of them), a child runs the story and is
killed there, then a second child adopts what is left. Each prints one line of JSON: what the first one's kernel showed and what the
second one made of it. Children are forked, because a start of Python for each would take longer than all of them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import structlog
from msgspec import Struct
from msgspec.structs import replace

from colo_common.events.enforcement import ReplicaEnded
from colo_common.model.cpuset import CpuSet
from colo_common.model.placement import Placement, replica_token
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.workload import RunSpec
from colo_executor import journal
from colo_executor.cgroup import CgroupTree
from colo_executor.kept_cpus import KeptCpus
from colo_executor.local import RememberEnd, RememberPlacement, RememberTerm, ReplicaLaunched, SignalReplica, StopIntent
from colo_executor.located_devices import DeviceAddress
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from tests.support.adopted import AS_ROOT
from tests.support.builders import a_placement
from tests.support.waiting import eventually, eventually_blocking

__all__ = ["ROOT", "SURVIVED", "FaultSeen", "groups_of"]

ROOT: Final = "/sys/fs/cgroup"
SURVIVED: Final = -1
"""The write at which the child that was not killed died."""
_LIMIT_S: Final = 120.0
_MODES: Final = ("torn", "whole")


class FaultSeen(Struct, frozen=True, kw_only=True):
    """One death. By replica: the processes before and after the second executor adopted, and what it said of them."""

    at: int
    mode: str
    begun: tuple[str, ...]
    before: dict[str, list[int]]
    after: dict[str, list[int]]
    adopted: dict[str, int]
    groups_before: tuple[str, ...]
    groups_after: tuple[str, ...]
    launched_again: tuple[str, ...]
    left: tuple[str, ...]


def placements(marks: Path) -> tuple[Placement, Placement]:
    """A batch replica that ignores SIGTERM and an online one; each leaves a file as soon as its command has begun."""
    script = f"trap '' TERM; : > {marks}/$COLO_JOB; while :; do sleep 3600; done"
    run = RunSpec(command=("sh", "-c", script))
    batch = replace(a_placement("job/main/0", mcpu=500), run=run, memory_bytes=64 << 20)
    return batch, replace(batch, replica="web/main/0", job="web", qos=QosClass.LS, band=PriorityBand.PROD)


async def story(runtime: ProcessRuntime, marks: Path) -> None:
    """Everything that an executor journals, once."""
    await runtime.adopt(1)
    runtime.set_ceiling(900)
    for placement in placements(marks):
        launched = await runtime.launch(placement, 1)
        assert isinstance(launched, ReplicaLaunched), launched
    await runtime.keep_cpus(KeptCpus(pinned=CpuSet.from_iterable([0])))
    await runtime.locate_devices((DeviceAddress(kind="gpu", device=0, address="0000:01:00.0"),))
    intent = StopIntent(cause=EndCause.STOPPED, reason=Reason.CANCELLED, kill_at_ms=600_000, grace_ms=600_000)
    await runtime.signal(SignalReplica(replica="job/main/0", attempt=1, signal="term", intent=intent))
    await runtime.remember(RememberPlacement(placement=replace(placements(marks)[0], attempt=2)))
    fact = ReplicaEnded(node="n1", replica="old/main/0", job="old", attempt=1, cause=EndCause.EXITED, exit_code=0)
    await runtime.remember(RememberEnd(fact=fact))
    await runtime.remember(RememberTerm(order="stop", generation=7))


def die_at(at: int, mode: str) -> None:
    """Let this process be killed at its write number `at` (from 0) of the journal."""
    write_all, count = journal._write_all, [0]

    def dying(fd: int, data: bytes) -> None:
        if count[0] == at:
            write_all(fd, data if mode == "whole" else data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        count[0] += 1
        write_all(fd, data)

    journal._write_all = dying


def victim(policy: ProcessPolicy, marks: Path, at: int, mode: str) -> None:
    """Run the story until the death."""
    die_at(at, mode)
    asyncio.run(story(ProcessRuntime(policy), marks))


async def successor(policy: ProcessPolicy, marks: Path, at: int, mode: str) -> FaultSeen:
    """Adopt what is left, start what did not begin, and put everything back."""
    replicas = placements(marks)
    before = settled(policy, marks)
    begun = tuple(placement.job for placement in replicas if (marks / placement.job).exists())
    groups_before = groups_of(policy.subtree)
    runtime = ProcessRuntime(policy)
    try:
        found = await runtime.adopt(2)
        adopted = {one.placement.job: one.pid for one in found.replicas if one.alive}

        async def is_collected() -> bool:
            dead = {one.placement.replica for one in found.replicas if not one.alive}
            ends.update(exited.replica for exited in runtime.poll_exits())
            return dead <= ends

        ends: set[str] = set()
        await eventually(is_collected, "the ends of what was dead", limit_s=_LIMIT_S)
        after = pids_of(policy)
        groups_after = groups_of(policy.subtree)
        again = []
        for placement in replicas:
            if placement.job not in adopted:
                launched = await runtime.launch(placement, 2)
                assert isinstance(launched, ReplicaLaunched), launched
                again.append(placement.job)
    finally:
        await runtime.restore()
        await runtime.close()
    return FaultSeen(
        at=at,
        mode=mode,
        begun=begun,
        before=before,
        after=after,
        adopted=adopted,
        groups_before=groups_before,
        groups_after=groups_after,
        launched_again=tuple(again),
        left=groups_of(policy.subtree),
    )


def settled(policy: ProcessPolicy, marks: Path) -> dict[str, list[int]]:
    """The first process of each replica, once every gate has let its command begin or closed with the executor that died."""

    def look() -> bool:
        return all((marks / job).exists() or not pids for job, pids in pids_of(policy).items())

    eventually_blocking(look, "gates that are open or closed", limit_s=_LIMIT_S)
    return pids_of(policy)


def pids_of(policy: ProcessPolicy) -> dict[str, list[int]]:
    """The first process of each replica that has one: the leader of its session. Its number may be above those of its children."""
    found = {}
    for placement in placements(Path("/")):
        token = replica_token(placement.replica, 1)
        is_batch = placement.qos is QosClass.BE
        tree = CgroupTree(ROOT, policy.subtree if is_batch else f"{policy.subtree}-online")
        pids = tree.pids(f"batch/{token}" if is_batch else f"ls.{token}")
        found[placement.job] = [pid for pid in pids if _session_of(pid) == pid]
    return found


def _session_of(pid: int) -> int:
    """The session of a process, 0 when it is gone."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def groups_of(subtree: str) -> tuple[str, ...]:
    """Every group of the subtree and its siblings, in any hierarchy."""
    tops = [*Path(ROOT).glob(f"*/{subtree}*"), *Path(ROOT).glob(f"{subtree}*")]
    return tuple(sorted({str(path) for top in tops for path in (top, *top.rglob("*")) if path.is_dir()}))


def in_child(act: Callable[[], None]) -> int:
    """Run in a forked child; the signal that ended it, or 0."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "a child failed"
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def report(policy: ProcessPolicy, marks: Path, at: int, mode: str) -> None:
    """Be the second executor, and print what it saw."""
    os.write(1, msgspec.json.encode(asyncio.run(successor(policy, marks, at, mode))) + b"\n")


def main(state: str, subtree: str) -> None:
    """Die at every write, until a story comes to its end."""
    # What is printed is read by the test.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    at, is_over = 0, False
    while not is_over:
        for mode in _MODES:
            marks = Path(state) / f"marks-{at}-{mode}"
            marks.mkdir(parents=True)
            policy = ProcessPolicy(users=AS_ROOT, state_dir=f"{state}/{at}-{mode}", subtree=f"{subtree}-{at}-{mode}")
            died = in_child(partial(victim, policy, marks, at, mode))
            is_over = died != signal.SIGKILL
            in_child(partial(report, policy, marks, SURVIVED if is_over else at, mode))
            if is_over:
                break
        at += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
