"""Transition tables: what is refused at construction, and what fire answers."""

from __future__ import annotations

from typing import Any

import pytest

from colo_common.model.invalid import InvalidInput
from colo_common.model.transitions import (
    Fired,
    Ignore,
    InvalidTransition,
    State,
    StateMachine,
    Transition,
    TransitionIgnored,
    TransitionRefusal,
    TransitionRefused,
)

_OFF = State(name="Off", is_initial=True)
_ON = State(name="On")
_BROKEN = State(name="Broken", is_terminal=True)


def _lamp(**changes: Any) -> StateMachine:
    table: dict[str, Any] = {
        "name": "lamp",
        "states": (_OFF, _ON, _BROKEN),
        "events": ("press", "hit"),
        "transitions": (
            Transition(id="L1", sources=("Off",), event="press", target="On", guard=("power",)),
            Transition(id="L2", sources=("Off",), event="press", target="=", guard=("!power",)),
            Transition(id="L3", sources=("On",), event="press", target="Off", guard=("!stuck",)),
            Transition(id="L4", sources=("Off", "On"), event="hit", target="Broken"),
        ),
        "ignored": (Ignore(states=("Broken",), events=("hit",), why="already broken"),),
        "illegal": (("Broken", "press"),),
    }
    return StateMachine(**{**table, **changes})


def test_fire_answers_with_the_row_whose_guards_hold() -> None:
    lamp = _lamp()
    assert lamp.fire("Off", "press", {"power": True}) == Fired("On", "L1")
    assert lamp.fire("Off", "press", {"power": False}) == Fired("Off", "L2")
    assert lamp.fire("On", "hit") == Fired("Broken", "L4")
    assert lamp.fire("Broken", "hit") == TransitionIgnored("already broken")


def test_fire_refuses_with_a_reason() -> None:
    lamp = _lamp()
    assert lamp.fire("On", "press", {"stuck": True}) == TransitionRefused(TransitionRefusal.GUARD, "L3 needs !stuck")
    assert lamp.fire("Broken", "press") == TransitionRefused(
        TransitionRefusal.ILLEGAL, "press must not happen to a lamp that is Broken"
    )
    assert lamp.fire("On", "kiss") == TransitionRefused(TransitionRefusal.ILLEGAL, "lamp knows no event 'kiss'")
    assert lamp.fire("Lost", "hit") == TransitionRefused(TransitionRefusal.ILLEGAL, "lamp knows no state 'Lost'")


def test_a_forgotten_guard_refuses_instead_of_guessing() -> None:
    assert _lamp().fire("Off", "press") == TransitionRefused(TransitionRefusal.GUARD, "guards not given: power")
    assert _lamp().guards_for("Off", "press") == ("power",)


def test_demand_raises_where_fire_refuses() -> None:
    lamp = _lamp()
    with pytest.raises(InvalidTransition) as raised:
        lamp.demand("Broken", "press")
    assert str(raised.value) == "lamp: Broken --press--> refused: press must not happen to a lamp that is Broken"
    assert lamp.demand("Broken", "hit") == TransitionIgnored("already broken")


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"illegal": ()}, "is neither a transition nor ignored nor illegal"),
        ({"illegal": (("Broken", "press"), ("On", "hit"))}, "is both a transition and illegal"),
        ({"illegal": (("Broken", "press"), ("Broken", "press"))}, "is illegal twice"),
        ({"illegal": (("Broken", "press"), ("Gone", "press"))}, "unknown state or event"),
        ({"states": (_OFF, _ON, _BROKEN, _ON)}, "states and events must be unique"),
        ({"states": (State(name="Off"), _ON, _BROKEN)}, "exactly one state must be initial"),
        ({"states": (_OFF, State(name="On", is_terminal=True), _BROKEN)}, "leaves the terminal state On"),
    ],
)
def test_a_table_with_a_hole_is_refused(changes: dict[str, Any], rule: str) -> None:
    with pytest.raises(InvalidInput, match="machine lamp") as refused:
        _lamp(**changes)
    assert rule in refused.value.rule


def test_two_rows_that_can_both_hold_are_refused() -> None:
    rows = list(_lamp().transitions)
    rows.append(Transition(id="L5", sources=("On",), event="press", target="Broken", guard=("old",)))
    with pytest.raises(InvalidInput, match="rows L3, L5 can both hold"):
        _lamp(transitions=tuple(rows))
