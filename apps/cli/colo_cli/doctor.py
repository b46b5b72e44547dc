"""`colo doctor`: the capabilities of this machine, and what a missing one means."""

import os
import platform
from typing import Annotated, Any, Final

from cyclopts import Parameter

from colo_cli.failure import Failure
from colo_cli.output import Format, SettingWords, print_data, print_table

__all__ = ["diagnose", "doctor"]

# The meaning of a missing capability, by its name.
_MEANING: Final = {
    "cgroup": "no batch work can be run here; simulated nodes work",
    "cgroup-cpu": "batch CPU cannot be suppressed here",
    "cgroup-cpuset": "batch work cannot be kept in its NUMA zones",
    "cgroup-memory": "batch memory cannot be limited",
    "cgroup-hugetlb": "huge pages are not offered",
    "cgroup-freezer": "a pause stops each process of a group by a signal instead of all at once",
    "cpu-quota": "batch CPU cannot be capped hard",
    "schedstat": "stall is known from pressure files only",
    "virtual": "stolen time says nothing here",
    "psi": "stall time is unknown; usage decides alone",
    "numa": "one zone: placement has no zones to choose from",
    "resctrl-l3": "the last-level cache is shared by all",
    "resctrl-mb": "memory bandwidth is shared by all",
    "root": "`colo lab --real` and the executor need root",
    "cgroup-write": "the executor cannot enforce anything here; simulated nodes work",
}


def diagnose() -> list[dict[str, Any]]:
    """One entry for each capability of the machine and each program of the lab: name, present, detail, means."""
    from colo_cli.servers import ServerMissing, find_nats_server, find_redis_server
    from colo_collector.files import FileReader
    from colo_collector.kernel_probe import probe_kernel

    rows: list[dict[str, Any]] = [{"name": "python", "present": True, "detail": platform.python_version(), "means": ""}]
    with FileReader() as reader:
        probed = probe_kernel(reader, is_root=os.geteuid() == 0, subtree="colo")
    for capability in probed.capabilities:
        rows.append(
            {
                "name": capability.name,
                "present": capability.present,
                "detail": capability.detail,
                "means": "" if capability.present else _MEANING.get(capability.name, ""),
            }
        )
    for name, find in (("nats-server", find_nats_server), ("redis-server", find_redis_server)):
        try:
            rows.append({"name": name, "present": True, "detail": str(find()), "means": ""})
        except ServerMissing as error:
            means = "the lab needs one: install the lab extra or give its URL"
            rows.append({"name": name, "present": False, "detail": error.rule, "means": means})
    return rows


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
        raise Failure(f"{settings[0] if settings else '--monitor'}: only goes with --cluster", 2)
    rows = diagnose()
    if output != "table":
        print_data(rows, output)
        return 0
    print_table(
        ["CAPABILITY", "", "DETAIL", "MEANS"],
        [[row["name"], "yes" if row["present"] else "no", row["detail"], row["means"]] for row in rows],
        "nothing found",
    )
    return 0
