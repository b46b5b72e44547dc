"""Conversions between requests and what the kernel, systemd, the kubelet and the container runtimes write down.

Pure functions over integers; each names its source and its rounding. The executor itself converts in `colo_executor.knobs`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Literal

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.quantity import ceil_div

MIN_SHARES: Final = 2
MAX_SHARES: Final = 262_144
MIN_WEIGHT: Final = 1
MAX_WEIGHT: Final = 10_000
MIN_QUOTA_US: Final = 1000
DEFAULT_PERIOD_US: Final = 100_000
UNLIMITED: Final = -1

_SHARES_OF_DEFAULT_WEIGHT: Final = 1024
_DEFAULT_WEIGHT: Final = 100
_MCPU_PER_CPU: Final = 1000
_US_PER_S: Final = 1_000_000
_SYSTEMD_STEP_US: Final = 10_000
_SLICE: Final = ".slice"

# linux:kernel/sched/core.c sched_prio_to_weight, nice -20 to 19
_NICE_WEIGHTS: Final = (
    *(88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916),
    *(9548, 7620, 6100, 4904, 3906, 3121, 2501, 1991, 1586, 1277),
    *(1024, 820, 655, 526, 423, 335, 272, 215, 172, 137),
    *(110, 87, 70, 56, 45, 36, 29, 23, 18, 15),
)


def kernel_shares_from_weight(weight: int) -> int:
    """Return the scheduler's shares for a cpu.weight, rounded to the nearest (linux:kernel/sched/core.c)."""
    return _nearest(weight * _SHARES_OF_DEFAULT_WEIGHT, _DEFAULT_WEIGHT)


def weight_from_nice(nice: int) -> int:
    """Return the cpu.weight behind a cpu.weight.nice, rounded to the nearest. Raises InvalidInput outside -20..19."""
    if not -20 <= nice <= 19:
        raise InvalidInput("nice", "must be from -20 to 19", nice)
    return _nearest(_NICE_WEIGHTS[nice + 20] * _DEFAULT_WEIGHT, _SHARES_OF_DEFAULT_WEIGHT)


