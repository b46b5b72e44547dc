"""The kernel's answers to writes into cgroup files, modelled for v1 and v2.

Each function takes the text written and what the group holds, and returns a `Write`: the errno, or the content
afterwards. A refused write changes nothing; a write of zero bytes succeeds and changes nothing. Source:
linux:kernel/sched/core.c, kernel/cgroup/cgroup.c, mm/page_counter.c, checked against a live 6.18 kernel.

For comparing with a kernel: simulated machines have no cgroup files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

MIN_QUOTA_US: Final = 1000
MAX_QUOTA_US: Final = 2**44 - 1
MIN_PERIOD_US: Final = 1000
MAX_PERIOD_US: Final = 1_000_000
UNLIMITED_QUOTA_US: Final = -1

_MIN_SHARES: Final = 2
_MAX_SHARES: Final = 262_144
_PAGE_BYTES: Final = 4096
UNLIMITED_BYTES: Final = (2**63 - 1) // _PAGE_BYTES * _PAGE_BYTES
_RATIO_SHIFT: Final = 20
_WORD: Final = 2**64

_V2_CONTROLLERS: Final = frozenset(
    ("cpuset", "cpu", "io", "memory", "perf_event", "hugetlb", "pids", "rdma", "misc", "dmem", "debug")
)
_MEMORY_SHIFTS: Final = {"k": 10, "m": 20, "g": 30, "t": 40, "p": 50, "e": 60}
_MEMORY: Final = re.compile(r"(0[xX][0-9a-fA-F]+|[0-9]*)([kKmMgGtTpPeE]?)")
_CPU_MAX: Final = re.compile(r"\s*(\S{1,20})(?:\s*([0-9]+))?")


@dataclass(frozen=True, slots=True)
class Write:
    """What a write did: `errno` is None when it succeeded; `after` is the file's content afterwards."""

    errno: str | None
    after: str


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """A CFS quota and period in microseconds; any negative quota is unlimited."""

    quota_us: int
    period_us: int = 100_000

    @property
    def is_limited(self) -> bool:
        """Say whether there is a quota at all."""
        return self.quota_us >= 0

    @property
    def ratio(self) -> int:
        """Return quota/period as the scheduler compares it: 20 bit fixed point, rounded down."""
        return (self.quota_us << _RATIO_SHIFT) // self.period_us


def write_v1(name: str, text: str, current: str, *, is_idle: bool = False, quota_us: int = UNLIMITED_QUOTA_US) -> Write:
    """Write a v1 cpu file: cpu.shares, cpu.cfs_quota_us, cpu.cfs_period_us, cpu.cfs_burst_us or cpu.idle."""
    if text == "":
        return Write(None, current)
    number, errno = _kernel_number(text, is_signed=name in ("cpu.cfs_quota_us", "cpu.idle"))
    if errno is not None:
        return Write(errno, current)
    accepted: int | None
    match name:
        case "cpu.shares":
            accepted = None if is_idle else max(_MIN_SHARES, min(_MAX_SHARES, number))
        case "cpu.cfs_quota_us":
            accepted = UNLIMITED_QUOTA_US if number < 0 else _within(number, MIN_QUOTA_US, MAX_QUOTA_US)
        case "cpu.cfs_period_us":
            accepted = _within(number, MIN_PERIOD_US, MAX_PERIOD_US)
        case "cpu.cfs_burst_us":
            accepted = number if burst_errno(quota_us, number) is None else None
        case "cpu.idle":
            accepted = _within(number, 0, 1)
        case _:
            raise KeyError(f"no model of the v1 file {name}")
    return Write("EINVAL", current) if accepted is None else Write(None, str(accepted))


