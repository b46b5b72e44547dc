"""The stall of work: the share of the time in which it wanted a CPU that it waited for one, through no limit of its own.

One rule for everybody: the collector computes it for each workload and class, the reflex of the executor for each control group,
and the evictor and the explanation of overcommit take it from the sample. All of them call it `stall_pct`.
"""

from collections.abc import Iterable
from typing import Final, Literal, Protocol

from msgspec import Struct

from colo_common.model.qos import ONLINE_CLASSES, QosClass

__all__ = [
    "SELF_THROTTLED_PCT",
    "STALL_HARD_PCT",
    "STALL_SOFT_PCT",
    "RunTimes",
    "StallGate",
    "StallShare",
    "is_self_throttled",
    "stall_share",
    "waited_share",
    "worst_online_stall",
]

SELF_THROTTLED_PCT: Final = 10
"""Work that its own quota stopped for more than this share of the time blames nobody."""
STALL_SOFT_PCT: Final = 10
STALL_HARD_PCT: Final = 20
"""Marks for online work: from the soft one on it is worth knowing, at the hard one somebody has to leave."""
_IDLE_PCT: Final = 5
"""Work that ran and waited for less than this share of one CPU is idle: its few waits say nothing."""

StallGate = Literal["", "self-throttled", "idle"]


class RunTimes(Struct, frozen=True, kw_only=True):
    """What the threads of some work did in `span_us`, summed over the threads: ran, waited in a run queue, all in us.

    `throttled_us` is for how long its own CPU quota stopped it, `steal_us` its part of the time that a hypervisor took.
    """

    span_us: int
    run_us: int
    wait_us: int
    throttled_us: int = 0
    steal_us: int = 0


class StallShare(Struct, frozen=True, kw_only=True):
    """The stall in whole percent, rounded down, and why it must blame nobody: `gate` "" means that it may."""

    stall_pct: int
    gate: StallGate = ""


def stall_share(times: RunTimes) -> StallShare:
    """stall = (wait' + steal) / (run + wait' + steal), wait' = max(wait - throttled, 0); 0 and "idle" where nothing was to do.

    The subtraction alone corrects too little where several threads wait at once, so work that its quota stopped for more than a
    tenth of the time is "self-throttled" besides: its number is shown and decides nothing.
    """
    if (times.run_us + times.wait_us) * 100 < times.span_us * _IDLE_PCT:
        return StallShare(stall_pct=0, gate="idle")
    waited_us = max(times.wait_us - times.throttled_us, 0) + times.steal_us
    wanted_us = times.run_us + waited_us
    pct = waited_us * 100 // wanted_us if wanted_us else 0
    gate: StallGate = "self-throttled" if is_self_throttled(times.throttled_us, times.span_us) else ""
    return StallShare(stall_pct=pct, gate=gate)


def waited_share(waited_us: int, throttled_us: int, span_us: int) -> StallShare:
    """The stall where the kernel tells only for how long some thread waited (`some` of a group's cpu.pressure).

    The share of the whole span, rounded down, at most 100. The kernel counts a thread that a quota stopped as waiting, so the same
    gate holds.
    """
    pct = min(100, waited_us * 100 // span_us) if span_us > 0 else 0
    return StallShare(stall_pct=pct, gate="self-throttled" if is_self_throttled(throttled_us, span_us) else "")


def is_self_throttled(throttled_us: int, span_us: int) -> bool:
    """Whether the work's own quota stopped it for more than a tenth of the time."""
    return throttled_us * 100 > span_us * SELF_THROTTLED_PCT


class _Stalled(Protocol):
    @property
    def workload(self) -> str: ...
    @property
    def qos(self) -> QosClass: ...
    @property
    def stall_pct(self) -> int | None: ...
    @property
    def stall_gate(self) -> StallGate: ...


def worst_online_stall(workloads: Iterable[_Stalled]) -> tuple[str, int] | None:
    """The online workload that stalls most and may blame others, with its `stall_pct`; None where no stall is known.

    Of two that stall as much the first name counts.
    """
    found = [
        (-one.stall_pct, one.workload)
        for one in workloads
        if one.qos in ONLINE_CLASSES and one.stall_pct is not None and not one.stall_gate
    ]
    if found:
        pct, name = min(found)
        return name, -pct
    is_known = any(one.qos in ONLINE_CLASSES and one.stall_pct is not None for one in workloads)
    return ("", 0) if is_known else None
