"""Every estimator at an equal share of broken promises: tuned on days 1 to 4 of a trace, reported on days 5 to 8.

A setting is an estimator, its number where it has one, and a margin that stays. For each estimator and take-back time the boldest
setting is chosen that broke no more than the equal share on days 3 and 4, of all machines together: on days 1 and 2 estimators
learn, and those of a period say nothing yet. The choice is made by the formula alone; then the chosen setting goes through the core
of the service from the first sample on, and days 5 to 8 are reported.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from colo_common.model.estimator_rules import LAST
from colo_overcommit.estimators.estimator import ESTIMATORS
from colo_overcommit.risk import RiskPolicy
from tests.evidence.promises import Kept, Series, by_formula, expected_of, kept_between, promises_of
from tests.evidence.tables import table

__all__ = ["Setting", "Tuned", "Tuner", "lines_of", "settings_of", "tuned_table"]

_DAY_S: Final = 86_400
_LEARNT_S: Final = 2 * _DAY_S
_TUNED_S: Final = 4 * _DAY_S
_MARGINS: Final = range(91)
#: The estimators' own numbers, from bold to cautious; beyond the last one the margin grows.
_NUMBERS: Final[Mapping[str, Sequence[str]]] = {
    "n-sigma": [f"{quarter / 4:g}" for quarter in range(21)],
    "peak": [f"{quarter / 4:g}" for quarter in range(21)],
    "histogram": ["0.5", "0.6", "0.7", "0.8", "0.85", "0.9", "0.95", "0.98", "0.99", "1"],
    "rc-like": ["0.5", "0.6", "0.7", "0.8", "0.85", "0.9", "0.95", "0.98", "0.99", "1"],
}


class Setting(NamedTuple):
    """What an operator can set: `estimator` (with its number, "n-sigma:2.5") and the margin in percent of the capacity."""

    estimator: str
    margin_pct: int

    def __str__(self) -> str:
        return f"{self.estimator} + {self.margin_pct} %"


class Tuned(Struct, frozen=True, kw_only=True):
    """The chosen setting, what it broke in percent where it was chosen, and what it kept on the days after."""

    setting: Setting
    chosen_pct: float
    kept: Kept


def settings_of(name: str) -> list[Setting]:
    """The settings of an estimator from the boldest to the most cautious."""
    numbers = [f"{name}:{number}" for number in _NUMBERS.get(name, ())] or [name]
    return [
        *(Setting(estimator, 0) for estimator in numbers),
        *(Setting(numbers[-1], margin) for margin in _MARGINS[1:]),
    ]


class Tuner:
    """Chooses and reports on these machines; what a setting did is computed once."""

    def __init__(self, machines: Sequence[Series], times_s: Sequence[int]) -> None:
        self._machines, self._times_s = machines, times_s
        self._known: list[Series] = [
            found for series in machines if (found := [each for each in series if each[0] < _TUNED_S])
        ]
        self._expected: dict[str, list[list[int]]] = {}
        self._tried: dict[Setting, Kept] = {}
        self._reported: dict[Setting, Kept] = {}

    def tried(self, setting: Setting) -> Kept:
        """What the setting did on days 3 and 4, by the formula."""
        if setting not in self._tried:
            if setting.estimator not in self._expected:
                self._expected[setting.estimator] = [expected_of(series, setting.estimator) for series in self._known]
            promised = [
                by_formula(series, expected, 100 - setting.margin_pct)
                for series, expected in zip(self._known, self._expected[setting.estimator], strict=True)
            ]
            self._tried[setting] = kept_between(self._known, promised, self._times_s, _LEARNT_S)
        return self._tried[setting]

    def reported(self, setting: Setting) -> Kept:
        """What the setting did on days 5 to 8, through the core."""
        if setting not in self._reported:
            promised = [
                promises_of(series, RiskPolicy(), setting.estimator, 100 - setting.margin_pct)
                for series in self._machines
            ]
            self._reported[setting] = kept_between(self._machines, promised, self._times_s, _TUNED_S)
        return self._reported[setting]

    def tuned(self, name: str, time_s: int, most_pct: float) -> Tuned:
        """The boldest setting of the estimator that broke at most so many percent within the time; else the most cautious one."""
        settings = settings_of(name)
        at = bisect_left(settings, True, key=lambda each: self.tried(each).broken_pct[time_s] <= most_pct)
        setting = settings[min(at, len(settings) - 1)]
        return Tuned(setting=setting, chosen_pct=self.tried(setting).broken_pct[time_s], kept=self.reported(setting))


def tuned_table(
    machines: Sequence[Series], times_s: Sequence[int], target_pct: float, fixed: Setting
) -> tuple[str, dict[str, dict[int, Tuned]]]:
    """The table of all estimators for two shares: the target, and what the fixed setting broke where all are chosen."""
    tuner = Tuner(machines, times_s)
    first = tuner.tried(fixed)
    shares: dict[str, Mapping[int, float]] = {
        f"{target_pct:g} % broken": dict.fromkeys(times_s, target_pct),
        f"as much broken as by {fixed}": first.broken_pct,
    }
    found: dict[str, dict[int, Tuned]] = {}
    texts = []
    for title, most in shares.items():
        rows = {str(fixed): tuple(_cell(tuner.reported(fixed), time_s, "") for time_s in times_s)}
        for name in (LAST, *ESTIMATORS):
            chosen = {time_s: tuner.tuned(name, time_s, most[time_s]) for time_s in times_s}
            found[f"{name}, {title}"] = chosen
            rows[name] = tuple(_cell(each.kept, time_s, str(each.setting)) for time_s, each in chosen.items())
        columns = tuple(f"{time_s} s, {most[time_s]:.2f} % on days 3-4" for time_s in times_s)
        texts.append(table(f"chosen on days 3 and 4, days 5 to 8: {title}", columns, rows))
    return "\n\n".join(texts), found


def _cell(kept: Kept, time_s: int, setting: str) -> str:
    shown = f"{kept.promised_pct:.1f} % promised, {kept.broken_pct[time_s]:.2f} % broken"
    return f"{shown} [{setting}]" if setting else shown


def lines_of(found: Mapping[str, Mapping[int, Tuned]], share: str) -> dict[str, list[tuple[int, float]]]:
    """What each estimator promised by take-back time, of the table whose title begins with the share, as lines of a drawing."""
    return {
        name: [(time_s, each.kept.promised_pct) for time_s, each in chosen.items()]
        for name, chosen in found.items()
        if name.split(", ", 1)[1].startswith(share)
    }
