"""Turns the texts of /sys into a NodeTopology: sockets, zones, cores, threads and last-level caches of the online CPUs.

Two pure steps: `topology_paths` names the files to read next, given the texts so far, until it returns nothing;
`read_topology` turns the texts into values. A missing file is None or absent in the mapping.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from colo_collector.caches import CPU_ROOT, Texts, cache_paths, l3_domains, shared_caches
from colo_collector.huge_pages import huge_page_paths, huge_pages_of_zone
from colo_collector.kernel_text import cpu_list, unsigned, where
from colo_collector.parse_proc import parse_cpuinfo, parse_meminfo, parse_stat, parse_zone_meminfo
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.topology import Cpu, NodeTopology, Zone

__all__ = ["MachineTopology", "read_topology", "topology_paths", "zone_meminfo_path"]

NODE_ROOT: Final = "/sys/devices/system/node"
ROOT_PATHS: Final = (
    f"{CPU_ROOT}/online",
    f"{CPU_ROOT}/present",
    f"{CPU_ROOT}/isolated",
    f"{CPU_ROOT}/nohz_full",
    "/proc/cpuinfo",
    f"{NODE_ROOT}/online",
    "/proc/meminfo",
    "/proc/stat",
)


_CPU_FILES: Final = ("physical_package_id", "thread_siblings_list", "die_id")


class MachineTopology(Struct, frozen=True, kw_only=True):
    """The machine as /sys describes it.

    `assumed` has a sentence for each file that /sys lacks and the value assumed in its place.
    """

    topology: NodeTopology
    assumed: tuple[str, ...]


def topology_paths(texts: Texts) -> tuple[str, ...]:
    """The paths still to read for a topology, given the texts so far; () when the mapping has every path.

    The first answer is the lists of CPUs and zones; with their texts the second answer is all other files. The mapping must keep
    the texts that were read, with None for a missing file. Raises InvalidInput for a malformed list.
    """
    wanted = [path for path in ROOT_PATHS if path not in texts]
    if wanted:
        return tuple(wanted)
    for cpu in _online_cpus(texts, []):
        wanted += [f"{CPU_ROOT}/cpu{cpu}/topology/{name}" for name in _CPU_FILES]
        wanted += cache_paths(cpu)
    zones = tuple(_online_zones(texts))
    wanted += huge_page_paths(zones)
    for zone in zones:
        wanted += [f"{NODE_ROOT}/node{zone}/{name}" for name in ("cpulist", "distance", "meminfo")]
    return tuple(path for path in wanted if path not in texts)


def zone_meminfo_path(zone: int) -> str:
    """The file with the memory of a zone."""
    return f"{NODE_ROOT}/node{zone}/meminfo"


def read_topology(texts: Texts) -> MachineTopology:
    """The topology of the online CPUs.

    - Socket and zone ids are the kernel's. Core ids are ranks (0, 1, ...) of the cores by their lowest CPU, because the
      kernel's are unique only in a socket. A CPU without siblings file is a core of its own.
    - Without /sys/devices/system/node the machine is one zone, 0, with all memory of /proc/meminfo.
    - The memory of a single zone is MemTotal of /proc/meminfo; each of several zones has its own meminfo file.
    - An L3 id is the kernel's cache id if every domain has one and no two share it, otherwise the rank by lowest CPU.
      CPUs without a published L3 share one domain a zone.
    - A zone that has memory only is kept, with no CPUs and the socket of the nearest zone that has CPUs.

    Raises InvalidInput, which names the file and the rule, for malformed texts and for files that contradict each other.
    """
    assumed: list[str] = []
    online = _online_cpus(texts, assumed)
    sockets = {cpu: _socket(cpu, texts) for cpu in online}
    cores = _ranks(online, {cpu: _siblings(cpu, online, texts) for cpu in online})
    zones = _zones(online, sockets, texts, assumed)
    zone_of = {cpu: zone.zone for zone in zones for cpu in CpuSet.parse(zone.cpus)}
    domains = l3_domains(online, zone_of, texts, assumed)
    l3_of = {cpu: domain.l3 for domain in domains for cpu in CpuSet.parse(domain.cpus)}
    cpus = tuple(
        Cpu(
            cpu=cpu,
            core=cores[cpu],
            socket=sockets[cpu],
            zone=zone_of[cpu],
            l3=l3_of[cpu],
            die=_die(cpu, texts, assumed),
        )
        for cpu in online
    )
    present = texts.get(f"{CPU_ROOT}/present")
    offline = CpuSet() if present is None else cpu_list(f"{CPU_ROOT}/present", present) - online
    vendor, model = parse_cpuinfo(texts.get("/proc/cpuinfo") or "")
    topology = NodeTopology(
        zones=zones,
        cpus=cpus,
        offline=offline.format(),
        isolated=_kept(f"{CPU_ROOT}/isolated", texts, assumed),
        nohz_full=_kept(f"{CPU_ROOT}/nohz_full", texts, assumed),
        caches=shared_caches(online, texts, assumed),
        cpu_vendor=vendor,
        cpu_model=model,
    )
    topology.validate()
    return MachineTopology(topology=topology, assumed=tuple(dict.fromkeys(assumed)))


def _kept(path: str, texts: Texts, assumed: list[str]) -> str:
    """A list of CPUs that the kernel's command line set apart; "" without one, which the kernel also writes as "(null)"."""
    text = (texts.get(path) or "").strip()
    if text in ("", "(null)"):
        return ""
    try:
        return cpu_list(path, text).format()
    except InvalidInput as error:
        assumed.append(f"{error}; no CPU counts as such")
        return ""


