"""The stall share of one signal over a sliding window, and the crossings of its marks."""

from __future__ import annotations

from collections import deque
from typing import Final

from msgspec import Struct

from colo_collector.policy import Threshold
from colo_common.model.invalid import InvariantBroken

__all__ = ["Crossing", "Gauge"]

_SPANS_MAX: Final = 4_096
"""The most samples in a window, more than the longest window has at the shortest period; the oldest is dropped first."""


class Crossing(Struct, frozen=True, kw_only=True):
    """A signal rose above its upper mark, or fell to its lower one; `mark_pct` is the mark that it passed."""

    above: bool
    value_pct: int
    mark_pct: int


class Gauge:
    """One watched signal. `share_pct` = floor(stall in the window * 100 / window).

    The oldest sample counts by its part inside the window, its stall rounded down to a microsecond. Time before the first sample
    counts as free of stall, as in the kernel's own PSI triggers: one bad second after a start does not cross a mark, and a mark is
    crossed in the sample in which the window holds enough stall.
    """

    def __init__(self, threshold: Threshold, window_ms: int) -> None:
        self.threshold = threshold
        self.is_above = False
        self._window_us = window_ms * 1_000
        self._spans: deque[tuple[int, int]] = deque()
        self._covered_us = 0
        self._stalled_us = 0
        # While it is above 0 the kernel's word holds against the samples, which reach its moment later.
        self._by_kernel_us = 0

    @property
    def share_pct(self) -> int:
        """Stall share of the window, 0 to 100, rounded down."""
        stalled_us = self._stalled_us
        outside_us = self._covered_us - self._window_us
        if outside_us > 0:
            oldest_us, oldest_stalled_us = self._spans[0]
            stalled_us -= oldest_stalled_us - oldest_stalled_us * (oldest_us - outside_us) // oldest_us
        return stalled_us * 100 // self._window_us

    def take(self, interval_us: int, stall_us: int) -> Crossing | None:
        """Add the stall of one sample, at most its interval. Returns the crossing that the sample causes, if any."""
        self._spans.append((interval_us, stall_us))
        self._covered_us += interval_us
        self._stalled_us += stall_us
        while self._oldest_is_out():
            oldest_us, stalled_us = self._spans.popleft()
            self._covered_us -= oldest_us
            self._stalled_us -= stalled_us
        share_pct = self.share_pct
        if not self.is_above and share_pct >= self.threshold.above_pct:
            self.is_above = True
            return Crossing(above=True, value_pct=share_pct, mark_pct=self.threshold.above_pct)
        self._by_kernel_us = max(self._by_kernel_us - interval_us, 0)
        if self.is_above and share_pct <= self.threshold.below_pct and not self._by_kernel_us:
            self.is_above = False
            return Crossing(above=False, value_pct=share_pct, mark_pct=self.threshold.below_pct)
        return None

    def raised(self) -> Crossing | None:
        """The kernel itself says that the stall of its window reached the upper mark. None when the signal is above already."""
        if self.is_above:
            return None
        self.is_above = True
        self._by_kernel_us = self._window_us
        return Crossing(above=True, value_pct=self.threshold.above_pct, mark_pct=self.threshold.above_pct)

    def check(self) -> None:
        """Raise InvariantBroken when the sums differ from the samples, or `is_above` contradicts the share."""
        signal = self.threshold.signal
        if self._covered_us != sum(span for span, _ in self._spans):
            raise InvariantBroken("the window's time is not the sum of its samples", signal=signal)
        if self._stalled_us != sum(stalled for _, stalled in self._spans):
            raise InvariantBroken("the window's stall is not the sum of its samples", signal=signal)
        share_pct = self.share_pct
        if not 0 <= share_pct <= 100:
            raise InvariantBroken("a stall share is out of 0 to 100", signal=signal, share_pct=share_pct)
        if self.is_above and share_pct <= self.threshold.below_pct and not self._by_kernel_us:
            raise InvariantBroken("a signal counts as above and is not", signal=signal, share_pct=share_pct)
        if not self.is_above and share_pct >= self.threshold.above_pct:
            raise InvariantBroken("a signal is above and does not count so", signal=signal, share_pct=share_pct)

    def _oldest_is_out(self) -> bool:
        """Whether the window is full without the oldest sample, or has more samples than it may keep."""
        return self._covered_us - self._spans[0][0] >= self._window_us or len(self._spans) > _SPANS_MAX
