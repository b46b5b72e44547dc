"""Whether an instance reaches the bus: told to its core at once, and to the leases of its work when it was so for a while."""

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import Final

from colo_common.events.effects import BusReachable
from colo_common.model.partition import BusReach
from colo_common.ports import Bus

__all__ = ["SURE_AFTER_S", "BusWatch", "tell_bus"]

_LISTEN_S: Final = 0.5

#: Longer than two instances may differ in noticing that the bus went (a ping every 5 s), that its streams cannot be used (a look
#: every 2 s, of 3 s at most), or that they are back (a try every 5 s), with a renewal of the leases in it.
SURE_AFTER_S: Final = 8.0


class BusWatch:
    """Looks at the connection whenever it is asked. `connection` is the number of the one that stands, 0 while there is none.

    One over which the streams cannot be used counts as none: without them an instance does as little as without a bus. An instance
    that was never connected is deaf at once: it must not take what it cannot serve.
    """

    def __init__(self, connection: Callable[[], int]) -> None:
        self._connection = connection
        self._seen = 0
        self._since_s = -inf

    def reach(self, now_s: float) -> BusReach:
        """What may be said of the bus now, in seconds of the event loop."""
        seen = self._connection()
        if seen != self._seen:
            self._seen, self._since_s = seen, now_s
        if now_s < self._since_s + SURE_AFTER_S:
            return BusReach.UNSURE
        return BusReach.HEARS if seen else BusReach.DEAF


async def tell_bus(bus: Bus, inject: Callable[[BusReachable], Awaitable[None]]) -> None:
    """Tell a core when the bus goes away and when it is back, until cancelled."""
    was_reachable = True
    while True:
        is_reachable = not await bus.ready()
        if is_reachable != was_reachable:
            await inject(BusReachable(is_reachable=is_reachable))
            was_reachable = is_reachable
        await asyncio.sleep(_LISTEN_S)
