"""The kernel's pressure accounting, modelled: averages, trigger rules and trigger windows (linux:kernel/sched/psi.c).

Everything is integer arithmetic with the kernel's own rounding, so a simulated machine prints what a real one would.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

PERIOD_NS: Final = 2_000_000_000
"""The kernel updates its averages once in two seconds."""

_FIXED_BITS: Final = 11
_FIXED_ONE: Final = 1 << _FIXED_BITS
_DECAYS: Final = (1677, 1981, 2034)
"""exp(-2/10), exp(-2/60) and exp(-2/300) in 11 bit fixed point (EXP_10s, EXP_60s, EXP_300s)."""

_MAX_PERIODS: Final = 100_000
_MAX_WINDOW_US: Final = 10_000_000
_OLD_MIN_WINDOW_US: Final = 500_000
_AVERAGING_US: Final = 2_000_000
_PROC_BUFFER_BYTES: Final = 32
_TRIGGER: Final = re.compile(r"(some|full)[ \t\n\v\f\r]*([0-9]++)[ \t\n\v\f\r]*([0-9]+)")


@dataclass(slots=True)
class StallAverages:
    """The three running averages of one pressure line, in 11 bit fixed point percent: 10, 60 and 300 seconds."""

    fixed: tuple[int, int, int] = (0, 0, 0)

    def add_period(self, stall_ns: int, period_ns: int = PERIOD_NS) -> None:
        """Account one period. The stall is capped at the period and cut to whole percent, as the kernel does."""
        pct = min(max(stall_ns, 0), period_ns) * 100 // period_ns
        ten, sixty, three_hundred = (_decayed(*pair, pct) for pair in zip(self.fixed, _DECAYS, strict=True))
        self.fixed = (ten, sixty, three_hundred)

    def centipct(self) -> tuple[int, int, int]:
        """Return the averages in hundredths of a percent, cut off after two decimals as the kernel prints them."""
        ten, sixty, three_hundred = (_centipct(average) for average in self.fixed)
        return ten, sixty, three_hundred

    def printed(self) -> tuple[str, str, str]:
        """Return the averages as the kernel prints them: "18.11"."""
        ten, sixty, three_hundred = (f"{value // 100}.{value % 100:02d}" for value in self.centipct())
        return ten, sixty, three_hundred


def periods_to_threshold(threshold_pct: float, stall_ns: int) -> int | None:
    """Return after how many periods of constant stall the printed avg10 is above the threshold; None means never."""
    averages = StallAverages()
    for period in range(1, _MAX_PERIODS + 1):
        before = averages.fixed[0]
        averages.add_period(stall_ns)
        if averages.centipct()[0] > threshold_pct * 100:
            return period
        if averages.fixed[0] == before:
            return None
    return None


class TriggerAnswer(StrEnum):
    """What writing a trigger to a pressure file returns."""

    OK = "ok"
    EINVAL = "EINVAL"
    EPERM = "EPERM"
    EBUSY = "EBUSY"


@dataclass(frozen=True, slots=True)
class Trigger:
    """A parsed trigger: wake when the stall of a line grows by `threshold_us` within `window_us`."""

    line: str
    threshold_us: int
    window_us: int


@dataclass(slots=True, kw_only=True)
class PressureFile:
    """One opened pressure file. Files below /proc lose the last byte written; a cgroup's files do not."""

    is_proc: bool = True
    is_privileged: bool = False
    has_unprivileged_triggers: bool = True
    """Linux 6.4 and later; before, only CAP_SYS_RESOURCE may open the file for writing."""
    trigger: Trigger | None = None
    is_removed: bool = False
    """The cgroup is gone."""

    def write(self, data: str) -> TriggerAnswer:
        """Install a trigger as one write() of `data` would; at most one per opened file."""
        if not self.has_unprivileged_triggers and not self.is_privileged:
            return TriggerAnswer.EPERM
        if not data:
            return TriggerAnswer.EINVAL if self.is_proc else TriggerAnswer.OK
        if self.trigger is not None:
            return TriggerAnswer.EBUSY
        text = data[:_PROC_BUFFER_BYTES][:-1] if self.is_proc else data
        trigger = parse_trigger(text)
        if trigger is None or not self._is_allowed(trigger):
            return TriggerAnswer.EINVAL
        self.trigger = trigger
        return TriggerAnswer.OK

    def poll_errors(self) -> tuple[str, ...]:
        """Return the bits poll() reports at once: without a trigger or without its cgroup there is nothing to wait for."""
        return ("POLLPRI", "POLLERR") if self.trigger is None or self.is_removed else ()

    def _is_allowed(self, trigger: Trigger) -> bool:
        if not 0 < trigger.window_us <= _MAX_WINDOW_US:
            return False
        if not self.has_unprivileged_triggers and trigger.window_us < _OLD_MIN_WINDOW_US:
            return False
        if not self.is_privileged and trigger.window_us % _AVERAGING_US:
            return False
        return 0 < trigger.threshold_us <= trigger.window_us


