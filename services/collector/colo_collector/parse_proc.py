"""Parses /proc: CPU time, memory and boot id.

Every error names the file, the line and the rule.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from colo_collector.kernel_text import numbered_lines, unsigned, where
from colo_common.model.invalid import InvalidInput

__all__ = [
    "CpuTicks",
    "MachineCpuTicks",
    "Meminfo",
    "ZoneMeminfo",
    "parse_boot_id",
    "parse_cpuinfo",
    "parse_meminfo",
    "parse_stat",
    "parse_zone_meminfo",
]

CPUS_MAX: Final = 8192
"""The kernel's own limit (NR_CPUS on x86 with CONFIG_MAXSMP)."""

_MEMINFO_LINE: Final = re.compile(r"([A-Za-z0-9_()]+):\s+([0-9]+)( kB)?\s*", re.ASCII)
_ZONE_MEMINFO_LINE: Final = re.compile(r"Node\s+([0-9]+)\s+([A-Za-z0-9_()]+):\s+([0-9]+)( kB)?\s*", re.ASCII)
_MEMINFO_KEYS: Final = ("MemTotal:", "MemFree:", "MemAvailable:")
_ZONE_MEMINFO_KEYS: Final = ("MemTotal:", "MemFree:", "Active(file):", "Inactive(file):", "SReclaimable:")
_CPUINFO_TEXT_MAX: Final = 120
_UUID: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.ASCII)


class CpuTicks(Struct, frozen=True, kw_only=True):
    """Time since boot in USER_HZ ticks, in the columns of /proc/stat. `user` contains guest time, `nice` guest_nice.

    `cpu` is the logical CPU, or -1 for the sum over all CPUs.
    """

    cpu: int
    user: int
    nice: int
    system: int
    idle: int
    iowait: int = 0
    irq: int = 0
    softirq: int = 0
    steal: int = 0

    @property
    def busy(self) -> int:
        """Ticks in which the CPU worked: user + nice + system + irq + softirq. I/O wait and stolen time do not count.

        The sum is Koordinator's (koordlet metricsadvisor, node CPU usage).
        """
        return self.user + self.nice + self.system + self.irq + self.softirq


class MachineCpuTicks(Struct, frozen=True, kw_only=True):
    """One reading of /proc/stat. `cpus` are the online CPUs in ascending id; `total` also counts CPUs that are offline now."""

    total: CpuTicks
    cpus: tuple[CpuTicks, ...]


class Meminfo(Struct, frozen=True, kw_only=True):
    """Memory of the machine in bytes. `available_bytes` is MemFree where the kernel lacks MemAvailable (before 3.14)."""

    total_bytes: int
    free_bytes: int
    available_bytes: int

    @property
    def used_bytes(self) -> int:
        """Total minus available, at least 0."""
        return max(self.total_bytes - self.available_bytes, 0)


class ZoneMeminfo(Struct, frozen=True, kw_only=True):
    """Memory of one NUMA zone in bytes, from /sys/devices/system/node/nodeN/meminfo."""

    zone: int
    total_bytes: int
    free_bytes: int
    file_lru_bytes: int = 0
    slab_reclaimable_bytes: int = 0

    @property
    def used_bytes(self) -> int:
        """Total minus free, file pages on the LRU lists and reclaimable slab, at least 0.

        The kernel gives no MemAvailable for a zone; this sum is Koordinator's (NUMA memory usage of its node metric).
        """
        return max(self.total_bytes - self.free_bytes - self.file_lru_bytes - self.slab_reclaimable_bytes, 0)


def parse_stat(text: str, path: str = "/proc/stat") -> MachineCpuTicks:
    """The CPU lines of /proc/stat. Columns that an old kernel lacks (from iowait on) count as 0; columns after steal are ignored.

    Lines after the CPU lines are not read, so the text may be cut there. Raises InvalidInput without a "cpu" line first,
    without any "cpuN" line, for ids that do not ascend or exceed 8191, or for a line with fewer than four numbers.
    """
    total: CpuTicks | None = None
    cpus: list[CpuTicks] = []
    for number, line in numbered_lines(path, _cpu_lines(text)):
        words = line.split()
        field = where(path, number)
        if len(words) < 5:
            raise InvalidInput(field, "a CPU line needs at least user, nice, system and idle", line)
        if total is None:
            if words[0] != "cpu":
                raise InvalidInput(field, 'the first line must begin with "cpu"', line)
            total = _ticks(-1, words, field)
            continue
        cpu = unsigned(words[0][3:], field)
        if cpu >= CPUS_MAX:
            raise InvalidInput(field, f"a CPU id must be below {CPUS_MAX}", cpu)
        if cpus and cpu <= cpus[-1].cpu:
            raise InvalidInput(field, "CPU ids must ascend", cpu)
        cpus.append(_ticks(cpu, words, field))
    if total is None:
        raise InvalidInput(where(path, 1), 'the first line must begin with "cpu"', text)
    if not cpus:
        raise InvalidInput(where(path, 2), 'at least one line "cpuN" is needed', text)
    return MachineCpuTicks(total=total, cpus=tuple(cpus))


