"""Gathers what servers refused, so that a flood of refusals is a few lines of the audit and none of them is uncounted."""

from collections import OrderedDict
from typing import Final

from msgspec import structs

from colo_common.ports import RefusedLogin

__all__ = ["RefusalTally"]

#: An address is written down at once, and then once in this time with the number of its refusals.
_AGAIN_S: Final = 60.0
#: Addresses that are written down one by one at a time; of the others their number.
_AT_ONCE: Final = 10
_ADDRESSES_MOST: Final = 1_000
_OTHERS: Final = "several"

# Server, address, and whether the server knows who it is.
_Key = tuple[str, str, bool]


class RefusalTally:
    """Refusals by server and address, the newest of an address with the number of all of them since it was written down last.

    At most 1,000 addresses wait and are remembered; refusals of further ones are counted together, as of `several`.
    """

    def __init__(self) -> None:
        self._waiting: dict[_Key, RefusedLogin] = {}
        self._written_s: OrderedDict[_Key, float] = OrderedDict()

    def note(self, refusal: RefusedLogin) -> None:
        """Count a refusal."""
        key = (refusal.server, refusal.address, refusal.is_known)
        if key not in self._waiting and len(self._waiting) >= _ADDRESSES_MOST:
            self._add_to_others(refusal)
            return
        earlier = self._waiting.get(key)
        times = refusal.times + (earlier.times if earlier is not None else 0)
        self._waiting[key] = structs.replace(refusal, times=times)

    def take(self, now_s: float) -> list[RefusedLogin]:
        """What is to be written down now; `now_s` is a clock that only goes forward."""
        due = [key for key in self._waiting if key[1] != _OTHERS and self._is_due(key, now_s)]
        due.sort(key=lambda key: (-self._waiting[key].times, key))
        for key in due[_AT_ONCE:]:
            self._add_to_others(self._waiting.pop(key))
        chosen = due[:_AT_ONCE] + [key for key in self._waiting if key[1] == _OTHERS and self._is_due(key, now_s)]
        for key in chosen:
            self._written_s[key] = now_s
            self._written_s.move_to_end(key)
        while len(self._written_s) > _ADDRESSES_MOST:
            self._written_s.popitem(last=False)
        return [self._waiting.pop(key) for key in chosen]

    def _is_due(self, key: _Key, now_s: float) -> bool:
        return key not in self._written_s or now_s >= self._written_s[key] + _AGAIN_S

    def _add_to_others(self, refusal: RefusedLogin) -> None:
        key = (refusal.server, _OTHERS, False)
        earlier = self._waiting.get(key)
        times = refusal.times + (earlier.times if earlier is not None else 0)
        self._waiting[key] = structs.replace(refusal, who="", address=_OTHERS, is_known=False, times=times)