def shares_from_mcpu(mcpu: int) -> int:
    """Return cpu.shares for a request, rounded down, within 2..262144 (kubernetes:pkg/kubelet/cm/helpers_linux.go)."""
    return max(MIN_SHARES, min(MAX_SHARES, mcpu * 1024 // _MCPU_PER_CPU))


def quota_from_mcpu(mcpu: int, period_us: int = DEFAULT_PERIOD_US) -> int:
    """Return the CFS quota in microseconds for a limit, rounded down, at least 1 ms; 0 milli (no limit) gives 0."""
    if mcpu == 0:
        return 0
    return max(MIN_QUOTA_US, mcpu * period_us // _MCPU_PER_CPU)


def cpu_max_text(quota_us: int, period_us: int = DEFAULT_PERIOD_US) -> str:
    """Return the text of cpu.max; a quota of 0 or below is "max"."""
    return f"{quota_us if quota_us > 0 else 'max'} {period_us}"


def systemd_quota_us(quota_us: int, period_us: int) -> int | None:
    """Return CPUQuotaPerSecUSec, rounded up to 10 ms as systemd keeps it; None means no limit.

    A period of 0 is the default of 100 ms (opencontainers/cgroups:systemd/common.go).
    """
    if quota_us <= 0:
        return None
    per_second = quota_us * _US_PER_S // (period_us or DEFAULT_PERIOD_US)
    return ceil_div(per_second, _SYSTEMD_STEP_US) * _SYSTEMD_STEP_US


def io_weight_from_blkio(blkio_weight: int) -> int:
    """Return io.weight for a v1 blkio weight 10..1000, rounded down; 0 (unset) gives 0."""
    if blkio_weight == 0:
        return 0
    return 1 + max(0, blkio_weight - 10) * 9999 // 990


def swap_max_from_v1(memory_and_swap_bytes: int, memory_bytes: int) -> int:
    """Return memory.swap.max for v1's memory+swap limit; -1 is unlimited, 0 is unset.

    Raises InvalidInput when the sum cannot be split: no memory limit, or a sum below it.
    """
    if memory_bytes == UNLIMITED and memory_and_swap_bytes == 0:
        return UNLIMITED
    if memory_and_swap_bytes in (0, UNLIMITED):
        return memory_and_swap_bytes
    if memory_bytes <= 0:
        raise InvalidInput("memory", "must be limited when memory and swap are limited together", memory_bytes)
    if memory_and_swap_bytes < memory_bytes:
        raise InvalidInput("memory_swap", "must be at least the memory limit", memory_and_swap_bytes)
    return memory_and_swap_bytes - memory_bytes


def quota_write_order(old_quota_us: int, new_quota_us: int) -> tuple[str, str]:
    """Return in which order a pod's and its container's v1 quota are written: the wider one is always the pod's.

    Growing starts with the pod, shrinking with the container; any negative quota is unlimited.
    """
    old, new = (math.inf if quota < 0 else quota for quota in (old_quota_us, new_quota_us))
    return ("pod", "container") if new >= old else ("container", "pod")


def effective_cpus(cpu_max_texts: Sequence[str]) -> float | None:
    """Return the CPUs a v2 group can use: the smallest quota/period on its path, None when nothing limits it."""
    limits = []
    for text in cpu_max_texts:
        quota, period = text.split()
        if quota != "max":
            limits.append(int(quota) / int(period))
    return min(limits, default=None)


def expand_slice(name: str) -> str:
    """Return the path of a systemd slice: "a-b.slice" lies in "/a.slice/a-b.slice", "-.slice" is "/".

    Raises InvalidInput for a name without ".slice", with "/", or with an empty part between dashes
    (opencontainers/cgroups:systemd/common.go ExpandSlice).
    """
    if len(name) <= len(_SLICE) or not name.endswith(_SLICE) or "/" in name:
        raise InvalidInput("slice", "must be a name without / that ends in .slice", name)
    stem = name.removesuffix(_SLICE)
    if stem == "-":
        return "/"
    parts = stem.split("-")
    if not all(parts):
        raise InvalidInput("slice", "must not have an empty part between dashes", name)
    return "".join(f"/{'-'.join(parts[:depth])}{_SLICE}" for depth in range(1, len(parts) + 1))


def pod_path(qos: str, uid: str, driver: Literal["cgroupfs", "systemd"]) -> str:
    """Return where the kubelet keeps a pod, below the cgroup root; `qos` is Guaranteed, Burstable or BestEffort."""
    parts = {
        "guaranteed": ["kubepods"],
        "burstable": ["kubepods", "burstable"],
        "besteffort": ["kubepods", "besteffort"],
    }
    if qos.lower() not in parts:
        raise InvalidInput("qos", "must be Guaranteed, Burstable or BestEffort", qos)
    names = [*parts[qos.lower()], f"pod{uid}"]
    match driver:
        case "cgroupfs":
            return "/".join(names)
        case "systemd":
            return expand_slice("-".join(name.replace("-", "_") for name in names) + _SLICE).removeprefix("/")
        case _:
            raise InvalidInput("driver", "must be cgroupfs or systemd", driver)


def container_path(pod: str, container_id: str, driver: Literal["cgroupfs", "systemd"], runtime_prefix: str) -> str:
    """Return where a container lies in its pod; with systemd it is a scope named after the runtime."""
    if driver == "systemd":
        return f"{pod}/{runtime_prefix}-{container_id}.scope"
    return f"{pod}/{container_id}"


def cpu_mask_text(cpus: CpuSet, nr_cpus: int) -> str:
    """Return the hexadecimal mask in groups of 32 bits ("%*pb"), as wide as `nr_cpus` needs: "00,00000001"."""
    if nr_cpus < max(1, cpus.mask.bit_length()):
        raise InvalidInput("nr_cpus", f"must cover the set {cpus.format()!r}", nr_cpus)
    groups = []
    for low in range(0, nr_cpus, 32):
        width = -(-min(32, nr_cpus - low) // 4)
        groups.append(f"{(cpus.mask >> low) & 0xFFFFFFFF:0{width}x}")
    return ",".join(reversed(groups))


def _nearest(numerator: int, denominator: int) -> int:
    """Return the quotient of two non-negative numbers rounded to the nearest, halves up (DIV_ROUND_CLOSEST)."""
    return (numerator + denominator // 2) // denominator
