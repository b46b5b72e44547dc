"""ReplicaMoves of replicas between nodes, and those that come back."""

from __future__ import annotations

import pytest

from colo_common.model.invalid import InvariantBroken
from colo_sim.moves import BACK_WITHIN_MS, ReplicaMoves


@pytest.mark.parametrize(
    ("places", "moved", "back"),
    [
        ("A", 0, 0),
        ("A A A", 0, 0),
        ("A B", 1, 0),
        ("A B A", 2, 1),
        ("A B C", 2, 0),
        ("A B C A", 3, 1),
        ("A B A B", 3, 2),
    ],
)
def test_what_counts_as_a_move_and_as_a_move_back(places: str, moved: int, back: int) -> None:
    moves = ReplicaMoves()
    for second, node in enumerate(places.split()):
        moves.placed("j/t/0", node, second * 1_000)
        moves.placed("other/t/0", "Z", second * 1_000)
    assert (moves.count, moves.back) == (moved, back)


def test_one_that_comes_back_much_later_has_not_wavered() -> None:
    moves = ReplicaMoves()
    for node, at_ms in (("A", 0), ("B", 1_000), ("A", BACK_WITHIN_MS + 1)):
        moves.placed("j/t/0", node, at_ms)
    assert (moves.count, moves.back) == (2, 0)


def test_one_that_is_placed_without_end_is_found_also_on_one_node() -> None:
    moves = ReplicaMoves()
    for number in range(20):
        moves.placed("j/t/0", "A", number * 36)
        moves.placed("slow/t/0", "A", number * 3_000)
    moves.placed("slow/t/0", "A", 60_001)
    with pytest.raises(InvariantBroken, match="again and again"):
        moves.placed("j/t/0", "A", 60_000)
