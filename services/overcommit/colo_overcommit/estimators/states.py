"""What estimators have learned, as it is stored: enough to go on exactly where they were."""

from typing import Annotated

from msgspec import Meta, Struct

__all__ = [
    "DspState",
    "EstimatorState",
    "HistogramState",
    "NSigmaState",
    "PeakState",
    "PeriodicState",
    "PidState",
    "RcLikeState",
    "StepsState",
    "WorkState",
    "WindowState",
]

_Amount = Annotated[int, Meta(ge=0, le=1 << 60)]
_Step = Annotated[int, Meta(ge=-1, le=1 << 40)]
_Time = Annotated[int, Meta(ge=-1, le=1 << 60)]
_Value = Annotated[float, Meta(ge=0, le=2.0**60)]
_Weight = Annotated[float, Meta(ge=0, le=2.0**80)]


class StepsState(Struct, frozen=True, kw_only=True):
    """The step that is not over, -1 before the first, and the largest value in it so far."""

    step: _Step
    largest: _Amount


class NSigmaState(Struct, frozen=True, kw_only=True, tag="n-sigma"):
    """The largest values of the last steps, oldest first."""

    steps: StepsState
    values: Annotated[tuple[_Amount, ...], Meta(max_length=24)]


class HistogramState(Struct, frozen=True, kw_only=True, tag="histogram"):
    """The weights of buckets by number, their total, the weight of the newest step, and how many steps were seen."""

    steps: StepsState
    buckets: Annotated[tuple[tuple[Annotated[int, Meta(ge=0, lt=512)], _Weight], ...], Meta(max_length=512)]
    total: _Weight
    weight: Annotated[float, Meta(ge=1, le=2.0**80)]
    count: Annotated[int, Meta(ge=0, le=1 << 53)]


class PeakState(Struct, frozen=True, kw_only=True, tag="peak"):
    """The states of its two parts."""

    n_sigma: NSigmaState
    histogram: HistogramState


class PeriodicState(Struct, frozen=True, kw_only=True, tag="periodic"):
    """The first step ever seen, -1 before it, and runs of values: the number of the first step of each, and its values."""

    steps: StepsState
    first: _Step
    runs: Annotated[tuple[tuple[_Step, tuple[_Amount, ...]], ...], Meta(max_length=2_304)]


class WindowState(Struct, frozen=True, kw_only=True, tag="window"):
    """When the newest sample was taken, -1 before the first; the samples (time, value) of the window; what it reported last."""

    taken_ms: _Time
    samples: Annotated[tuple[tuple[_Time, _Amount], ...], Meta(max_length=64)]
    last: _Value | None


class PidState(Struct, frozen=True, kw_only=True, tag="pid"):
    """When the newest sample was taken, -1 before the first, and what is kept."""

    taken_ms: _Time
    kept: _Value


class DspState(Struct, frozen=True, kw_only=True, tag="dsp"):
    """The values of steps without a gap, and the time of the newest one in seconds, -1 before the first; what one period is
    expected to be from the step `base` on, () while no period is known; and when it is sought again, -1 before the first sample.
    """

    steps: StepsState
    end_s: _Time
    values: Annotated[tuple[_Value, ...], Meta(max_length=2_016)]
    base: _Step
    forecast: Annotated[tuple[_Amount, ...], Meta(max_length=2_016)]
    fit_ms: _Time


class WorkState(Struct, frozen=True, kw_only=True, array_like=True):
    """What one workload used, in millionths of what it may use: the largest of the last steps, oldest first, and that of the step
    that is not over, -1 while it was not seen in it. `work` "" is all that is no known workload, in its own unit.
    """

    work: Annotated[str, Meta(max_length=512)]
    values: Annotated[tuple[_Amount, ...], Meta(max_length=24)]
    largest: Annotated[int, Meta(ge=-1, le=1 << 60)]


class RcLikeState(Struct, frozen=True, kw_only=True, tag="rc-like"):
    """The step that is not over, -1 before the first, the workloads, and what is expected of those of the newest sample."""

    step: _Step
    works: Annotated[tuple[WorkState, ...], Meta(max_length=129)]
    expected: _Amount | None


EstimatorState = (
    NSigmaState | HistogramState | PeakState | PeriodicState | WindowState | PidState | DspState | RcLikeState
)