def _die(cpu: int, texts: Texts, assumed: list[str]) -> int:
    """The die of a CPU in its socket; 0 where the kernel does not say, which it also writes as -1."""
    path = f"{CPU_ROOT}/cpu{cpu}/topology/die_id"
    text = (texts.get(path) or "").strip()
    if text in ("", "-1"):
        return 0
    try:
        return unsigned(text, where(path, 1))
    except InvalidInput as error:
        assumed.append(f"{error}; the CPU counts to die 0")
        return 0


def _online_cpus(texts: Texts, assumed: list[str]) -> CpuSet:
    path = f"{CPU_ROOT}/online"
    text = texts.get(path)
    if text is None:
        stat = texts.get("/proc/stat")
        if stat is None:
            raise InvalidInput(path, "must be there, or /proc/stat must", None)
        assumed.append(f"{path} is missing; the CPUs are those of /proc/stat")
        return CpuSet.from_iterable(ticks.cpu for ticks in parse_stat(stat).cpus)
    online = cpu_list(path, text)
    if not online:
        raise InvalidInput(where(path, 1), "at least one CPU must be online", text)
    return online


def _online_zones(texts: Texts) -> CpuSet:
    """Ids of zones, in the kernel's list notation as CPUs are; empty where the kernel has no NUMA."""
    path = f"{NODE_ROOT}/online"
    text = texts.get(path)
    return CpuSet() if text is None else cpu_list(path, text)


def _socket(cpu: int, texts: Texts) -> int:
    path = f"{CPU_ROOT}/cpu{cpu}/topology/physical_package_id"
    text = texts.get(path)
    # Firmware that names no package makes the kernel print -1.
    if text is None or text.strip() == "-1":
        return 0
    return unsigned(text.strip(), where(path, 1))


def _siblings(cpu: int, online: CpuSet, texts: Texts) -> CpuSet:
    path = f"{CPU_ROOT}/cpu{cpu}/topology/thread_siblings_list"
    text = texts.get(path)
    siblings = CpuSet() if text is None else cpu_list(path, text) & online
    if text is not None and cpu not in siblings:
        raise InvalidInput(where(path, 1), f"must contain CPU {cpu} itself", text)
    return siblings or CpuSet.from_iterable((cpu,))


def _ranks(online: CpuSet, group_of: Mapping[int, CpuSet]) -> dict[int, int]:
    """Number the groups by their lowest CPU. Raises InvalidInput when two CPUs disagree about their group."""
    ranks: dict[int, int] = {}
    groups = 0
    for cpu in online:
        lowest = next(iter(group_of[cpu]))
        if group_of[lowest] != group_of[cpu]:
            path = f"{CPU_ROOT}/cpu{cpu}/topology/thread_siblings_list"
            raise InvalidInput(path, f"must be the same as that of CPU {lowest}", group_of[cpu].format())
        if lowest == cpu:
            ranks[cpu] = groups
            groups += 1
        else:
            ranks[cpu] = ranks[lowest]
    return ranks


