"""The kernel files that the executor writes: name and unit under cgroup v1 and v2, and the text shown after a write."""

import re
from enum import StrEnum
from typing import Final

from msgspec import Struct

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_executor.device_access import check_rules, rules_in

__all__ = [
    "FENCE",
    "PAGE_BYTES",
    "PERIOD_US",
    "QUOTA_MIN_US",
    "UNLIMITED",
    "WEIGHT_LEAST",
    "WEIGHT_MOST",
    "Knob",
    "KnobFile",
    "agrees",
    "file_of",
    "is_in_every_group",
    "mcpu_of_weight",
    "page_bytes_of",
    "page_size_text",
    "quota_us",
    "text_of",
    "value_of",
    "weight_v1",
    "weight_v2",
]

PERIOD_US: Final = 100_000
QUOTA_MIN_US: Final = 1_000
PAGE_BYTES: Final = 4_096
UNLIMITED: Final = -1
WEIGHT_LEAST: Final = 2
"""The least weight in v1's scale (cpu.shares); v2's least is 1."""

FENCE: Final = "bpf:cgroup_device"
"""What stands in the place of a file of device rules under v2: the program that is attached to the group."""
_V1_UNLIMITED_BYTES: Final = 1 << 62
WEIGHT_MOST: Final = 262_144
"""The greatest weight in v1's scale; v2's is 10000."""


class Knob(StrEnum):
    """A setting of a control group. Values are integers in the unit of the name, kernel lists for the two sets, or rules."""

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
    FROZEN = "frozen"  # 0 | 1
    HUGE_PAGES_LIMIT = "huge-pages-limit-bytes"  # of one page size: what may be touched
    HUGE_PAGES_RESERVED_LIMIT = "huge-pages-reserved-limit-bytes"  # of one page size: what may be mapped
    DEVICES = "devices"  # the device files that may be opened: rules in the words of cgroup v1, one a line


class KnobFile(Struct, frozen=True, kw_only=True):
    """Controller and file names; an empty name means that the value is part of another file or does not exist.

    `{size}` in a name stands for a huge page size as the kernel writes it; each size has its file.
    """

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
    # Shows what writes to freezer.state asked for; that file shows what the groups above ask for, too.
    Knob.FROZEN: KnobFile(controller="freezer", v1="freezer.self_freezing", v2="cgroup.freeze"),
    Knob.HUGE_PAGES_LIMIT: KnobFile(controller="hugetlb", v1="hugetlb.{size}.limit_in_bytes", v2="hugetlb.{size}.max"),
    Knob.HUGE_PAGES_RESERVED_LIMIT: KnobFile(
        controller="hugetlb", v1="hugetlb.{size}.rsvd.limit_in_bytes", v2="hugetlb.{size}.rsvd.max"
    ),
    # Under v1 it shows what writes to devices.allow and devices.deny made of it.
    Knob.DEVICES: KnobFile(controller="devices", v1="devices.list", v2=FENCE),
}
_V2_SINCE: Final[dict[Knob, tuple[int, int]]] = {
    Knob.CPU_WEIGHT: (4, 15),
    Knob.CPU_QUOTA: (4, 15),
    Knob.CPU_BURST: (5, 14),
    Knob.CPU_IDLE: (5, 15),
    Knob.CPUSET_CPUS: (5, 0),
    Knob.CPUSET_MEMS: (5, 0),
    Knob.MEMORY_LIMIT: (4, 5),
    Knob.OOM_GROUP: (4, 19),
    Knob.PIDS_LIMIT: (4, 5),
    Knob.FROZEN: (5, 2),
}
"""The first Linux in which every group of cgroup v2 with the knob's controller has its file; those of huge pages go by size."""
_LIMITS: Final = (Knob.MEMORY_LIMIT, Knob.HUGE_PAGES_LIMIT, Knob.HUGE_PAGES_RESERVED_LIMIT)
"""The limits in bytes: "-1" lifts them under v1, "max" under v2."""
_PAGE_SIZE: Final = re.compile(r"hugetlb\.([1-9][0-9]{0,5})(KB|MB|GB)\.(?:max|limit_in_bytes)", re.ASCII)
_SUFFIXES: Final = {"KB": 10, "MB": 20, "GB": 30}


def file_of(knob: Knob, version: int, page_bytes: int = 0) -> tuple[str, str] | None:
    """Controller and file name of a knob under cgroup `version` (1 or 2), or None where the version has no file for it.

    `page_bytes` is the page size of a limit of huge pages.
    """
    row = _FILES[knob]
    name = row.v1 if version == 1 else row.v2
    return (row.controller, name.format(size=page_size_text(page_bytes))) if name else None