def parse_trigger(text: str) -> Trigger | None:
    """Return the trigger that sscanf("some %u %u") or ("full %u %u") would read; numbers wrap at 32 bits."""
    match = _TRIGGER.match(text.split("\0", 1)[0])
    if match is None:
        return None
    return Trigger(match[1], int(match[2]) % 2**32, int(match[3]) % 2**32)


@dataclass(slots=True)
class TriggerWindow:
    """Decides when a trigger fires, from readings of the line's total.

    Within a window the growth of the window before counts in proportion to the time that is left; at most one event
    per window, one that came too early is kept for the next reading (psi.c: window_update, update_triggers).
    """

    trigger: Trigger
    start_us: int
    start_total_us: int
    _previous_growth_us: int = 0
    _last_total_us: int = field(init=False)
    _last_event_us: int | None = None
    _is_pending: bool = False

    def __post_init__(self) -> None:
        self._last_total_us = self.start_total_us

    def read(self, now_us: int, total_us: int) -> bool:
        """Account one reading and say whether the trigger fires now."""
        is_new = total_us != self._last_total_us
        self._last_total_us = total_us
        if is_new and self._growth_us(now_us, total_us) >= self.trigger.threshold_us:
            self._is_pending = True
        if not self._is_pending:
            return False
        if self._last_event_us is not None and now_us < self._last_event_us + self.trigger.window_us:
            return False
        self._last_event_us = now_us
        self._is_pending = False
        return True

    def _growth_us(self, now_us: int, total_us: int) -> int:
        elapsed_us = now_us - self.start_us
        growth_us = total_us - self.start_total_us
        if elapsed_us > self.trigger.window_us:
            self.start_us, self.start_total_us, self._previous_growth_us = now_us, total_us, growth_us
            return growth_us
        remaining_us = self.trigger.window_us - elapsed_us
        return growth_us + self._previous_growth_us * remaining_us // self.trigger.window_us


def trigger_events_us(threshold_us: int, window_us: int, samples: Sequence[tuple[int, int]]) -> list[int]:
    """Return when a trigger fires over readings (time, total), both in microseconds; the first one installs it."""
    if not samples:
        return []
    window = TriggerWindow(Trigger("some", threshold_us, window_us), *samples[0])
    return [now_us for now_us, total_us in samples[1:] if window.read(now_us, total_us)]


def averages_after(stalls_ns: Iterable[int]) -> list[tuple[str, str, str]]:
    """Return the printed averages after each period of the given stalls, starting from an idle machine."""
    averages = StallAverages()
    printed = []
    for stall_ns in stalls_ns:
        averages.add_period(stall_ns)
        printed.append(averages.printed())
    return printed


def _decayed(average: int, decay: int, pct: int) -> int:
    active = pct << _FIXED_BITS
    rounded_up = _FIXED_ONE - 1 if active >= average else 0
    return (average * decay + active * (_FIXED_ONE - decay) + rounded_up) >> _FIXED_BITS


def _centipct(average: int) -> int:
    return (average >> _FIXED_BITS) * 100 + ((average & (_FIXED_ONE - 1)) * 100 >> _FIXED_BITS)
