"""Prints the verdict of a lab for people."""

from collections.abc import Iterator
from textwrap import wrap

from msgspec import UnsetType

from colo_cli.lab_verdict import LabVerdict
from colo_cli.output import counted, span_text
from colo_common.model.printable import printable
from colo_sim.report import OnlineVerdict

__all__ = ["print_verdict", "verdict_lines"]

_JUDGED = {True: "OK", False: "NOT OK", None: "none, because the machines lived less than a simulated minute"}


def print_verdict(verdict: LabVerdict) -> None:
    """Print the verdict, at most 80 characters a line but for notices and errors."""
    for line in verdict_lines(verdict):
        print(printable(line))


def verdict_lines(verdict: LabVerdict) -> Iterator[str]:
    """Harm beside its baselines, gains, costs, what harm is, what the model assumes, notices, errors, and at last OK or not."""
    lived = span_text(int(verdict.simulated_s * 1000))
    yield f"{counted(verdict.nodes, 'machine')}, {lived} of simulated time each ({verdict.lived_pct:g} % of what is claimed)"
    slowed = f", slowed down to {verdict.slowest_speed:.0f}" if verdict.slowest_speed < verdict.speed else ""
    yield f"at {verdict.speed_reached:.0f} simulated seconds a second ({verdict.speed} asked{slowed})"
    yield ""
    yield "                         HARM  DELAY p50    p99     max   LONGEST  BATCH CORE-H"
    yield _online_row("no batch", verdict.without_batch)
    yield _online_row("colo", verdict.with_batch, verdict.reclaimed_core_hours)
    yield _online_row("  without its reflex", verdict.without_reflex)
    yield _online_row("plain CPU requests", verdict.plain_requests)
    yield (
        f"added harm {verdict.added_harm_ratio * 100:.3f} % of machine time, "
        f"for at most {verdict.longest_added_harm_s:.1f} simulated s at a time"
    )
    if verdict.violation_pct is not None:
        yield f"online latency: {verdict.violation_of} broke its SLO in {verdict.violation_pct} % of its values"
    yield from _gains(verdict)
    yield from _real(verdict)
    yield from wrap(verdict.harm, 79)
    yield "Model (docs/verdict.md):"
    for assumption in verdict.assumptions:
        yield f" {assumption}"
    for notice in verdict.notices:
        yield f"note: {notice}"
    for error in verdict.errors:
        yield f"error: {error}"
    for broken in verdict.broken_bounds:
        yield f"broken: {broken}"
    yield f"VERDICT: {_JUDGED[verdict.ok]}"


def _online_row(name: str, online: OnlineVerdict, batch_core_hours: float | None = None) -> str:
    delays = f"{online.delay_p50_pct:>4} % {online.delay_p99_pct:>4} % {online.delay_max_pct:>5} %"
    harm = f"{online.harm_ratio * 100:>6.3f} %"
    batch = online.batch_core_hours if batch_core_hours is None else batch_core_hours
    return f"{name:<20} {harm}     {delays} {online.longest_harm_s:>7.1f} s {batch:>13.1f}"


def _gains(verdict: LabVerdict) -> Iterator[str]:
    worth = (
        "" if verdict.plain_gain_ratio is None else f", {verdict.plain_gain_ratio:.2f} times what plain requests give"
    )
    yield f"CPU utilisation {verdict.online_cpu_util_pct:.1f} % -> {verdict.cpu_util_pct:.1f} %"
    yield f"reclaimed {verdict.reclaimed_core_hours:.1f} core-h{worth}"
    yield (
        f"goodput {verdict.goodput_ratio * 100:.1f} % of ended batch CPU time; "
        f"{verdict.wasted_core_hours:.2f} core-h of work lost"
    )
    yield (
        f"evictions {verdict.evictions}, needless {verdict.needless_evictions} "
        "(no harm in the minute before, even without reflex)"
    )
    yield (
        f"jobs {verdict.completed} completed of {verdict.submitted}; placements {verdict.placements}, "
        f"{verdict.rejections} times no node fitted"
    )
    latency = verdict.submit_to_decided_ms
    yield (
        f"submit -> decided {latency.p50:.0f} / {latency.p99:.0f} ms (p50 / p99, wall); "
        f"{verdict.messages} messages, {verdict.dead_letters} dead"
    )
    yield (
        f"cost {verdict.cores_used:.2f} cores, {sum(verdict.rss_mib.values())} MiB, servers included; "
        f"nodes stale {verdict.stale} times, lost {verdict.lost}"
    )


def _real(verdict: LabVerdict) -> Iterator[str]:
    real = verdict.real
    if isinstance(real, UnsetType) or not real.node:
        return
    ends = ", ".join(f"{count} {how}" for how, count in real.ends.items()) or "none has ended"
    yield f"real processes on {real.node}: {real.replicas_run} ({ends}), as {real.runs_as}"
    values = {path.rpartition("/")[2]: value for path, value in real.knobs.items()}
    for name in ("cpu.shares", "cpu.weight", "cpuset.cpus", "memory.limit_in_bytes", "memory.max"):
        if real.replica and name in values:
            yield f"  {name} {values[name]}, as the kernel showed it while one ran"
