"""How far an estimator that foretells a load looks ahead, and how much of the past it looks at."""

from typing import Final, NamedTuple

from colo_common.model.estimator_rules import HISTORY_MS, HORIZON_MS
from colo_common.model.quantity import ceil_div
from colo_overcommit.estimators.steps import STEP_MS

__all__ = ["Outlook", "outlook_of"]

_DAY_MS: Final = 86_400_000


class Outlook(NamedTuple):
    """Steps of five minutes ahead, and days back. The usual ones: 15 minutes, in which the control plane has reacted to
    anything, and a week.
    """

    ahead_steps: int = HORIZON_MS // STEP_MS
    days: int = HISTORY_MS // _DAY_MS


def outlook_of(horizon_ms: int, history_ms: int) -> Outlook:
    """The horizon rounds up to whole steps and the past down to whole days."""
    return Outlook(ceil_div(horizon_ms, STEP_MS), history_ms // _DAY_MS)
