"""A check in parts: small states whole, large ones in turn, and nothing is left out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from colo_common.model.audit import Audit
from colo_common.model.invalid import InvariantBroken

AT_ONCE = 10


class Shelf:
    """Things, some of which may be broken; `seen` are those that were looked at in the last call."""

    def __init__(self, count: int, cost: int = 1) -> None:
        self.broken = [False] * count
        self.seen: list[int] = []
        self._cost = cost
        self.audit = Audit(self._pieces, AT_ONCE)

    def _pieces(self) -> Iterator[int]:
        at = 0
        while at < len(self.broken):
            self.seen.append(at)
            if self.broken[at]:
                raise InvariantBroken("a thing is broken", at=at)
            at += 1
            yield self._cost

    def check(self) -> list[int]:
        self.seen = []
        self.audit.check(len(self.broken) * self._cost)
        return self.seen


@pytest.mark.parametrize("count", [0, 1, AT_ONCE])
def test_a_small_state_is_checked_whole_in_every_call(count: int) -> None:
    shelf = Shelf(count)
    assert shelf.check() == shelf.check() == list(range(count))


@pytest.mark.parametrize("at", range(AT_ONCE))
def test_what_is_broken_in_a_small_state_is_found_by_one_call(at: int) -> None:
    shelf = Shelf(AT_ONCE)
    shelf.broken[at] = True
    with pytest.raises(InvariantBroken, match="a thing is broken"):
        shelf.check()


def test_of_a_large_state_each_call_checks_a_part_and_all_parts_come_in_turn() -> None:
    shelf = Shelf(25)
    assert [shelf.check() for _ in range(4)] == [
        list(range(10)),
        list(range(10, 20)),
        list(range(20, 25)),
        list(range(10)),
    ]


def test_a_call_looks_at_one_piece_more_than_fits_at_most() -> None:
    shelf = Shelf(9, cost=4)
    assert [len(shelf.check()) for _ in range(3)] == [3, 3, 3]


@pytest.mark.parametrize("at", [0, 11, 99])
def test_what_is_broken_in_a_large_state_is_found_after_enough_calls(at: int) -> None:
    shelf = Shelf(100)
    shelf.check()
    shelf.broken[at] = True
    with pytest.raises(InvariantBroken, match="a thing is broken"):
        check_all(shelf)
    # It stays broken, and whoever goes on checking hears it again.
    with pytest.raises(InvariantBroken):
        check_all(shelf)


def check_all(shelf: Shelf) -> None:
    """As many calls as a round from wherever it stands takes at most."""
    for _ in range(len(shelf.broken) // AT_ONCE + 1):
        shelf.check()


def test_a_state_that_became_small_is_checked_whole_and_one_that_grew_begins_again() -> None:
    shelf = Shelf(100)
    shelf.check()
    del shelf.broken[5:]
    assert shelf.check() == [0, 1, 2, 3, 4]
    shelf.broken += [False] * 20
    assert shelf.check() == list(range(10))


def test_a_state_may_shrink_behind_the_place_that_is_reached() -> None:
    shelf = Shelf(30)
    shelf.check()
    del shelf.broken[15:]
    assert shelf.check() == [10, 11, 12, 13, 14]
    assert shelf.check() == list(range(10))