def write_cpu_max(text: str, current: str, burst_us: int = 0) -> Write:
    """Write cpu.max: "max|QUOTA [PERIOD]"; one number keeps the period, text after a number is ignored."""
    if text == "":
        return Write(None, current)
    match = _CPU_MAX.match(text)
    if match is None:
        return Write("EINVAL", current)
    period_us = int(current.split()[1]) if match[2] is None else int(match[2]) % _WORD
    digits = re.match(r"[0-9]+", match[1])
    if digits is None and match[1] != "max":
        return Write("EINVAL", current)
    if not MIN_PERIOD_US <= period_us <= MAX_PERIOD_US:
        return Write("EINVAL", current)
    if digits is None:
        return Write(None, f"max {period_us}")
    quota_us = int(digits[0]) % _WORD
    if not MIN_QUOTA_US <= quota_us <= MAX_QUOTA_US or burst_us > quota_us:
        return Write("EINVAL", current)
    return Write(None, f"{quota_us} {period_us}")


def write_v2_cpu(name: str, text: str, current: str) -> Write:
    """Write cpu.weight, cpu.weight.nice or cpu.idle of v2."""
    if text == "":
        return Write(None, current)
    number, errno = _kernel_number(text, is_signed=name != "cpu.weight")
    if errno is not None:
        return Write(errno, current)
    limits = {"cpu.weight": (1, 10_000, "ERANGE"), "cpu.weight.nice": (-20, 19, "ERANGE"), "cpu.idle": (0, 1, "EINVAL")}
    if name not in limits:
        raise KeyError(f"no model of the v2 file {name}")
    low, high, refusal = limits[name]
    return Write(None, str(number)) if low <= number <= high else Write(refusal, current)


def burst_errno(quota_us: int, burst_us: int) -> str | None:
    """Return the errno of holding this burst beside this quota, whichever of the two is written."""
    return "EINVAL" if burst_us < 0 or 0 <= quota_us < burst_us else None


def quota_errno(bandwidth: Bandwidth, burst_us: int = 0) -> str | None:
    """Return the errno of a quota and period for themselves, beside the burst the group holds."""
    if not MIN_PERIOD_US <= bandwidth.period_us <= MAX_PERIOD_US:
        return "EINVAL"
    if bandwidth.is_limited and not MIN_QUOTA_US <= bandwidth.quota_us <= MAX_QUOTA_US:
        return "EINVAL"
    return burst_errno(bandwidth.quota_us, burst_us)


def child_quota_errno(parent: Bandwidth, child: Bandwidth) -> str | None:
    """Return the errno of a v1 child's new quota: its ratio must not exceed a limited ancestor's."""
    errno = quota_errno(child)
    if errno is None and parent.is_limited and child.is_limited and child.ratio > parent.ratio:
        return "EINVAL"
    return errno


def parent_quota_errno(parent: Bandwidth, children: Iterable[Bandwidth]) -> str | None:
    """Return the errno of a v1 parent's new quota: no limited child may exceed it, their sum may."""
    errno = quota_errno(parent)
    if (
        errno is None
        and parent.is_limited
        and any(child.is_limited and child.ratio > parent.ratio for child in children)
    ):
        return "EINVAL"
    return errno


def write_memory_v1(text: str, current_bytes: int = UNLIMITED_BYTES) -> tuple[str | None, int]:
    """Write memory.limit_in_bytes: bytes with K..E, rounded down to a page, "-1" for unlimited."""
    if text == "":
        return None, current_bytes
    limit_bytes = UNLIMITED_BYTES if text.strip() == "-1" else _memory_bytes(text.strip())
    return ("EINVAL", current_bytes) if limit_bytes is None else (None, limit_bytes)


def write_memory_v2(text: str, current: str = "max") -> Write:
    """Write memory.min, low, high or max: bytes with K..E, rounded down to a page, or "max"."""
    if text == "":
        return Write(None, current)
    limit_bytes = UNLIMITED_BYTES if text.strip() == "max" else _memory_bytes(text.strip())
    if limit_bytes is None:
        return Write("EINVAL", current)
    return Write(None, "max" if limit_bytes >= UNLIMITED_BYTES else str(limit_bytes))


