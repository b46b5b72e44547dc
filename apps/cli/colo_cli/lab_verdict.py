"""The verdict of a lab: what it gained, what online work felt of it, what it cost, and whether that is OK."""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import UNSET, Struct, UnsetType

from colo_cli.lab_bounds import ASSUMPTIONS, Bound, bounds_of, harm_sentence
from colo_cli.lab_observe import LabObserver
from colo_cli.lab_real import RealAccount
from colo_sim.machine_reading import MachineReport
from colo_sim.report import OnlineVerdict, Verdict, verdict_from_ledgers

__all__ = ["LabFigures", "LabVerdict", "Latency", "verdict_of"]

_JUDGED_FROM_MS: Final = 60_000
_LAG_S: Final = 1.0


class LabFigures(Struct, frozen=True, kw_only=True):
    """The figures that are on no bus and in no machine's account. `cpu_s` and `rss_bytes` are by process.

    `speed` was asked for; `speed_reached` is the mean of the run, `slowest_speed` its least, `speed_at_end` its last.
    """

    nodes: int
    speed: int
    duration_s: float = 0.0
    speed_reached: float = 0.0
    slowest_speed: float = 0.0
    speed_at_end: float = 0.0
    submitted: int = 0
    first_placement_s: float | None = None
    cpu_s: Mapping[str, float] = {}
    rss_bytes: Mapping[str, int] = {}
    errors: Sequence[str] = ()
    notices: Sequence[str] = ()


class Latency(Struct, frozen=True, kw_only=True):
    """Percentiles in ms of wall time, over `count` values."""

    p50: float
    p99: float
    count: int


class LabVerdict(Struct, frozen=True, kw_only=True):
    """The one JSON object of `colo lab --json`. `ok` is None when nothing is broken but the machines lived less than a minute:
    harm was not judged. `violation_pct` is the highest rate at which online work broke the SLO of its own latency
    (`colo_common.model.slo`), None where none says it, and `violation_of` its "node workload".

    `simulated_s` is what each machine lived on average, `claimed_s` what the simulated clock showed, `lived_pct` the former of
    the latter. `speed` was asked for, `speed_reached` is the mean of the run, `slowest_speed` its least. What online work felt
    comes four times: `with_batch` as it was, `without_batch`, `without_reflex` and `plain_requests`. Latencies and `duration_s`
    are wall time.
    """

    ok: bool | None
    bounds: tuple[Bound, ...]
    broken_bounds: tuple[str, ...]
    harm: str
    assumptions: tuple[str, ...]
    nodes: int
    duration_s: float
    speed: int
    speed_reached: float
    slowest_speed: float
    simulated_s: float
    claimed_s: float
    lived_pct: float
    stale: int
    lost: int
    submitted: int
    placements: int
    rejections: int
    evictions: int
    needless_evictions: int
    completed: int
    replicas_completed: int
    online_cpu_util_pct: float
    cpu_util_pct: float
    reclaimed_core_hours: float
    completed_core_hours: float
    wasted_core_hours: float
    goodput_ratio: float
    plain_gain_ratio: float | None
    delay_bound_pct: float
    with_batch: OnlineVerdict
    without_batch: OnlineVerdict
    without_reflex: OnlineVerdict
    plain_requests: OnlineVerdict
    added_harm_ratio: float
    longest_added_harm_s: float
    violation_pct: int | None
    violation_of: str
    worst_machine_added_harm_ratio: float
    oom_kills: int
    submit_to_decided_ms: Latency
    first_placement_s: float | None
    messages: int
    dead_letters: int
    placed_twice: int
    redelivered: int
    cores_used: float
    cpu_s: dict[str, float]
    rss_mib: dict[str, int]
    notices: tuple[str, ...]
    errors: tuple[str, ...]
    real: RealAccount | UnsetType = UNSET


