"""Where colo places the requests of a real cluster, beside plain schedulers: packing, zones, fragments and regret.

`python -m tests.evidence placement [--nodes N] [--seed S] [--trace FILE] [--json]`. Same arguments, same figures on every machine,
but for the time of a decision. Requests that no machine of a fleet could hold are left out for everybody alike.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from colo_common.model.invalid import InvalidInput
from tests.evidence.baselines import BASELINES
from tests.evidence.fleets import Fleet, openb_fleet, uniform_fleet
from tests.evidence.measures import Scatter, pct
from tests.evidence.mix import Mix, read_mix, real_mix
from tests.evidence.placers import COLO_WEIGHTS, ByColo, Placer
from tests.evidence.regret import NODES_MOST, REPLICAS, regrets, small_clusters
from tests.evidence.replay import Saturated, Steady, saturate, steady
from tests.evidence.tables import table

__all__ = ["PLACERS", "main", "measured", "reported"]

NODES_MAX: Final = 10_000
PLACERS: Final[Mapping[str, Callable[[Fleet], Placer]]] = {
    **{name: partial(ByColo, weights=weights) for name, weights in COLO_WEIGHTS.items()},
    **BASELINES,
}
_REFERENCE: Final = next(iter(BASELINES))
_SMALL: Final = 300

Figures = dict[str, Any]


# ---- figures


def measured(nodes: int, seed: int, mix: Mix, smalls: int = _SMALL) -> Figures:
    """All figures: numbers and names only, ready for JSON. What is under `decision_us` depends on the machine."""
    if not 1 <= nodes <= NODES_MAX:
        raise InvalidInput("--nodes", f"must be from 1 to {NODES_MAX}", nodes)
    timing: Figures = {}
    fleets = [_of_fleet(fleet, mix, seed, timing) for fleet in (openb_fleet(nodes), uniform_fleet(nodes))]
    return {
        "mix": mix.name,
        "seed": seed,
        "fleets": fleets,
        "regret": _of_regret(mix, seed, smalls),
        "decision_us": timing,
    }


def _of_fleet(fleet: Fleet, mix: Mix, seed: int, timing: Figures) -> Figures:
    left_out = [ask for ask, _ in mix.classes if not fleet.holds(ask)]
    fitting = mix.without(left_out)
    if not fitting.classes:
        raise InvalidInput("--nodes", "must give a machine that can hold some request", len(fleet.machines))
    full: Figures = {}
    moving: Figures = {}
    for name, placer_of in PLACERS.items():
        filled = saturate(fleet, fitting, placer_of(fleet), seed)
        timing[f"{fleet.name}: {name}"] = round(filled.decision_us, 1)
        full[name] = _of_saturated(filled)
        moving[name] = _of_steady(steady(fleet, fitting, placer_of(fleet), seed))
    for figures in (full, moving):
        reference = figures[_REFERENCE]
        for each in figures.values():
            each["crossing_ratio"] = _ratio(each["crossing_pct"], reference["crossing_pct"])
    for each in full.values():
        each["packing_ratio"] = _ratio(_packed(each), _packed(full[_REFERENCE]))
    return {
        "fleet": fleet.name,
        "cpus": fleet.cpu_mcpu // 1_000,
        "classes": len(fitting.classes),
        "left_out": len(left_out),
        "full": full,
        "steady": moving,
    }


def _of_saturated(filled: Saturated) -> Figures:
    def held(moment: Any) -> Figures | None:
        return moment and {"cpu_pct": round(moment.cpu_pct, 2), "memory_pct": round(moment.memory_pct, 2)}

    return {
        "offered": filled.offered,
        "placed": filled.placed,
        "first_refused": held(filled.at_first),
        "one_pct_refused": held(filled.at_one_pct),
        "end": held(filled.at_end),
        "half": {"nodes_used": filled.half_nodes, **_of_scatter(filled.half_scatter)},
        **_of_scatter(filled.scatter),
        "fragments": {name: round(share, 2) for name, share in filled.fragments._asdict().items()},
    }


def _of_steady(moved: Steady) -> Figures:
    return {
        "offered": moved.offered,
        "placed": moved.placed,
        "refused_pct": round(pct(moved.offered - moved.placed, moved.offered), 2),
        "held_cpu_pct": round(moved.held_cpu_pct, 2),
        "nodes_used": round(moved.nodes_used, 1),
        **_of_scatter(moved.scatter),
    }


def _of_scatter(scatter: Scatter) -> Figures:
    return {
        "in_one_zone_pct": round(pct(scatter.in_one_zone, scatter.replicas), 2),
        "crossing_pct": round(pct(scatter.replicas - scatter.in_one_zone, scatter.replicas), 2),
        "avoidable_pct": round(pct(scatter.avoidable, scatter.replicas), 2),
        "zones_mean": round(scatter.zones / max(1, scatter.replicas), 3),
        "sockets_mean": round(scatter.sockets / max(1, scatter.replicas), 3),
    }


def _of_regret(mix: Mix, seed: int, smalls: int) -> Figures:
    clusters = small_clusters(mix, seed, smalls)
    most = sum(small.most for small in clusters)
    return {
        "clusters": len(clusters),
        "most": most,
        "certain_pct": round(pct(sum(small.least for small in clusters), most), 2),
        "placers": {
            name: {
                "placed_pct": round(pct(found.placed, most), 2),
                "at_optimum_pct": round(pct(found.at_optimum, len(clusters)), 2),
                "worst": found.worst,
            }
            for name, found in regrets(clusters, PLACERS).items()
        },
    }


def _packed(filled: Figures) -> float:
    """CPU held when one per cent was refused; at the end when it never came to that."""
    moment = filled["one_pct_refused"] or filled["end"]
    cpu_pct: float = moment["cpu_pct"]
    return cpu_pct


def _ratio(part: float, whole: float) -> float | None:
    return round(part / whole, 3) if whole else None


# ---- words


def reported(figures: Figures) -> str:
    """The figures as tables."""
    parts = [f"{figures['mix']}, seed {figures['seed']}; ratios are to {_REFERENCE}"]
    for fleet in figures["fleets"]:
        parts += _say_fleet(fleet, figures["decision_us"])
    parts.append(_say_regret(figures["regret"]))
    parts.append(
        "the kernel under the plain schedulers is taken at its best: in one zone is whatever some zone of its node holds\n"
        "decision: CPU time here, one request at a time; colo's includes its score matrix, and it decides equal requests together"
    )
    return "\n\n".join(parts)


def _say_fleet(fleet: Figures, timing: Figures) -> list[str]:
    name, full, moving = fleet["fleet"], fleet["full"], fleet["steady"]
    offered = next(iter(full.values()))["offered"]
    packing = table(
        f"{name}, {fleet['cpus']} CPUs; {fleet['classes']} classes ({fleet['left_out']} left out: larger than any machine)\n"
        f"filled: {offered} requests for 130 % of the CPU, nothing ends; per cent of CPU/memory held",
        (
            "1st refused",
            "1 % refused",
            "ratio",
            "end",
            "placed",
            "nodes at 50 %",
            "fit none",
            "unfit",
            "unfit zone",
            "decision",
        ),
        {
            placer: (
                _held(each["first_refused"]),
                _held(each["one_pct_refused"]),
                _times(each["packing_ratio"]),
                _held(each["end"]),
                f"{each['placed']}",
                f"{each['half']['nodes_used']}",
                *(f"{share:.2f} %" for share in each["fragments"].values()),
                f"{timing[f'{name}: {placer}']:.0f} us",
            )
            for placer, each in full.items()
        },
        "1 % refused: as many as are 1 % of the requests for 100 % of the CPU; ratio: of the CPU held then\n"
        "placed: who refuses large requests places more small ones instead\n"
        "fit none: free CPU on nodes that can take no class; unfit: on nodes that cannot take a class, mean over the mix; "
        "unfit zone: of zones",
    )
    words = ("one zone", "crossing", "avoidable", "zones", "sockets")
    filled = table(
        "zones of the replicas, filled",
        (*words, "one zone at 50 %"),
        {p: (*_zones(each), f"{each['half']['in_one_zone_pct']:.1f} %") for p, each in full.items()},
        "crossing: ratio of the share of replicas in several zones; avoidable: though some zone had room for all of it",
    )
    steadily = table(
        f"coming and ending, 90 % of the CPU asked for: {next(iter(moving.values()))['offered']} requests",
        ("refused", "CPU held", "nodes used", *words),
        {
            p: (
                f"{each['refused_pct']:.2f} %",
                f"{each['held_cpu_pct']:.1f} %",
                f"{each['nodes_used']:.0f}",
                *_zones(each),
            )
            for p, each in moving.items()
        },
    )
    return [packing, filled, steadily]


def _say_regret(regret: Figures) -> str:
    return table(
        f"regret: {regret['clusters']} clusters of at most {NODES_MOST} nodes, {REPLICAS} replicas each, {regret['most']} of them "
        "placed by an exhaustive search that knows all before",
        ("placed", "clusters at the optimum", "worst cluster"),
        {
            placer: (f"{each['placed_pct']:.1f} %", f"{each['at_optimum_pct']:.1f} %", f"-{each['worst']}")
            for placer, each in regret["placers"].items()
        },
        f"certain for colo with any weights, by the bound of tests/evidence/optimum.py: {regret['certain_pct']:.1f} %",
    )


def _zones(each: Figures) -> tuple[str, ...]:
    return (
        f"{each['in_one_zone_pct']:.1f} %",
        _times(each["crossing_ratio"]),
        f"{each['avoidable_pct']:.2f} %",
        f"{each['zones_mean']:.3f}",
        f"{each['sockets_mean']:.3f}",
    )


def _held(moment: Figures | None) -> str:
    return f"{moment['cpu_pct']:.1f}/{moment['memory_pct']:.1f}" if moment else "never"


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"x{ratio:.2f}"


# ---- the command


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 2 for arguments that break a rule."""
    parser = argparse.ArgumentParser(prog="python -m tests.evidence placement", description=__doc__)
    parser.add_argument("--nodes", type=int, default=200, help="machines of each fleet (default 200; openb has 1523)")
    parser.add_argument("--seed", type=int, default=1, help="decides the order of the requests and how long they live")
    parser.add_argument(
        "--trace", type=Path, help="a pods file of the openb trace (CSV, plain or .gz) instead of its mix"
    )
    parser.add_argument("--json", action="store_true", help="all figures as one JSON object")
    chosen = parser.parse_args(arguments)
    try:
        mix = read_mix(chosen.trace) if chosen.trace else real_mix()
        figures = measured(chosen.nodes, chosen.seed, mix)
    except (InvalidInput, OSError, UnicodeDecodeError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write((json.dumps(figures, indent=1) if chosen.json else reported(figures)) + "\n")
    return 0
