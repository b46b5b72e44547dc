"""Risk control: the margin of a node is moved so that a stated share of its promises, and no more, is broken.

A promise of batch CPU is broken when, within the take-back time, online and system work leave less than was promised. The margin
moves by one step of quantile tracking for each promise that is judged (Gibbs and Candes, "Adaptive Conformal Inference Under
Distribution Shift", 2021, equation 2): with target share a and step s, up by s * (1 - a) after a broken promise and down by s * a
after a kept one. The long-run share of broken promises tends to a whatever the load does, while the margin is within its bounds.
"""

import math

from msgspec import Struct

from colo_common.model.invalid import InvalidInput

__all__ = ["JUDGED_AT_ONCE", "Margin", "RiskPolicy", "broken_most_ratio", "moved_by"]

JUDGED_AT_ONCE = 8
"""At most so many promises of one node are under judgement at a time: one is taken down in each eighth of the take-back time."""

_MILLION = 1_000_000
# Two percent of the capacity in a take-back time.
_STEP_MILLIONTHS = 20_000
_Z95 = 1.6449


class RiskPolicy(Struct, frozen=True, kw_only=True):
    """`target_ratio` is the share of promises that may be broken within `take_back_ms`; 0: the margin is the policy's and stays.

    `take_back_ms` 0: the measured time from the crossing of a threshold to the end of the evicted replica. The margin stays within
    `least_margin_pct` and `most_margin_pct` of a zone's capacity.
    """

    target_ratio: float = 0.0
    take_back_ms: int = 0
    least_margin_pct: int = 5
    most_margin_pct: int = 60

    @property
    def is_on(self) -> bool:
        """Whether the margin follows the promises that were broken."""
        return self.target_ratio > 0

    def validate(self) -> None:
        """Raise InvalidInput for the first value that is out of its range or contradicts another."""
        if not 0 <= self.target_ratio <= 0.5:
            raise InvalidInput("risk_target_ratio", "must be 0 (off) to 0.5", self.target_ratio)
        if self.take_back_ms and not 1_000 <= self.take_back_ms <= 3_600_000:
            raise InvalidInput("risk_take_back_ms", "must be 0 (measured) or 1000 to 3600000", self.take_back_ms)
        if not 0 <= self.least_margin_pct <= 100:
            raise InvalidInput("risk_least_margin_pct", "must be 0 to 100", self.least_margin_pct)
        if not self.least_margin_pct <= self.most_margin_pct <= 100:
            rule = f"must be from risk_least_margin_pct ({self.least_margin_pct}) to 100"
            raise InvalidInput("risk_most_margin_pct", rule, self.most_margin_pct)


class Margin(Struct, kw_only=True):
    """The share of a zone's capacity that is not promised, in millionths; it moves with every promise that is judged."""

    millionths: int

    @property
    def pct(self) -> int:
        """The margin in whole percent, rounded up, so that a promise rounds down."""
        return -(-self.millionths // (_MILLION // 100))

    def judged(self, is_broken: bool, weight_pct: int, policy: RiskPolicy) -> None:
        """Move by one step: up after a broken promise, down (much less) after a kept one; never out of the policy's bounds.

        `weight_pct` is the part of the take-back time for which the promise stands: promises that overlap share one step.
        """
        target = round(policy.target_ratio * _MILLION)
        step = _STEP_MILLIONTHS * weight_pct * (_MILLION - target if is_broken else -target) // (100 * _MILLION)
        least, most = policy.least_margin_pct * _MILLION // 100, policy.most_margin_pct * _MILLION // 100
        self.millionths = min(max(self.millionths + step, least), most)


def moved_by(policy: RiskPolicy, take_back_ms: int) -> str:
    """What moved a reclaim percentage, in the words of the explanation."""
    return f"risk control: {policy.target_ratio:.2%} of the promises over {take_back_ms // 1_000} s may break"


def broken_most_ratio(broken: int, judged: int) -> float:
    """The share of broken promises that the true one does not exceed with 95 % confidence; 1.0 before a promise was judged.

    Source: the upper bound of the Wilson score interval. Promises overlap, so that eight of them count as one.
    """
    count = judged // JUDGED_AT_ONCE
    if count == 0:
        return 1.0
    share = broken / judged
    middle = share + _Z95**2 / (2 * count)
    width = _Z95 * math.sqrt(share * (1 - share) / count + _Z95**2 / (4 * count**2))
    return min((middle + width) / (1 + _Z95**2 / count), 1.0)
