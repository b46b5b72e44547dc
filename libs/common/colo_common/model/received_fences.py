"""Who speaks of a node: the highest fence that was heard, so that what an instance says that was replaced counts no more.

Two instances may speak of one node for some seconds, when one of them alone lost the store of the leases. Whoever hears both
believes the one with the higher fence, whichever arrives last.
"""

from collections import OrderedDict
from typing import Final

__all__ = ["ReceivedFences"]

_KEPT_MS: Final = 600_000
_NODES_MAX: Final = 50_000
_AHEAD_MOST_MS: Final = 86_400_000


class ReceivedFences:
    """The highest fence of each node, for at most 50,000 nodes; above that the one that was heard longest ago is dropped.

    A fence of 0 is that of an instance that is alone by its settings: it outranks nobody, and is refused by nobody. A fence under
    which nothing was said for ten minutes does not count any more: a store that was emptied while its clock was set back may give
    lower ones than before.

    A fence is about the time at which it was given: one that is more than a day ahead of this clock outranks none that is not.
    Where all are, this clock is behind, and they count as ever.
    """

    def __init__(self) -> None:
        # A plain dictionary would look at the places of all that moved away from its front.
        self._received: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._received)

    def admits(self, node: str, fence: int, now_ms: int) -> bool:
        """Whether what was said of the node under this fence counts; it is then the highest that was heard."""
        if not fence:
            return True
        if (known := self._received.get(node)) is not None:
            highest, received_ms = known
            if _rank(fence, now_ms) < _rank(highest, now_ms) and now_ms - received_ms < _KEPT_MS:
                return False
        self._received[node] = (fence, now_ms)
        self._received.move_to_end(node)
        while len(self._received) > _NODES_MAX or now_ms - next(iter(self._received.values()))[1] >= _KEPT_MS:
            self._received.popitem(last=False)
        return True


def _rank(fence: int, now_ms: int) -> tuple[bool, int]:
    return fence <= now_ms + _AHEAD_MOST_MS, fence