def _zones(online: CpuSet, sockets: Mapping[int, int], texts: Texts, assumed: list[str]) -> tuple[Zone, ...]:
    ids = tuple(_online_zones(texts))
    if not ids:
        text = texts.get("/proc/meminfo")
        if text is None:
            raise InvalidInput("/proc/meminfo", f"must be there where {NODE_ROOT}/online is missing", None)
        assumed.append(f"{NODE_ROOT} is missing; the machine is one zone")
        memory_bytes = parse_meminfo(text).total_bytes
        zone = Zone(
            zone=0,
            socket=min(sockets.values()),
            cpus=online.format(),
            memory_bytes=memory_bytes,
            distances=(10,),
            huge_pages=huge_pages_of_zone(None, memory_bytes, texts, assumed),
        )
        return (zone,)
    members = _zone_members(ids, online, texts)
    distances = {zone: _distances(zone, len(ids), texts, assumed) for zone in ids}
    memory = {zone: _zone_memory_bytes(zone, ids, texts, assumed) for zone in ids}
    return tuple(
        Zone(
            zone=zone,
            socket=_zone_socket(zone, ids, members, distances[zone], sockets, assumed),
            cpus=members[zone].format(),
            memory_bytes=memory[zone],
            distances=distances[zone],
            huge_pages=huge_pages_of_zone(zone, memory[zone], texts, assumed),
        )
        for zone in ids
    )


def _zone_members(ids: tuple[int, ...], online: CpuSet, texts: Texts) -> dict[int, CpuSet]:
    members: dict[int, CpuSet] = {}
    seen = CpuSet()
    for zone in ids:
        path = f"{NODE_ROOT}/node{zone}/cpulist"
        text = texts.get(path)
        if text is None:
            raise InvalidInput(path, "must be there for a zone that is online", None)
        members[zone] = cpu_list(path, text) & online
        if not members[zone].is_disjoint(seen):
            raise InvalidInput(where(path, 1), "a CPU may be in one zone only", (members[zone] & seen).format())
        seen |= members[zone]
    if seen != online:
        raise InvalidInput(f"{NODE_ROOT}/node*/cpulist", "every online CPU must be in a zone", (online - seen).format())
    return members


def _distances(zone: int, count: int, texts: Texts, assumed: list[str]) -> tuple[int, ...]:
    path = f"{NODE_ROOT}/node{zone}/distance"
    text = texts.get(path)
    if text is None:
        assumed.append(f"{NODE_ROOT}/node*/distance is missing; distances are unknown")
        return ()
    distances = tuple(unsigned(word, where(path, 1)) for word in text.split())
    if len(distances) != count:
        raise InvalidInput(where(path, 1), f"must have one distance for each of the {count} zones online", text)
    return distances


def _zone_memory_bytes(zone: int, ids: tuple[int, ...], texts: Texts, assumed: list[str]) -> int:
    """Memory of the zone. A single zone has that of the machine, where kernels with late page setup count pages first."""
    machine = texts.get("/proc/meminfo")
    if len(ids) == 1 and machine is not None:
        return parse_meminfo(machine).total_bytes
    path = zone_meminfo_path(zone)
    text = texts.get(path)
    if text is None:
        assumed.append(f"{path} is missing; the zone counts as one without memory")
        return 0
    return parse_zone_meminfo(zone, text, path).total_bytes


def _zone_socket(
    zone: int,
    ids: tuple[int, ...],
    members: Mapping[int, CpuSet],
    distances: tuple[int, ...],
    sockets: Mapping[int, int],
    assumed: list[str],
) -> int:
    own = sorted({sockets[cpu] for cpu in members[zone]})
    if len(own) > 1:
        assumed.append(f"zone {zone} spans sockets {own}; it counts to socket {own[0]}")
    if own:
        return own[0]
    # Memory only: the nearest zone that has CPUs, the lower id if two are as near or distances are unknown.
    with_cpus = [(distances[at] if distances else 0, other) for at, other in enumerate(ids) if members[other]]
    nearest = min(with_cpus)[1]
    return min(sockets[cpu] for cpu in members[nearest])