def verdict_of(
    figures: LabFigures, seen: LabObserver, report: MachineReport, real: RealAccount | UnsetType = UNSET
) -> LabVerdict:
    """The verdict as one object. Utilisation and harm are the machines' own account; counts are of facts on the bus."""
    ledgers = [report.ledgers[name] for name in sorted(report.ledgers)]
    machines = verdict_from_ledgers(ledgers)
    lived_ms = sum(ledger.node_ms for ledger in ledgers) // len(ledgers) if ledgers else 0
    lived_pct = _lived_pct(lived_ms, report.claimed_ms, figures.speed_at_end)
    bounds = _bounds(machines, seen, lived_ms, lived_pct, errors=len(figures.errors))
    broken = tuple(bound.text for bound in bounds if not bound.holds)
    took_s = figures.duration_s
    return LabVerdict(
        ok=not broken if broken or lived_ms >= _JUDGED_FROM_MS else None,
        bounds=bounds,
        broken_bounds=broken,
        harm=harm_sentence(report.delay_bound_pct),
        assumptions=ASSUMPTIONS,
        nodes=figures.nodes,
        duration_s=round(took_s, 1),
        speed=figures.speed,
        speed_reached=round(figures.speed_reached, 1),
        slowest_speed=round(figures.slowest_speed, 1),
        simulated_s=lived_ms / 1000,
        claimed_s=report.claimed_ms / 1000,
        lived_pct=lived_pct,
        stale=seen.stale,
        lost=seen.lost,
        submitted=figures.submitted,
        placements=seen.placements,
        rejections=seen.counts["PlacementRejected"],
        evictions=seen.counts["EvictionRequested"],
        needless_evictions=machines.needless_evictions,
        completed=seen.state_counts()["Completed"],
        replicas_completed=seen.ends["succeeded"],
        online_cpu_util_pct=machines.online_cpu_util_pct,
        cpu_util_pct=machines.cpu_util_pct,
        reclaimed_core_hours=machines.reclaimed_core_hours,
        completed_core_hours=machines.completed_core_hours,
        wasted_core_hours=machines.wasted_core_hours,
        goodput_ratio=machines.goodput_ratio,
        plain_gain_ratio=machines.plain_gain_ratio,
        delay_bound_pct=report.delay_bound_pct,
        with_batch=machines.with_batch,
        without_batch=machines.without_batch,
        without_reflex=machines.without_reflex,
        plain_requests=machines.plain_requests,
        added_harm_ratio=machines.added_harm_ratio,
        longest_added_harm_s=machines.longest_added_harm_s,
        violation_pct=None if seen.violation is None else seen.violation[1].violation_pct,
        violation_of="" if seen.violation is None else f"{seen.violation[0]} {seen.violation[1].workload}",
        worst_machine_added_harm_ratio=machines.worst_machine_added_harm_ratio,
        oom_kills=machines.oom_kills,
        submit_to_decided_ms=_latency(seen),
        first_placement_s=figures.first_placement_s,
        messages=seen.messages,
        dead_letters=seen.counts["DeadLettered"],
        placed_twice=len(seen.placed_twice),
        redelivered=seen.redelivered,
        cores_used=round(sum(figures.cpu_s.values()) / took_s, 3) if took_s > 0 else 0.0,
        cpu_s={name: round(value, 2) for name, value in sorted(figures.cpu_s.items())},
        rss_mib={name: value >> 20 for name, value in sorted(figures.rss_bytes.items())},
        notices=tuple(figures.notices),
        errors=tuple(figures.errors),
        real=real,
    )


def _bounds(machines: Verdict, seen: LabObserver, lived_ms: int, lived_pct: float, *, errors: int) -> tuple[Bound, ...]:
    """All bounds; those of harm are left out where the machines lived too short for them."""
    bounds = bounds_of(
        machines,
        lived_pct=lived_pct,
        lost=seen.lost,
        dead_letters=seen.counts["DeadLettered"],
        placed_twice=len(seen.placed_twice),
        errors=errors,
        violation_pct=None if seen.violation is None else seen.violation[1].violation_pct,
    )
    return bounds if lived_ms >= _JUDGED_FROM_MS else tuple(bound for bound in bounds if "harm" not in bound.name)


def _latency(seen: LabObserver) -> Latency:
    p50, p99 = round(seen.latency_ms(50), 1), round(seen.latency_ms(99), 1)
    return Latency(p50=p50, p99=p99, count=len(seen.latencies_ms()))


def _lived_pct(lived_ms: int, claimed_ms: int, speed_at_end: float) -> float:
    """What the machines lived of the time claimed, down to 0.1; the last second of wall time may be under way still.

    By the speed at the end that second is as much simulated time as it was: by the one asked for it would excuse minutes.
    """
    owed_ms = claimed_ms - int(speed_at_end * _LAG_S * 1000)
    return 100.0 if owed_ms <= lived_ms else lived_ms * 1000 // owed_ms / 10
