"""What each NUMA zone has for batch work, and what batch work and everything else use of it."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Final

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_executor.process.machine import zones_of
from colo_executor.zone_ceilings import SharedCores, ZoneReading

__all__ = ["ZoneReader"]

_EVERY_NS: Final = 100_000_000
_STAT_EVERY_NS: Final = 200_000_000
"""The kernel sums the interrupts of all CPUs for each reading of /proc/stat, and counts use in ticks of mostly 10 ms."""

_STAT_FIELDS: Final = 3
"""user, nice and system; a guest is in user. Interrupts and stolen time are counted for the whole machine, by the fast reading."""

_REPLICAS_MOST: Final = 256
_OWN_CORES: Final = SharedCores()
_LINE_BYTES: Final = 16_384


class ZoneReader:
    """Reads nothing on a machine of one zone but which zones there are.

    cgroup v1 tells what batch work (`percpu_path`) and the whole machine (`total_percpu_path`) used on each CPU, which is read
    every 100 ms. v2 does not: there a zone's share is the use of batch work less that of the replicas whose CPU sets are in other
    zones alone, and at least that of the replicas that are in this zone alone; `batch_dir` shows both once a second (256 replicas
    at most). Of replicas that may run in several zones all use counts in each of them. All use of a zone is that of its CPUs in
    `stat_path`, read every 200 ms; what it is more than batch work's is online work's, at least so much.
    """

    def __init__(
        self,
        sys_root: str,
        *,
        percpu_path: str = "",
        total_percpu_path: str = "",
        batch_dir: str = "",
        stat_path: str = "",
    ) -> None:
        self._sys_root = sys_root
        self._percpu_path = percpu_path
        self._total_percpu_path = total_percpu_path
        self._batch_dir = batch_dir
        self._stat_path = stat_path
        self._online = CpuSet()
        self._zones: Mapping[int, CpuSet] = {}
        self._free: dict[int, CpuSet] = {}
        self._reserved_mcpu: dict[int, int] = {}
        self._cores = SharedCores()
        self._percpu_ns: list[int] = []
        self._total_ns: list[int] = []
        self._percpu_at_ns = 0
        self._used_mcpu: dict[int, int] = {}
        # What all work used of the CPUs that batch work may get.
        self._all_mcpu: dict[int, int] = {}
        self._known_sets: dict[bytes, CpuSet] = {}
        self._replica_ns: dict[str, int] = {}
        self._replicas_at_ns = 0
        # What the replicas that are in one zone alone, or that cannot run in it, used in the second before the last look.
        self._inside_mcpu: dict[int, int] = {}
        self._elsewhere_mcpu: dict[int, int] = {}

    @property
    def zones(self) -> Mapping[int, CpuSet]:
        """The online CPUs of each zone that has some, where there are several; else none."""
        return self._zones

    def look(self, at_ns: int, online: CpuSet, free: CpuSet, withheld: CpuSet, cores: SharedCores = _OWN_CORES) -> None:
        """Learn once a second which zones there are, and which CPUs of each are `free`, those that batch work may get.

        `withheld` are CPUs that the node's rules keep from all work, and `cores` says how batch work shares cores. A machine whose
        zones cannot be read has one.
        """
        if online != self._online:
            self._zones = {}
            with contextlib.suppress(OSError, InvalidInput):
                zones = {zone: cpus for zone, cpus in zones_of(self._sys_root, online).items() if cpus}
                self._zones = zones if len(zones) > 1 else {}
            self._online = online
        self._cores = cores
        self._free = {zone: cpus & free for zone, cpus in self._zones.items()}
        self._reserved_mcpu = {zone: len(cpus & withheld) * 1_000 for zone, cpus in self._zones.items()}
        if self._zones and self._batch_dir:
            self._look_at_replicas(at_ns)

    def read(self, at_ns: int, batch_used_mcpu: int) -> tuple[ZoneReading, ...]:
        """The zones now, none where there is one only. `batch_used_mcpu` is the use of the whole of batch work."""
        if not self._free:
            return ()
        if self._percpu_path:
            self._read_percpu(at_ns)
        elif self._stat_path:
            self._read_stat(at_ns)
        return tuple(self._reading(zone, len(cpus) * 1_000, batch_used_mcpu) for zone, cpus in self._free.items())

    def close(self) -> None:
        """Forget the counters; the next reading begins anew."""
        self._percpu_ns, self._total_ns, self._replica_ns = [], [], {}
        self._used_mcpu, self._all_mcpu, self._inside_mcpu, self._elsewhere_mcpu = {}, {}, {}, {}

    def _reading(self, zone: int, capacity_mcpu: int, batch_used_mcpu: int) -> ZoneReading:
        batch_mcpu, all_mcpu = self._used(zone, capacity_mcpu, batch_used_mcpu), self._all_mcpu.get(zone)
        return ZoneReading(
            zone=zone,
            capacity_mcpu=capacity_mcpu,
            batch_used_mcpu=batch_mcpu,
            online_used_mcpu=None if all_mcpu is None else max(0, min(all_mcpu, capacity_mcpu) - batch_mcpu),
            reserved_mcpu=self._reserved_mcpu.get(zone, 0),
            threads=self._cores.threads,
            may_leave=zone not in self._cores.held,
        )

    def _used(self, zone: int, capacity_mcpu: int, batch_used_mcpu: int) -> int:
        here_mcpu = self._used_mcpu.get(zone)
        if here_mcpu is None:
            here_mcpu = max(self._inside_mcpu.get(zone, 0), batch_used_mcpu - self._elsewhere_mcpu.get(zone, 0))
        return max(0, min(here_mcpu, capacity_mcpu))

    def _read_percpu(self, at_ns: int) -> None:
        span_ns = at_ns - self._percpu_at_ns
        if self._percpu_ns and span_ns < _EVERY_NS:
            return
        try:
            now_ns = _percpu_ns(self._percpu_path)
        except (OSError, ValueError):
            # What no counter tells is the use of the whole of batch work.
            self._percpu_ns, self._total_ns, self._used_mcpu, self._all_mcpu = [], [], {}, {}
            return
        total_ns: list[int] = []
        with contextlib.suppress(OSError, ValueError):
            total_ns = _percpu_ns(self._total_percpu_path)
        self._used_mcpu = _by_zone(self._zones, self._percpu_ns, now_ns, span_ns) or self._used_mcpu
        self._all_mcpu = _by_zone(self._free, self._total_ns, total_ns, span_ns)
        self._percpu_ns, self._total_ns, self._percpu_at_ns = now_ns, total_ns, at_ns

    def _read_stat(self, at_ns: int) -> None:
        span_ns = at_ns - self._percpu_at_ns
        if self._total_ns and span_ns < _STAT_EVERY_NS:
            return
        total_ns: list[int] = []
        with contextlib.suppress(OSError, ValueError):
            total_ns = _stat_ns(self._stat_path)
        self._all_mcpu = _by_zone(self._free, self._total_ns, total_ns, span_ns)
        self._total_ns, self._percpu_at_ns = total_ns, at_ns

    def _look_at_replicas(self, at_ns: int) -> None:
        """Sum for each zone what the replicas used since the last look that are in it alone, and those that cannot run in it."""
        span_ns, before_ns = at_ns - self._replicas_at_ns, self._replica_ns
        inside_ns, elsewhere_ns = dict.fromkeys(self._zones, 0), dict.fromkeys(self._zones, 0)
        now_ns: dict[str, int] = {}
        for name in self._replicas():
            path = os.path.join(self._batch_dir, name)
            with contextlib.suppress(OSError, ValueError, InvalidInput):
                cpus = self._cpus_of(_first_line(os.path.join(path, "cpuset.cpus.effective")))
                now_ns[name] = _used_ns(_first_line(os.path.join(path, "cpu.stat")))
                more_ns = max(0, now_ns[name] - before_ns.get(name, now_ns[name]))
                for zone, its in self._zones.items():
                    if not cpus & its:
                        elsewhere_ns[zone] += more_ns
                    elif cpus <= its:
                        inside_ns[zone] += more_ns
        self._replica_ns, self._replicas_at_ns = now_ns, at_ns
        if span_ns > 0:
            self._inside_mcpu, self._elsewhere_mcpu = (
                {zone: ns * 1_000 // span_ns for zone, ns in sums.items()} for sums in (inside_ns, elsewhere_ns)
            )

    def _cpus_of(self, line: bytes) -> CpuSet:
        # Replicas have few different sets.
        cpus = self._known_sets.get(line)
        if cpus is None:
            if len(self._known_sets) >= _REPLICAS_MOST:
                self._known_sets.clear()
            cpus = self._known_sets[line] = CpuSet.parse(line.decode("ascii"), "cpuset.cpus.effective")
        return cpus

    def _replicas(self) -> list[str]:
        with contextlib.suppress(OSError), os.scandir(self._batch_dir) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))[:_REPLICAS_MOST]
        return []


def _by_zone(
    zones: Mapping[int, CpuSet], before_ns: Sequence[int], now_ns: Sequence[int], span_ns: int
) -> dict[int, int]:
    """The use of each zone's CPUs in between; none where there are not two readings of the same CPUs."""
    if not before_ns or len(before_ns) != len(now_ns) or span_ns <= 0:
        return {}
    return {
        zone: sum(max(0, now_ns[cpu] - before_ns[cpu]) for cpu in cpus if cpu < len(now_ns)) * 1_000 // span_ns
        for zone, cpus in zones.items()
    }


def _percpu_ns(path: str) -> list[int]:
    with open(path, encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


def _stat_ns(path: str) -> list[int]:
    """The CPU time of each CPU by its number; 0 for one that is offline."""
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    found: list[int] = []
    with open(path, encoding="ascii") as file:
        for line in file:
            if not line.startswith("cpu"):
                break
            name, *fields = line.split()
            if name != "cpu":
                cpu = int(name[3:])
                found += [0] * (cpu - len(found))
                found.append(sum(int(field) for field in fields[:_STAT_FIELDS]) * tick_ns)
    return found


def _first_line(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, _LINE_BYTES).split(b"\n", 1)[0]
    finally:
        os.close(fd)


def _used_ns(line: bytes) -> int:
    """The CPU time of a group of cgroup v2 by the first line of its file. Raises ValueError where that says something else."""
    name, _, value = line.partition(b" ")
    if name != b"usage_usec":
        raise ValueError(line)
    return int(value) * 1_000
