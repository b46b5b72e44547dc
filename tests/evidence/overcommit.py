"""What margins that follow the broken promises gain over margins that stay, on the machines of a real cluster.

`python -m tests.evidence overcommit --trace FILE [--target 0.01] [--json] [--svg FILE]`. The lines of FILE begin with machine,
second and CPU in percent (the machine usage of Alibaba's cluster trace of 2018, plain or .gz). Each machine's samples go through
the core of the overcommit service as the online usage of a node of 100 CPUs; a promise is the number in force after a sample. It
is broken within a time when a later sample of that time leaves less than was promised; where no sample follows in that time
nothing is known, and it counts neither way. The first half of each machine's samples warms up; figures are of the second half,
means over the machines. With --estimators every estimator follows, also at an equal share of broken promises (`tuned.py`). Same
file, same figures on every machine.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sys
from collections.abc import Sequence
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Final

from msgspec import to_builtins

from colo_common.model.estimator_rules import LAST
from colo_common.model.invalid import InvalidInput
from colo_overcommit.estimators.estimator import ESTIMATORS
from colo_overcommit.risk import RiskPolicy
from tests.evidence.curve import curve
from tests.evidence.promises import CPUS, Series, kept
from tests.evidence.tables import table
from tests.evidence.tuned import Setting, lines_of, tuned_table

__all__ = ["TIMES_S", "machines_of", "main"]

TIMES_S: Final = (90, 300, 3_600)
_CURVE_S: Final = (60, 90, 120, 300, 900, 3_600)
_ROWS_MAX: Final = 5_000_000
_TODAY: Final = Setting(LAST, 25)


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
                found.setdefault(machine, {})[second] = round(pct * CPUS * 10)
            if number > _ROWS_MAX:
                raise InvalidInput(path.name, f"must have at most {_ROWS_MAX} lines", number)
    if not found:
        raise InvalidInput(path.name, "must have a line", "none")
    return {machine: sorted(series.items()) for machine, series in sorted(found.items())}


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
    text, tuned = tuned_table(machines, TIMES_S, 100 * args.target, _TODAY) if args.estimators else ("", {})
    if args.svg is not None:
        points = [(time_s, kept(machines, risks[time_s], (time_s,)).promised_pct) for time_s in _CURVE_S]
        lines = {"last, risk control": points, **lines_of(tuned, f"{100 * args.target:g} %")}
        args.svg.write_text(curve(lines, "take-back time (s)", f"promised (% of CPU), {args.target:.1%} broken"))
    if args.json:
        sys.stdout.write(f"{json.dumps(to_builtins({**found, **tuned}, str_keys=True))}\n")
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
    sys.stdout.write(f"{table(title, columns, rows)}\n{text and f'{chr(10)}{text}{chr(10)}'}")
    return 0
