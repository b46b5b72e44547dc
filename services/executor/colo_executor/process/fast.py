"""The fast reading of the reflex: a few counters every few milliseconds, over a short sliding window."""

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_executor.local import FastReading, LowPriority
from colo_executor.process.bandwidth_reader import BandwidthReader
from colo_executor.process.cpu_priority import low_priority
from colo_executor.process.exclusive_use import ExclusiveUse
from colo_executor.process.machine import interrupt_ticks, online_cpus
from colo_executor.process.sibling_cgroups import SiblingCgroups
from colo_executor.process.stall_reader import StallReader
from colo_executor.process.withheld_use import WithheldUse
from colo_executor.process.zone_reader import ZoneReader
from colo_executor.zone_ceilings import SharedCores

__all__ = ["NOT_CLOSED", "ClosedCpus", "FastReader"]

_SLOW_NS: Final = 1_000_000_000
_SAMPLES_MOST: Final = 512


class ClosedCpus(NamedTuple):
    """CPUs that batch work never gets: those of LSE work, with the files of its CPU time, and those that rules withhold.

    `is_kept`: the kernel keeps batch work off them, so that all use of the withheld ones is that of the system.
    """

    exclusive: CpuSet
    usage_paths: tuple[str, ...]
    withheld: CpuSet
    is_kept: bool = True


NOT_CLOSED: Final = ClosedCpus(CpuSet(), (), CpuSet())


