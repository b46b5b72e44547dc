"""A check of a state of any size that never holds up who waits: all of a small state, a part of a large one, all parts in turn."""

from collections.abc import Callable, Iterator

__all__ = ["Audit"]


class Audit:
    """Goes through the pieces of a check, again and again.

    `begin` starts a round: an iterator that checks one piece each time it is asked, raises InvariantBroken for what is broken, and
    yields how much it looked at (at least 1). Of a large state as much as `at_once` is checked in a call, and a piece more at most.
    The state may change between two calls; what changed behind the place that is reached is seen in the next round.
    """

    def __init__(self, begin: Callable[[], Iterator[int]], at_once: int) -> None:
        self._begin = begin
        self._at_once = at_once
        self._pieces: Iterator[int] | None = None

    def check(self, size: int) -> None:
        """Check all of a state of at most `at_once`, of a larger one what comes next. `size`: how much a round looks at, or more.

        Raises InvariantBroken when the state breaks a promise.
        """
        is_small = size <= self._at_once
        if is_small or self._pieces is None:
            self._pieces = self._begin()
        left = self._at_once
        for looked_at in self._pieces:
            left -= looked_at
            if left <= 0 and not is_small:
                return
        self._pieces = None
