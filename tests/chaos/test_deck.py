"""The kinds of a run come all before one comes again, in the order of the seed."""

from __future__ import annotations

import random

import pytest

from tests.chaos.faults import KINDS, Deck


@pytest.mark.parametrize("seed", range(20))
def test_every_kind_comes_once_before_one_comes_again(seed: int) -> None:
    kinds = list(KINDS)
    deck = Deck(random.Random(seed), kinds, kinds)
    assert sorted(deck.next() for _ in kinds) == sorted(kinds)
    assert {deck.next() for _ in range(500)} == set(kinds)


def test_a_kind_that_cannot_be_changes_nothing_in_the_order_of_the_others() -> None:
    kinds = list(KINDS)
    possible = [kind for kind in kinds if kind != "full-store"]
    whole, less = Deck(random.Random(20), kinds, kinds), Deck(random.Random(20), kinds, possible)
    order = [whole.next() for _ in kinds]
    assert [less.next() for _ in possible] == [kind for kind in order if kind != "full-store"]
    assert "full-store" not in {less.next() for _ in range(200)}


def test_what_the_run_of_every_change_demands_comes_in_the_half_that_also_a_slow_machine_does() -> None:
    kinds = list(KINDS)
    deck = Deck(random.Random("faults 20"), kinds, kinds)
    assert {"old", "holder"} <= {deck.next() for _ in range(10)}
