"""Machines that exist, each from a short spec: what the collector must see the same way on all of them."""

from __future__ import annotations

from typing import Final

from tests.support.machine_tree import FakeWorkload, MachineSpec

__all__ = ["POD_UID", "ZOO"]

POD_UID: Final = "0f3c9d2e-1111-2222-3333-444455556666"

_WEB = FakeWorkload("web", "/web", threads=((101, 0, 0, 0),), cpus="0")
_ARM = "CPU implementer\t: 0x48\nCPU part\t: 0xd01\n"
_AMD = "vendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 9554\nflags\t\t: fpu smt\n"
_VM = "vendor_id\t: GenuineIntel\nmodel name\t: Virtual CPU\nflags\t\t: fpu hypervisor\n"

ZOO: Final = {
    # Two sockets whose sub-NUMA clusters are on: two zones and one L3 domain a socket's half, resctrl with percent.
    "intel-snc2": MachineSpec(
        sockets=2,
        zones_per_socket=2,
        cores_per_zone=8,
        threads=2,
        numbering="split",
        has_resctrl=True,
        resctrl_groups=("colo-batch", "colo-online"),
        workloads=(_WEB,),
    ),
    # Sixteen L3 domains, eight a socket; the second socket's ids begin at 16. Bandwidth in absolute units.
    "amd-16-l3": MachineSpec(
        sockets=2,
        cores_per_zone=16,
        threads=2,
        numbering="split",
        dies=8,
        cores_per_l3=2,
        l3_ids=(*range(8), *range(16, 24)),
        has_resctrl=True,
        cbm_mask="ffff",
        min_bandwidth=1,
        cpuinfo=_AMD,
        cgroup="v2",
        workloads=(_WEB,),
    ),
    "arm-4-zones-mpam": MachineSpec(
        sockets=2,
        zones_per_socket=2,
        cores_per_zone=4,
        l3_ids=(1, 3, 36, 38),
        has_resctrl=True,
        cpuinfo=_ARM,
        cgroup="v2",
        workloads=(_WEB,),
    ),
    "vm-2-cpus": MachineSpec(cores_per_zone=2, has_numa=False, has_l3=False, cpuinfo=_VM, workloads=(_WEB,)),
    "offline-cpus": MachineSpec(sockets=2, cores_per_zone=4, threads=2, offline=(3, 9), workloads=(_WEB,)),
    "v1": MachineSpec(cores_per_zone=4, workloads=(_WEB,)),
    "hybrid": MachineSpec(cores_per_zone=4, cgroup="hybrid", workloads=(_WEB,)),
    # The same pod as a kubelet with the systemd driver and one with cgroupfs makes its group.
    "v2-systemd": MachineSpec(
        cores_per_zone=4,
        cgroup="v2",
        workloads=(
            _WEB,
            FakeWorkload(
                "pod",
                f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD_UID.replace('-', '_')}.slice",
            ),
        ),
    ),
    "v2-cgroupfs": MachineSpec(
        cores_per_zone=4, cgroup="v2", workloads=(_WEB, FakeWorkload("pod", f"/kubepods/burstable/pod{POD_UID}"))
    ),
}
