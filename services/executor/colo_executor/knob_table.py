"""The table of kernel files that the executor may write: file, unit, legal range, and how it is known whether a machine has it."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from colo_common.model.invalid import InvalidInput

__all__ = [
    "FENCE",
    "KNOB_FILES",
    "PAGE_BYTES",
    "PERIOD_US",
    "QUOTA_MIN_US",
    "UNLIMITED",
    "WEIGHT_LEAST",
    "WEIGHT_MOST",
    "FoundBy",
    "Knob",
    "KnobFile",
    "Unit",
    "check_number",
    "file_of",
    "is_in_every_group",
    "page_bytes_of",
    "page_size_text",
]

PERIOD_US: Final = 100_000
QUOTA_MIN_US: Final = 1_000
PAGE_BYTES: Final = 4_096
UNLIMITED: Final = -1
WEIGHT_LEAST: Final = 2
"""The least weight in v1's scale (cpu.shares); v2's least is 1."""
WEIGHT_MOST: Final = 262_144
"""The greatest weight in v1's scale; v2's is 10000."""
FENCE: Final = "bpf:cgroup_device"
"""What stands in the place of a file of device rules under v2: the program that is attached to the group."""

_QUOTA_MOST_US: Final = (1 << 44) - 1
"""MAX_BW of linux/kernel/sched/core.c: a share of the period has 20 bits behind the point."""
_PERIOD_MOST_US: Final = 1_000_000
_BYTES_MOST: Final = (1 << 63) - 1
_PIDS_MOST: Final = 4 << 20
"""PID_MAX_LIMIT of a 64-bit kernel."""


class Knob(StrEnum):
    """A setting of a control group. Values are integers in the unit of the name, kernel lists for the two sets, or rules."""

    CPU_WEIGHT = "cpu-weight"  # v1 shares, whatever the hierarchy
    CPU_IDLE = "cpu-idle"  # 0 | 1
    CPU_BVT = (
        "cpu-bvt"  # group identity: 2 goes before all others, 0 is ordinary, -1 gives way to all that are not negative
    )
    CPU_PERIOD = "cpu-period-us"
    CPU_QUOTA = "cpu-quota-us"  # UNLIMITED or at least QUOTA_MIN_US, for a period of PERIOD_US
    CPU_BURST = "cpu-burst-us"
    CPUSET_CPUS = "cpuset-cpus"
    CPUSET_MEMS = "cpuset-mems"
    MEMORY_LIMIT = "memory-limit-bytes"
    MEMORY_MIN = "memory-min-bytes"  # never reclaimed, whatever the kernel needs
    MEMORY_LOW = "memory-low-bytes"  # reclaimed only when nobody else has anything left that is not protected
    MEMORY_SWAP_LIMIT = "memory-swap-limit-bytes"  # v1: memory and swap together
    SWAP_LIMIT = "swap-limit-bytes"  # v2: swap alone
    OOM_GROUP = "memory-oom-group"  # 0 | 1
    PIDS_LIMIT = "pids-limit"
    FROZEN = "frozen"  # 0 | 1
    HUGE_PAGES_LIMIT = "huge-pages-limit-bytes"  # of one page size: what may be touched
    HUGE_PAGES_RESERVED_LIMIT = "huge-pages-reserved-limit-bytes"  # of one page size: what may be mapped
    DEVICES = "devices"  # the device files that may be opened: rules in the words of cgroup v1, one a line


class Unit(StrEnum):
    """What the values of a knob are."""

    SHARES = "v1 shares"
    FLAG = "0 or 1"
    IDENTITY = "group identity"
    MICROSECONDS = "us"
    BYTES = "bytes"
    COUNT = "processes"
    CPUS = "a kernel list of CPUs"
    ZONES = "a kernel list of memory zones"
    RULES = "rules of devices"


class FoundBy(StrEnum):
    """How it is known whether a machine has a knob."""

    FILE = "its file is in the executor's own group; before that is made, in a group beside it, else by the kernel's release"
    FILE_ALONE = "its file is in the executor's own group, or in a group beside it; no release of Linux promises it"
    SWITCH = "its file, as above, and kernel.sched_group_identity_enabled is not 0"
    PROGRAM = "under v1 its file and CAP_SYS_ADMIN; under v2 the kernel takes such a program from this process"


class KnobFile(Struct, frozen=True, kw_only=True):
    """One row: controller, file names, and what may be written there.

    An empty name means that the value is part of another file or does not exist. `{size}` in a name stands for a huge page size
    as the kernel writes it; each size has its file. Numbers are from `least` to `most`; where a word is given UNLIMITED is legal as
    well and is written as that word. `since` is the first Linux in which every group of cgroup v2 with the controller has the file.
    """

    controller: str
    v1: str
    v2: str
    unit: Unit
    least: int = 0
    most: int = 0
    v1_word: str = ""
    v2_word: str = ""
    since: tuple[int, int] | None = None
    found_by: FoundBy = FoundBy.FILE

    @property
    def is_number(self) -> bool:
        """Whether values are integers."""
        return self.unit not in (Unit.CPUS, Unit.ZONES, Unit.RULES)

    def word(self, version: int) -> str:
        """The word that stands for UNLIMITED, "" where nothing does."""
        return self.v1_word if version == 1 else self.v2_word


KNOB_FILES: Final[Mapping[Knob, KnobFile]] = {
    Knob.CPU_WEIGHT: KnobFile(
        controller="cpu",
        v1="cpu.shares",
        v2="cpu.weight",
        unit=Unit.SHARES,
        least=WEIGHT_LEAST,
        most=WEIGHT_MOST,
        since=(4, 15),
    ),
    Knob.CPU_IDLE: KnobFile(
        controller="cpu", v1="cpu.idle", v2="cpu.idle", unit=Unit.FLAG, least=0, most=1, since=(5, 15)
    ),
    # Kernels of Anolis and Alibaba Cloud; no release of Linux.
    Knob.CPU_BVT: KnobFile(
        controller="cpu",
        v1="cpu.bvt_warp_ns",
        v2="cpu.bvt_warp_ns",
        unit=Unit.IDENTITY,
        least=-2,
        most=2,
        found_by=FoundBy.SWITCH,
    ),
    Knob.CPU_PERIOD: KnobFile(
        controller="cpu", v1="cpu.cfs_period_us", v2="", unit=Unit.MICROSECONDS, least=1_000, most=_PERIOD_MOST_US
    ),
    Knob.CPU_QUOTA: KnobFile(
        controller="cpu",
        v1="cpu.cfs_quota_us",
        v2="cpu.max",
        unit=Unit.MICROSECONDS,
        least=QUOTA_MIN_US,
        most=_QUOTA_MOST_US,
        v1_word="-1",
        v2_word="max",
        since=(4, 15),
    ),
    # Also at most the quota, which the order of writes sees to.
    Knob.CPU_BURST: KnobFile(
        controller="cpu",
        v1="cpu.cfs_burst_us",
        v2="cpu.max.burst",
        unit=Unit.MICROSECONDS,
        least=0,
        most=_QUOTA_MOST_US,
        since=(5, 14),
    ),
    Knob.CPUSET_CPUS: KnobFile(controller="cpuset", v1="cpuset.cpus", v2="cpuset.cpus", unit=Unit.CPUS, since=(5, 0)),
    Knob.CPUSET_MEMS: KnobFile(controller="cpuset", v1="cpuset.mems", v2="cpuset.mems", unit=Unit.ZONES, since=(5, 0)),
    Knob.MEMORY_LIMIT: KnobFile(
        controller="memory",
        v1="memory.limit_in_bytes",
        v2="memory.max",
        unit=Unit.BYTES,
        most=_BYTES_MOST,
        v1_word="-1",
        v2_word="max",
        since=(4, 5),
    ),
    # v1 has no equivalent: its soft limit says who is reclaimed first, and protects nothing.
    Knob.MEMORY_MIN: KnobFile(
        controller="memory", v1="", v2="memory.min", unit=Unit.BYTES, most=_BYTES_MOST, v2_word="max", since=(4, 18)
    ),
    Knob.MEMORY_LOW: KnobFile(
        controller="memory", v1="", v2="memory.low", unit=Unit.BYTES, most=_BYTES_MOST, v2_word="max", since=(4, 5)
    ),
    # Both only where the kernel counts swap, which it may be built or booted not to do.
    Knob.MEMORY_SWAP_LIMIT: KnobFile(
        controller="memory",
        v1="memory.memsw.limit_in_bytes",
        v2="",
        unit=Unit.BYTES,
        most=_BYTES_MOST,
        v1_word="-1",
        found_by=FoundBy.FILE_ALONE,
    ),
    Knob.SWAP_LIMIT: KnobFile(
        controller="memory",
        v1="",
        v2="memory.swap.max",
        unit=Unit.BYTES,
        most=_BYTES_MOST,
        v2_word="max",
        found_by=FoundBy.FILE_ALONE,
    ),
    Knob.OOM_GROUP: KnobFile(
        controller="memory", v1="", v2="memory.oom.group", unit=Unit.FLAG, least=0, most=1, since=(4, 19)
    ),
    Knob.PIDS_LIMIT: KnobFile(
        controller="pids",
        v1="pids.max",
        v2="pids.max",
        unit=Unit.COUNT,
        most=_PIDS_MOST,
        v1_word="max",
        v2_word="max",
        since=(4, 5),
    ),
    # Shows what writes to freezer.state asked for; that file shows what the groups above ask for, too.
    Knob.FROZEN: KnobFile(
        controller="freezer",
        v1="freezer.self_freezing",
        v2="cgroup.freeze",
        unit=Unit.FLAG,
        least=0,
        most=1,
        since=(5, 2),
    ),
    # Huge pages go by size, which no release says.
    Knob.HUGE_PAGES_LIMIT: KnobFile(
        controller="hugetlb",
        v1="hugetlb.{size}.limit_in_bytes",
        v2="hugetlb.{size}.max",
        unit=Unit.BYTES,
        most=_BYTES_MOST,
        v1_word="-1",
        v2_word="max",
        found_by=FoundBy.FILE_ALONE,
    ),
    Knob.HUGE_PAGES_RESERVED_LIMIT: KnobFile(
        controller="hugetlb",
        v1="hugetlb.{size}.rsvd.limit_in_bytes",
        v2="hugetlb.{size}.rsvd.max",
        unit=Unit.BYTES,
        most=_BYTES_MOST,
        v1_word="-1",
        v2_word="max",
        found_by=FoundBy.FILE_ALONE,
    ),
    # Under v1 it shows what writes to devices.allow and devices.deny made of it.
    Knob.DEVICES: KnobFile(
        controller="devices", v1="devices.list", v2=FENCE, unit=Unit.RULES, found_by=FoundBy.PROGRAM
    ),
}
"""Every knob has its row. Ranges are the kernel's own: what lies outside is refused before it reaches the kernel."""
_PAGE_SIZE: Final = re.compile(r"hugetlb\.([1-9][0-9]{0,5})(KB|MB|GB)\.(?:max|limit_in_bytes)", re.ASCII)
_SUFFIXES: Final = {"KB": 10, "MB": 20, "GB": 30}


