"""The verdict of a lab: CPU reclaimed, its costs, and the latency of decisions."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from colo_cli.lab_observe import LabObserver
from colo_sim.machine_reading import MachineLedger
from colo_sim.report import verdict_from_ledgers

__all__ = ["LabFigures", "verdict_of"]


class LabFigures(Struct, frozen=True, kw_only=True):
    """The figures that are on no bus and in no machine's account. `cpu_s` and `rss_bytes` are by process."""

    nodes: int
    speed: int
    duration_s: float
    simulated_s: float
    submitted: int
    first_placement_s: float | None
    cpu_s: Mapping[str, float]
    rss_bytes: Mapping[str, int]
    errors: Sequence[str]
    notices: Sequence[str] = ()


def verdict_of(figures: LabFigures, seen: LabObserver, ledgers: Mapping[str, MachineLedger]) -> dict[str, Any]:
    """The verdict as one object. Utilisation and violations are the machines' own account; counts are of facts on the bus."""
    machines = verdict_from_ledgers(ledgers[name] for name in sorted(ledgers))
    latencies = seen.latencies_ms()
    cores = sum(figures.cpu_s.values()) / figures.duration_s if figures.duration_s > 0 else 0.0
    return {
        "nodes": figures.nodes,
        "duration_s": round(figures.duration_s, 1),
        "speed": figures.speed,
        "simulated_s": round(figures.simulated_s, 1),
        "submitted": figures.submitted,
        "placements": seen.placements,
        "rejections": seen.counts["PlacementRejected"],
        "evictions": seen.counts["EvictionRequested"],
        "completed": seen.state_counts()["Completed"],
        "replicas_completed": seen.ends["succeeded"],
        "online_cpu_util_pct": machines.online_cpu_util_pct,
        "cpu_util_pct": machines.cpu_util_pct,
        "reclaimed_core_hours": machines.reclaimed_core_hours,
        "completed_core_hours": machines.completed_core_hours,
        "wasted_core_hours": machines.wasted_core_hours,
        "goodput_ratio": machines.goodput_ratio,
        "slo_violation_ratio": machines.slo_violation_ratio,
        "slo_violation_alone_ratio": machines.slo_violation_alone_ratio,
        "slo_violation_added_ratio": machines.slo_violation_added_ratio,
        "oom_kills": machines.oom_kills,
        "submit_to_decided_ms": {
            "p50": round(seen.latency_ms(50), 1),
            "p99": round(seen.latency_ms(99), 1),
            "count": len(latencies),
        },
        "first_placement_s": figures.first_placement_s,
        "messages": seen.messages,
        "dead_letters": seen.counts["DeadLettered"],
        "placed_twice": len(seen.placed_twice),
        "redelivered": seen.redelivered,
        "cores_used": round(cores, 3),
        "cpu_s": {name: round(value, 2) for name, value in sorted(figures.cpu_s.items())},
        "rss_mib": {name: value >> 20 for name, value in sorted(figures.rss_bytes.items())},
        "notices": list(figures.notices),
        "errors": list(figures.errors),
    }
