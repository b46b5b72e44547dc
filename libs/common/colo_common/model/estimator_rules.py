"""What a policy may say of the estimator of online work: its name, how far it looks ahead, and how far back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from colo_common.model.duration import format_duration
from colo_common.model.invalid import InvalidInput
from colo_common.model.nearest import hint

__all__ = [
    "ESTIMATOR_NAMES",
    "HISTORY_MS",
    "HORIZON_MS",
    "HORIZON_MS_MOST",
    "LAST",
    "LOOKING_AHEAD",
    "check_estimator",
    "check_history",
    "check_horizon",
]

_DAY_MS: Final = 86_400_000
LAST: Final = "last"
"""The newest value is all that is expected: the margin alone covers what comes."""
ESTIMATOR_NAMES: Final = (
    LAST,
    "dsp",
    "histogram",
    "n-sigma",
    "peak",
    "periodic",
    "pid",
    "rc-like",
    "window",
)
LOOKING_AHEAD: Final = ("periodic", "dsp")
"""The estimators that foretell a span of time from the days before; the others know no horizon."""
HORIZON_MS: Final = 900_000
HISTORY_MS: Final = 7 * _DAY_MS
_HORIZON_MS_LEAST: Final = 300_000
HORIZON_MS_MOST: Final = 12 * 3_600_000
_HISTORY_MS_LEAST: Final = 2 * _DAY_MS
_NUMBERS: Final[Mapping[str, tuple[float, float]]] = {
    "histogram": (0.5, 1),
    "n-sigma": (0, 20),
    "peak": (0, 20),
    "rc-like": (0.5, 1),
}


def check_estimator(text: str, field: str = "estimator") -> None:
    """Raise InvalidInput for a text that is no `NAME` or `NAME:NUMBER` of an estimator, or whose number it does not take."""
    name, colon, number = text.partition(":")
    if name not in ESTIMATOR_NAMES:
        raise InvalidInput(field, f"is not one; {hint(name, ESTIMATOR_NAMES, 'estimators')}", text)
    if not colon:
        return
    if name not in _NUMBERS:
        raise InvalidInput(field, f"{name} takes no number", text)
    least, most = _NUMBERS[name]
    try:
        is_inside = least <= float(number) <= most
    except ValueError:
        is_inside = False
    if not is_inside:
        raise InvalidInput(field, f"the number of {name} must be {least:g} to {most:g}", text)


def check_horizon(horizon_ms: int, field: str = "estimator_horizon_ms") -> None:
    """Raise InvalidInput for a time ahead that no estimator looks."""
    if not _HORIZON_MS_LEAST <= horizon_ms <= HORIZON_MS_MOST:
        bounds = f"{format_duration(_HORIZON_MS_LEAST)} to {format_duration(HORIZON_MS_MOST)}"
        rule = f"must be {bounds}: a step of an estimator is five minutes, and a day's other half foretells nothing"
        raise InvalidInput(field, rule, format_duration(horizon_ms))


def check_history(history_ms: int, field: str = "estimator_history_ms") -> None:
    """Raise InvalidInput for a past that is not kept, or in which nothing can have come back."""
    if not _HISTORY_MS_LEAST <= history_ms <= HISTORY_MS or history_ms % _DAY_MS:
        rule = "must be 2 to 7 whole days: a day has to come back to be known, and seven days are kept"
        raise InvalidInput(field, rule, format_duration(history_ms))
