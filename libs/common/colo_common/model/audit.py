"""Checks a state in bounded steps: a small state whole in each call, a large one a part in each call, all parts in turn."""

from collections.abc import Callable, Iterator

__all__ = ["Audit"]


class Audit:
    """Checks a state piece by piece, round after round.

    `begin` starts a round: an iterator that checks one piece at each step, raises InvariantBroken when the piece breaks a promise,
    and yields the size of the piece (at least 1). One call checks `at_once` of a large state, at most one piece more. The state may
    change between two calls; the next round sees a change of a piece that this round has already checked.
    """

    def __init__(self, begin: Callable[[], Iterator[int]], at_once: int) -> None:
        self._begin = begin
        self._at_once = at_once
        self._pieces: Iterator[int] | None = None

    def check(self, size: int) -> None:
        """Check a state of at most `at_once` whole, and the next part of a larger one.

        `size` is the size of a whole round, or an upper bound of it. Raises InvariantBroken when the state breaks a promise.
        """
        is_small = size <= self._at_once
        if is_small or self._pieces is None:
            self._pieces = self._begin()
        left = self._at_once
        for checked in self._pieces:
            left -= checked
            if left <= 0 and not is_small:
                return
        self._pieces = None