class FastReader:
    """Reads the CPU time of the whole machine and of the batch tier; the difference is the use of online work.

    Both are cgroup counters. v2 derives the machine's counter from timer ticks, so `siblings` counts the other top-level groups
    exactly, and the larger of the two answers counts. Interrupts and stolen time are in neither counter: they come from
    /proc/stat once a second, because reading it every time costs too much on a large machine. What withheld CPUs were used, by
    their lines there (`WithheldUse`), is the system's use and not online work's: the rule takes off the larger of it and of these
    CPUs. `batch_group` is the directory whose files show how the kernel makes batch work give way; they are read once a second,
    too. `stalls` reads what online work waits for. `closed` returns the CPUs that LSE work holds, the files with its CPU time,
    and the CPUs that the node's rules withhold; it is asked once a second, as is `cores` how batch work shares cores. Without
    `batch_path` there is no batch work. `zones` reads the NUMA zones, `memory` what their memory carries.
    """

    def __init__(
        self,
        *,
        total_path: str,
        batch_path: str = "",
        unit_ns: int,
        window_ms: int,
        proc_root: str,
        sys_root: str,
        siblings: SiblingCgroups | None = None,
        batch_group: str = "",
        stalls: StallReader | None = None,
        closed: Callable[[], ClosedCpus] = lambda: NOT_CLOSED,
        zones: ZoneReader | None = None,
        cores: Callable[[], SharedCores] = SharedCores,
        memory: BandwidthReader | None = None,
    ) -> None:
        self._paths = (total_path, batch_path) if batch_path else (total_path,)
        self._fds: list[int] = []
        self._unit_ns = unit_ns
        self._window_ns = window_ms * 1_000_000
        self._proc_root = proc_root
        self._sys_root = sys_root
        self._siblings = siblings
        self._batch_group = batch_group
        self._low_priority: LowPriority = ""
        self._stalls = stalls
        self._closed = closed
        self._zones = zones
        self._cores = cores
        self._shares_cores = False
        self._memory = memory
        self._exclusive = ExclusiveUse(unit_ns)
        self._withheld = WithheldUse(proc_root)
        self._reserved_mcpu = 0
        self._samples: deque[tuple[int, int, int, int, int]] = deque(maxlen=_SAMPLES_MOST)
        self._slow_at_ns = 0
        self._ticks: int | None = None
        self._system_mcpu = 0
        self._capacity_mcpu = len(online_cpus(sys_root)) * 1_000

    @property
    def capacity_mcpu(self) -> int:
        """The capacity of the machine: 1000 mcpu for each online CPU that no LSE work holds."""
        return self._capacity_mcpu

    def read(self, at_ms: int) -> FastReading | None:
        """CPU use over the window (mcpu, online use rounded up); None at the first call or when a counter cannot be read."""
        at_ns = time.monotonic_ns()
        try:
            if not self._fds:
                self._fds = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in self._paths]
            counters = [self._counter(fd) for fd in self._fds]
            total, batch = counters[0], counters[1] if len(counters) > 1 else 0
            if at_ns - self._slow_at_ns >= _SLOW_NS:
                self._read_slow(at_ns)
            siblings = 0 if self._siblings is None else self._siblings.used_ns()
            exclusive = self._exclusive.used_ns()
            withheld_mcpu = self._withheld.used_mcpu(at_ns)
        except (OSError, ValueError, InvalidInput):
            self.close()
            return None
        self._samples.append((at_ns, total, batch, siblings, exclusive))
        while len(self._samples) > 2 and at_ns - self._samples[1][0] >= self._window_ns:
            self._samples.popleft()
        first_ns, first_total, first_batch, first_siblings, first_exclusive = self._samples[0]
        span_ns = at_ns - first_ns
        if span_ns <= 0:
            return None
        batch_ns = max(0, batch - first_batch)
        online_ns = max(0, total - first_total - batch_ns, siblings - first_siblings)
        online_ns = max(0, online_ns - (exclusive - first_exclusive))
        batch_mcpu = batch_ns * 1_000 // span_ns
        online_mcpu = -(-online_ns * 1_000 // span_ns)
        return FastReading(
            at_ms=at_ms,
            capacity_mcpu=self._capacity_mcpu,
            online_used_mcpu=max(0, online_mcpu - withheld_mcpu),
            batch_used_mcpu=batch_mcpu,
            system_used_mcpu=self._system_mcpu + withheld_mcpu,
            reserved_mcpu=self._reserved_mcpu,
            low_priority=self._low_priority,
            stalls=None if self._stalls is None else self._stalls.read(at_ms),
            zones=() if self._zones is None else self._zones.read(at_ns, batch_mcpu),
            shares_cores=self._shares_cores,
            memory=None if self._memory is None else self._memory.read(at_ns, at_ms),
        )

    def close(self) -> None:
        """Close the open files; the next reading opens them again."""
        for fd in self._fds:
            with contextlib.suppress(OSError):
                os.close(fd)
        self._fds = []
        self._exclusive.close()
        self._withheld.close()
        if self._siblings is not None:
            self._siblings.close()
        if self._stalls is not None:
            self._stalls.close()
        if self._zones is not None:
            self._zones.close()
        if self._memory is not None:
            self._memory.close()
        self._ticks, self._slow_at_ns = None, 0
        self._samples.clear()

    def _counter(self, fd: int) -> int:
        text = os.pread(fd, 64, 0)
        if text.startswith(b"usage_usec "):
            text = text.split(b"\n", 1)[0][11:]
        return int(text.split(b"\n", 1)[0]) * self._unit_ns

    def _read_slow(self, at_ns: int) -> None:
        with open(os.path.join(self._proc_root, "stat"), encoding="ascii") as file:
            ticks = interrupt_ticks(file.readline())
        span_ns = at_ns - self._slow_at_ns
        if self._ticks is not None:
            tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
            self._system_mcpu = max(0, ticks - self._ticks) * tick_ns * 1_000 // span_ns
        self._ticks, self._slow_at_ns = ticks, at_ns
        if self._siblings is not None:
            self._siblings.refresh()
        closed = self._closed()
        online = online_cpus(self._sys_root)
        self._exclusive.watch(closed.usage_paths)
        self._withheld.watch(online & closed.withheld if closed.is_kept else CpuSet())
        self._reserved_mcpu = len(online & closed.withheld) * 1_000
        self._capacity_mcpu = len(online - closed.exclusive) * 1_000
        self._low_priority = low_priority(self._batch_group, self._proc_root) if self._batch_group else ""
        cores = self._cores()
        self._shares_cores = cores.threads > 1
        if self._zones is not None:
            free = online - closed.exclusive - closed.withheld
            self._zones.look(at_ns, online, free, closed.withheld - closed.exclusive, cores)
        if self._memory is not None:
            self._memory.look(online)
