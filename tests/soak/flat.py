"""Whether a series is flat: the line that fits it best rises by no more than a stated share, once the series has warmed up."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

__all__ = ["Bound", "Flatness", "flatness", "what_stays"]


class Bound(Struct, frozen=True, kw_only=True):
    """The most by which a line may rise over the judged part: a share of its mean, or `floor` where that is more."""

    share_pct: float
    floor: float


class Flatness(Struct, frozen=True, kw_only=True):
    """First and last value, mean, and the rise of the fitted line over the judged part, beside what is allowed."""

    first: float
    last: float
    mean: float
    most: float
    rise: float
    allowed: float

    @property
    def is_flat(self) -> bool:
        """Whether the rise is within the bound. A line that falls is flat."""
        return self.rise <= self.allowed


def what_stays(series: Sequence[tuple[float, float]], span_s: float) -> list[tuple[float, float]]:
    """The least value within each span of this length, at the first second of the span.

    A queue fills and empties all the while: what grows in it is what no one takes out.
    """
    least: dict[int, float] = {}
    for at_s, value in series:
        span = int(at_s // span_s)
        least[span] = min(value, least.get(span, value))
    return [(span * span_s, value) for span, value in sorted(least.items())]


def flatness(series: Sequence[tuple[float, float]], warm_s: float, bound: Bound) -> Flatness | None:
    """The line of least squares through the pairs of second and value from `warm_s` on; None for fewer than three of them."""
    judged = [(at_s, value) for at_s, value in series if at_s >= warm_s]
    if len(judged) < 3:
        return None
    mean_s = sum(at_s for at_s, _ in judged) / len(judged)
    mean = sum(value for _, value in judged) / len(judged)
    spread = sum((at_s - mean_s) ** 2 for at_s, _ in judged)
    slope = sum((at_s - mean_s) * (value - mean) for at_s, value in judged) / spread
    return Flatness(
        first=judged[0][1],
        last=judged[-1][1],
        mean=mean,
        most=max(value for _, value in judged),
        rise=slope * (judged[-1][0] - judged[0][0]),
        allowed=max(mean * bound.share_pct / 100, bound.floor),
    )
