"""One coherent sample: the files that it needs, and their texts as counters and memory.

A malformed workload file removes that workload only from the sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from colo_collector.parse_cgroup import GroupFiles, parse_cpu_usage_ns, parse_group_memory, parse_throttled_us
from colo_collector.parse_proc import Meminfo, parse_boot_id, parse_meminfo, parse_stat, parse_zone_meminfo
from colo_collector.parse_psi import Pressure, parse_pressure
from colo_collector.stall import Resource
from colo_collector.topology import zone_meminfo_path
from colo_collector.usage import GroupCounters, MachineReading
from colo_common.model.invalid import InvalidInput

__all__ = ["Sample", "WatchedGroup", "read_sample", "sample_paths"]

BOOT_ID_PATH: Final = "/proc/sys/kernel/random/boot_id"
STAT_PATH: Final = "/proc/stat"
MEMINFO_PATH: Final = "/proc/meminfo"
PRESSURE_PATHS: Final[tuple[tuple[Resource, str], ...]] = (
    ("cpu", "/proc/pressure/cpu"),
    ("memory", "/proc/pressure/memory"),
    ("io", "/proc/pressure/io"),
)


class WatchedGroup(Struct, frozen=True, kw_only=True):
    """A workload and the files of its counters."""

    workload: str
    files: GroupFiles


class Sample(Struct, frozen=True, kw_only=True):
    """The values of one batch of files. A workload without a group is in neither `reading.groups` nor `workload_memory_bytes`.

    `zone_memory_used_bytes` has (zone, bytes) for every zone whose file exists; a single zone has the machine's value. `pressure`
    has the resources whose file exists. `faults` has one sentence for each malformed workload or pressure file, which is left out.
    """

    reading: MachineReading
    memory_used_bytes: int
    memory_total_bytes: int
    zone_memory_used_bytes: tuple[tuple[int, int], ...]
    workload_memory_bytes: dict[str, int]
    pressure: tuple[tuple[Resource, Pressure], ...] = ()
    faults: tuple[str, ...] = ()


def sample_paths(groups: Iterable[WatchedGroup], zones: Iterable[int]) -> tuple[str, ...]:
    """Every file of one sample: CPU counters first and close together, memory after them."""
    watched = tuple(groups)
    paths = [STAT_PATH]
    paths += [path for group in watched for path in _cpu_files(group.files) if path]
    paths += [path for _, path in PRESSURE_PATHS]
    paths += [MEMINFO_PATH, BOOT_ID_PATH]
    ids = tuple(zones)
    # A single zone has the value of the machine, so that the two numbers cannot disagree.
    paths += [zone_meminfo_path(zone) for zone in ids] if len(ids) > 1 else []
    paths += [path for group in watched for path in (group.files.memory_usage, group.files.memory_stat) if path]
    return tuple(dict.fromkeys(paths))


def read_sample(
    texts: Mapping[str, str | None],
    inodes: Mapping[str, int],
    groups: Iterable[WatchedGroup],
    zones: Iterable[int],
    at_ns: int,
) -> Sample:
    """The texts of sample_paths as counters. `at_ns` is the monotonic time at which the batch began.

    Raises InvalidInput when a file about the machine itself is missing or malformed: then there is no sample. A group without a CPU
    counter, or without a memory file although the controller is mounted, counts as removed; without the controller memory is 0.
    """
    counters: list[GroupCounters] = []
    memory_bytes: dict[str, int] = {}
    faults: list[str] = []
    for group in groups:
        try:
            read = _group(group, texts, inodes, faults)
        except InvalidInput as error:
            faults.append(f"{group.workload}: {error}")
            continue
        if read is not None:
            counters.append(read[0])
            memory_bytes[group.workload] = read[1]
    pressure = _pressure(texts, faults)
    meminfo = parse_meminfo(_needed(texts, MEMINFO_PATH))
    reading = MachineReading(
        at_ns=at_ns,
        boot_id=parse_boot_id(_needed(texts, BOOT_ID_PATH)),
        ticks=parse_stat(_needed(texts, STAT_PATH)),
        groups=tuple(counters),
    )
    return Sample(
        reading=reading,
        memory_used_bytes=meminfo.used_bytes,
        memory_total_bytes=meminfo.total_bytes,
        zone_memory_used_bytes=_zone_memory(texts, tuple(zones), meminfo),
        workload_memory_bytes=memory_bytes,
        pressure=pressure,
        faults=tuple(faults),
    )


def _cpu_files(files: GroupFiles) -> tuple[str, ...]:
    return (files.cpu_usage, files.cpu_stat, files.cpu_pressure)


def _pressure(texts: Mapping[str, str | None], faults: list[str]) -> tuple[tuple[Resource, Pressure], ...]:
    found: list[tuple[Resource, Pressure]] = []
    for resource, path in PRESSURE_PATHS:
        text = texts.get(path)
        if text is None:
            continue
        try:
            found.append((resource, parse_pressure(text, path)))
        except InvalidInput as error:
            faults.append(str(error))
    return tuple(found)


def _zone_memory(
    texts: Mapping[str, str | None], zones: tuple[int, ...], machine: Meminfo
) -> tuple[tuple[int, int], ...]:
    if len(zones) == 1:
        return ((zones[0], machine.used_bytes),)
    read = ((zone, zone_meminfo_path(zone)) for zone in zones)
    there = ((zone, path, texts.get(path)) for zone, path in read)
    return tuple(
        (zone, parse_zone_meminfo(zone, text, path).used_bytes) for zone, path, text in there if text is not None
    )


def _needed(texts: Mapping[str, str | None], path: str) -> str:
    text = texts.get(path)
    if text is None:
        raise InvalidInput(path, "must be readable", None)
    return text


def _group(
    group: WatchedGroup, texts: Mapping[str, str | None], inodes: Mapping[str, int], faults: list[str]
) -> tuple[GroupCounters, int] | None:
    """The group's counters and working set, or None when the group was removed."""
    files = group.files
    usage = texts.get(files.cpu_usage)
    if usage is None:
        return None
    # A group may be removed between two files of one batch; a group with one file of two counts as removed.
    memory = texts.get(files.memory_usage) if files.memory_usage else "0"
    if memory is None:
        return None
    stat = texts.get(files.cpu_stat)
    counters = GroupCounters(
        workload=group.workload,
        cpu_usage_ns=parse_cpu_usage_ns(files.cpu_usage, usage),
        throttled_us=0 if stat is None else parse_throttled_us(files.cpu_stat, stat),
        identity=inodes.get(files.cpu_usage, 0),
        stalled_us=_stalled_us(group, texts, faults),
    )
    read = parse_group_memory(files.memory_usage, memory, files.memory_stat, texts.get(files.memory_stat))
    return counters, read.working_set_bytes


def _stalled_us(group: WatchedGroup, texts: Mapping[str, str | None], faults: list[str]) -> int | None:
    """The time for which some thread of the group waited for a CPU since it was created; None where the kernel does not say."""
    path = group.files.cpu_pressure
    text = texts.get(path) if path else None
    if text is None:
        return None
    try:
        some = parse_pressure(text, path).some
    except InvalidInput as error:
        faults.append(f"{group.workload}: {error}")
        return None
    return None if some is None else some.total_us
