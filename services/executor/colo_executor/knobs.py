"""Every kernel file the executor writes: where it is under cgroup v1 and v2, its unit, and what the kernel shows after a write."""

from enum import StrEnum
from typing import Final

from msgspec import Struct

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput

__all__ = [
    "PAGE_BYTES",
    "PERIOD_US",
    "QUOTA_MIN_US",
    "UNLIMITED",
    "WEIGHT_LEAST",
    "Knob",
    "KnobFile",
    "agrees",
    "file_of",
    "quota_us",
    "text_of",
    "weight_v1",
    "weight_v2",
]

PERIOD_US: Final = 100_000
QUOTA_MIN_US: Final = 1_000
PAGE_BYTES: Final = 4_096
UNLIMITED: Final = -1
WEIGHT_LEAST: Final = 2
"""The least weight in v1's scale (cpu.shares); v2's least is 1."""

_V1_UNLIMITED_BYTES: Final = 1 << 62
_SHARES_MOST: Final = 262_144


class Knob(StrEnum):
    """What can be set on a control group. Values are integers in the unit of the name, or a kernel list for the two sets."""

    CPU_WEIGHT = "cpu-weight"  # v1 shares, whatever the hierarchy
    CPU_IDLE = "cpu-idle"  # 0 | 1
    CPU_PERIOD = "cpu-period-us"
    CPU_QUOTA = "cpu-quota-us"  # UNLIMITED or at least QUOTA_MIN_US, for a period of PERIOD_US
    CPU_BURST = "cpu-burst-us"
    CPUSET_CPUS = "cpuset-cpus"
    CPUSET_MEMS = "cpuset-mems"
    MEMORY_LIMIT = "memory-limit-bytes"
    OOM_GROUP = "memory-oom-group"  # 0 | 1
    PIDS_LIMIT = "pids-limit"


class KnobFile(Struct, frozen=True, kw_only=True):
    """Controller and file name; an empty v2 name means that the value is part of another file, or does not exist."""

    controller: str
    v1: str
    v2: str


_FILES: Final[dict[Knob, KnobFile]] = {
    Knob.CPU_WEIGHT: KnobFile(controller="cpu", v1="cpu.shares", v2="cpu.weight"),
    Knob.CPU_IDLE: KnobFile(controller="cpu", v1="cpu.idle", v2="cpu.idle"),
    Knob.CPU_PERIOD: KnobFile(controller="cpu", v1="cpu.cfs_period_us", v2=""),
    Knob.CPU_QUOTA: KnobFile(controller="cpu", v1="cpu.cfs_quota_us", v2="cpu.max"),
    Knob.CPU_BURST: KnobFile(controller="cpu", v1="cpu.cfs_burst_us", v2="cpu.max.burst"),
    Knob.CPUSET_CPUS: KnobFile(controller="cpuset", v1="cpuset.cpus", v2="cpuset.cpus"),
    Knob.CPUSET_MEMS: KnobFile(controller="cpuset", v1="cpuset.mems", v2="cpuset.mems"),
    Knob.MEMORY_LIMIT: KnobFile(controller="memory", v1="memory.limit_in_bytes", v2="memory.max"),
    Knob.OOM_GROUP: KnobFile(controller="memory", v1="", v2="memory.oom.group"),
    Knob.PIDS_LIMIT: KnobFile(controller="pids", v1="pids.max", v2="pids.max"),
}


def file_of(knob: Knob, version: int) -> tuple[str, str] | None:
    """Controller and file name of a knob under cgroup `version` (1 or 2), or None where it has none."""
    row = _FILES[knob]
    name = row.v1 if version == 1 else row.v2
    return (row.controller, name) if name else None


def quota_us(mcpu: int) -> int:
    """The quota for PERIOD_US that gives `mcpu`: mcpu x period // 1000, at least QUOTA_MIN_US (koordinator cfsQuota: 2000)."""
    return max(QUOTA_MIN_US, mcpu * PERIOD_US // 1_000)


def weight_v1(mcpu: int) -> int:
    """cpu.shares of a request: clamp(mcpu x 1024 // 1000, 2, 262144), as in koordinator's batch_resource.go."""
    return max(WEIGHT_LEAST, min(_SHARES_MOST, mcpu * 1_024 // 1_000))


def weight_v2(shares: int) -> int:
    """cpu.weight of v1 shares: 1 + (shares - 2) x 9999 // 262142 (the linear rule; the kernel's file is read back anyway)."""
    return 1 + (max(WEIGHT_LEAST, min(_SHARES_MOST, shares)) - WEIGHT_LEAST) * 9_999 // 262_142


def text_of(knob: Knob, version: int, value: int | str) -> str:
    """What to write so that the file holds `value`. Raises InvalidInput for text where a number belongs or the reverse."""
    if knob in (Knob.CPUSET_CPUS, Knob.CPUSET_MEMS):
        if not isinstance(value, str):
            raise InvalidInput(knob.value, 'must be a kernel list such as "0-3,8"', value)
        return CpuSet.parse(value, knob.value).format()
    if not isinstance(value, int):
        raise InvalidInput(knob.value, "must be an integer", value)
    match knob:
        case Knob.CPU_WEIGHT:
            return str(value if version == 1 else weight_v2(value))
        case Knob.CPU_QUOTA if version == 2:
            return f"{'max' if value == UNLIMITED else value} {PERIOD_US}"
        case Knob.MEMORY_LIMIT | Knob.PIDS_LIMIT if value == UNLIMITED:
            return "-1" if version == 1 and knob is Knob.MEMORY_LIMIT else "max"
        case _:
            return str(value)


def agrees(knob: Knob, version: int, wrote: str, shown: str) -> bool:
    """Whether the file, read back as `shown`, holds what was written.

    Memory is rounded down to a page and "unlimited" reads as a number near 2^63 under v1; every other value reads as written.
    """
    wrote, shown = wrote.strip(), shown.strip()
    if wrote == shown:
        return True
    if knob is Knob.MEMORY_LIMIT and shown.isdigit():
        if wrote == "-1":
            return int(shown) >= _V1_UNLIMITED_BYTES
        # Pages may be larger than 4 KiB; what matters is that the limit is not above the promise and near to it.
        return wrote.isdigit() and 0 <= int(wrote) - int(shown) < 16 * PAGE_BYTES
    return False
