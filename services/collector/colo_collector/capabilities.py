"""The capability matrix of a kernel, read from its files: each capability is present, or skipped with what is lacking."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from colo_collector.hierarchy import Hierarchy
from colo_collector.kernel_text import cpu_list
from colo_collector.resctrl import RESCTRL_FILES, RESCTRL_ROOT, resctrl_capabilities
from colo_common.events.node import Capability
from colo_common.model.linux_capability import CAP_SYS_RESOURCE, has_capability

__all__ = ["Probe", "capabilities", "huge_pages_lacking", "probe_paths"]

_CHILDREN: Final = ("", "system.slice", "init.scope", "user.slice", "kubepods.slice", "kubepods")
"""Groups in which to look for a file that v2 gives to child groups only; the first is the root itself."""
_CONTROLLERS: Final = ("cpu", "cpuacct", "cpuset", "memory")
_RELEASE: Final = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})", re.ASCII)
_CPUINFO: Final = "/proc/cpuinfo"
_SCHEDSTAT: Final = "/proc/self/schedstat"
_OWN_STATUS: Final = "/proc/self/status"
_PERF: Final = "/proc/sys/kernel/perf_event_paranoid"
_HYPERVISORS: Final = ("/sys/hypervisor/type", "/proc/device-tree/hypervisor/compatible")
_NODE_ONLINE: Final = "/sys/devices/system/node/online"


class Probe(Struct, frozen=True, kw_only=True):
    """The input of the matrix. `texts` has the paths of probe_paths, None for a missing file; `release` is uname's.

    `writable` has the controllers whose own group this process may write. `has_tier`: an executor has made its groups.
    `admits_online`: the operator lets the executor run online work. `lacks_core_scheduling` is why the kernel has none, "" where it
    has, None where nobody asked it.
    """

    hierarchy: Hierarchy
    texts: Mapping[str, str | None]
    release: str = ""
    is_root: bool = False
    writable: frozenset[str] = frozenset()
    has_tier: bool = False
    admits_online: bool = True
    lacks_core_scheduling: str | None = None


def probe_paths(hierarchy: Hierarchy) -> tuple[str, ...]:
    """The files to read for a Probe of that hierarchy."""
    paths = ["/proc/filesystems", "/proc/mounts", _NODE_ONLINE, _CPUINFO, _SCHEDSTAT, _PERF, _OWN_STATUS, *_HYPERVISORS]
    paths += [f"{RESCTRL_ROOT}/info/{name}" for name in RESCTRL_FILES]
    paths += [f"/proc/pressure/{name}" for name in ("cpu", "memory", "io")]
    cpu_files = ("cpu.idle", *_BURST_FILES, "cpu.bvt_warp_ns", *_QUOTA_FILES, "cpu.uclamp.min")
    for controller, names in (("cpu", cpu_files), ("memory", _MEMORY_FILES), ("io", ("io.cost.qos",))):
        paths += [path for name in names for path in _seen_at(hierarchy, controller, name)]
    paths += [path for _, found in _driver_paths(hierarchy) for path in found]
    paths += _group_pressure_paths(hierarchy)
    return tuple(dict.fromkeys(paths))


def capabilities(probe: Probe) -> tuple[Capability, ...]:
    """The matrix, always the same names in the same order.

    `detail` is the place of a present capability, or "skipped: " and what is lacking.
    """
    return (
        _cgroup(probe.hierarchy),
        *(_controller(probe.hierarchy, name) for name in _CONTROLLERS),
        _hugetlb(probe.hierarchy),
        _pressure(probe),
        _group_pressure(probe),
        _cpu_file(probe, "cpu-idle", ("cpu.idle",), (5, 15)),
        _cpu_file(probe, "cpu-burst", _BURST_FILES, (5, 14)),
        _cpu_file(probe, "cpu-bvt", ("cpu.bvt_warp_ns",), None),
        _freezer(probe),
        _memory_high(probe),
        *resctrl_capabilities(probe.texts, probe.texts.get("/proc/mounts") or ""),
        _numa(probe),
        _root(probe),
        _cgroup_write(probe),
        _online(probe),
        _kernel(probe),
        _virtual(probe),
        _driver(probe),
        _cpu_file(probe, "cpu-quota", _QUOTA_FILES, (3, 2)),
        _cpu_file(probe, "cpu-uclamp", ("cpu.uclamp.min",), None),
        *(_memory_file(probe, name) for name in ("memory.min", "memory.low", "memory.reclaim")),
        _io_cost(probe),
        _schedstat(probe),
        _perf(probe),
        _devices(probe),
        _triggers(probe),
        _core_scheduling(probe),
        _swap_limit(probe),
    )


_OPEN_TO_ALL: Final = "null zero full random urandom tty ptmx pts, and what is given"
_FREEZE_SINCE: Final = (5, 2)
_RECLAIM_SINCE: Final = (5, 19)
_QUOTA_FILES: Final = ("cpu.max", "cpu.cfs_quota_us")
_SWAP_FILES: Final = ("memory.swap.max", "memory.memsw.limit_in_bytes")
_MEMORY_FILES: Final = ("memory.high", "memory.min", "memory.low", "memory.reclaim", *_SWAP_FILES)
_BURST_FILES: Final = ("cpu.max.burst", "cpu.cfs_burst_us")


def _present(name: str, detail: str = "") -> Capability:
    return Capability(name=name, present=True, detail=detail)


def _skipped(name: str, lacking: str) -> Capability:
    return Capability(name=name, present=False, detail=f"skipped: {lacking}")


def _cgroup(hierarchy: Hierarchy) -> Capability:
    if hierarchy.version == "none":
        return _skipped("cgroup", "no cgroup hierarchy is mounted")
    return _present("cgroup", hierarchy.version)


def _controller(hierarchy: Hierarchy, name: str) -> Capability:
    mount = hierarchy.controller(name)
    if mount is None:
        return _skipped(f"cgroup-{name}", f"no mounted hierarchy has the {name} controller")
    return _present(f"cgroup-{name}", f"{mount.version} at {mount.mount_point}")


def huge_pages_lacking(hierarchy: Hierarchy) -> str:
    """Why an executor cannot limit huge pages here; "" where it can. An executor writes one version of cgroup only."""
    mount, cpu = hierarchy.controller("hugetlb"), hierarchy.controller("cpu")
    if mount is None:
        return "no mounted hierarchy has the hugetlb controller"
    if cpu is None or cpu.version != mount.version:
        return f"the hugetlb controller is on {mount.version} and cpu is not"
    return ""


def _hugetlb(hierarchy: Hierarchy) -> Capability:
    lacking, mount = huge_pages_lacking(hierarchy), hierarchy.controller("hugetlb")
    if lacking or mount is None:
        return _skipped("cgroup-hugetlb", lacking)
    return _present("cgroup-hugetlb", f"{mount.version} at {mount.mount_point}")


def _has_some_line(text: str | None) -> bool:
    return text is not None and text.startswith(("some ", "full "))


def _pressure(probe: Probe) -> Capability:
    found = [name for name in ("cpu", "memory", "io") if _has_some_line(probe.texts.get(f"/proc/pressure/{name}"))]
    if not found:
        return _skipped("psi", "kernel lacks /proc/pressure (CONFIG_PSI, and psi=1 where it is off by default)")
    return _present("psi", " ".join(found))


def _group_pressure_paths(hierarchy: Hierarchy) -> list[str]:
    """The pressure files of groups: v2 has them, kernels with psi_v1=1 (openEuler) also in the cpuacct hierarchy of v1."""
    paths: list[str] = []
    if hierarchy.unified:
        paths += [_join(hierarchy.unified, child, "cpu.pressure") for child in _CHILDREN]
    cpuacct = hierarchy.controller("cpuacct")
    if cpuacct is not None and cpuacct.version == "v1":
        paths.append(_join(cpuacct.mount_point, "", "cpu.pressure"))
    return paths


def _group_pressure(probe: Probe) -> Capability:
    for path in _group_pressure_paths(probe.hierarchy):
        if _has_some_line(probe.texts.get(path)):
            return _present("psi-cgroup", path.rsplit("/", 1)[0])
    return _skipped("psi-cgroup", "kernel lacks cpu.pressure in control groups (v2, or v1 with psi_v1=1)")


def _seen_at(hierarchy: Hierarchy, controller: str, name: str) -> tuple[str, ...]:
    mount = hierarchy.controller(controller)
    if mount is None:
        return ()
    own = mount.self_path.strip("/")
    children = dict.fromkeys((*_CHILDREN, own) if ".." not in own.split("/") else _CHILDREN)
    return tuple(_join(mount.mount_point, child, name) for child in children)


def _join(mount_point: str, child: str, name: str) -> str:
    return "/".join(part for part in (mount_point.rstrip("/"), child, name) if part)


def _found_at(probe: Probe, controller: str, names: tuple[str, ...]) -> str | None:
    paths = (path for name in names for path in _seen_at(probe.hierarchy, controller, name))
    return next((path for path in paths if probe.texts.get(path) is not None), None)


def _cpu_file(probe: Probe, name: str, files: tuple[str, ...], since: tuple[int, int] | None) -> Capability:
    """A knob of the cpu controller. `since` is the first mainline release with it, None for a file of vendor kernels.

    v2 has these files in child groups only; where no known child group exists, the release decides.
    """
    mount = probe.hierarchy.controller("cpu")
    if mount is None:
        return _skipped(name, "no mounted hierarchy has the cpu controller")
    path = _found_at(probe, "cpu", files)
    if path is not None:
        return _present(name, path)
    release = _release(probe.release)
    has_child = any(
        probe.texts.get(path) is not None
        for file in ("cpu.idle", *_BURST_FILES)
        for path in _seen_at(probe.hierarchy, "cpu", file)
    )
    if mount.version == "v2" and since is not None and release is not None and release >= since and not has_child:
        return _present(name, f"kernel {probe.release} has it since {since[0]}.{since[1]}; no child group to look in")
    return _skipped(name, f"kernel lacks {' and '.join(files)}")


def _freezer(probe: Probe) -> Capability:
    """Whether all processes of a group can be stopped at once: the v1 controller, or cgroup.freeze, which v2 has since 5.2."""
    mount = probe.hierarchy.controller("freezer")
    if mount is not None:
        return _present("cgroup-freezer", f"{mount.version} at {mount.mount_point}")
    cpu, release = probe.hierarchy.controller("cpu"), _release(probe.release)
    if cpu is None or cpu.version != "v2":
        return _skipped("cgroup-freezer", "no mounted hierarchy has the freezer controller")
    if release is None or release < _FREEZE_SINCE:
        return _skipped("cgroup-freezer", "kernel lacks cgroup.freeze")
    return _present("cgroup-freezer", f"v2 at {cpu.mount_point}")


def _release(text: str) -> tuple[int, int] | None:
    match = _RELEASE.match(text)
    return None if match is None else (int(match[1]), int(match[2]))


def _triggers(probe: Probe) -> Capability:
    """Whether the kernel tells this process of pressure by itself."""
    if not _has_some_line(probe.texts.get("/proc/pressure/cpu")):
        return _skipped("psi-triggers", "kernel lacks /proc/pressure")
    if not has_capability(probe.texts.get(_OWN_STATUS) or "", CAP_SYS_RESOURCE):
        return _skipped("psi-triggers", "this process lacks CAP_SYS_RESOURCE, so its next sample tells")
    return _present("psi-triggers", "told at once with CAP_SYS_RESOURCE, as here; without it the next sample tells")


def _devices(probe: Probe) -> Capability:
    """Device access has files under v1 and is a BPF program's under v2; an executor writes one version of cgroup."""
    mount, cpu = probe.hierarchy.controller("devices"), probe.hierarchy.controller("cpu")
    if mount is not None and mount.version == "v1" and cpu is not None and cpu.version == "v1":
        return _present(
            "cgroup-devices",
            f"v1 at {mount.mount_point}, by an executor with CAP_SYS_ADMIN: {_OPEN_TO_ALL}",
        )
    if cpu is None or cpu.version != "v2":
        return _skipped("cgroup-devices", "no mounted hierarchy has the devices controller")
    if "bpf" not in (probe.texts.get("/proc/filesystems") or "").split():
        lacking = "cgroup v2 has no files for it, and the kernel lacks bpf (CONFIG_BPF_SYSCALL, CONFIG_CGROUP_BPF)"
        return _skipped("cgroup-devices", lacking)
    return _present("cgroup-devices", f"v2, a BPF program of an executor with CAP_SYS_ADMIN: {_OPEN_TO_ALL}")


