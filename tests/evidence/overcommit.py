"""What margins that follow the broken promises gain over margins that stay, on the machines of a real cluster.

`python -m tests.evidence overcommit --trace FILE [--target 0.01] [--json] [--svg FILE]`. The lines of FILE begin with machine,
second and CPU in percent (the machine usage of Alibaba's cluster trace of 2018, plain or .gz). Each machine's samples go through
the core of the overcommit service as the online usage of a node of 100 CPUs; a promise is the number in force after a sample. It
is broken within a time when a later sample of that time leaves less than was promised; where no sample follows in that time
nothing is known, and it counts neither way. The first half of each machine's samples warms up; figures are of the second half,
means over the machines. Same file, same figures on every machine.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sys
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Final

from msgspec import Struct, to_builtins

from colo_common.events.node import NodeTopologyReported, NodeUsageSampled, ZoneUsage
from colo_common.model.freshness import FreshnessPolicy
from colo_common.model.invalid import InvalidInput
from colo_common.model.topology import uniform_topology
from colo_overcommit.core import OvercommitCore
from colo_overcommit.estimators.estimator import ESTIMATORS, LAST
from colo_overcommit.policy import OvercommitPolicy
from colo_overcommit.risk import RiskPolicy
from tests.evidence.curve import curve
from tests.evidence.tables import table

__all__ = ["TIMES_S", "Kept", "kept", "machines_of", "main", "promises_of"]

TIMES_S: Final = (90, 300, 3_600)
_CURVE_S: Final = (60, 90, 120, 300, 900, 3_600)
_CPUS: Final = 100
_MEMORY_BYTES: Final = 1 << 38
_GAP_S: Final = 3_600
_ROWS_MAX: Final = 5_000_000

#: Second and CPU in mcpu, in order.
Series = Sequence[tuple[int, int]]


class Kept(Struct, frozen=True, kw_only=True):
    """What a policy promised, in percent of the capacity, and by time in seconds what percentage of the promises was broken."""

    promised_pct: float
    broken_pct: Mapping[int, float]
    worst_pct: Mapping[int, float]


def machines_of(path: Path) -> dict[str, Series]:
    """The series of each machine of a file. Raises InvalidInput naming the line of what is no such file."""
    found: dict[str, dict[int, int]] = {}
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
        for number, row in enumerate(csv.reader(TextIOWrapper(stream, "utf-8")), start=1):
            try:
                machine, second, pct = row[0], int(row[1]), float(row[2] or "nan")
            except (IndexError, ValueError) as error:
                raise InvalidInput(f"{path.name} line {number}", "must be machine,second,CPU percent", row) from error
            if 0 <= pct <= 100:
                found.setdefault(machine, {})[second] = round(pct * _CPUS * 10)
            if number > _ROWS_MAX:
                raise InvalidInput(path.name, f"must have at most {_ROWS_MAX} lines", number)
    if not found:
        raise InvalidInput(path.name, "must have a line", "none")
    return {machine: sorted(series.items()) for machine, series in sorted(found.items())}


def promises_of(series: Series, risk: RiskPolicy, estimator: str = LAST) -> list[int]:
    """The batch CPU in force after each sample, in mcpu, by the service's own core with its default policy otherwise."""
    policy = OvercommitPolicy(
        node_reserved_cpu_mcpu=0,
        risk=risk,
        estimator=estimator,
        # The trace has a sample a minute and gaps; what lateness does to a promise is not measured here.
        freshness=FreshnessPolicy(stale_after_ms=_GAP_S * 1_000, lost_after_ms=2 * _GAP_S * 1_000, warm_samples=1),
    )
    core = OvercommitCore(policy)
    topology = uniform_topology(sockets=1, zones_per_socket=1, cpus_per_zone=_CPUS, memory_bytes_per_zone=_MEMORY_BYTES)
    core.handle(NodeTopologyReported(node="m", topology=topology), series[0][0] * 1_000)
    promised = []
    for seq, (second, used_mcpu) in enumerate(series, start=1):
        at_ms = second * 1_000
        zones = (ZoneUsage(zone=0, cpu_used_mcpu=used_mcpu, memory_used_bytes=0),)
        sample = NodeUsageSampled(
            node="m",
            at_ms=at_ms,
            sample_seq=seq,
            interval_ms=1_000,
            cpu_used_mcpu=used_mcpu,
            memory_used_bytes=0,
            zones=zones,
        )
        core.handle(sample, at_ms)
        published = core.nodes["m"].published
        promised.append(published.batch_cpu_mcpu if published else 0)
    return promised


