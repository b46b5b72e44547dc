"""What the memory of each NUMA zone carries, by the monitoring of resctrl. Nothing is written there."""

import contextlib
import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Final

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_executor.bandwidth import MemoryTraffic, ZoneTraffic
from colo_executor.cgroup_hierarchy import file_systems_of
from colo_executor.process.machine import zones_of
from colo_executor.process.memory_domains import zone_of_l3

__all__ = ["BandwidthReader"]

_NS_PER_S: Final = 1_000_000_000
_SPARED: Final = 100
"""Of the time in so many parts one at most goes into these readings: after a slow pass the next one waits longer than a second."""

_SLICE_NS: Final = 2_000_000
_SLICE_COUNTERS: Final = 32
_GROUPS_MOST: Final = 64
_NEW_GROUPS_MOST: Final = 8
_COUNTERS_MOST: Final = 512
_NO_GROUPS: Final = frozenset({"info", "mon_data", "mon_groups"})
_DOMAIN: Final = re.compile(r"mon_L3_([0-9]{1,9})", re.ASCII)
_PART: Final = re.compile(r"mon_sub_L3_([0-9]{1,9})", re.ASCII)
_COUNTER_BYTES: Final = 64
_MISSES_MOST: Final = 3


class _Counter:
    """A counter of bytes of one group in one domain, with the zone whose CPUs it counts; None: not known which.

    `value` is its last answer; None: it has given none, or none in the last three passes.
    """

    __slots__ = ("at_ns", "bytes_per_s", "misses", "path", "value", "zone")

    def __init__(self, path: str, zone: int | None) -> None:
        self.path = path
        self.zone = zone
        self.value: int | None = None
        self.at_ns = 0
        self.bytes_per_s: int | None = None
        self.misses = 0

    def read(self, at_ns: int) -> None:
        """Note the rate since the last answer. What the kernel does not answer, and what went back, is no rate."""
        self.bytes_per_s = None
        text = _text(self.path)
        # Else it is "Unavailable", "Unassigned" or "Error", or the group is gone.
        if not text.isdigit():
            self.misses += 1
            if self.misses >= _MISSES_MOST:
                self.value = None
            return
        value, before, span_ns = int(text), self.value, at_ns - self.at_ns
        self.value, self.at_ns, self.misses = value, at_ns, 0
        if before is not None and value >= before and span_ns > 0:
            self.bytes_per_s = (value - before) * _NS_PER_S // span_ns


