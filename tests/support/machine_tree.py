"""A fake machine: the files of /proc, /sys and the cgroup tree, from a short spec, as a mapping of path to text or on disk.

The numbers are made here, so a test knows the truth that the readers must find. `MachineTree` keeps counters that grow with
`advance`, and rewrites its files in place, as a kernel does.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

GIB = 2**30
USER_HZ = 100
BOOT_ID = "0f9c4b3e-5a67-4d0e-9c1d-1f2e3d4c5b6a"
CGROUP_ROOT = "/sys/fs/cgroup"
V1_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory")
KERNEL_FILLER = ("kernel_stack", "pagetables", "percpu", "sock", "vmalloc", "shmem", "zswap", "zswapped", "file_mapped")
KERNEL_FILLER_AFTER = (
    "unevictable",
    "slab_reclaimable",
    "slab_unreclaimable",
    "slab",
    "pgfault",
    "pgmajfault",
    "pgrefill",
)


@dataclass(frozen=True)
class FakeCpu:
    """The truth about one logical CPU."""

    cpu: int
    core: int
    core_id_in_socket: int
    socket: int
    zone: int


@dataclass(frozen=True)
class FakeWorkload:
    """One workload's control group, with the counters it has now."""

    name: str
    path: str
    cpu_usage_ns: int = 0
    throttled_us: int = 0
    memory_bytes: int = 64 * 2**20
    inactive_file_bytes: int = 16 * 2**20
    procs: tuple[int, ...] = (1,)
    cpus: str = ""
    #: Threads by id: what each ran and waited so far (ns), and how often it was made to give its CPU away.
    threads: tuple[tuple[int, int, int, int], ...] = ()
    cpu_some_us: int = 0
    anon_bytes: int = 1
    shmem_bytes: int = 0
    numa_bytes: tuple[int, ...] = ()
    disk_bytes: tuple[int, int] = (0, 0)
    oom_kills: int = 0


@dataclass(frozen=True)
class MachineSpec:
    """A regular machine. `numbering` "split" gives threads of one core far numbers (0 and N/2), as x86 firmware does."""

    sockets: int = 1
    zones_per_socket: int = 1
    cores_per_zone: int = 2
    threads: int = 1
    memory_bytes_per_zone: int = 4 * GIB
    numbering: Literal["adjacent", "split"] = "adjacent"
    cgroup: Literal["v1", "v2", "hybrid"] = "v1"
    #: In hybrid, controllers that are on v2.
    unified: tuple[str, ...] = ()
    offline: tuple[int, ...] = ()
    isolated: str = ""
    nohz_full: str = ""
    dies: int = 1
    #: The kernel's L3 cache ids by rank of the domain, and CPUs (cores) of one domain; none: one domain a zone.
    l3_ids: tuple[int, ...] = ()
    cores_per_l3: int = 0
    cpuinfo: str = "vendor_id\t: GenuineIntel\nmodel name\t: Fake CPU @ 2.00GHz\n"
    has_numa: bool = True
    has_l3: bool = True
    has_psi: bool = True
    has_resctrl: bool = False
    resctrl_groups: tuple[str, ...] = ()
    cbm_mask: str = "fffff"
    min_bandwidth: int = 10
    release: str = "6.1.0-13-amd64"
    workloads: tuple[FakeWorkload, ...] = ()

    @property
    def zones(self) -> int:
        """How many zones the machine has."""
        return self.sockets * self.zones_per_socket

    @property
    def cores(self) -> int:
        """How many physical cores the machine has."""
        return self.zones * self.cores_per_zone

    def cpus(self) -> tuple[FakeCpu, ...]:
        """All CPUs, offline ones too, in ascending id."""
        found = []
        for core in range(self.cores):
            zone = core // self.cores_per_zone
            socket = zone // self.zones_per_socket
            core_in_socket = core % (self.cores_per_zone * self.zones_per_socket)
            for thread in range(self.threads):
                cpu = core * self.threads + thread if self.numbering == "adjacent" else thread * self.cores + core
                found.append(FakeCpu(cpu, core, core_in_socket, socket, zone))
        return tuple(sorted(found, key=lambda one: one.cpu))

    def online(self) -> tuple[FakeCpu, ...]:
        """The CPUs that are not offline."""
        return tuple(one for one in self.cpus() if one.cpu not in self.offline)


