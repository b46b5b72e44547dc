"""Readings of the machine for the process runtime: CPUs, memory zones, huge pages, boot id, and the identity of a process."""

import os
import pwd
import re
from collections.abc import Collection

from colo_common.model.cpu_topology import CpuRow, CpuTopology
from colo_common.model.cpuset import CpuSet
from colo_common.model.placement import Placement
from colo_executor.desired import MachineFacts
from colo_executor.inventory import MachineInventory
from colo_executor.knob_table import Knob
from colo_executor.process.run_as import UserIds

__all__ = [
    "account_of_name",
    "boot_id",
    "cpu_index",
    "cpu_rows",
    "huge_pages_asked",
    "huge_pages_bytes",
    "interrupt_ticks",
    "machine_of",
    "online_cpus",
    "start_ticks",
    "zones_of",
]

_NODE = re.compile(r"node([0-9]{1,4})")


def account_of_name(user: str) -> UserIds:
    """The user's number and that of his group. Raises KeyError for one that this machine does not know."""
    found = pwd.getpwnam(user)
    return UserIds(found.pw_uid, found.pw_gid)


def online_cpus(sys_root: str) -> CpuSet:
    """The online CPUs. Raises OSError or InvalidInput when the file cannot be read."""
    with open(os.path.join(sys_root, "devices/system/cpu/online"), encoding="ascii") as file:
        return CpuSet.parse(file.read().strip(), "cpu/online")


def cpu_index(sys_root: str) -> CpuTopology:
    """The online CPUs, indexed."""
    return CpuTopology.from_rows(cpu_rows(sys_root))


def cpu_rows(sys_root: str) -> tuple[CpuRow, ...]:
    """The online CPUs with core, zone and socket; what the kernel does not show is one CPU a core, one zone, one socket."""
    zone_of = {cpu: zone for zone, cpus in zones_of(sys_root, online_cpus(sys_root)).items() for cpu in cpus}
    rows = []
    for cpu in online_cpus(sys_root):
        directory = os.path.join(sys_root, f"devices/system/cpu/cpu{cpu}/topology")
        core, socket = _id(directory, "core_id", cpu), _id(directory, "physical_package_id", 0)
        rows.append(CpuRow(cpu=cpu, core=core, zone=zone_of.get(cpu, 0), socket=socket))
    return tuple(rows)


def _id(directory: str, name: str, default: int) -> int:
    try:
        with open(os.path.join(directory, name), encoding="ascii") as file:
            found = int(file.read())
    except (OSError, ValueError):
        return default
    # Some virtual machines show -1.
    return found if found >= 0 else default


def zones_of(sys_root: str, online: CpuSet) -> dict[int, CpuSet]:
    """The online CPUs of each zone; without NUMA directories one zone, 0."""
    directory = os.path.join(sys_root, "devices/system/node")
    zones: dict[int, CpuSet] = {}
    for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else ():
        match = _NODE.fullmatch(name)
        if match:
            with open(os.path.join(directory, name, "cpulist"), encoding="ascii") as file:
                zones[int(match[1])] = CpuSet.parse(file.read().strip(), name) & online
    return zones or {0: online}


def machine_of(sys_root: str, has: frozenset[Knob], huge_page_sizes: tuple[int, ...] = ()) -> MachineFacts:
    """The machine's CPUs, memory zones and existing knobs; a machine without NUMA directories is one zone, 0, of all CPUs."""
    online = online_cpus(sys_root)
    directory = os.path.join(sys_root, "devices/system/node")
    with_memory = CpuSet.from_iterable([0])
    path = os.path.join(directory, "has_memory")
    if os.path.exists(path):
        with open(path, encoding="ascii") as file:
            with_memory = CpuSet.parse(file.read().strip(), "node/has_memory")
    zones = zones_of(sys_root, online)
    return MachineFacts(cpus=online, mems=with_memory, zones=zones, has=has, huge_page_sizes=huge_page_sizes)


def huge_pages_asked(sys_root: str, placement: Placement, sizes: Collection[int]) -> MachineInventory:
    """The machine's huge pages of the sizes and zones that the placement requests; the kernel can limit pages of these `sizes`."""
    asked = [(pages.zone, pages.page_bytes) for pages in placement.huge_pages if pages.page_bytes in sizes]
    found = {each: huge_pages_bytes(sys_root, *each) for each in asked}
    return MachineInventory(huge_pages=found, limits_huge_pages=bool(sizes))


def huge_pages_bytes(sys_root: str, zone: int, page_bytes: int) -> int:
    """Bytes reserved as huge pages of that size in a zone; without NUMA directories zone 0 is the machine. 0 without pages."""
    node = os.path.join(sys_root, f"devices/system/node/node{zone}")
    is_whole = zone == 0 and not os.path.isdir(os.path.dirname(node))
    root = os.path.join(sys_root, "kernel/mm") if is_whole else node
    try:
        with open(
            os.path.join(root, f"hugepages/hugepages-{page_bytes >> 10}kB/nr_hugepages"), encoding="ascii"
        ) as file:
            return int(file.read()) * page_bytes
    except (OSError, ValueError):
        return 0


def boot_id(proc_root: str) -> str:
    """The id of this boot, or "" where the kernel has none."""
    try:
        with open(os.path.join(proc_root, "sys/kernel/random/boot_id"), encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def start_ticks(proc_root: str, pid: int) -> int | None:
    """When the process started, in clock ticks since boot (field 22 of its stat file); None when no such process is alive.

    Raises OSError where that cannot be known.
    """
    try:
        with open(os.path.join(proc_root, str(pid), "stat"), encoding="utf-8", errors="replace") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command's name may contain spaces and brackets, so the fields start after the last ")".
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])


def interrupt_ticks(stat: str) -> int:
    """Ticks of interrupts and stolen time, from the text of /proc/stat: irq + softirq + steal."""
    fields = stat.split("\n", 1)[0].split()
    if len(fields) < 9 or fields[0] != "cpu":
        return 0
    return int(fields[6]) + int(fields[7]) + int(fields[8])
