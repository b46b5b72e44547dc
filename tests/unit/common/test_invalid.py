"""The two errors of the model: their text is what people and logs see."""

from __future__ import annotations

import pickle

import pytest

from colo_common.model.invalid import InvalidInput, InvariantBroken


def test_invalid_input_names_field_rule_and_value() -> None:
    error = InvalidInput("tasks[0].cpu", "must not be negative", -1)
    assert str(error) == "tasks[0].cpu: must not be negative (got -1)"
    assert isinstance(error, ValueError)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "nothing"),
        ("it's", '"it\'s"'),
        (True, "true"),
        ({"cpu": ("1", 2)}, '{"cpu": ["1", 2]}'),
        (b"name: a", '"name: a"'),
        ("混部", '"混部"'),
        ("\x9b31m\ud800", '"\\u009b31m\\ud800"'),
    ],
)
def test_a_value_is_shown_as_json_writes_it(value: object, shown: str) -> None:
    assert InvalidInput("a", "b", value).value == shown


def test_a_long_value_is_shortened_to_80_characters() -> None:
    error = InvalidInput("name", "must be short", "x" * 1000)
    assert len(error.value) == 80
    assert error.value.endswith("...")


def test_an_invariant_prints_its_context_sorted() -> None:
    assert str(InvariantBroken("zone overcommitted", zone=1, node="n1")) == "zone overcommitted (node='n1', zone=1)"
    assert str(InvariantBroken("no context")) == "no context"


def test_both_errors_survive_pickling() -> None:
    for error in (InvalidInput("a", "b", "c"), InvariantBroken("m", x=1)):
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert str(copy) == str(error)