def is_in_every_group(knob: Knob, release: tuple[int, int]) -> bool:
    """Whether that release of Linux (5, 15) gives every group of cgroup v2 with the knob's controller its file."""
    return knob in _V2_SINCE and release >= _V2_SINCE[knob]


def page_size_text(page_bytes: int) -> str:
    """A huge page size as in the kernel's file names: in the largest unit of KB, MB and GB (powers of 1024) that it reaches."""
    suffix = "GB" if page_bytes >= 1 << 30 else "MB" if page_bytes >= 1 << 20 else "KB"
    return f"{page_bytes >> _SUFFIXES[suffix]}{suffix}"


def page_bytes_of(file_name: str) -> int | None:
    """The page size whose limit the file holds, None for any other file."""
    match = _PAGE_SIZE.fullmatch(file_name)
    return None if match is None else int(match[1]) << _SUFFIXES[match[2]]


def quota_us(mcpu: int) -> int:
    """The quota for PERIOD_US that gives `mcpu`: mcpu x period // 1000, at least QUOTA_MIN_US (koordinator cfsQuota: 2000)."""
    return max(QUOTA_MIN_US, mcpu * PERIOD_US // 1_000)


def weight_v1(mcpu: int) -> int:
    """cpu.shares of a request: clamp(mcpu x 1024 // 1000, 2, 262144), as in koordinator's batch_resource.go."""
    return max(WEIGHT_LEAST, min(WEIGHT_MOST, mcpu * 1_024 // 1_000))


def weight_v2(shares: int) -> int:
    """cpu.weight of v1 shares: 1 + (shares - 2) x 9999 // 262142 (the linear rule; the kernel's file is read back anyway)."""
    return 1 + (max(WEIGHT_LEAST, min(WEIGHT_MOST, shares)) - WEIGHT_LEAST) * 9_999 // 262_142


def mcpu_of_weight(version: int, weight: int) -> int:
    """The least request (mcpu) that has this weight, as a file of that cgroup version shows it."""
    shares = int(value_of(Knob.CPU_WEIGHT, version, str(weight)))
    return max(1, -(-shares * 1_000 // 1_024))


def text_of(knob: Knob, version: int, value: int | str) -> str:
    """The text that sets the file to `value`. Raises InvalidInput for text where a number belongs, or the reverse."""
    if knob in (Knob.CPUSET_CPUS, Knob.CPUSET_MEMS):
        if not isinstance(value, str):
            raise InvalidInput(knob.value, 'must be a kernel list such as "0-3,8"', value)
        return CpuSet.parse(value, knob.value).format()
    if knob is Knob.DEVICES:
        return check_rules(str(value), knob.value)
    if not isinstance(value, int):
        raise InvalidInput(knob.value, "must be an integer", value)
    match knob:
        case Knob.CPU_WEIGHT:
            return str(value if version == 1 else weight_v2(value))
        case Knob.CPU_QUOTA if version == 2:
            return f"{'max' if value == UNLIMITED else value} {PERIOD_US}"
        case _ if value == UNLIMITED and (knob in _LIMITS or knob is Knob.PIDS_LIMIT):
            return "-1" if version == 1 and knob in _LIMITS else "max"
        case _:
            return str(value)


def value_of(knob: Knob, version: int, shown: str) -> int | str:
    """The value that a file shows, in the knob's unit: the reverse of `text_of`. Raises ValueError for what is no number.

    Of a weight under v2 it is the least of the v1 weights with this text.
    """
    if knob in (Knob.CPUSET_CPUS, Knob.CPUSET_MEMS, Knob.DEVICES):
        return shown
    if knob is Knob.CPU_WEIGHT and version == 2:
        return WEIGHT_LEAST - (-(int(shown) - 1) * 262_142 // 9_999)
    return UNLIMITED if shown == "max" else int(shown)


def agrees(knob: Knob, version: int, wrote: str, shown: str) -> bool:
    """Whether the file, read back as `shown`, holds what was written.

    The kernel rounds memory down to a page and v1 shows "unlimited" as a number near 2^63; every other value reads as written.
    """
    wrote, shown = wrote.strip(), shown.strip()
    if wrote == shown:
        return True
    if knob is Knob.DEVICES:
        return rules_in(wrote) == rules_in(shown)
    if knob in _LIMITS and wrote == "-1":
        return shown.isdigit() and int(shown) >= _V1_UNLIMITED_BYTES
    if knob is Knob.MEMORY_LIMIT and shown.isdigit():
        # Pages may be larger than 4 KiB; the limit must not be above the written value, and near to it.
        return wrote.isdigit() and 0 <= int(wrote) - int(shown) < 16 * PAGE_BYTES
    return False
