"""Parses what /proc says about threads, run queues, disks and network devices.

Every error names the file, the line and the rule.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from colo_collector.kernel_text import numbered_lines, unsigned, where
from colo_common.model.invalid import InvalidInput

__all__ = [
    "TaskTimes",
    "parse_diskstats",
    "parse_involuntary_switches",
    "parse_loadavg",
    "parse_network",
    "parse_run_queues",
    "parse_schedstat",
    "parse_task_ids",
]

TASKS_MAX: Final = 4_096
"""The most threads of one group that are counted; a group with more is measured by the first ones."""

_SECTOR_BYTES: Final = 512
_PART: Final = re.compile(r"(?:loop|ram|zram|fd|sr|dm-|md)[0-9]*|(?:[hsvx]v?d[a-z]+|.*[0-9]p)[0-9]+", re.ASCII)
_VIRTUAL: Final = re.compile(
    r"lo|(?:veth|docker|br[-0-9]|bond|team|virbr|cni|cali|flannel|cilium|lxc|tun|tap|vxlan|dummy|ifb).*", re.ASCII
)
_LOADAVG: Final = re.compile(r"[0-9.]+ [0-9.]+ [0-9.]+ ([0-9]{1,9})/([0-9]{1,9}) [0-9]+\s*", re.ASCII)


class TaskTimes(Struct, frozen=True):
    """What a thread did since it began: ran, and waited in a run queue; both in nanoseconds."""

    run_ns: int
    wait_ns: int


def parse_schedstat(path: str, text: str) -> TaskTimes:
    """/proc/TID/schedstat: run time, wait time, time slices."""
    words = text.split()
    if len(words) < 2:
        raise InvalidInput(where(path, 1), "must have the time that the thread ran and the time that it waited", text)
    return TaskTimes(unsigned(words[0], where(path, 1)), unsigned(words[1], where(path, 1)))


def parse_task_ids(path: str, text: str) -> tuple[int, ...]:
    """The ids in cgroup.threads, tasks or cgroup.procs, without those that this process cannot see (0); at most 4,096."""
    found = []
    for number, line in numbered_lines(path, text):
        task = unsigned(line.strip(), where(path, number))
        if task > 0:
            found.append(task)
        if len(found) >= TASKS_MAX:
            break
    return tuple(found)


def parse_involuntary_switches(path: str, text: str) -> int | None:
    """How often a thread was made to give its CPU away, from /proc/TID/status; None where the kernel does not say."""
    for number, line in numbered_lines(path, text):
        if line.startswith("nonvoluntary_ctxt_switches:"):
            return unsigned(line.partition(":")[2].strip(), where(path, number))
    return None


def parse_run_queues(text: str, path: str = "/proc/schedstat") -> tuple[int, int] | None:
    """Nanoseconds that tasks ran and waited on all CPUs since the start; None for a version without them (before 14).

    The seventh and eighth number of a CPU's line (Documentation/scheduler/sched-stats).
    """
    run_ns = wait_ns = 0
    seen = False
    for number, line in numbered_lines(path, text):
        if not line.startswith("cpu"):
            continue
        words = line.split()
        if len(words) < 9:
            return None
        run_ns += unsigned(words[7], where(path, number))
        wait_ns += unsigned(words[8], where(path, number))
        seen = True
    return (run_ns, wait_ns) if seen else None


def parse_diskstats(text: str, path: str = "/proc/diskstats") -> tuple[int, int]:
    """Bytes read and written by whole disks since the start; partitions and devices made of other devices are left out."""
    read = written = 0
    for number, line in numbered_lines(path, text):
        words = line.split()
        if len(words) < 10:
            raise InvalidInput(where(path, number), "must have at least ten columns", line)
        if _PART.fullmatch(words[2]):
            continue
        read += unsigned(words[5], where(path, number)) * _SECTOR_BYTES
        written += unsigned(words[9], where(path, number)) * _SECTOR_BYTES
    return read, written


def parse_network(text: str, path: str = "/proc/net/dev") -> tuple[int, int]:
    """Bytes received and sent by network devices since the start, without loopback, bridges, tunnels and ends of pairs."""
    received = sent = 0
    for number, line in numbered_lines(path, text):
        name, colon, rest = line.partition(":")
        if not colon:
            if number > 2:
                raise InvalidInput(where(path, number), 'must read "device: numbers"', line)
            continue
        words = rest.split()
        if len(words) < 9:
            raise InvalidInput(where(path, number), "must have at least nine numbers", line)
        if _VIRTUAL.fullmatch(name.strip()):
            continue
        received += unsigned(words[0], where(path, number))
        sent += unsigned(words[8], where(path, number))
    return received, sent


def parse_loadavg(text: str, path: str = "/proc/loadavg") -> tuple[int, int]:
    """Threads that can run now, and all threads."""
    match = _LOADAVG.fullmatch(text)
    if match is None:
        raise InvalidInput(where(path, 1), 'must read "0.00 0.00 0.00 1/80 11206"', text)
    return int(match[1]), int(match[2])
