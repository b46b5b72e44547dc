"""What a person reads of risk control."""

from __future__ import annotations

from colo_cli.risk_text import risk_lines
from colo_common.events.node import PromiseRisk, ResourceRisk


def test_the_margin_and_what_became_of_the_promises_are_told() -> None:
    cpu = ResourceRisk(margin_millionths=183_210, judged=960, broken=9, broken_most_ratio=0.0161)
    memory = ResourceRisk(margin_millionths=150_000, judged=0, broken=0)
    assert risk_lines(PromiseRisk(target_ratio=0.01, take_back_ms=90_000, cpu=cpu, memory=memory)) == (
        "Risk control: 1.00% of the promises may be broken within 90s.",
        "  CPU: margin 18.3 %; of 960 promises in the last 24 hours 9 broken (0.94%; at most 1.61% with 95 % confidence)",
        "  memory: margin 15.0 %; no promise was judged in the last 24 hours",
    )