def kept(machines: Iterable[Series], risk: RiskPolicy, times_s: Sequence[int], estimator: str = LAST) -> Kept:
    """The promises of all machines under a policy, and the shares that were broken within each time."""
    promised_pct: list[float] = []
    broken: dict[int, list[float]] = {time_s: [] for time_s in times_s}
    for series in machines:
        promised = promises_of(series, risk, estimator)
        first = len(series) // 2
        promised_pct.append(sum(promised[first:]) / len(promised[first:]) / (_CPUS * 10))
        for time_s in times_s:
            broken[time_s].append(_broken_pct(series, promised, first, time_s))
    return Kept(
        promised_pct=_mean(promised_pct),
        broken_pct={time_s: _mean(shares) for time_s, shares in broken.items()},
        worst_pct={time_s: round(max(shares), 2) for time_s, shares in broken.items()},
    )


def _broken_pct(series: Series, promised: Sequence[int], first: int, time_s: int) -> float:
    """The percentage of the promises from sample `first` on that a later sample within `time_s` broke."""
    judged = broken = 0
    # The samples of the time after the promise that could be its largest, with their numbers.
    ahead: deque[tuple[int, int]] = deque()
    following = first + 1
    for number in range(first, len(series)):
        end_s = series[number][0] + time_s
        while following < len(series) and series[following][0] <= end_s:
            while ahead and ahead[-1][1] <= series[following][1]:
                ahead.pop()
            ahead.append((following, series[following][1]))
            following += 1
        while ahead and ahead[0][0] <= number:
            ahead.popleft()
        if ahead:
            judged += 1
            broken += promised[number] > max(_CPUS * 1_000 - ahead[0][1], 0)
    return 100 * broken / judged if judged else 0.0


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 2)


def main(words: Sequence[str]) -> int:
    """Measure and print; 2 for a file that is none."""
    parser = argparse.ArgumentParser(prog="python -m tests.evidence overcommit")
    parser.add_argument("--trace", type=Path, required=True, help="machine,second,CPU percent,... (CSV, plain or .gz)")
    parser.add_argument("--target", type=float, default=0.01, help="the share of promises that may be broken")
    parser.add_argument("--estimators", action="store_true", help="every estimator, not the newest use alone")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--svg", type=Path, help="draw what can be promised by take-back time into this file")
    args = parser.parse_args(words)
    try:
        machines = list(machines_of(args.trace).values())
        risks = {
            time_s: RiskPolicy(target_ratio=args.target, take_back_ms=time_s * 1_000, least_margin_pct=0)
            for time_s in _CURVE_S
        }
        for risk in risks.values():
            risk.validate()
    except (InvalidInput, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    measure = partial(kept, machines, times_s=TIMES_S)
    found = {"a margin that stays": measure(RiskPolicy())}
    for name in (LAST, *ESTIMATORS) if args.estimators else (LAST,):
        found |= {f"{name}, risk over {time_s} s": measure(risks[time_s], estimator=name) for time_s in TIMES_S}
    if args.svg is not None:
        points = [(time_s, kept(machines, risks[time_s], (time_s,)).promised_pct) for time_s in _CURVE_S]
        args.svg.write_text(curve(points, "take-back time (s)", f"promised (% of CPU), {args.target:.1%} broken"))
    if args.json:
        sys.stdout.write(f"{json.dumps({name: to_builtins(each, str_keys=True) for name, each in found.items()})}\n")
        return 0
    columns = ("promised", *(f"broken in {time_s} s" for time_s in TIMES_S))
    rows = {
        name: (
            f"{each.promised_pct:.1f} %",
            *(f"{each.broken_pct[time_s]:.2f} % (worst {each.worst_pct[time_s]:.2f})" for time_s in TIMES_S),
        )
        for name, each in found.items()
    }
    title = f"{len(machines)} machines, the second half of each; at most {args.target:.1%} of promises may break"
    sys.stdout.write(f"{table(title, columns, rows)}\n")
    return 0
