"""Prints the verdict of a lab as a table."""

from typing import Any

from colo_cli.output import print_table

__all__ = ["print_verdict"]


def print_verdict(verdict: dict[str, Any]) -> None:
    """Print the gains, the costs and the run as a table, then a line for each notice and error."""
    latency = verdict["submit_to_decided_ms"]
    rows = [
        ["CPU utilisation without colo", f"{verdict['online_cpu_util_pct']:.1f} %", "what the online services ask for"],
        ["CPU utilisation with colo", f"{verdict['cpu_util_pct']:.1f} %", ""],
        [
            "reclaimed",
            f"{verdict['reclaimed_core_hours']:.1f} core-h",
            f"in {verdict['simulated_s'] / 3600:.1f} simulated hours",
        ],
        ["batch goodput", f"{verdict['goodput_ratio'] * 100:.1f} %", "finished, of finished and lost to evictions"],
        ["online violations", f"{verdict['slo_violation_ratio'] * 100:.3f} %", "of machine time, with batch work"],
        ["  without any batch work", f"{verdict['slo_violation_alone_ratio'] * 100:.3f} %", ""],
        ["evictions", str(verdict["evictions"]), f"{verdict['wasted_core_hours']:.2f} core-h of work lost"],
        ["jobs", f"{verdict['completed']} of {verdict['submitted']}", "completed of submitted"],
        ["placements", str(verdict["placements"]), f"{verdict['rejections']} times no node fitted"],
        ["submit -> decided", f"{latency['p50']:.0f} / {latency['p99']:.0f} ms", "p50 / p99, wall time"],
        ["messages", str(verdict["messages"]), f"{verdict['dead_letters']} dead letters"],
        [
            "cost of it all",
            f"{verdict['cores_used']:.2f} cores",
            f"{sum(verdict['rss_mib'].values())} MiB, servers included",
        ],
    ]
    real = verdict.get("real")
    if real is not None and real["node"]:
        ends = ", ".join(f"{count} {how}" for how, count in real["ends"].items()) or "none has ended"
        rows.append([f"real processes on {real['node']}", str(real["replicas_run"]), ends])
        values = {path.rpartition("/")[2]: value for path, value in real["knobs"].items()}
        for name in ("cpu.shares", "cpu.weight", "cpuset.cpus", "memory.limit_in_bytes", "memory.max"):
            if real["replica"] and name in values:
                rows.append([f"  {name}", values[name], "as the kernel showed it while one ran"])
    print_table(["VERDICT", "VALUE>", ""], rows, "")
    for notice in verdict["notices"]:
        print(f"note: {notice}")
    for error in verdict["errors"]:
        print(f"error: {error}")
