"""What resctrl can do on a machine (Intel, AMD, Arm MPAM), and what its groups use of caches and memory bandwidth."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from colo_collector.kernel_text import unsigned, where
from colo_collector.parse_proc import parse_cpuinfo
from colo_common.events.node import CacheUse, Capability
from colo_common.model.invalid import InvalidInput

__all__ = [
    "RESCTRL_FILES",
    "RESCTRL_ROOT",
    "MonitorFile",
    "MonitorReading",
    "cache_use_between",
    "monitor_files",
    "read_monitors",
    "resctrl_capabilities",
]

RESCTRL_ROOT: Final = "/sys/fs/resctrl"
_CACHES: Final = ("L3", "L3CODE", "L2", "L2CODE")
_CACHE_FILES: Final = ("cbm_mask", "min_cbm_bits", "num_closids", "shareable_bits", "sparse_masks")
_BANDWIDTH_FILES: Final = ("min_bandwidth", "bandwidth_gran", "delay_linear", "num_closids")
RESCTRL_FILES: Final = (
    *(f"{cache}/{name}" for cache in _CACHES for name in _CACHE_FILES),
    *(f"MB/{name}" for name in _BANDWIDTH_FILES),
    "L3_MON/mon_features",
    "L3_MON/num_rmids",
)
"""The files below `info` that say what there is."""

_DOMAIN: Final = re.compile(r"mon_L3_([0-9]{1,9})", re.ASCII)
_COUNTERS: Final = ("llc_occupancy", "mbm_total_bytes", "mbm_local_bytes")
_NO_ANSWER: Final = ("Error", "Unavailable", "Unassigned")
_AMD: Final = "AuthenticAMD"
_X86: Final = ("GenuineIntel", _AMD, "HygonGenuine")
_NS_PER_S: Final = 1_000_000_000


def resctrl_capabilities(texts: Mapping[str, str | None], mounts: str) -> tuple[Capability, ...]:
    """The rows of the matrix about resctrl.

    A width, a unit or a limit that the kernel does not publish is left out of the detail.
    """
    names = ("resctrl-l3", "resctrl-mb", "resctrl-monitor", "resctrl-l2", "resctrl-cdp", "resctrl-mpam")
    lacking = ""
    if "resctrl" not in (texts.get("/proc/filesystems") or "").split():
        lacking = "kernel lacks resctrl (or the CPU lacks it)"
    elif not any(line.split(" ")[2:3] == ["resctrl"] for line in mounts.split("\n")):
        lacking = f"resctrl is not mounted (mount -t resctrl resctrl {RESCTRL_ROOT})"
    if lacking:
        return tuple(_skipped(name, lacking) for name in names)
    has_cdp = _info(texts, "L3CODE/cbm_mask") is not None or _info(texts, "L2CODE/cbm_mask") is not None
    vendor, _ = parse_cpuinfo(texts.get("/proc/cpuinfo") or "")
    return (
        _cache(texts, names[0], "L3"),
        _bandwidth(texts, names[1], vendor),
        _monitors(texts, names[2]),
        _cache(texts, names[3], "L2"),
        _present(names[4], "code and data have masks of their own")
        if has_cdp
        else _skipped(names[4], "not mounted with cdp"),
        _present(names[5], f"Arm MPAM, implementer {vendor or '?'}; domain ids may have gaps")
        if vendor not in _X86
        else _skipped(names[5], "the CPU is no Arm"),
    )


def _info(texts: Mapping[str, str | None], name: str) -> str | None:
    text = texts.get(f"{RESCTRL_ROOT}/info/{name}")
    return None if text is None else text.strip()


def _cache(texts: Mapping[str, str | None], name: str, level: str) -> Capability:
    kind = level if _info(texts, f"{level}/cbm_mask") is not None else f"{level}CODE"
    mask = _info(texts, f"{kind}/cbm_mask")
    if mask is None:
        return _skipped(name, f"CPU lacks {level} allocation")
    parts = [f"mask {mask}"]
    for file, text in (
        ("min_cbm_bits", "at least {} bits"),
        ("num_closids", "{} closids"),
        ("shareable_bits", "shared with devices {}"),
    ):
        value = _info(texts, f"{kind}/{file}")
        if value:
            parts.append(text.format(value))
    if _info(texts, f"{kind}/sparse_masks") == "1":
        parts.append("masks may have gaps")
    return _present(name, ", ".join(parts))


def _bandwidth(texts: Mapping[str, str | None], name: str, vendor: str) -> Capability:
    minimum = _info(texts, "MB/min_bandwidth")
    if minimum is None:
        return _skipped(name, "CPU lacks memory bandwidth allocation")
    unit = "units of 1/8 GB/s, absolute" if vendor == _AMD else "percent"
    parts = [f"at least {minimum}", unit]
    gran, linear, closids = (_info(texts, f"MB/{file}") for file in ("bandwidth_gran", "delay_linear", "num_closids"))
    parts += [f"steps of {gran}"] if gran else []
    parts += ["not linear"] if linear == "0" else []
    parts += [f"{closids} closids"] if closids else []
    return _present(name, ", ".join(parts))


def _monitors(texts: Mapping[str, str | None], name: str) -> Capability:
    features = _info(texts, "L3_MON/mon_features")
    if features is None:
        return _skipped(name, "CPU lacks L3 monitoring")
    rmids = _info(texts, "L3_MON/num_rmids")
    return _present(name, " ".join(features.split()) + (f", {rmids} groups" if rmids else ""))


def _present(name: str, detail: str) -> Capability:
    return Capability(name=name, present=True, detail=detail)


def _skipped(name: str, lacking: str) -> Capability:
    return Capability(name=name, present=False, detail=f"skipped: {lacking}")


# ------------------------------------------------------------ monitoring


class MonitorFile(Struct, frozen=True, kw_only=True):
    """A counter of one group in one cache domain; `group` is the path below the root, "" the default group."""

    group: str
    domain: int
    counter: str
    path: str


class MonitorReading(Struct, frozen=True, kw_only=True):
    """The counters of one pass: by group, domain and counter; those that the hardware did not answer are left out."""

    at_ns: int
    values: Mapping[tuple[str, int, str], int]


def monitor_files(group: str, directories: Sequence[str]) -> tuple[MonitorFile, ...]:
    """The files of a group whose `mon_data` has these directories (mon_L3_00); others are left out."""
    base = f"{RESCTRL_ROOT}/{group}" if group else RESCTRL_ROOT
    found = []
    for directory in directories:
        match = _DOMAIN.fullmatch(directory)
        if match is not None:
            found += [
                MonitorFile(
                    group=group,
                    domain=int(match[1]),
                    counter=counter,
                    path=f"{base}/mon_data/{directory}/{counter}",
                )
                for counter in _COUNTERS
            ]
    return tuple(found)


def read_monitors(
    files: Sequence[MonitorFile], texts: Mapping[str, str | None], at_ns: int, faults: list[str]
) -> MonitorReading:
    """The counters of the texts. "Unavailable", "Error" and "Unassigned" are answers of the kernel, not faults."""
    values: dict[tuple[str, int, str], int] = {}
    for file in files:
        text = texts.get(file.path)
        if not text or text.strip() in _NO_ANSWER:
            continue
        try:
            values[file.group, file.domain, file.counter] = unsigned(text.strip(), where(file.path, 1))
        except InvalidInput as error:
            faults.append(str(error))
    return MonitorReading(at_ns=at_ns, values=values)


def cache_use_between(previous: MonitorReading | None, now: MonitorReading) -> tuple[CacheUse, ...]:
    """Occupancy now and bandwidth over the interval, rounded down, by group and domain; a counter that went back is unknown."""
    span_ns = 0 if previous is None else now.at_ns - previous.at_ns

    def rate(group: str, domain: int, counter: str) -> int | None:
        if previous is None or span_ns <= 0:
            return None
        before, value = previous.values.get((group, domain, counter)), now.values.get((group, domain, counter))
        if before is None or value is None or value < before:
            return None
        return (value - before) * _NS_PER_S // span_ns

    return tuple(
        CacheUse(
            group=group,
            domain=domain,
            llc_bytes=now.values.get((group, domain, "llc_occupancy")),
            total_bytes_per_s=rate(group, domain, "mbm_total_bytes"),
            local_bytes_per_s=rate(group, domain, "mbm_local_bytes"),
        )
        for group, domain in sorted({(group, domain) for group, domain, _ in now.values})
    )