def id_list(ids: list[int] | tuple[int, ...]) -> str:
    """The kernel's list notation of ascending ids, written independently of the code under test."""
    parts: list[str] = []
    at = 0
    while at < len(ids):
        end = at
        while end + 1 < len(ids) and ids[end + 1] == ids[end] + 1:
            end += 1
        parts.append(str(ids[at]) if end == at else f"{ids[at]}-{ids[end]}")
        at = end + 1
    return ",".join(parts)


@dataclass
class MachineTree:
    """A fake machine whose counters grow. With `root`, `write` keeps its files on disk there."""

    spec: MachineSpec
    root: Path | None = None
    boot_id: str = BOOT_ID
    busy_ticks: dict[int, int] = field(default_factory=dict)
    steal_ticks: dict[int, int] = field(default_factory=dict)
    up_ticks: int = 100_000
    memory_used_bytes_per_zone: int = GIB
    llc_bytes: int = 4 * 2**20
    bandwidth_bytes: int = 0
    #: Files beside those of the spec.
    extra: dict[str, str] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)

    def advance(
        self,
        span_ms: int,
        *,
        zone_pct: Mapping[int, int] | None = None,
        workload_mcpu: Mapping[str, int] | None = None,
        throttled_us: int = 0,
    ) -> None:
        """Let time pass: each online CPU of a zone is busy that share of it, each workload uses that much CPU."""
        if span_ms % (1000 // USER_HZ):
            raise ValueError("span_ms must be whole ticks")
        ticks = span_ms * USER_HZ // 1000
        self.up_ticks += ticks
        for one in self.spec.online():
            share = (zone_pct or {}).get(one.zone, 0)
            self.busy_ticks[one.cpu] = self.busy_ticks.get(one.cpu, 0) + ticks * share // 100
        grown = tuple(
            replace(
                one,
                cpu_usage_ns=one.cpu_usage_ns + (workload_mcpu or {}).get(one.name, 0) * span_ms * 1000,
                throttled_us=one.throttled_us + throttled_us,
            )
            for one in self.spec.workloads
        )
        self.spec = replace(self.spec, workloads=grown)

    def run(self, name: str, span_ms: int, *, run_pct: int, wait_pct: int, throttled_us: int = 0) -> None:
        """Let each thread of a workload run and wait for those shares of the span; its CPU use grows with it."""
        grown = []
        for one in self.spec.workloads:
            if one.name == name:
                run_ns, wait_ns = span_ms * 10_000 * run_pct, span_ms * 10_000 * wait_pct
                threads = tuple(
                    (tid, ran + run_ns, waited + wait_ns, moved + 7) for tid, ran, waited, moved in one.threads
                )
                one = replace(
                    one,
                    threads=threads,
                    cpu_usage_ns=one.cpu_usage_ns + run_ns * len(threads),
                    cpu_some_us=one.cpu_some_us + wait_ns // 1_000,
                    throttled_us=one.throttled_us + throttled_us,
                )
            grown.append(one)
        self.spec = replace(self.spec, workloads=tuple(grown))

    def remove(self, name: str) -> None:
        """Remove a workload and its directories."""
        deleted = next(one for one in self.spec.workloads if one.name == name)
        self.spec = replace(self.spec, workloads=tuple(one for one in self.spec.workloads if one.name != name))
        if self.root is not None:
            for directory in group_directories(self.spec, deleted.path):
                shutil.rmtree(self.root / directory.lstrip("/"), ignore_errors=True)

    def texts(self) -> dict[str, str]:
        """Every file of the machine."""
        return {
            **self._proc(),
            **self._cpus(),
            **self._zones(),
            **self._cgroups(),
            **self._threads(),
            **self._resctrl(),
            **self.extra,
        }

    def write(self) -> None:
        """Bring the files under `root` up to date: changed ones in place, and those that vanished are removed."""
        if self.root is None:
            raise ValueError("this machine has no root on disk")
        texts = self.texts()
        for path in sorted(self.written.keys() - texts.keys()):
            (self.root / path.lstrip("/")).unlink(missing_ok=True)
        for path, text in texts.items():
            file = self.root / path.lstrip("/")
            if self.written.get(path) != text or not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
        self.written = texts

    def _proc(self) -> dict[str, str]:
        online = self.spec.online()
        total_kib = self.spec.zones * self.spec.memory_bytes_per_zone // 1024
        used_kib = self.spec.zones * self.memory_used_bytes_per_zone // 1024
        lines = [self._stat_line("cpu", [one.cpu for one in self.spec.cpus()])]
        lines += [self._stat_line(f"cpu{one.cpu}", [one.cpu]) for one in online]
        files = {
            "/proc/stat": "\n".join([*lines, "intr 4711 0 0 17", "ctxt 1234", "btime 1700000000", ""]),
            "/proc/meminfo": (
                f"MemTotal:       {total_kib} kB\nMemFree:        {(total_kib - used_kib) // 2} kB\n"
                f"MemAvailable:   {total_kib - used_kib} kB\nBuffers:            100 kB\nCached:           20000 kB\n"
                "Active(file):      9000 kB\nSwapTotal:             0 kB\nSwapFree:              0 kB\n"
                "HugePages_Total:       0\nHugepagesize:       2048 kB\n"
            ),
            "/proc/self/schedstat": "1000 2000 3\n",
            "/proc/schedstat": "version 15\ntimestamp 1\n"
            + "".join(f"cpu{one.cpu} 0 0 0 0 0 0 {self.up_ticks * 1000} {self.up_ticks * 500} 9\n" for one in online),
            "/proc/loadavg": "0.20 0.18 0.12 1/80 11206\n",
            "/proc/cpuinfo": f"processor\t: 0\n{self.spec.cpuinfo}\nprocessor\t: 1\n",
            "/proc/diskstats": "   8  0 sda 1 0 200 0 1 0 400 0 0 0 0\n   8  1 sda1 1 0 100 0 1 0 100 0 0 0 0\n",
            "/proc/net/dev": "Inter-|  Receive\n face |bytes\n    lo: 9 0 0 0 0 0 0 0 9 0 0 0 0 0 0 0\n"
            "  eth0: 1000 0 0 0 0 0 0 0 2000 0 0 0 0 0 0 0\n",
            "/proc/vmstat": "nr_free_pages 1\noom_kill 3\n",
            "/proc/uptime": f"{self.up_ticks // 100}.{self.up_ticks % 100:02d} 350735.47\n",
            "/proc/sys/kernel/random/boot_id": f"{self.boot_id}\n",
            "/proc/sys/kernel/osrelease": f"{self.spec.release}\n",
            "/proc/filesystems": "nodev\tsysfs\nnodev\tcgroup\nnodev\tcgroup2\n"
            + ("nodev\tresctrl\n" if self.spec.has_resctrl else "")
            + "nodev\tbpf\n\text4\n",
            "/proc/mounts": self._mounts(),
            "/proc/self/cgroup": self._self_cgroup(),
        }
        if self.spec.has_psi:
            for name in ("cpu", "memory", "io"):
                files[f"/proc/pressure/{name}"] = pressure_text()
        return files

    def _threads(self) -> dict[str, str]:
        files = {}
        for one in self.spec.workloads:
            for tid, run_ns, wait_ns, moved in one.threads:
                files[f"/proc/{tid}/schedstat"] = f"{run_ns} {wait_ns} 5\n"
                files[f"/proc/{tid}/status"] = (
                    f"Name:\tx\nvoluntary_ctxt_switches:\t3\nnonvoluntary_ctxt_switches:\t{moved}\n"
                )
        return files

    def _stat_line(self, name: str, cpus: list[int]) -> str:
        busy = sum(self.busy_ticks.get(cpu, 0) for cpu in cpus)
        steal = sum(self.steal_ticks.get(cpu, 0) for cpu in cpus)
        idle = self.up_ticks * len(cpus) - busy - steal
        # Four of five busy ticks are user time and the rest is the kernel's.
        return f"{name} {busy - busy // 5} 0 {busy // 5} {idle} 3 0 0 {steal} 0 0"

    def _mounts(self) -> str:
        lines = ["proc /proc proc rw,nosuid 0 0", "sysfs /sys sysfs rw 0 0"]
        if self.spec.cgroup != "v2":
            lines.append(f"tmpfs {CGROUP_ROOT} tmpfs rw,mode=755 0 0")
            names = V1_CONTROLLERS if self.spec.cgroup == "hybrid" else (*V1_CONTROLLERS, "hugetlb")
            names = tuple(name for name in names if name not in self.spec.unified)
            lines += [f"cgroup {CGROUP_ROOT}/{name} cgroup rw,relatime,{name} 0 0" for name in names]
            lines.append(f"cgroup {CGROUP_ROOT}/systemd cgroup rw,relatime,name=systemd 0 0")
        if self.spec.cgroup == "v2":
            lines.append(f"cgroup2 {CGROUP_ROOT} cgroup2 rw,nosuid,nsdelegate 0 0")
        if self.spec.cgroup == "hybrid":
            lines.append(f"cgroup2 {CGROUP_ROOT}/unified cgroup2 rw 0 0")
        if self.spec.has_resctrl:
            lines.append("resctrl /sys/fs/resctrl resctrl rw,relatime 0 0")
        return "\n".join(lines) + "\n"

    def _self_cgroup(self) -> str:
        own = "/system.slice/colo.service"
        if self.spec.cgroup == "v2":
            return f"0::{own}\n"
        lines = [f"{number}:{name}:{own}" for number, name in enumerate(V1_CONTROLLERS, start=2)]
        return "\n".join(["9:name=systemd:/", *lines, *(["0::/"] if self.spec.cgroup == "hybrid" else [])]) + "\n"

    def _cpus(self) -> dict[str, str]:
        root = "/sys/devices/system/cpu"
        online = self.spec.online()
        everyone = id_list(tuple(one.cpu for one in self.spec.cpus()))
        files = {
            f"{root}/online": id_list(tuple(one.cpu for one in online)) + "\n",
            f"{root}/present": everyone + "\n",
            f"{root}/possible": everyone + "\n",
            f"{root}/isolated": f"{self.spec.isolated}\n",
            f"{root}/nohz_full": f"{self.spec.nohz_full or '(null)'}\n",
        }
        for one in online:
            topology = f"{root}/cpu{one.cpu}/topology"
            cores_per_socket = self.spec.cores_per_zone * self.spec.zones_per_socket
            files[f"{topology}/die_id"] = f"{one.core_id_in_socket * self.spec.dies // cores_per_socket}\n"
            siblings = id_list([other.cpu for other in online if other.core == one.core])
            files[f"{topology}/physical_package_id"] = f"{one.socket}\n"
            files[f"{topology}/core_id"] = f"{one.core_id_in_socket}\n"
            files[f"{topology}/thread_siblings_list"] = f"{siblings}\n"
            caches = [(0, 1, siblings, "32K"), (1, 1, siblings, "32K"), (2, 2, siblings, "1024K")]
            if self.spec.has_l3:
                domain = self._l3(one)
                caches.append((3, 3, id_list([other.cpu for other in online if self._l3(other) == domain]), "32768K"))
            for index, level, shared, size in caches:
                cache = f"{root}/cpu{one.cpu}/cache/index{index}"
                files[f"{cache}/level"] = f"{level}\n"
                files[f"{cache}/shared_cpu_list"] = f"{shared}\n"
                rank = self._l3(one) if level == 3 else one.core
                files[f"{cache}/id"] = f"{self.spec.l3_ids[rank] if level == 3 and self.spec.l3_ids else rank}\n"
                files[f"{cache}/size"] = f"{size}\n"
        return files

    def _zones(self) -> dict[str, str]:
        if not self.spec.has_numa:
            return {}
        root = "/sys/devices/system/node"
        files = {f"{root}/online": id_list(tuple(range(self.spec.zones))) + "\n"}
        total_kib = self.spec.memory_bytes_per_zone // 1024
        free_kib = total_kib - self.memory_used_bytes_per_zone // 1024
        for zone in range(self.spec.zones):
            near = [
                10 if other == zone else 12 if self._same_socket(zone, other) else 21
                for other in range(self.spec.zones)
            ]
            cpus = id_list([one.cpu for one in self.spec.online() if one.zone == zone])
            files[f"{root}/node{zone}/cpulist"] = f"{cpus}\n"
            files[f"{root}/node{zone}/distance"] = " ".join(str(one) for one in near) + "\n"
            # What is free is half really free, and half file pages and slab that can be reclaimed.
            really_kib = free_kib // 2
            slab_kib = (free_kib - really_kib) // 4
            file_kib = free_kib - really_kib - slab_kib
            files[f"{root}/node{zone}/meminfo"] = "".join(
                f"Node {zone} {key}: {number:>15} kB\n"
                for key, number in (
                    ("MemTotal", total_kib),
                    ("MemFree", really_kib),
                    ("MemUsed", total_kib - really_kib),
                    ("Active(file)", file_kib // 3),
                    ("Inactive(file)", file_kib - file_kib // 3),
                    ("SReclaimable", slab_kib),
                )
            )
        return files

    def _l3(self, one: FakeCpu) -> int:
        return one.core // self.spec.cores_per_l3 if self.spec.cores_per_l3 else one.zone

    def _same_socket(self, zone: int, other: int) -> bool:
        return zone // self.spec.zones_per_socket == other // self.spec.zones_per_socket

    def _cgroups(self) -> dict[str, str]:
        files: dict[str, str] = {}
        if self.spec.cgroup == "v2":
            files[f"{CGROUP_ROOT}/cgroup.controllers"] = "cpuset cpu io memory hugetlb pids\n"
            files[f"{CGROUP_ROOT}/cgroup.procs"] = "1\n"
            files[f"{CGROUP_ROOT}/cpu.pressure"] = pressure_text()
            # v2 has these in child groups only.
            files |= {f"{CGROUP_ROOT}/system.slice/{name}": "0\n" for name in ("cpu.idle", "cpu.max.burst", "cpu.max")}
            files |= {
                f"{CGROUP_ROOT}/system.slice/memory.{name}": "max\n"
                for name in ("high", "min", "low", "reclaim", "swap.max")
            }
            files[f"{CGROUP_ROOT}/system.slice/cgroup.procs"] = ""
        else:
            files |= {
                f"{CGROUP_ROOT}/cpu/{name}": "0\n" for name in ("cpu.idle", "cpu.cfs_burst_us", "cpu.cfs_quota_us")
            }
            files |= {f"{CGROUP_ROOT}/{name}/cgroup.procs": "1\n" for name in V1_CONTROLLERS}
        if self.spec.cgroup == "hybrid":
            files[f"{CGROUP_ROOT}/unified/cgroup.controllers"] = " ".join(("hugetlb", *self.spec.unified)) + "\n"
            files[f"{CGROUP_ROOT}/unified/cpu.pressure"] = pressure_text()
        for one in self.spec.workloads:
            files |= v2_group(one) if self.spec.cgroup == "v2" else v1_group(one)
            if self.spec.unified:
                v2 = v2_group(one, f"{CGROUP_ROOT}/unified")
                files |= {
                    path: text for path, text in v2.items() if path.rpartition("/")[2].startswith(self.spec.unified)
                }
                for name in self.spec.unified:
                    files = {
                        path: text
                        for path, text in files.items()
                        if not path.startswith(f"{CGROUP_ROOT}/{name}{one.path}/")
                    }
        return files

    def _resctrl(self) -> dict[str, str]:
        if not self.spec.has_resctrl:
            return {}
        root, spec = "/sys/fs/resctrl", self.spec
        info = f"{root}/info"
        files = {
            f"{info}/L3/cbm_mask": f"{spec.cbm_mask}\n",
            f"{info}/L3/min_cbm_bits": "1\n",
            f"{info}/L3/num_closids": "16\n",
            f"{info}/L3/shareable_bits": "c0000\n",
            f"{info}/MB/min_bandwidth": f"{spec.min_bandwidth}\n",
            f"{info}/MB/bandwidth_gran": f"{10 if spec.min_bandwidth == 10 else 1}\n",
            f"{info}/MB/delay_linear": "1\n",
            f"{info}/MB/num_closids": "8\n",
            f"{info}/L3_MON/mon_features": "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n",
            f"{info}/L3_MON/num_rmids": "160\n",
        }
        domains = sorted({self._l3(one) for one in spec.online()})
        for group in ("", *(f"{name}/" for name in spec.resctrl_groups)):
            for rank in domains:
                at = f"{root}/{group}mon_data/mon_L3_{(spec.l3_ids[rank] if spec.l3_ids else rank):02d}"
                files[f"{at}/llc_occupancy"] = f"{self.llc_bytes}\n"
                files[f"{at}/mbm_total_bytes"] = f"{self.bandwidth_bytes}\n"
                files[f"{at}/mbm_local_bytes"] = "Unavailable\n"
        return files


def group_directories(spec: MachineSpec, path: str) -> tuple[str, ...]:
    """Where the control group of that path is."""
    if spec.cgroup == "v2":
        return (f"{CGROUP_ROOT}/{path.strip('/')}",)
    return tuple(f"{CGROUP_ROOT}/{name}/{path.strip('/')}" for name in V1_CONTROLLERS)


def pressure_text(total_us: int = 0) -> str:
    """A pressure file without averages."""
    averages = "avg10=0.00 avg60=0.00 avg300=0.00"
    return f"some {averages} total={total_us}\nfull {averages} total={total_us}\n"


def v1_group(one: FakeWorkload) -> dict[str, str]:
    """The files of a workload's group in the v1 hierarchies."""
    at = {name: f"{CGROUP_ROOT}/{name}/{one.path.strip('/')}" for name in V1_CONTROLLERS}
    procs = "".join(f"{pid}\n" for pid in one.procs)
    stat = (
        [("cache", 1), ("rss", 2), ("inactive_file", 7)]
        + [(name, 3) for name in KERNEL_FILLER]
        + [("total_cache", one.inactive_file_bytes), ("total_rss", one.anon_bytes), ("total_shmem", one.shmem_bytes)]
        + [(f"total_{name}", 4) for name in KERNEL_FILLER if name != "shmem"]
        + [("total_inactive_file", one.inactive_file_bytes), ("total_active_file", 5)]
        + [(f"total_{name}", 6) for name in KERNEL_FILLER_AFTER]
    )
    return {
        f"{at['cpuacct']}/cpuacct.usage": f"{one.cpu_usage_ns}\n",
        f"{at['cpu']}/cpu.stat": (
            f"nr_periods 10\nnr_throttled 2\nthrottled_time {one.throttled_us * 1000}\nnr_bursts 0\nburst_time 0\n"
        ),
        f"{at['memory']}/memory.usage_in_bytes": f"{one.memory_bytes}\n",
        f"{at['memory']}/memory.stat": "".join(f"{key} {number}\n" for key, number in stat),
        f"{at['cpuset']}/cpuset.cpus": f"{one.cpus}\n",
        **{f"{directory}/cgroup.procs": procs for directory in at.values()},
        f"{at['cpu']}/tasks": "".join(f"{thread[0]}\n" for thread in one.threads),
        f"{at['memory']}/memory.numa_stat": "total=9 N0=9\n"
        + " ".join(["hierarchical_total=9", *(f"N{zone}={size // 4096}" for zone, size in enumerate(one.numa_bytes))])
        + "\n",
        f"{at['memory']}/memory.oom_control": f"oom_kill_disable 0\nunder_oom 0\noom_kill {one.oom_kills}\n",
    }


def v2_group(one: FakeWorkload, mount: str = CGROUP_ROOT) -> dict[str, str]:
    """The files of a workload's group in the v2 hierarchy."""
    at = f"{mount}/{one.path.strip('/')}"
    stat = (
        [("anon", one.anon_bytes), ("file", one.inactive_file_bytes), ("shmem", one.shmem_bytes)]
        + [(name, 3) for name in KERNEL_FILLER if name != "shmem"]
        + [("inactive_anon", 4), ("active_anon", 5), ("inactive_file", one.inactive_file_bytes), ("active_file", 6)]
        + [(name, 7) for name in KERNEL_FILLER_AFTER]
    )
    return {
        f"{at}/cpu.stat": (
            f"usage_usec {one.cpu_usage_ns // 1000}\nuser_usec 1\nsystem_usec 1\ncore_sched.force_idle_usec 0\n"
            f"nr_periods 10\nnr_throttled 2\nthrottled_usec {one.throttled_us}\nnr_bursts 0\nburst_usec 0\n"
        ),
        f"{at}/memory.current": f"{one.memory_bytes}\n",
        f"{at}/memory.stat": "".join(f"{key} {number}\n" for key, number in stat),
        f"{at}/cpuset.cpus": f"{one.cpus}\n",
        f"{at}/cpuset.cpus.effective": f"{one.cpus}\n",
        f"{at}/cgroup.procs": "".join(f"{pid}\n" for pid in one.procs),
        f"{at}/cgroup.threads": "".join(f"{thread[0]}\n" for thread in one.threads),
        f"{at}/cpu.pressure": pressure_text(one.cpu_some_us),
        f"{at}/memory.pressure": pressure_text(),
        f"{at}/io.pressure": pressure_text(),
        f"{at}/pids.current": f"{len(one.threads)}\n",
        f"{at}/memory.numa_stat": " ".join(["anon", *(f"N{zone}={size}" for zone, size in enumerate(one.numa_bytes))])
        + "\nfile N0=0\nkernel_stack N0=4096\n",
        f"{at}/memory.events": f"low 0\nhigh 0\nmax 0\noom 0\noom_kill {one.oom_kills}\noom_group_kill 0\n",
        f"{at}/io.stat": f"8:0 rbytes={one.disk_bytes[0]} wbytes={one.disk_bytes[1]} rios=1 wios=1 dbytes=0 dios=0\n",
    }
