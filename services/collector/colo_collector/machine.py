"""Reads this machine: its topology, and one sample a call. Every call blocks, so the shell makes it in a thread."""

from __future__ import annotations

import os
import statistics
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct, structs

from colo_collector.attached_groups import SetAttachedGroups, attached_workloads, named_by_others
from colo_collector.bounded_files import BoundedReader
from colo_collector.cache_monitor import CacheMonitor
from colo_collector.capabilities import huge_pages_lacking
from colo_collector.detail_reader import DetailTexts
from colo_collector.device_rules import DeviceLabel, with_declared
from colo_collector.device_use import DeviceMonitor
from colo_collector.devices import (
    PCI_ROOT,
    KindRule,
    class_paths,
    device_addresses,
    device_links,
    device_paths,
    read_devices,
)
from colo_collector.discover import (
    CpusetFiles,
    Workload,
    allowed_by,
    batch_directory,
    batch_workloads,
    cpuset_files,
    online_directory,
    online_workloads,
    watched_group,
)
from colo_collector.files import FileReader, Gathered
from colo_collector.hierarchy import Hierarchy
from colo_collector.host_applications import SetHostApplications, declared_workloads
from colo_collector.kernel_groups import GroupsRead, read_groups
from colo_collector.kernel_probe import probe_kernel, sees_tier
from colo_collector.kubelet import pinned_cpus
from colo_collector.measure import Turned, measure
from colo_collector.memory_events import MemoryEventsRead
from colo_collector.node_detail import NODE_PATHS, NodeReading, node_detail_between, read_node
from colo_collector.pods import CONTAINER_ROOTS, Pod, container_workloads, pod_workloads, without_nested
from colo_collector.readings import PressureRaised, SampleRead, Skip, TopologyRead, Unreadable
from colo_collector.rules import fitting_rules, labelled_rules
from colo_collector.sample import STAT_PATH, Sample, WatchedGroup, read_sample, sample_paths
from colo_collector.topology import read_topology, topology_paths
from colo_collector.usage import Unknown
from colo_collector.usage_windows import UsageWindows
from colo_collector.workload_turns import WorkloadTurns
from colo_common.events.node import BusinessMetric, CacheUse, Capability, DeviceUse
from colo_common.model.constraints import Taint
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.node_rules import UNRULED, NodeRules
from colo_common.model.topology import Device, DevicePartition, NodeTopology
from colo_common.ports import Clock

__all__ = ["Observation", "Machine"]

_ONLINE_PATHS: Final = ("/sys/devices/system/cpu/online", "/sys/devices/system/node/online")
_TOPOLOGY_ROUNDS: Final = 4
_ATTRIBUTE_MAX: Final = 253
_MEMORY_EVENT: Final = "memory "
_PRESSURE: Final = "pressure "
_SPREAD_NS_MAX: Final = 20_000_000
"""The spread that a batch may always have: two percent of a second, three times what reading 250 groups takes."""
_SPREAD_FACTOR: Final = 2
_SPREADS_REMEMBERED: Final = 9
_YOUNG_PERIODS: Final = 3
"""Periods in which the cpuset of a new group is read every time: it is written after the group is made."""
_CPUSET_PERIODS: Final = 16
"""Periods in which the cpuset of each older group is read once: cpusets change seldom and cost two files a group."""


class Observation(Struct, frozen=True, kw_only=True):
    """The result of one reading of the machine. `topology_read` is None when the topology did not change.

    `faults` has one sentence for each file or group that could not be read; the sample, if any, lacks its values. `assumed` has one
    sentence for each value that the topology assumes. `spread_ns` is the time between the first and the last file of the sample.
    `event_files` are the files of which the kernel tells by itself when they change: "memory WORKLOAD" -> path and no trigger.
    """

    event: SampleRead | Unreadable
    topology_read: TopologyRead | None = None
    left_out: tuple[tuple[str, Unknown], ...] = ()
    faults: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    workloads: int = 0
    spread_ns: int = 0
    memory_events: tuple[MemoryEventsRead, ...] = ()
    event_files: Mapping[str, tuple[str, str]] = {}


