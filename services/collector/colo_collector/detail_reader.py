"""Reads the files of the workloads whose turn it is: their detail, and the times of their threads.

Threads are read where the workload's groups list them; a workload may have groups of its own below its group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from msgspec import Struct

from colo_collector.detail import DetailReading
from colo_collector.discover import Workload
from colo_collector.hierarchy import Hierarchy
from colo_collector.parse_detail import (
    MemoryEvents,
    MemorySplit,
    QuotaPeriods,
    parse_block_io,
    parse_memory_events,
    parse_memory_split,
    parse_numa_stat,
    parse_periods,
    parse_task_count,
)
from colo_collector.parse_proc import MachineCpuTicks
from colo_collector.parse_psi import parse_pressure
from colo_collector.parse_tasks import TaskTimes, parse_involuntary_switches, parse_schedstat, parse_task_ids
from colo_collector.stall import Resource
from colo_common.model.invalid import InvalidInput

__all__ = ["Batch", "DetailFiles", "DetailTexts", "Due", "detail_files", "gather_details", "read_details"]

TASKS_A_PERIOD: Final = 256
"""Threads whose times are read in one period; the workload that would exceed it is measured by its first threads."""
SWITCHES_A_PERIOD: Final = 64
"""Threads whose switches are read in one period: their file costs ten times as much."""
_GROUPS_MAX: Final = 32
_DEPTH_MAX: Final = 3
_RESOURCES: Final[tuple[Resource, ...]] = ("cpu", "memory", "io")
_Value = TypeVar("_Value")


class Batch(Protocol):
    """The texts of one batch of files, None for one that is missing, and the inodes of those that are there."""

    @property
    def texts(self) -> Mapping[str, str | None]: ...
    @property
    def inodes(self) -> Mapping[str, int]: ...
    @property
    def started_ns(self) -> int: ...


class DetailSource(Protocol):
    """Reads files and directories of the machine; a missing or refused one is None or empty."""

    def list_directories(self, path: str, limit: int = ...) -> tuple[str, ...]: ...
    def list_trees(self, paths: Sequence[str], *, depth: int, most: int) -> dict[str, tuple[str, ...]]: ...
    def read_all(self, paths: Sequence[str], *, keep: bool = ...) -> Batch: ...


class DetailFiles(Struct, frozen=True, kw_only=True):
    """The files of one workload's turn; "" where the machine lacks the controller. `directory` has its groups.

    `memory_stat` and `cpu_stat` come with the counters of the sample.
    """

    memory_stat: str = ""
    numa_stat: str = ""
    events: str = ""
    cpu_stat: str = ""
    tasks: str = ""
    io: str = ""
    pressure: tuple[tuple[Resource, str], ...] = ()
    directory: str = ""
    task_list: str = "tasks"

    def own(self) -> tuple[str, ...]:
        """Every file that is read for the turn alone, without those that the machine lacks."""
        named = (self.numa_stat, self.events, self.tasks, self.io)
        return tuple(path for path in (*named, *(path for _, path in self.pressure)) if path)


class Due(Struct, frozen=True, kw_only=True):
    """A workload whose turn it is, with its files."""

    workload: Workload
    files: DetailFiles


class DetailTexts(Struct, frozen=True, kw_only=True):
    """What was read for those whose turn it is: their files, the files of their threads, and the threads by workload."""

    due: tuple[Due, ...]
    batch: Batch
    times: Batch
    tasks: Mapping[str, Sequence[int]]
    faults: tuple[str, ...] = ()


def detail_files(hierarchy: Hierarchy, path: str) -> DetailFiles:
    """The files of the group at `path` below every controller.

    Pressure is of v2, also where only the processes' names are on v2 (hybrid); kernels with psi_v1=1 have it beside cpuacct.
    """

    def at(controller: str, v1_name: str, v2_name: str) -> str:
        mount = hierarchy.controller(controller)
        if mount is None:
            return ""
        return f"{mount.mount_point.rstrip('/')}{path}/{v1_name if mount.version == 'v1' else v2_name}"

    cpu = hierarchy.controller("cpu") or hierarchy.controller("cpuacct")
    acct = hierarchy.controller("cpuacct")
    root = hierarchy.unified or ("" if acct is None else acct.mount_point)
    return DetailFiles(
        memory_stat=at("memory", "memory.stat", "memory.stat"),
        numa_stat=at("memory", "memory.numa_stat", "memory.numa_stat"),
        events=at("memory", "memory.oom_control", "memory.events"),
        cpu_stat=at("cpu", "cpu.stat", "cpu.stat"),
        tasks=at("pids", "pids.current", "pids.current"),
        io=at("blkio", "blkio.throttle.io_service_bytes_recursive", "io.stat") or at("io", "", "io.stat"),
        pressure=tuple((name, f"{root.rstrip('/')}{path}/{name}.pressure") for name in _RESOURCES) if root else (),
        directory="" if cpu is None else f"{cpu.mount_point.rstrip('/')}{path}",
        task_list="tasks" if cpu is None or cpu.version == "v1" else "cgroup.threads",
    )


def gather_details(reader: DetailSource, due: Iterable[Due]) -> DetailTexts:
    """Read the files of every workload that is due. Parses no more than it takes to know the threads."""
    listed = tuple(due)
    faults: list[str] = []
    paths = [path for one in listed for path in one.files.own()]
    directories = [one.files.directory for one in listed if one.files.directory]
    trees = reader.list_trees(directories, depth=_DEPTH_MAX, most=_GROUPS_MAX)
    lists = {
        one.workload.name: [f"{group}/{one.files.task_list}" for group in trees.get(one.files.directory, ())]
        for one in listed
    }
    paths += [path for found in lists.values() for path in found]
    batch = reader.read_all(tuple(dict.fromkeys(paths)), keep=False)
    tasks = _share({name: _tasks(found, batch.texts, faults) for name, found in lists.items()})
    wanted = [f"/proc/{task}/schedstat" for found in tasks.values() for task in found]
    switched = {name: found[: SWITCHES_A_PERIOD // max(len(tasks), 1)] for name, found in tasks.items()}
    wanted += [f"/proc/{task}/status" for found in switched.values() for task in found]
    # Threads last and together: their shares need one moment more than the rest does.
    times = reader.read_all(wanted, keep=False) if wanted else batch
    return DetailTexts(due=listed, batch=batch, times=times, tasks=tasks, faults=tuple(faults))


def read_details(
    texts: DetailTexts,
    counters: Batch,
    throttled_us: Mapping[str, int],
    ticks: MachineCpuTicks | None,
    faults: list[str],
) -> dict[str, DetailReading]:
    """The reading of every workload that is due and has a throttled time in the sample of the same pass.

    `counters` has the files of that sample. A malformed file costs its values only; `faults` gets a sentence for each.
    """
    faults += texts.faults
    return {
        one.workload.name: _reading(one, texts, counters, throttled_us[one.workload.name], ticks, faults)
        for one in texts.due
        if one.workload.name in throttled_us
    }


def _tasks(paths: Iterable[str], texts: Mapping[str, str | None], faults: list[str]) -> list[int]:
    found: list[int] = []
    for path in paths:
        text = texts.get(path)
        if text is None:
            continue
        try:
            found += parse_task_ids(path, text)
        except InvalidInput as error:
            faults.append(str(error))
    return found


def _share(tasks: dict[str, list[int]]) -> dict[str, list[int]]:
    """At most TASKS_A_PERIOD in all: what a workload with few threads leaves goes to the others."""
    left = TASKS_A_PERIOD
    found: dict[str, list[int]] = {}
    waiting = sorted(tasks, key=lambda name: (len(tasks[name]), name))
    for index, name in enumerate(waiting):
        part = left // (len(waiting) - index)
        # In ascending id, so that the same threads are read in the next turn.
        found[name] = sorted(tasks[name])[:part]
        left -= len(found[name])
    return found


def _reading(
    one: Due,
    found: DetailTexts,
    counters: Batch,
    throttled_us: int,
    ticks: MachineCpuTicks | None,
    faults: list[str],
) -> DetailReading:
    files, name = one.files, one.workload.name

    def text_of(path: str) -> str | None:
        # Those of the sample first: most of the files are its.
        text = counters.texts.get(path)
        return found.batch.texts.get(path) if text is None else text

    times, tasks = found.times, found.tasks[name]

    def value(path: str, parse: Callable[[str, str], _Value], unknown: _Value) -> _Value:
        text = text_of(path) if path else None
        if not text:
            return unknown
        try:
            return parse(path, text)
        except InvalidInput as error:
            faults.append(f"{name}: {error}")
            return unknown

    pressure = []
    for resource, path in files.pressure:
        read = value(path, lambda at, text: parse_pressure(text, at), None)
        if read is not None:
            pressure.append((resource, read))
    count: int | None = None
    count = value(files.tasks, parse_task_count, count)
    io: tuple[int, int] | None = None
    io = value(files.io, parse_block_io, io)
    return DetailReading(
        at_ns=times.started_ns,
        identity=counters.inodes.get(files.cpu_stat, 0),
        memory=value(files.memory_stat, parse_memory_split, MemorySplit()),
        numa_bytes=value(files.numa_stat, parse_numa_stat, ()),
        events=value(files.events, parse_memory_events, MemoryEvents()),
        periods=value(files.cpu_stat, parse_periods, QuotaPeriods()),
        tasks=count,
        block_io=io,
        pressure=tuple(pressure),
        times=_times(tasks, times.texts),
        switches=_switches(tasks, times.texts),
        throttled_us=throttled_us,
        ticks=ticks,
    )


def _times(tasks: Iterable[int], texts: Mapping[str, str | None]) -> dict[int, TaskTimes]:
    """The times of the threads that are still there; a malformed file is that of a thread which ended."""
    found = {}
    for task in tasks:
        path = f"/proc/{task}/schedstat"
        text = texts.get(path)
        if text:
            try:
                found[task] = parse_schedstat(path, text)
            except InvalidInput:
                continue
    return found


def _switches(tasks: Iterable[int], texts: Mapping[str, str | None]) -> dict[int, int]:
    found = {}
    for task in tasks:
        path = f"/proc/{task}/status"
        text = texts.get(path)
        if text:
            try:
                count = parse_involuntary_switches(path, text)
            except InvalidInput:
                continue
            if count is not None:
                found[task] = count
    return found
