"""This machine as a node of the lab: a collector and an executor that run real processes in real control groups."""

import asyncio
import os
import socket
from collections import Counter
from pathlib import Path
from typing import Final

from msgspec import Struct

from colo_cli.lab_kernel import KernelView, differences
from colo_cli.lab_options import LabOptions
from colo_cli.lab_processes import LabFailed, LabProcesses
from colo_common.events.enforcement import PlacementRefused, ReplicaEnded, ReplicaStarted
from colo_common.events.fact import Fact
from colo_common.events.node import AllocatableChanged, NodeUsageSampled
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import attempt_key, parse_replica_token
from colo_common.model.reasons import EndCause
from colo_common.ports import Refused
from colo_executor.cgroup import CgroupError
from colo_executor.desired import BATCH

__all__ = ["REAL_RESERVED_MCPU", "RealAccount", "RealNode"]

_NEEDS: Final = "--real needs root and writable cpu and memory control groups; the lab goes on with simulated nodes"
_AGENTS: Final = ("collector", "executor")
_PERIOD_MS_MIN: Final = 200
# Whoever reaches the gateway of a lab may submit: no job is root.
_JOBS_RUN_AS: Final = "nobody"
_RESTORE_S: Final = 1.5
_DIFFERENCES_MAX: Final = 10

_SHOWN: Final = ("cpu.shares", "cpu.weight", "cpuset.cpus", "memory.limit_in_bytes", "memory.max")
"""The knob files that the screen shows, of both versions of control groups; the verdict has all."""

REAL_RESERVED_MCPU: Final = 200
"""CPU kept free on each machine of a lab with a real node; the default of a whole CPU may be all of a small machine."""


class RealAccount(Struct, frozen=True, kw_only=True):
    """The part of the verdict about this machine; `node` is "" where it could not take part, for what is `lacking`.

    `runs_as` is the user that jobs run as. `knobs` are files below the root of control groups, as the lab read them;
    `ceiling_mcpu` has the least and the most of the batch tier.
    """

    node: str = ""
    lacking: str = ""
    runs_as: str = ""
    subtree: str = ""
    cgroup_version: int = 0
    promised_mcpu: int = 0
    replicas_run: int = 0
    replicas_seen_in_the_kernel: int = 0
    ends: dict[str, int] = {}
    ceiling_mcpu: dict[str, int] = {}
    replica: str = ""
    pids: tuple[int, ...] = ()
    knobs: dict[str, str] = {}
    differs: tuple[str, ...] = ()