class _Group(Struct, kw_only=True):
    """A watched workload, its files and its zones. `cpuset_reads` counts the readings of its cpuset."""

    workload: Workload
    watched: WatchedGroup
    cpuset: CpusetFiles
    zones: tuple[int, ...] = ()
    cpus: CpuSet = CpuSet()
    cpuset_reads: int = 0


class _Dear(Struct, frozen=True, kw_only=True):
    """What was read of a pass before its counters."""

    details: DetailTexts | None
    node: Gathered
    caches: tuple[CacheUse, ...]
    devices: tuple[DeviceUse, ...]


class Machine:
    """The machine below the reader's root. A lock serialises the calls; all state can be read again from the machine."""

    def __init__(
        self,
        reader: FileReader | BoundedReader,
        *,
        subtree: str,
        online: Sequence[Workload],
        host: Sequence[Workload] = (),
        labels: dict[str, str],
        clock: Clock,
        taints: Sequence[Taint] = (),
        rules: NodeRules = UNRULED,
        device_labels: Sequence[DeviceLabel] = (),
        gpu_partitions: Sequence[DevicePartition] = (),
        admits_online: bool = True,
        device_kinds: Sequence[KindRule] = (),
        attribute_paths: Mapping[str, str] = {},
        pod_roots: Sequence[str] = (),
        containers: bool = False,
        kubelet_state: str = "",
        user_hz: int | None = None,
        is_host_mounted: bool = False,
        lacks_core_scheduling: str | None = None,
    ) -> None:
        """`online` are the listed groups, `host` those of the setting for host applications. `is_host_mounted`: the reader's root
        is another than this process's. `lacks_core_scheduling`: "" where the kernel has it.
        """
        self._reader = reader
        self._subtree = subtree
        self._listed = tuple(online)
        self._host_of_setting = tuple(host)
        self._online = (*self._listed, *self._host_of_setting)
        self._declared: SetHostApplications | None = None
        self._left_out_hosts: tuple[str, ...] = ()
        self._attached: tuple[Workload, ...] = ()
        self._left_out_attached: tuple[str, ...] = ()
        self._labels = dict(labels)
        self._taints = tuple(taints)
        self._rules = rules
        self._device_labels = tuple(device_labels)
        self._gpu_partitions = tuple(gpu_partitions)
        self._admits_online = admits_online
        self._device_kinds = tuple(device_kinds)
        self._attribute_paths = dict(attribute_paths)
        self._pod_roots = tuple(pod_roots)
        self._has_containers = containers
        self._pods: Mapping[str, Pod] = {}
        self._business: Mapping[str, tuple[BusinessMetric, int]] = {}
        self._windows = UsageWindows()
        self._has_tier = False
        self._user_hz = user_hz or os.sysconf("SC_CLK_TCK")
        self._clock, self._turn = clock, threading.Lock()
        self._topology_read: TopologyRead | None = None
        self._delivered: TopologyRead | None = None
        self._assumed: tuple[str, ...] = ()
        self._probe_assumed: tuple[str, ...] = ()
        self._kubelet_state = kubelet_state
        self._pinned = CpuSet()
        self._moving_texts: tuple[str | None, ...] = ()
        self._memory_total_bytes = 0
        self._hierarchy = Hierarchy(version="none")
        self._capabilities: tuple[Capability, ...] | None = None
        self._groups: dict[str, _Group] = {}
        self._workloads: Mapping[str, Workload] = {}
        # The files of a sample, until groups or zones change.
        self._sample_paths: tuple[str, ...] | None = None
        self._previous: Sample | None = None
        self._cpuset_rounds = 0
        self._is_host_mounted, self._lacks_core_scheduling = is_host_mounted, lacks_core_scheduling
        self._spreads_ns: deque[int] = deque(maxlen=_SPREADS_REMEMBERED)
        self._turns = WorkloadTurns(self._user_hz)
        self._node_reading: NodeReading | None = None
        self._caches, self._device_use = CacheMonitor(), DeviceMonitor()
        self._network_path = "/proc/1/net/dev" if is_host_mounted else "/proc/net/dev"

    def observe(self) -> Observation:
        """Read every file once. Unreadable or malformed files of the machine give Unreadable; the call never raises for them."""
        with self._turn:
            try:
                observation = self._observe()
            except InvalidInput as error:
                observation = Observation(event=Unreadable(reason=Skip.UNREADABLE, detail=str(error)))
            except OSError as error:
                observation = Observation(
                    event=Unreadable(reason=Skip.UNREADABLE, detail=f"{type(error).__name__}: {error}")
                )
            if self._topology_read is self._delivered:
                return observation
            # Delivered even when the sample after it failed: the next call does not read the topology again.
            self._delivered = self._topology_read
            return structs.replace(observation, topology_read=self._topology_read, assumed=self._assumed)

    @property
    def hangs(self) -> int:
        """Reads that were given up since the start."""
        return self._reader.hangs if isinstance(self._reader, BoundedReader) else 0

    def named(self, names: Sequence[str]) -> tuple[PressureRaised | MemoryEventsRead, ...]:
        """What the kernel told of between two samples ("pressure cpu_some", "memory WORKLOAD"), as events. Reads little."""
        raised = [PressureRaised(signal=name.removeprefix(_PRESSURE)) for name in names if name.startswith(_PRESSURE)]
        workloads = [name.removeprefix(_MEMORY_EVENT) for name in names if name.startswith(_MEMORY_EVENT)]
        if not workloads:
            return tuple(raised)
        with self._turn:
            self._turns.read_events(self._reader, workloads, self._workloads)
            return (*raised, *self._turns.memory_events())

    def kernel_groups(self, request: str) -> GroupsRead:
        """Every control group with processes as the kernel has it now. An absurd file costs its group only."""
        with self._turn:
            if self._capabilities is None:
                self._probe()
            try:
                known = (*without_nested(self._online, self._attached), *self._attached)
                return read_groups(self._reader, self._hierarchy, self._subtree, known, request)
            except (InvalidInput, OSError) as error:
                return GroupsRead(request=request, groups=(), faults=(str(error),))

    def set_pods(self, pods: Mapping[str, Pod]) -> None:
        """Take what a kubelet says of the pods, by uid; the next observation uses it."""
        self._pods = pods

    def set_host_applications(self, declared: SetHostApplications) -> None:
        """Watch these host applications from the next observation on; the counters of those that stay go on."""
        self._declared = declared

    def set_attached_groups(self, attached: SetAttachedGroups) -> None:
        """Measure these groups as replicas from the next observation on, and as nothing else."""
        self._attached, self._left_out_attached = attached_workloads(attached.groups, self._subtree)

    def set_business(self, metrics: Mapping[str, BusinessMetric], at_ms: int) -> None:
        """Take what workloads say of themselves, by name or pod; `at_ms` is the monotonic time at which its ages were counted.

        Earlier metrics of other workloads stay as they are, and grow old.
        """
        self._business = {**self._business, **{name: (metric, at_ms) for name, metric in metrics.items()}}

    def close(self) -> None:
        """Close every file."""
        with self._turn:
            self._reader.close()

    # ------------------------------------------------------------ inside

    def _observe(self) -> Observation:
        if self._topology_read is None:
            self._refresh_topology()
        elif sees_tier(self._reader, self._hierarchy, self._subtree) != self._has_tier:
            self._capabilities = None
            self._refresh_topology()
        self._find_groups()
        faults: list[str] = []
        # What is dear comes first: between the counters and the publication nothing is read, so that the sample is young.
        self._read_cpusets(faults)
        dear = self._gather_dear(faults)
        gathered, at_ms = self._gather()
        if self._moving(gathered.texts) != self._moving_texts:
            # CPUs or zones came or went, or were pinned: the counters need the topology as it is now.
            self._refresh_topology()
            self._read_cpusets(faults)
            gathered, at_ms = self._gather()
        watched = [group.watched for group in self._groups.values()]
        zones = [zone.zone for zone in self._topology().zones]
        current = read_sample(gathered.texts, gathered.inodes, watched, zones, gathered.started_ns)
        if self._memory_moved(current.memory_total_bytes):
            self._refresh_topology()
        faults += [f"{path}: {os.strerror(number)}" for path, number in sorted(gathered.refused.items())]
        faults += [f"{path}: is larger than can be read" for path in gathered.cut]
        faults += current.faults
        faults += self._missing(current)
        faults += self._left_out_hosts
        faults += self._left_out_attached
        turned = self._take_turns(dear, current, gathered, faults)
        measurement = measure(
            self._previous,
            current,
            at_ms=at_ms,
            topology=self._topology(),
            workloads=self._workloads,
            zones_of={name: group.zones for name, group in self._groups.items()},
            user_hz=self._user_hz,
            turned=turned,
        )
        self._previous = current
        event = measurement.event
        if isinstance(event, SampleRead):
            event = structs.replace(event, windows=self._windows.take(event))
        return Observation(
            event=event,
            left_out=measurement.left_out,
            faults=tuple(faults),
            workloads=len(current.reading.groups),
            spread_ns=gathered.spread_ns,
            memory_events=self._turns.memory_events(),
            event_files={f"{_MEMORY_EVENT}{name}": (path, "") for name, path in self._turns.event_files().items()},
        )

    def _gather(self) -> tuple[Gathered, int]:
        """One batch of the sample's files, and the service's time at its start.

        A batch that took much longer than this machine's batches do is read again, once: its counters are of different moments.
        """
        paths = self._sample_paths
        if paths is None:
            zones = [zone.zone for zone in self._topology().zones]
            paths = (*sample_paths((group.watched for group in self._groups.values()), zones), *_ONLINE_PATHS)
            self._sample_paths = paths
        at_ms = self._clock.now_ms()
        gathered = self._reader.read_all(paths)
        usual_ns = int(statistics.median(self._spreads_ns)) if self._spreads_ns else 0
        self._spreads_ns.append(gathered.spread_ns)
        if gathered.spread_ns > max(_SPREAD_NS_MAX, _SPREAD_FACTOR * usual_ns):
            at_ms = self._clock.now_ms()
            gathered = self._reader.read_all(paths)
        return gathered, at_ms

    def _gather_dear(self, faults: list[str]) -> _Dear:
        """Read what is too dear for every period, of those whose turn it is, and the files of the node beside its counters."""
        details = self._turns.gather(self._reader, self._hierarchy, self._workloads)
        node = self._reader.read_all((*NODE_PATHS, self._network_path), keep=False)
        has_monitors = any(one.name == "resctrl-monitor" and one.present for one in self._capabilities or ())
        caches = self._caches.take(self._reader, faults) if has_monitors else ()
        return _Dear(details=details, node=node, caches=caches, devices=self._device_use.take(self._reader, faults))

    def _take_turns(self, dear: _Dear, current: Sample, gathered: Gathered, faults: list[str]) -> Turned:
        """What was gathered in the pass of this sample, joined with its counters."""
        details = self._turns.take(
            dear.details,
            self._workloads,
            current,
            gathered,
            allowed=lambda name: (self._groups[name].cpus, self._groups[name].zones),
            faults=faults,
        )
        node = read_node(
            {**dear.node.texts, STAT_PATH: gathered.texts.get(STAT_PATH)},
            dear.node.cut,
            faults,
            network=self._network_path,
        )
        detail = node_detail_between(self._node_reading, node, dear.caches, dear.devices)
        self._node_reading = node
        return Turned(
            details=details, stalls=self._turns.stalls(current.reading.at_ns), node=detail, business=self._business
        )

    def _refresh_topology(self) -> None:
        """Read the topology. Raises InvalidInput, and keeps the last topology, when its files contradict each other."""
        texts: dict[str, str | None] = {}
        for _ in range(_TOPOLOGY_ROUNDS):
            wanted = topology_paths(texts)
            if not wanted:
                break
            texts.update(self._reader.read_all(wanted, keep=False).texts)
        found = read_topology(texts)
        assumed = list(found.assumed)
        if self._capabilities is None:
            self._probe()
        assumed += self._probe_assumed
        topology = self._limited(found.topology, assumed)
        topology = structs.replace(
            topology, devices=self._devices(topology, assumed), attributes=self._attributes(assumed)
        )
        topology = with_declared(topology, self._device_labels, self._gpu_partitions, assumed)
        self._moving_texts = self._moving(texts)
        if self._kubelet_state:
            self._pin(self._moving_texts[-1], assumed)
        rules = labelled_rules(fitting_rules(self._rules, topology, assumed, self._pinned), self._labels, assumed)
        self._memory_total_bytes = 0
        topology_read = TopologyRead(
            topology=topology,
            capabilities=self._capabilities or (),
            labels=self._labels,
            taints=self._taints,
            rules=rules,
        )
        if topology_read != self._topology_read:
            self._topology_read = topology_read
            self._assumed = tuple(assumed)
            self._sample_paths = None
        for group in self._groups.values():
            # The zones of every group follow from the topology and must be read again.
            group.cpuset_reads = 0

    def _moving(self, texts: Mapping[str, str | None]) -> tuple[str | None, ...]:
        """The texts that may change while the machine runs. The kubelet replaces its state file, so that file is opened again."""
        moving = tuple(texts.get(path) for path in _ONLINE_PATHS)
        if not self._kubelet_state:
            return moving
        return (*moving, self._reader.read_all((self._kubelet_state,), keep=False).texts.get(self._kubelet_state))

    def _pin(self, text: str | None, assumed: list[str]) -> None:
        """Update the CPUs that the kubelet pinned; while its file cannot be read they stay as they were."""
        try:
            self._pinned = pinned_cpus("" if text is None else text)
        except InvalidInput as error:
            kept = f"; the CPUs {self._pinned} stay pinned" if self._pinned else "; no CPU counts as pinned"
            assumed.append(f"{error.field} {self._kubelet_state}: {error.rule}{kept}")

    def _limited(self, topology: NodeTopology, assumed: list[str]) -> NodeTopology:
        """The topology, without huge pages where no executor can limit them: others could take the pages of a share."""
        lacking = huge_pages_lacking(self._hierarchy)
        if not lacking or not any(zone.huge_pages for zone in topology.zones):
            return topology
        assumed.append(f"{lacking}; huge pages are left out")
        zones = tuple(structs.replace(zone, huge_pages=()) for zone in topology.zones)
        return structs.replace(topology, zones=zones)

    def _devices(self, topology: NodeTopology, refused: list[str]) -> tuple[Device, ...]:
        """The devices of the PCI bus; a machine without one has none."""
        try:
            addresses = self._reader.list_names(PCI_ROOT)
        except InvalidInput as error:
            refused.append(f"{error}; there are no devices")
            return ()
        texts = self._reader.read_all(class_paths(addresses), keep=False).texts
        texts |= self._reader.read_all(device_paths(texts, self._device_kinds), keep=False).texts
        self._device_use.set_devices(device_addresses(texts, self._device_kinds))
        links = {path: self._reader.link(path) for path in device_links(texts, self._device_kinds)}
        return read_devices(texts, links, [zone.zone for zone in topology.zones], refused, self._device_kinds)

    def _attributes(self, assumed: list[str]) -> tuple[tuple[str, str], ...]:
        """The operator's attributes: the first line of a file, or the names in a directory; what is not there is left out."""
        found = []
        for name, path in sorted(self._attribute_paths.items()):
            names = self._reader.list_names(path)
            text = ",".join(names) if names else (self._reader.read(path) or "").strip().partition("\n")[0]
            if not text:
                assumed.append(f"attribute_paths.{name}: {path} is missing or empty; it is left out")
                continue
            found.append((name, text[:_ATTRIBUTE_MAX]))
        return tuple(found)

    def _probe(self) -> None:
        """Read the hierarchy and the capabilities: at the start, and when an executor made or removed its groups."""
        found = probe_kernel(
            self._reader,
            is_root=os.geteuid() == 0,
            subtree=self._subtree,
            admits_online=self._admits_online,
            is_host_mounted=self._is_host_mounted,
            lacks_core_scheduling=self._lacks_core_scheduling,
        )
        self._hierarchy, self._capabilities, self._has_tier = found.hierarchy, found.capabilities, found.has_tier
        self._probe_assumed = found.assumed

    def _take_declared(self) -> None:
        """Take the host applications that were declared since the last observation."""
        declared, self._declared = self._declared, None
        if declared is None:
            return
        host, self._left_out_hosts = self._host_of_setting, ()
        if declared.applications is not None:
            host, self._left_out_hosts = declared_workloads(declared, self._subtree, self._listed)
        self._online = (*self._listed, *host)

    def _find_groups(self) -> None:
        """Bring the watched groups up to date; the files of deleted groups are closed."""
        self._take_declared()
        batch = batch_directory(self._hierarchy, self._subtree)
        online = online_directory(self._hierarchy, self._subtree)
        roots = [*self._pod_roots, *(CONTAINER_ROOTS if self._has_containers else ())]
        # In one question to the reading thread: each costs two turns of the scheduler.
        listed = self._reader.list_each([path for path in (batch, online, *map(self._accounted, roots)) if path])
        replicas = (
            *batch_workloads(listed.get(batch, ()), self._subtree),
            *online_workloads(listed.get(online, ()), self._subtree),
        )
        others = (*self._online, *self._of_others(listed))
        attached = named_by_others(self._attached, others)
        wanted = {one.name: one for one in (*replicas, *without_nested(others, attached), *attached)}
        self._workloads = wanted
        for name in [name for name in self._groups if name not in wanted]:
            self._reader.forget(self._groups.pop(name).watched.files.sampled())
            self._sample_paths = None
        for name, workload in wanted.items():
            if name in self._groups and self._groups[name].workload.path == workload.path:
                # What a kubelet says of a pod may change; its counters go on.
                self._groups[name].workload = workload
            else:
                self._sample_paths = None
                self._groups[name] = _Group(
                    workload=workload,
                    watched=watched_group(self._hierarchy, workload),
                    cpuset=cpuset_files(self._hierarchy, workload),
                )

    def _accounted(self, path: str) -> str:
        """The directory of a group under the controller that accounts CPU, "" without one."""
        mount = self._hierarchy.controller("cpuacct")
        return "" if mount is None else f"{mount.mount_point.rstrip('/')}{path}"

    def _of_others(self, listed: Mapping[str, Sequence[str]]) -> tuple[Workload, ...]:
        """Pods and containers that colo did not start, without those that the operator listed or that lie in listed groups.

        `listed` are the directories that were listed already.
        """

        def children(path: str) -> Sequence[str]:
            directory = self._accounted(path)
            known = listed.get(directory) if directory else ()
            return self._reader.list_directories(directory) if known is None else known

        found = pod_workloads(children, self._pod_roots, self._pods)
        if self._has_containers:
            found += container_workloads(children)
        return without_nested(found, self._online)

    def _read_cpusets(self, faults: list[str]) -> None:
        """Read the zones of new groups, and of the older groups whose turn it is."""
        self._cpuset_rounds += 1
        topology = self._topology()
        due = [
            group
            for index, group in enumerate(self._groups.values())
            if group.cpuset_reads < _YOUNG_PERIODS or not (index + self._cpuset_rounds) % _CPUSET_PERIODS
        ]
        paths = [path for group in due for path in (group.cpuset.cpus, group.cpuset.mems) if path]
        texts = self._reader.read_all(paths, keep=False).texts if paths else {}
        for group in due:
            if not (group.cpuset.cpus or group.cpuset.mems):
                continue
            group.cpuset_reads += 1
            try:
                group.cpus, group.zones = allowed_by(topology, group.cpuset, texts)
            except InvalidInput as error:
                faults.append(f"{group.workload.name}: {error}")

    def _missing(self, current: Sample) -> list[str]:
        """A sentence for each online group that is not on the machine."""
        named = {fault.partition(":")[0] for fault in current.faults}
        return [
            f"{one.name}: there is no control group {one.path}"
            for one in without_nested(self._online, self._attached)
            if one.name not in current.workload_memory_bytes and one.name not in named
        ]

    def _memory_moved(self, total_bytes: int) -> bool:
        """Whether memory changed by 1 % or more since the topology was read: hot-plugged, not ballooned."""
        if self._memory_total_bytes == 0:
            self._memory_total_bytes = total_bytes
        return abs(total_bytes - self._memory_total_bytes) * 100 >= self._memory_total_bytes > 0

    def _topology(self) -> NodeTopology:
        if self._topology_read is None:
            raise InvalidInput("topology", "must have been read before a sample", None)
        return self._topology_read.topology
