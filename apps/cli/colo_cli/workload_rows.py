"""The table of a node's workloads: what each uses, waits for, and says of itself."""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

from colo_cli.output import ago, bytes_text, cpu_text, print_table, print_text

if TYPE_CHECKING:
    from colo_common.events.node import BusinessMetric, ClassUsage, WorkloadDetail, WorkloadUsage

__all__ = ["class_lines", "print_workloads"]

#: PREEMPT/S counts involuntary context switches, REMOTE is the share of memory outside of the zones whose CPUs it may use.
_COLUMNS: Final = (
    "WORKLOAD", "CLASS", "CPU>", "MEM>", "STALL>", "PREEMPT/S>", "REMOTE>", "METRIC", "SLOWDOWN>", "SLO>", "SLO BROKEN>",
)  # fmt: skip
_ALWAYS: Final = 4


def print_workloads(
    workloads: "Iterable[WorkloadUsage]",
    *,
    system: tuple[int, int] | None = None,
    is_wide: bool = False,
    now_ms: int = 0,
) -> None:
    """Print a row for each, "-" for what is not known, without the columns of which nothing is known.

    `system` is the use (mcpu, bytes) of no workload, as a last row. A slowdown against the workload's own median is marked with *,
    an SLO that the colocation policy gives with +, a host application with #; `now_ms` is the time from which its age is counted.
    """
    shown = list(workloads)
    rows = [_row(one) for one in shown]
    known = [at for at in range(len(_COLUMNS)) if at < _ALWAYS or any(row[at] != "-" for row in rows)]
    if system is not None:
        use = [cpu_text(system[0]), bytes_text(system[1])]
        rows.append(["system", "-", *use, *["-"] * (len(_COLUMNS) - _ALWAYS)])
    print_table([_COLUMNS[at] for at in known], [[row[at] for at in known] for row in rows], "none", is_wide=is_wide)
    if any(one.business is not None and one.business.is_own_baseline for one in shown):
        print_text("* against the median of its own last half hour: no baseline is declared")
    for line in _policy_lines(shown, now_ms):
        print_text(line)


def _policy_lines(shown: "Collection[WorkloadUsage]", now_ms: int) -> list[str]:
    """Which revision of the policy gave SLOs and host applications, and since when they count on the node."""
    revisions = {one.business.slo_revision: one.business.slo_since_ms for one in shown if one.business is not None}
    lines = [
        f"+ by revision {revision} of the policy, in force on this node since {ago(since_ms, now_ms)}"
        for revision, since_ms in sorted(revisions.items())
        if revision
    ]
    hosts = {one.host_revision: one.host_since_ms for one in shown if one.host_revision is not None}
    for revision, since_ms in sorted(hosts.items()):
        by = f"revision {revision} of the policy, since {ago(since_ms, now_ms)}" if revision else "its agent's setting"
        lines.append(f"# host application, by {by}")
    return lines


def _row(one: "WorkloadUsage") -> list[str]:
    return [
        (one.pod or one.workload) + ("" if one.host_revision is None else " #"),
        one.qos.value,
        cpu_text(one.cpu_used_mcpu),
        bytes_text(one.memory_used_bytes),
        "-" if one.stall_pct is None else f"{one.stall_pct}%" + (f" ({one.stall_gate})" if one.stall_gate else ""),
        *_detail_cells(one.detail),
        *_metric_cells(one.business),
    ]


def _detail_cells(detail: "WorkloadDetail | None") -> tuple[str, str]:
    switches = None if detail is None or detail.span_ms == 0 else detail.involuntary_switches
    a_second = "-" if switches is None or detail is None else f"{switches * 1_000 / detail.span_ms:.1f}"
    return a_second, "-" if detail is None or detail.remote_pct is None else f"{detail.remote_pct}%"


def _metric_cells(metric: "BusinessMetric | None") -> tuple[str, str, str, str]:
    if metric is None:
        return "-", "-", "-", "-"
    mark = "*" if metric.is_own_baseline else ""
    slowdown = "-" if metric.slowdown_pct is None else f"{metric.slowdown_pct / 100:.2f}x{mark}"
    window = metric.violations[0] if metric.violations else None
    broken = "-" if window is None or not window.samples else f"{window.above * 100 // window.samples}%"
    slo = "-" if metric.slo_milli is None else f"{metric.slo_milli / 1_000:g}{'+' if metric.slo_revision else ''}"
    return f"{metric.metric}={metric.value_milli / 1_000:g}", slowdown, slo, broken


def class_lines(classes: "Iterable[ClassUsage]") -> list[str]:
    """One line for each class: workloads, CPU, stall, and of BE how much of the CPU time that it wanted it got."""
    lines = []
    for one in classes:
        stall = "not known" if one.stall_pct is None else f"{one.stall_pct}%"
        count = f"{one.workloads} workload{'' if one.workloads == 1 else 's'}"
        text = f"class {one.qos.value}: {count}, {cpu_text(one.cpu_used_mcpu)} CPU, stall {stall}"
        got = "" if one.satisfaction_pct is None else f", gets {one.satisfaction_pct}% of the CPU time that it wants"
        lines.append(text + got)
    return lines
