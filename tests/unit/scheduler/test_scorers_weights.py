"""Weights are policy data: what is unknown or out of range is named, and what counts stands in one order."""

from typing import Any

import pytest
from msgspec import structs

from colo_common.model.invalid import InvalidInput
from colo_scheduler.policy import Scorer, ScorerWeights

#: Nothing counts but what a test names.
NOTHING = ScorerWeights(**{scorer.value.replace("-", "_"): 0 for scorer in Scorer})


def test_only_weights_above_zero_count_in_the_order_of_the_scorers() -> None:
    weights = structs.replace(NOTHING, spread=1000, least_allocated=3)
    assert weights.active == ((Scorer.LEAST_ALLOCATED, 3), (Scorer.SPREAD, 1000))


@pytest.mark.parametrize(
    ("weights", "field", "rule"),
    [
        ({"spread": 1001}, "weights.spread", "must be a whole number, 0 to 1000"),
        ({"spread": -1}, "weights.spread", "must be a whole number, 0 to 1000"),
        ({"spread": 0.5}, "weights.spread", "must be a whole number, 0 to 1000"),
        ({"spread": True}, "weights.spread", "must be a whole number, 0 to 1000"),
        ({"spread": 0}, "weights", "at least one weight must be above 0"),
        ({}, "weights", "at least one weight must be above 0"),
    ],
)
def test_a_weight_that_breaks_a_rule_is_refused_with_its_name_and_the_rule(
    weights: dict[str, Any], field: str, rule: str
) -> None:
    with pytest.raises(InvalidInput) as refusal:
        structs.replace(NOTHING, **weights).validate()
    assert refusal.value.field == field
    assert refusal.value.rule.startswith(rule)


def test_every_scorer_has_a_weight_and_the_defaults_are_valid() -> None:
    ScorerWeights().validate()
    everything = structs.replace(NOTHING, **{scorer.value.replace("-", "_"): 1 for scorer in Scorer})
    assert [scorer for scorer, _ in everything.active] == list(Scorer)