def write_v2_core(
    name: str, text: str, *, controllers: Collection[str] = ("hugetlb",), pids: Collection[int] = ()
) -> str | None:
    """Return the errno of writing a cgroup.* file of v2, None when it succeeds.

    `controllers` are those in cgroup.controllers, `pids` the processes that exist; pid 0 is the writer itself.
    """
    if text == "":
        return None
    if name == "cgroup.subtree_control":
        return _subtree_errno(text.strip(), controllers)
    if name == "cgroup.type":
        return None if text.strip() == "threaded" else "EINVAL"
    if name not in _CORE_RULES:
        raise KeyError(f"no model of the v2 file {name}")
    if name in ("cgroup.max.depth", "cgroup.max.descendants") and text.strip() == "max":
        return None
    number, errno = _kernel_number(text.strip(), is_signed=True, bits=32)
    if name in ("cgroup.procs", "cgroup.threads"):
        if errno is not None or number < 0:
            return "EINVAL"
        return None if number == 0 or number in pids else "ESRCH"
    return errno or _CORE_RULES[name](number)


def _in_range(low: int, high: int) -> Callable[[int], str | None]:
    return lambda number: None if low <= number <= high else "ERANGE"


_CORE_RULES: Final[dict[str, Callable[[int], str | None]]] = {
    "cgroup.procs": _in_range(0, 2**31 - 1),
    "cgroup.threads": _in_range(0, 2**31 - 1),
    "cgroup.freeze": _in_range(0, 1),
    "cgroup.kill": _in_range(1, 1),
    "cgroup.pressure": _in_range(0, 1),
    "cgroup.max.depth": _in_range(0, 2**31 - 1),
    "cgroup.max.descendants": _in_range(0, 2**31 - 1),
}


def _subtree_errno(text: str, controllers: Collection[str]) -> str | None:
    tokens = [token for token in text.split(" ") if token]
    if any(token[0] not in "+-" or token[1:] not in _V2_CONTROLLERS for token in tokens):
        return "EINVAL"
    wanted = {token[1:]: token[0] for token in tokens}  # the last word about a controller counts
    return "ENOENT" if any(sign == "+" and name not in controllers for name, sign in wanted.items()) else None


def _within(number: int, low: int, high: int) -> int | None:
    return number if low <= number <= high else None


def _kernel_number(text: str, *, is_signed: bool, bits: int = 64) -> tuple[int, str | None]:
    """Read a number as kstrtoull, kstrtoll or kstrtoint do: 0x and 0 prefixes, at most one newline after it."""
    digits = text.removesuffix("\n")
    is_negative = is_signed and digits.startswith("-")
    if digits.startswith("+") or is_negative:
        digits = digits[1:]
    for pattern, base in ((r"0[xX][0-9a-fA-F]+", 16), (r"0[0-7]*", 8), (r"[1-9][0-9]*", 10)):
        if re.fullmatch(pattern, digits):
            number = int(digits, base)
            break
    else:
        return 0, "EINVAL"
    number = -number if is_negative else number
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)
    return (number, None) if low <= number <= high else (0, "ERANGE")


def _memory_bytes(text: str) -> int | None:
    """Read a size as memparse does and round it down to a page; None for text behind it. Only K..E are units."""
    match = _MEMORY.fullmatch(text)
    if match is None:
        return None
    digits, suffix = match[1], match[2].lower()
    if digits[:2].lower() == "0x":
        number = int(digits, 16)
    elif digits.startswith("0"):
        if re.fullmatch(r"[0-7]+", digits) is None:
            return None
        number = int(digits, 8)
    else:
        number = int(digits or "0")
    size_bytes = (number << _MEMORY_SHIFTS.get(suffix, 0)) % _WORD
    return min(size_bytes // _PAGE_BYTES * _PAGE_BYTES, UNLIMITED_BYTES)
