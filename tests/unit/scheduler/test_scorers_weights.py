"""Weights are policy data: what is unknown or out of range is named, and what counts is combined rounded down."""

import pytest

from colo_common.model.invalid import InvalidInput
from colo_scheduler.scorers.weights import NEVER_RISING, Scorer, ScorerWeights, combine, parse_weights


def test_weights_are_read_by_name_and_what_is_not_named_counts_nothing() -> None:
    weights = parse_weights({"least-allocated": 3, "spread": 1000})
    assert weights.active == ((Scorer.LEAST_ALLOCATED, 3), (Scorer.SPREAD, 1000))


@pytest.mark.parametrize(
    ("weights", "field", "rule"),
    [
        ({"leastallocated": 1}, "weights.leastallocated", "must be one of "),
        ({"spread": 1001}, "weights.spread", "must be a whole number, 0 to 1000"),
        ({"spread": -1}, "weights.spread", "must be a whole number, 0 to 1000"),
        ({"spread": 0.5}, "weights.spread", "must be a whole number, 0 to 1000"),
        ({"spread": True}, "weights.spread", "must be a whole number, 0 to 1000"),
        ({"spread": 0}, "weights", "at least one weight must be above 0"),
        ({}, "weights", "at least one weight must be above 0"),
    ],
)
def test_a_weight_that_breaks_a_rule_is_refused_with_its_name_and_the_rule(
    weights: dict[str, int], field: str, rule: str
) -> None:
    with pytest.raises(InvalidInput) as refusal:
        parse_weights(weights)
    assert refusal.value.field == field
    assert refusal.value.rule.startswith(rule)


def test_the_refusal_of_an_unknown_scorer_lists_the_known_ones() -> None:
    with pytest.raises(InvalidInput) as refusal:
        parse_weights({"luck": 1})
    assert all(scorer.value in refusal.value.rule for scorer in Scorer)


def test_every_scorer_has_a_weight_and_the_defaults_are_valid() -> None:
    ScorerWeights().validate()
    everything = parse_weights({scorer.value: 1 for scorer in Scorer})
    assert [scorer for scorer, _ in everything.active] == list(Scorer)


def test_scores_are_combined_by_weight_and_rounded_down() -> None:
    weights = parse_weights({"spread": 2, "binpack": 1})
    assert combine({Scorer.SPREAD: 50, Scorer.BINPACK: 1}, weights) == 33


def test_only_scorers_that_prefer_full_nodes_may_rise() -> None:
    assert not ScorerWeights().may_rise
    assert parse_weights({"most-allocated": 1}).may_rise
    assert set(Scorer) - NEVER_RISING == {
        Scorer.MOST_ALLOCATED,
        Scorer.BALANCED_ALLOCATION,
        Scorer.BINPACK,
        Scorer.DEVICES_MOST_ALLOCATED,
    }
