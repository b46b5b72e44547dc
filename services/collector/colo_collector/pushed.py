"""The senders that may push the metric of a workload, and which of their values count."""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from colo_collector.business import VALUE_MAX, MetricRule
from colo_common.events.metric import MetricTaken, PushMetric
from colo_common.events.requests import Refusal

__all__ = ["PushDesk", "TakePushed"]

_VALUES_MAX: Final = 100
_AGE_MS_MAX: Final = 60_000
_GAP_MS: Final = 100
"""Messages of one workload come at most so often; more values go into one message."""


class TakePushed(Struct, frozen=True, kw_only=True):
    """Effect: count these values of the workload; the last one is so old."""

    workload: str
    values: tuple[float, ...]
    age_ms: int


class PushDesk:
    """Judges messages of workloads by the rules that the operator wrote. A refused message changes nothing."""

    def __init__(self, rules: Sequence[MetricRule]) -> None:
        self._rules = {rule.workload: rule for rule in rules if rule.push}
        self._taken_at_ms: dict[str, int] = {}

    def judge(self, push: PushMetric, node: str, now_ms: int) -> tuple[TakePushed | None, MetricTaken | Refusal]:
        """What to count, and the answer."""
        refusal = self._refusal(push, node, now_ms)
        if refusal is not None:
            return None, refusal
        self._taken_at_ms[push.workload] = now_ms
        rule = self._rules[push.workload]
        take = TakePushed(workload=push.workload, values=push.values, age_ms=push.age_ms)
        return take, MetricTaken(metric=rule.metric, taken=len(push.values))

    def _refusal(self, push: PushMetric, node: str, now_ms: int) -> Refusal | None:
        rule = self._rules.get(push.workload)
        if push.node != node:
            return Refusal(code=404, field="node", rule=f"must be {node}, whose collector this is", got=push.node[:80])
        if rule is None:
            sentence = "has no metric that may be pushed here: business_metrics must declare it with push:"
            return Refusal(code=404, field="workload", rule=sentence, got=push.workload[:80])
        if rule.push != "any" and not hmac.compare_digest(hashlib.sha256(push.token.encode()).hexdigest(), rule.push):
            return Refusal(code=403, field="token", rule=f"must be the token of {push.workload}")
        if not 1 <= len(push.values) <= _VALUES_MAX:
            return Refusal(
                code=400, field="values", rule=f"must be 1 to {_VALUES_MAX} numbers", got=str(len(push.values))
            )
        for index, value in enumerate(push.values):
            if not (math.isfinite(value) and 0 <= value <= VALUE_MAX):
                return Refusal(code=400, field=f"values[{index}]", rule="must be from 0 to 1e12", got=str(value))
        if not 0 <= push.age_ms <= _AGE_MS_MAX:
            return Refusal(code=400, field="age_ms", rule=f"must be 0 to {_AGE_MS_MAX}", got=str(push.age_ms))
        taken_at_ms = self._taken_at_ms.get(push.workload)
        if taken_at_ms is not None and 0 <= now_ms - taken_at_ms < _GAP_MS:
            rule_text = f"may come once in {_GAP_MS} ms; one message takes {_VALUES_MAX} values"
            return Refusal(code=429, field="workload", rule=rule_text, got=push.workload)
        return None