def file_of(knob: Knob, version: int, page_bytes: int = 0) -> tuple[str, str] | None:
    """Controller and file name of a knob under cgroup `version` (1 or 2), or None where the version has no file for it.

    `page_bytes` is the page size of a limit of huge pages.
    """
    row = KNOB_FILES[knob]
    name = row.v1 if version == 1 else row.v2
    return (row.controller, name.format(size=page_size_text(page_bytes))) if name else None


def is_in_every_group(knob: Knob, release: tuple[int, int]) -> bool:
    """Whether that release of Linux (5, 15) gives every group of cgroup v2 with the knob's controller its file."""
    since = KNOB_FILES[knob].since
    return since is not None and release >= since


def check_number(knob: Knob, version: int, value: int | str) -> int:
    """The value, when it is a number that the knob may have. Raises InvalidInput, whose field is the knob, when it is not."""
    row = KNOB_FILES[knob]
    if not isinstance(value, int):
        raise InvalidInput(knob.value, f"must be an integer ({row.unit.value})", value)
    word = row.word(version)
    if not (row.least <= value <= row.most or (value == UNLIMITED and word)):
        span = row.unit.value if row.unit is Unit.FLAG else f"from {row.least} to {row.most} ({row.unit.value})"
        raise InvalidInput(knob.value, f"must be {span}{f', or {UNLIMITED} for no limit' if word else ''}", value)
    return value


def page_size_text(page_bytes: int) -> str:
    """A huge page size as in the kernel's file names: in the largest unit of KB, MB and GB (powers of 1024) that it reaches."""
    suffix = "GB" if page_bytes >= 1 << 30 else "MB" if page_bytes >= 1 << 20 else "KB"
    return f"{page_bytes >> _SUFFIXES[suffix]}{suffix}"


def page_bytes_of(file_name: str) -> int | None:
    """The page size whose limit the file holds, None for any other file."""
    match = _PAGE_SIZE.fullmatch(file_name)
    return None if match is None else int(match[1]) << _SUFFIXES[match[2]]
