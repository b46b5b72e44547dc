"""Parses the files of a control group into counters; v1 and v2 give the same values.

Every error names the file, the line and the rule.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from colo_collector.kernel_text import cpu_list, flat_keyed, line_value, single_count
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput

__all__ = [
    "GroupFiles",
    "GroupMemory",
    "cpuset_of_group",
    "group_files",
    "parse_cpu_usage_ns",
    "parse_group_memory",
    "parse_throttled_us",
]


class GroupMemory(Struct, frozen=True, kw_only=True):
    """Memory of a group and its descendants, in bytes."""

    usage_bytes: int
    inactive_file_bytes: int = 0

    @property
    def working_set_bytes(self) -> int:
        """Usage minus inactive file pages, at least 0: the working set of cAdvisor and the kubelet."""
        return max(self.usage_bytes - self.inactive_file_bytes, 0)


class GroupFiles(Struct, frozen=True, kw_only=True):
    """The counter files of one group; "" where the machine lacks the controller. `cpu_pressure` exists on cgroup v2 only."""

    cpu_usage: str
    cpu_stat: str
    memory_usage: str
    memory_stat: str
    procs: str
    cpu_pressure: str = ""

    def sampled(self) -> tuple[str, ...]:
        """The files that one sample needs, without repetition."""
        files = (self.cpu_usage, self.cpu_stat, self.cpu_pressure, self.memory_usage, self.memory_stat)
        return tuple(dict.fromkeys(file for file in files if file))


def group_files(
    version: Literal["v1", "v2"],
    cpu_dir: str,
    cpuacct_dir: str,
    memory_dir: str,
    memory_version: Literal["v1", "v2"] | None = None,
) -> GroupFiles:
    """The counter files of a group, given its directory under each controller ("" where the controller is not mounted).

    `version` is that of the cpu controller; the memory controller may be on the other one (None: on the same).
    """
    memory_usage = "memory.current" if (memory_version or version) == "v2" else "memory.usage_in_bytes"
    if version == "v2":
        stat = _in(cpu_dir or cpuacct_dir, "cpu.stat")
        return GroupFiles(
            cpu_usage=stat,
            cpu_stat=stat,
            memory_usage=_in(memory_dir, memory_usage),
            memory_stat=_in(memory_dir, "memory.stat"),
            procs=_in(cpu_dir or memory_dir, "cgroup.procs"),
            cpu_pressure=_in(cpu_dir or cpuacct_dir, "cpu.pressure"),
        )
    return GroupFiles(
        cpu_usage=_in(cpuacct_dir, "cpuacct.usage"),
        cpu_stat=_in(cpu_dir, "cpu.stat"),
        memory_usage=_in(memory_dir, memory_usage),
        memory_stat=_in(memory_dir, "memory.stat"),
        procs=_in(cpu_dir or memory_dir, "cgroup.procs"),
    )


def _in(directory: str, name: str) -> str:
    return f"{directory.rstrip('/')}/{name}" if directory else ""


def parse_throttled_us(path: str, text: str) -> int:
    """Time for which the group was throttled since it was created, from cpu.stat; 0 where the file lacks it.

    v1 counts `throttled_time` in nanoseconds, rounded down here; v2 has `throttled_usec`.
    """
    throttled_us = line_value(path, text, "throttled_usec")
    return throttled_us if throttled_us is not None else (line_value(path, text, "throttled_time") or 0) // 1000


def parse_cpu_usage_ns(path: str, text: str) -> int:
    """CPU time of a group in nanoseconds, from cpuacct.usage (v1) or usage_usec of cpu.stat (v2); the content decides which.

    Raises InvalidInput when the file is neither.
    """
    if text[:1].isdigit():
        return single_count(path, text)
    usage_us = line_value(path, text, "usage_usec")
    if usage_us is None:
        # Names the line of a file that is malformed as a whole.
        flat_keyed(path, text)
        raise InvalidInput(path, "must be one number or have a line usage_usec", text)
    return usage_us * 1000


def parse_group_memory(usage_path: str, usage: str, stat_path: str, stat: str | None) -> GroupMemory:
    """Memory from memory.usage_in_bytes or memory.current, and memory.stat (None: inactive pages count as used).

    v1 has `total_inactive_file` for the group with its descendants, v2 `inactive_file`; v1's `inactive_file` is for the group alone
    and is used only where the total is missing.
    """
    inactive_file_bytes = 0
    if stat is not None:
        number = line_value(stat_path, stat, "total_inactive_file")
        if number is None:
            number = line_value(stat_path, stat, "inactive_file")
        inactive_file_bytes = number or 0
    return GroupMemory(usage_bytes=single_count(usage_path, usage), inactive_file_bytes=inactive_file_bytes)


def cpuset_of_group(path: str, text: str) -> CpuSet:
    """The CPUs of cpuset.cpus, cpuset.effective_cpus or cpuset.cpus.effective; an empty file is the empty set."""
    return cpu_list(path, text)