class BandwidthReader:
    """Sums what all control groups of resctrl read and wrote, once a second, because each counter may interrupt another CPU.

    A group's counter has those of its monitoring groups in it, so these are not read. Files are opened for each reading: an open
    one would keep an operator from unmounting resctrl. 32 counters at most, or as many as 2 ms take, are read in one call; a pass
    over all of them then goes on in the next one, and a slow one is rarer, so that no more than a hundredth of the time goes there.
    At most 64 groups and 512 counters are read, the default group first: with more, what is told is less than there is. So it is
    for a few seconds where many groups are found at once.

    A zone is left out of a pass in which a counter of it gives no rate that has answered before, or is new: without it the sum
    would look like calm. The domains are those of last-level caches, or where these are divided (sub-NUMA clusters) of zones. Where
    the zone of a domain is not known, what is told is the sum of the machine. `clock_ns` times the readings.
    """

    def __init__(self, sys_root: str, proc_root: str, clock_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self._sys_root = sys_root
        self._clock_ns = clock_ns
        self._proc_root = proc_root
        self._root = os.path.join(sys_root, "fs/resctrl")
        self._device: int | None = None
        self._is_mounted = False
        self._online = CpuSet()
        self._zones: tuple[int, ...] = ()
        self._zone_of_l3: Mapping[int, int] = {}
        # The counters of each group, with the inode of its directory: a name may come back as another group.
        self._groups: dict[str, tuple[int, list[_Counter]]] = {}
        self._left: list[_Counter] = []
        self._due_ns = 0
        self._began_ns = 0
        self._spent_ns = 0
        self._is_passing = False
        self._newest: MemoryTraffic | None = None

    def look(self, online: CpuSet) -> None:
        """Learn once a second whether resctrl is mounted, and after CPUs went or came which domain is in which zone."""
        try:
            device = os.stat(self._root).st_dev
        except OSError:
            self.close()
            self._device, self._is_mounted = None, False
            return
        if device != self._device:
            self.close()
            self._device, self._is_mounted = device, False
            with contextlib.suppress(OSError):
                self._is_mounted = file_systems_of(self._root, self._proc_root) == {"resctrl"}
        if self._is_mounted and online != self._online:
            self.close()
            zones: Mapping[int, CpuSet] = {}
            with contextlib.suppress(OSError, InvalidInput):
                zones = {zone: cpus for zone, cpus in zones_of(self._sys_root, online).items() if cpus}
            self._online, self._zones = online, tuple(zones)
            self._zone_of_l3 = zone_of_l3(self._sys_root, zones) if len(zones) > 1 else {}

    def read(self, at_ns: int, at_ms: int) -> MemoryTraffic | None:
        """The traffic of the last pass; None before the second one, and where nothing is monitored or answered."""
        if not self._is_mounted:
            return None
        if not self._is_passing and at_ns < self._due_ns:
            return self._newest
        started_ns = self._clock_ns()
        if not self._is_passing:
            self._is_passing, self._began_ns, self._spent_ns = True, at_ns, 0
            self._list_groups()
            self._left = [counter for _, counters in self._groups.values() for counter in counters]
            # From the end, so that a pass begins with the default group.
            self._left = self._left[:_COUNTERS_MOST][::-1]
        for count in range(_SLICE_COUNTERS):
            if not self._left or (count and self._clock_ns() - started_ns > _SLICE_NS):
                break
            self._left.pop().read(at_ns)
        self._spent_ns += self._clock_ns() - started_ns
        if not self._left:
            self._is_passing = False
            self._due_ns = self._began_ns + max(_NS_PER_S, _SPARED * self._spent_ns)
            self._newest = self._summed(at_ms)
        return self._newest

    def close(self) -> None:
        """Forget the counters; the next reading begins anew."""
        self._groups, self._left, self._is_passing, self._due_ns, self._newest = {}, [], False, 0, None

    def _list_groups(self) -> None:
        """Find the groups that came, eight at most in a pass, and forget those that went."""
        found = {"": 0}
        with contextlib.suppress(OSError), os.scandir(self._root) as entries:
            named = sorted((entry.name, entry.inode()) for entry in entries if entry.is_dir(follow_symlinks=False))
            found |= {name: inode for name, inode in named if name not in _NO_GROUPS}
        before, self._groups = self._groups, {}
        news = 0
        for name, inode in list(found.items())[:_GROUPS_MOST]:
            known = before.get(name)
            # Without a counter it may have been made just now.
            if known is not None and known[0] == inode and known[1]:
                self._groups[name] = known
            elif known is not None or news < _NEW_GROUPS_MOST:
                news += known is None
                self._groups[name] = inode, self._counters_of(name)

    def _counters_of(self, group: str) -> list[_Counter]:
        directory = os.path.join(self._root, group, "mon_data")
        found: list[_Counter] = []
        for name in _names(directory):
            domain = _DOMAIN.fullmatch(name)
            if domain is None:
                continue
            inside = os.path.join(directory, name)
            parts = [(part, match) for part in _names(inside) if (match := _PART.fullmatch(part))]
            for part, match in parts:
                zone = int(match[1])
                found.append(self._counter(os.path.join(inside, part), zone if zone in self._zones else None))
            if not parts:
                found.append(self._counter(inside, self._zone_of_l3.get(int(domain[1]))))
        return found

    def _counter(self, directory: str, zone: int | None) -> _Counter:
        only = self._zones[0] if len(self._zones) == 1 else zone
        return _Counter(os.path.join(directory, "mbm_total_bytes"), only)

    def _summed(self, at_ms: int) -> MemoryTraffic | None:
        counters = [counter for _, each in self._groups.values() for counter in each if counter.value is not None]
        # A sum without one that has answered before, or is new, may look like calm.
        unknown = {counter.zone for counter in counters if counter.bytes_per_s is None}
        is_split = all(counter.zone is not None for counter in counters)
        sums: dict[int | None, int] = {}
        for counter in counters:
            if counter.bytes_per_s is not None and (is_split or not unknown) and counter.zone not in unknown:
                sums[counter.zone] = sums.get(counter.zone, 0) + counter.bytes_per_s
        if not sums:
            return None
        if not is_split:
            whole = ZoneTraffic(zone=None, bytes_per_s=sum(sums.values()), zones=max(1, len(self._zones)))
            return MemoryTraffic(at_ms=at_ms, zones=(whole,))
        zones = sorted((zone, rate) for zone, rate in sums.items() if zone is not None)
        return MemoryTraffic(at_ms=at_ms, zones=tuple(ZoneTraffic(zone=zone, bytes_per_s=rate) for zone, rate in zones))


def _text(path: str) -> bytes:
    """What the file says; nothing of one that is gone."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(fd, _COUNTER_BYTES).strip()
        finally:
            os.close(fd)
    return b""


def _names(directory: str) -> list[str]:
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    return []
