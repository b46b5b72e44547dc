"""Attempts that hold a place for long are ordered once more now and then: whoever runs one, or has ended it, says so again.

A stream can lose facts that it had acknowledged, for instance when its servers change their leader, and then nobody notices a gap.
The lost end of an attempt would keep its place, and its job, for ever.
"""

from collections import deque
from collections.abc import Callable, Iterable

from colo_common.model.placement import Attempt

__all__ = ["Rechecks"]


class Rechecks:
    """Visits every node once in `recheck_ms` (0: never), a few at each turn; turns come every `turn_ms`.

    An attempt is due when the last visit found it there too, so that short work is never ordered twice.
    """

    def __init__(self, recheck_ms: int, turn_ms: int) -> None:
        self._turns = -(-recheck_ms // turn_ms) if recheck_ms > 0 and turn_ms > 0 else 0
        self._left: deque[str] = deque()
        self._turns_left = 0
        self._found: dict[str, frozenset[Attempt]] = {}

    def due(
        self, nodes: Callable[[], Iterable[str]], held_on: Callable[[str], Iterable[Attempt]]
    ) -> list[tuple[str, frozenset[Attempt]]]:
        """The nodes of this turn where attempts are due, with these attempts."""
        if not self._turns:
            return []
        if not self._turns_left:
            self._left.extend(sorted(nodes()))
            self._found = {name: self._found[name] for name in self._left if name in self._found}
            self._turns_left = self._turns
        due = []
        count = -(-len(self._left) // self._turns_left)
        self._turns_left -= 1
        for _ in range(count):
            name = self._left.popleft()
            held = frozenset(held_on(name))
            again = held & self._found.get(name, frozenset())
            if held:
                self._found[name] = held
            else:
                self._found.pop(name, None)
            if again:
                due.append((name, again))
        return due