def _core_scheduling(probe: Probe) -> Capability:
    """Whether the threads of a core can be kept to those who trust each other. No file tells: the kernel is asked."""
    if probe.lacks_core_scheduling is None:
        return _skipped("core-scheduling", "the kernel was not asked")
    if probe.lacks_core_scheduling:
        return _skipped("core-scheduling", probe.lacks_core_scheduling)
    return _present("core-scheduling", "prctl(PR_SCHED_CORE); used where process_hygiene_core_scheduling says so")


def _memory_high(probe: Probe) -> Capability:
    mount = probe.hierarchy.controller("memory")
    if mount is None:
        return _skipped("memory-high", "no mounted hierarchy has the memory controller")
    path = _found_at(probe, "memory", ("memory.high",))
    if path is not None:
        return _present("memory-high", path)
    if mount.version == "v2":
        # Every kernel with the v2 memory controller has it, in child groups only.
        return _present("memory-high", "v2; no child group to look in")
    return _skipped("memory-high", "the memory controller is v1, which has no memory.high")


def _kernel(probe: Probe) -> Capability:
    return _present("kernel", probe.release) if probe.release else _skipped("kernel", "the release may not be read")


def _virtual(probe: Probe) -> Capability:
    """Whether the machine is virtual: only there is stolen time anything but 0."""
    flags = (probe.texts.get(_CPUINFO) or "").partition("\n\n")[0]
    if any(line.startswith(("flags", "Features")) and "hypervisor" in line.split() for line in flags.split("\n")):
        return _present("virtual", "the CPU says so; stolen time is meaningful")
    if any((probe.texts.get(path) or "").strip() for path in _HYPERVISORS):
        return _present("virtual", "the kernel names a hypervisor; stolen time is meaningful")
    return _skipped("virtual", "no sign of a hypervisor; stolen time is always 0")


