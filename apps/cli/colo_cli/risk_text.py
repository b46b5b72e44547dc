"""What a person is told about risk control of a node's promises."""

from typing import TYPE_CHECKING

from colo_cli.output import counted, span_text

if TYPE_CHECKING:
    from colo_common.events.node import PromiseRisk, ResourceRisk

__all__ = ["risk_lines"]

_PCT_MILLIONTHS = 10_000


def risk_lines(risk: "PromiseRisk") -> tuple[str, ...]:
    """The target, and for CPU and memory the margin and what became of the promises of the last day."""
    return (
        f"Risk control: {risk.target_ratio:.2%} of the promises may be broken within {span_text(risk.take_back_ms)}.",
        *(f"  {name}: {_text(resource)}" for name, resource in (("CPU", risk.cpu), ("memory", risk.memory))),
    )


def _text(risk: "ResourceRisk") -> str:
    margin = f"margin {risk.margin_millionths / _PCT_MILLIONTHS:.1f} %"
    if not risk.judged:
        return f"{margin}; no promise was judged in the last 24 hours"
    return (
        f"{margin}; of {counted(risk.judged, 'promise')} in the last 24 hours {risk.broken} broken "
        f"({risk.broken / risk.judged:.2%}; at most {risk.broken_most_ratio:.2%} with 95 % confidence)"
    )
