"""How often an address may do something: a token bucket for each, and a bound on how many addresses are remembered."""

from collections import OrderedDict
from typing import Final

__all__ = ["AddressLimits"]

_ADDRESSES_MOST: Final = 10_000


class AddressLimits:
    """Each address may do `burst` things at once and then `per_s` a second; `per_s` 0: no limit.

    The addresses that did something last are remembered; one that was forgotten begins with a whole burst.
    """

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, address: str, now_s: float) -> float:
        """Do one thing: 0.0 when it may be done, else the seconds after which the next one may."""
        return self._look(address, now_s, 1.0)

    def wait_s(self, address: str, now_s: float) -> float:
        """The same without doing anything."""
        return self._look(address, now_s, 0.0)

    def _look(self, address: str, now_s: float, cost: float) -> float:
        if self._per_s <= 0:
            return 0.0
        left, at_s = self._left.get(address, (self._burst, now_s))
        left = min(self._burst, left + max(0.0, now_s - at_s) * self._per_s)
        if left < 1.0:
            if address in self._left:
                self._left[address] = (left, now_s)
                self._left.move_to_end(address)
            return (1.0 - left) / self._per_s
        if cost:
            self._left[address] = (left - cost, now_s)
            self._left.move_to_end(address)
            if len(self._left) > _ADDRESSES_MOST:
                self._left.popitem(last=False)
        return 0.0