class RealNode:
    """Starts the two node agents if this process may; otherwise a notice names what it lacks.

    The agents run on the wall clock at any speed of the lab. `account` has the values that the lab read from the kernel, and the
    facts that the agents published about the node.
    """

    def __init__(self, options: LabOptions, directory: Path, processes: LabProcesses) -> None:
        self._directory = directory
        self._processes = processes
        wall_ms = options.sample_period_ms // options.speed
        self._period_ms = max(wall_ms, _PERIOD_MS_MIN)
        self._lease_ms = max(options.lease_ms // options.speed, 6 * self._period_ms)
        self.name = _node_name()
        self.subtree = f"colo-lab-{os.getpid()}"
        self.runs = False
        self.lacking = ""
        self.notices: list[str] = []
        self._kernel: KernelView | None = None
        self._published: dict[str, dict[str, str]] = {}
        self._ends: Counter[str] = Counter()
        self._seen: set[str] = set()
        self._ceilings: list[int] = []
        self._tier: dict[str, str] = {}
        self._replica = ""
        self._pids: tuple[int, ...] = ()
        self._knobs: dict[str, str] = {}
        self._differs: list[str] = []
        self._promised_mcpu = self._promised_most_mcpu = 0
        self._load = "no sample of it was received"

    async def start(self) -> None:
        """Start the agents, or note why they cannot run."""
        lacking = await asyncio.to_thread(_lacking)
        if lacking:
            self._go_without(f"lacking: {lacking}")
            return
        try:
            self._kernel = KernelView(self.subtree)
        except (CgroupError, OSError) as error:
            self._go_without(str(error))
            return
        await self._processes.start("collector", "colo_collector", self._environment("collector"))
        await self._processes.start("executor", "colo_executor", self._environment("executor"))
        self.runs = True

    async def wait_ready(self) -> None:
        """Wait until the agents are ready; when they fail, leave this machine out and note why."""
        if not self.runs:
            return
        try:
            await self._processes.wait_ready(list(_AGENTS))
        except (LabFailed, Refused) as error:
            await self._processes.stop(_AGENTS)
            await self.close()
            self._go_without(str(error))

    async def close(self) -> None:
        """Put back what the executor left behind. Call this after the agents have ended."""
        if self._kernel is None or not self._kernel.left():
            return
        from colo_common.runtime.settings import load
        from colo_executor.main import restore
        from colo_executor.settings import ExecutorSettings

        settings = load(ExecutorSettings, "executor", (), {**os.environ, **self._environment("executor")})
        try:
            async with asyncio.timeout(_RESTORE_S):
                await restore(settings)
        except (TimeoutError, InvalidInput) as error:
            left = ", ".join(self._kernel.left())
            self.notices.append(f"control groups were left behind: {left} ({str(error) or 'out of time'})")

    def see(self, fact: Fact) -> None:
        """Count a fact about this node; other facts are ignored."""
        if not self.runs or getattr(fact, "node", "") != self.name:
            return
        match fact:
            case ReplicaStarted():
                key = attempt_key(fact.replica, fact.attempt)
                self._published[key] = {knob.path: knob.value for knob in fact.knobs}
            case ReplicaEnded():
                done = fact.cause is EndCause.EXITED and fact.exit_code == 0
                self._ends["succeeded" if done else fact.cause.value] += 1
            case PlacementRefused():
                self._ends[f"refused: {fact.reason.value}"] += 1
            case AllocatableChanged():
                self._promised_mcpu = fact.batch_cpu_mcpu
                self._promised_most_mcpu = max(self._promised_most_mcpu, fact.batch_cpu_mcpu)
            case NodeUsageSampled():
                self._load = f"{fact.cpu_used_mcpu / 1000:.1f} CPU in use in the last sample"
            case _:
                return

    def observe(self) -> None:
        """Read the kernel's files again: those of the batch tier, and those of a replica that has a process now."""
        kernel = self._kernel
        if kernel is None or not self.runs:
            return
        self._tier = {**kernel.knobs(""), **kernel.knobs(BATCH)} or self._tier
        ceiling_mcpu = kernel.ceiling_mcpu()
        if ceiling_mcpu is not None:
            seen = (*self._ceilings, ceiling_mcpu)
            self._ceilings = [min(seen), max(seen)]
        for group in kernel.replicas():
            knobs, pids = kernel.knobs(group), kernel.processes(group)
            token = parse_replica_token(group.rpartition("/")[2])
            if not pids or not knobs or token is None:
                continue
            self._replica, self._pids, self._knobs = attempt_key(*token), pids, knobs
            self._seen.add(self._replica)
            if len(self._differs) < _DIFFERENCES_MAX:
                self._differs += differences(self._published.get(self._replica, {}), knobs)

    @property
    def note(self) -> str:
        """One line for the screen: the replica that runs and its limits in the kernel, or why none runs."""
        if not self.runs:
            return self.notices[0] if self.notices else ""
        if not self._replica:
            return (
                f"{self.name} is this machine, {self.subtree}: {self._promised_mcpu} mCPU promised, nothing has run yet"
            )
        values = {path.rpartition("/")[2]: value for path, value in self._knobs.items()}
        shown = ", ".join(f"{name} {values[name]}" for name in _SHOWN if name in values)
        ceiling = f"ceiling {self._ceilings[0]}-{self._ceilings[1]} mCPU" if self._ceilings else "no ceiling"
        return f"{self.name} is this machine: {self._replica} (pid {self._pids[0]}) has {shown}; tier: {ceiling}"

    def account(self) -> RealAccount:
        """The part of the verdict about this machine."""
        if not self.runs:
            return RealAccount(lacking=self.lacking)
        return RealAccount(
            node=self.name,
            runs_as=_JOBS_RUN_AS,
            subtree=self.subtree,
            cgroup_version=self._kernel.version if self._kernel else 0,
            promised_mcpu=self._promised_most_mcpu,
            replicas_run=len(self._published.keys() | self._seen),
            replicas_seen_in_the_kernel=len(self._seen),
            ends=dict(sorted(self._ends.items())),
            ceiling_mcpu=dict(zip(("least", "most"), self._ceilings, strict=False)),
            replica=self._replica,
            pids=self._pids,
            knobs={**self._tier, **self._knobs},
            differs=tuple(self._differs),
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """The lines for the screen: that jobs are real and as whom they run, where they do, and `note`."""
        if not self.runs:
            return tuple(self.notices[:1])
        warning = f"--real runs submitted commands here, as {_JOBS_RUN_AS}: whoever reaches the gateway may submit"
        return (warning, self.note)

    def findings(self) -> list[str]:
        """The notices for the verdict."""
        if not self.runs or self._published or self._seen:
            return self.notices
        why = f"at most {self._promised_most_mcpu} mCPU were promised, {self._load}"
        return [*self.notices, f"this machine has no idle CPU to promise, so that no real process ran: {why}"]

    def _go_without(self, why: str) -> None:
        self.runs = False
        self.lacking = why
        self.notices.append(f"{_NEEDS} ({why})")

    def _environment(self, agent: str) -> dict[str, str]:
        common = {
            "COLO_NODE": self.name,
            # The agents run on the wall clock; they compare no time with the lab's fast clock.
            "COLO_CLOCK_SPEED": "1",
            "COLO_CLOCK_ORIGIN_MS": "0",
            "COLO_CLOCK_PACE_FILE": "",
        }
        if agent == "collector":
            return {
                **common,
                "COLO_COLLECTOR_SUBTREE": self.subtree,
                "COLO_COLLECTOR_PERIOD_MS": str(self._period_ms),
            }
        return {
            **common,
            "COLO_EXECUTOR_PROCESS_SUBTREE": self.subtree,
            "COLO_EXECUTOR_PROCESS_STATE_DIR": str(self._directory / "executor"),
            "COLO_EXECUTOR_PROCESS_USERS": f"*={_JOBS_RUN_AS}",
            "COLO_EXECUTOR_ON_EXIT": "restore",
            # Leases come in the lab's fast milliseconds; here they last as many samples as on the simulated nodes.
            "COLO_EXECUTOR_LEASE_DEFAULT_MS": str(self._lease_ms),
            "COLO_EXECUTOR_LEASE_MOST_MS": str(self._lease_ms),
        }


def _lacking() -> str:
    from colo_cli.doctor import diagnose

    needed = ("root", "cgroup-cpu", "cgroup-memory", "cgroup-write")
    return ", ".join(row["name"] for row in diagnose() if row["name"] in needed and not row["present"])


def _node_name() -> str:
    """The host's name as a node name; never that of a simulated node."""
    from colo_common.model.node_name import node_name

    name = node_name(socket.gethostname())
    return f"{name}-real" if name.startswith("node-") else name