def _driver_paths(hierarchy: Hierarchy) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Groups that show who makes groups here: slices are systemd's, `kubepods` without a slice is a kubelet's own."""
    mount = hierarchy.controller("cpu") or hierarchy.controller("memory")
    if mount is None:
        return ()
    root = mount.mount_point.rstrip("/")
    return (
        ("cgroupfs", (f"{root}/kubepods/cgroup.procs", f"{root}/docker/cgroup.procs")),
        ("systemd", (f"{root}/kubepods.slice/cgroup.procs", f"{root}/system.slice/cgroup.procs")),
    )


def _driver(probe: Probe) -> Capability:
    for name, paths in _driver_paths(probe.hierarchy):
        path = next((path for path in paths if probe.texts.get(path) is not None), None)
        if path is not None:
            return _present("cgroup-driver", f"{name}: {path.rpartition('/')[0]}")
    return _skipped("cgroup-driver", "no groups of systemd, a kubelet or Docker show which one makes groups here")


def _v1_lacks(file: str) -> str:
    protects = file in ("memory.min", "memory.low")
    return f"the memory controller is v1, which has no {file}{', and whose soft limit protects nothing' if protects else ''}"


def _memory_file(probe: Probe, file: str) -> Capability:
    name = file.replace(".", "-")
    mount = probe.hierarchy.controller("memory")
    if mount is None:
        return _skipped(name, "no mounted hierarchy has the memory controller")
    path = _found_at(probe, "memory", (file,))
    if path is not None:
        return _present(name, path)
    if mount.version == "v1":
        return _skipped(name, _v1_lacks(file))
    release = _release(probe.release)
    if file != "memory.reclaim" or (release is not None and release >= _RECLAIM_SINCE):
        return _present(name, "v2; no child group to look in")
    return _skipped(name, "kernel lacks memory.reclaim (5.19 has it)")


def _swap_limit(probe: Probe) -> Capability:
    """Whether swap is counted by group. No release promises it: kernels are built and booted without."""
    if probe.hierarchy.controller("memory") is None:
        return _skipped("memory-swap", "no mounted hierarchy has the memory controller")
    path = _found_at(probe, "memory", _SWAP_FILES)
    if path is None:
        return _skipped(
            "memory-swap", f"kernel lacks {' and '.join(_SWAP_FILES)} (CONFIG_SWAP, before 6.1 swapaccount=1)"
        )
    return _present("memory-swap", path)


def _io_cost(probe: Probe) -> Capability:
    mount = probe.hierarchy.controller("io")
    if mount is None or mount.version != "v2":
        return _skipped("io-cost", "no v2 hierarchy has the io controller")
    path = _found_at(probe, "io", ("io.cost.qos",))
    return _skipped("io-cost", "kernel lacks io.cost.qos") if path is None else _present("io-cost", path)


def _schedstat(probe: Probe) -> Capability:
    words = (probe.texts.get(_SCHEDSTAT) or "").split()
    if len(words) < 2:
        return _skipped(
            "schedstat", "kernel lacks /proc/PID/schedstat (CONFIG_SCHED_INFO); stall is known from pressure only"
        )
    return _present("schedstat", "run and wait time of every thread")


def _perf(probe: Probe) -> Capability:
    level = (probe.texts.get(_PERF) or "").strip()
    if not level:
        return _skipped("perf", "kernel lacks perf events")
    if level not in ("-1", "0") and not probe.is_root:
        return _skipped("perf", f"perf_event_paranoid is {level}, and this process is not root")
    return _present("perf", f"perf_event_paranoid {level}")


def _numa(probe: Probe) -> Capability:
    text = probe.texts.get(_NODE_ONLINE)
    zones = 0 if text is None else len(cpu_list(_NODE_ONLINE, text))
    if zones > 1:
        return _present("numa", f"{zones} zones")
    if text is None:
        return _skipped("numa", "kernel lacks NUMA (CONFIG_NUMA)")
    return _skipped("numa", "the machine has one zone")


def _root(probe: Probe) -> Capability:
    if probe.is_root:
        return _present("root")
    return _skipped("root", "this process is not root")


def _cgroup_write(probe: Probe) -> Capability:
    lacking = [name for name in ("cpu", "cpuset", "memory") if name not in probe.writable]
    if not lacking:
        return _present("cgroup-write", "cpu cpuset memory")
    return _skipped("cgroup-write", f"this process may not write the groups of {' '.join(lacking)}")


def _online(probe: Probe) -> Capability:
    """Whether online work may be placed here: it needs CPU weights, CPU sets and memory limits that an executor can write.

    The executor's groups prove that it can; before it has made any, the rights of this process decide.
    """
    if not probe.admits_online:
        return _skipped("online", "the operator admits no online work here (setting online)")
    mounts = {name: probe.hierarchy.controller(name) for name in ("cpu", "cpuset", "memory")}
    lacking = [name for name, mount in mounts.items() if mount is None]
    if lacking:
        return _skipped("online", f"no mounted hierarchy has the controllers {' '.join(lacking)}")
    if len({mount.version for mount in mounts.values() if mount is not None}) > 1:
        return _skipped("online", "the controllers cpu, cpuset and memory are not on one version of cgroup")
    if probe.has_tier:
        return _present("online", "an executor has made its groups")
    if all(name in probe.writable for name in mounts):
        return _present("online", "cpu cpuset memory")
    return _skipped("online", "no executor has made its groups, and this process may not make any")