def _cpu_lines(text: str) -> str:
    """The leading lines that begin with "cpu"; the interrupt lines after them can be far larger."""
    end = 0
    while text.startswith("cpu", end):
        next_line = text.find("\n", end) + 1
        if next_line == 0:
            return text
        end = next_line
    return text[:end]


def _ticks(cpu: int, words: list[str], field: str) -> CpuTicks:
    columns = [unsigned(word, field) for word in words[1:9]]
    columns += [0] * (8 - len(columns))
    user, nice, system, idle, iowait, irq, softirq, steal = columns
    return CpuTicks(
        cpu=cpu, user=user, nice=nice, system=system, idle=idle, iowait=iowait, irq=irq, softirq=softirq, steal=steal
    )


def parse_meminfo(text: str, path: str = "/proc/meminfo") -> Meminfo:
    """The memory of the machine. Keys that nobody needs are ignored, in whatever form a kernel writes their lines.

    Raises InvalidInput for a malformed line of a key that counts, or without MemTotal or MemFree.
    """
    found: dict[str, int] = {}
    for number, line in numbered_lines(path, text):
        if not line.startswith(_MEMINFO_KEYS):
            continue
        match = _MEMINFO_LINE.fullmatch(line)
        if match is None:
            raise InvalidInput(where(path, number), 'must read "Key: number" or "Key: number kB"', line)
        key, digits, kilo = match.groups()
        found.setdefault(key, unsigned(digits, where(path, number)) * (1024 if kilo else 1))
    free_bytes = _needed(found, "MemFree", path)
    return Meminfo(
        total_bytes=_needed(found, "MemTotal", path),
        free_bytes=free_bytes,
        available_bytes=found.get("MemAvailable", free_bytes),
    )


def parse_zone_meminfo(zone: int, text: str, path: str) -> ZoneMeminfo:
    """The memory of one zone. Keys that nobody needs are ignored, in whatever form a kernel writes their lines.

    Raises InvalidInput for a malformed line of a key that counts, another zone's number, or without MemTotal or MemFree.
    """
    found: dict[str, int] = {}
    for number, line in numbered_lines(path, text):
        if not any(key in line for key in _ZONE_MEMINFO_KEYS):
            continue
        match = _ZONE_MEMINFO_LINE.fullmatch(line)
        if match is None:
            raise InvalidInput(where(path, number), 'must read "Node N Key: number" or "Node N Key: number kB"', line)
        node, key, digits, kilo = match.groups()
        if unsigned(node, where(path, number)) != zone:
            raise InvalidInput(where(path, number), f"must be about zone {zone}", line)
        found.setdefault(key, unsigned(digits, where(path, number)) * (1024 if kilo else 1))
    return ZoneMeminfo(
        zone=zone,
        total_bytes=_needed(found, "MemTotal", path),
        free_bytes=_needed(found, "MemFree", path),
        file_lru_bytes=found.get("Active(file)", 0) + found.get("Inactive(file)", 0),
        slab_reclaimable_bytes=found.get("SReclaimable", 0),
    )


def parse_cpuinfo(text: str) -> tuple[str, str]:
    """Vendor and model of the first CPU in /proc/cpuinfo; "" for what the kernel does not say.

    Arm kernels name an implementer and a part by number instead; both are at most 120 characters.
    """
    found: dict[str, str] = {}
    for line in text.split("\n"):
        if not line.strip():
            if found:
                break
            continue
        key, colon, value = line.partition(":")
        if colon:
            found.setdefault(key.strip(), value.strip()[:_CPUINFO_TEXT_MAX])
    vendor = found.get("vendor_id") or found.get("CPU implementer", "")
    part = found.get("CPU part", "")
    return vendor, found.get("model name") or (f"part {part}" if part else "")


def _needed(found: dict[str, int], key: str, path: str) -> int:
    if key not in found:
        raise InvalidInput(path, f"must have a line {key}", None)
    return found[key]


def parse_boot_id(text: str, path: str = "/proc/sys/kernel/random/boot_id") -> str:
    """The boot's UUID in lower case. Counters of two readings are comparable only within one boot.

    Raises InvalidInput for any other text.
    """
    boot_id = text.strip().lower()
    if _UUID.fullmatch(boot_id) is None:
        raise InvalidInput(where(path, 1), "must be a UUID", text)
    return boot_id
