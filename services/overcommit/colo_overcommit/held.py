"""What batch work holds on a node, by zone: the sum of its placements that are not released."""

from collections.abc import Collection, Iterable
from typing import Final

from msgspec import Struct

from colo_common.events.requests import Hold
from colo_common.model.placement import ZoneShare, attempt_key

__all__ = ["Held", "HoldsListed"]

_DROPPED_KEPT: Final = 1_000


class HoldsListed(Struct, frozen=True, kw_only=True):
    """Everything that the scheduler's ledger held at some moment after `asked_at_ms`; 0: the list may lack something."""

    holds: tuple[Hold, ...]
    asked_at_ms: int


class Held:
    """Shares by attempt; `by_zone` is their sum. Taking the same attempt twice, or dropping an unknown one, changes nothing.

    What was dropped is not taken again (the last 1,000 are remembered): an attempt holds once, and messages come out of order.
    """

    def __init__(self) -> None:
        self._attempts: dict[str, tuple[ZoneShare, ...]] = {}
        self._taken_ms: dict[str, int] = {}
        self._dropped: dict[str, None] = {}
        self._mcpu: dict[int, int] = {}
        self._bytes: dict[int, int] = {}

    def take(self, replica: str, attempt: int, shares: tuple[ZoneShare, ...], now_ms: int) -> None:
        """The attempt holds these shares from now on."""
        key = attempt_key(replica, attempt)
        if key not in self._attempts and key not in self._dropped:
            self._attempts[key] = shares
            self._taken_ms[key] = now_ms
            self._add(shares, 1)

    def drop(self, replica: str, attempt: int) -> None:
        """The attempt holds nothing any more, and never will again."""
        key = attempt_key(replica, attempt)
        self._let_go(key)
        self._dropped[key] = None
        if len(self._dropped) > _DROPPED_KEPT:
            del self._dropped[next(iter(self._dropped))]

    def keep(self, keys: Collection[str], before_ms: int) -> int:
        """Let go of what was taken before this moment and is none of these attempts; how many that were."""
        gone = [key for key, taken_ms in self._taken_ms.items() if taken_ms < before_ms and key not in keys]
        for key in gone:
            self._let_go(key)
        return len(gone)

    def by_zone(self) -> dict[int, ZoneShare]:
        """Zone -> sum of shares, for zones in which something is held."""
        return {
            zone: ZoneShare(zone=zone, cpu_mcpu=self._mcpu[zone], memory_bytes=self._bytes[zone])
            for zone in sorted(self._mcpu)
            if self._mcpu[zone] or self._bytes[zone]
        }

    @property
    def attempts(self) -> tuple[str, ...]:
        """Everything that holds something, as attempt keys."""
        return tuple(self._attempts)

    @property
    def cpu_mcpu(self) -> int:
        """Held CPU of all zones."""
        return sum(self._mcpu.values())

    @property
    def memory_bytes(self) -> int:
        """Held memory of all zones."""
        return sum(self._bytes.values())

    def __len__(self) -> int:
        return len(self._attempts)

    def _let_go(self, key: str) -> None:
        self._taken_ms.pop(key, None)
        self._add(self._attempts.pop(key, ()), -1)

    def _add(self, shares: Iterable[ZoneShare], sign: int) -> None:
        for share in shares:
            self._mcpu[share.zone] = self._mcpu.get(share.zone, 0) + sign * share.cpu_mcpu
            self._bytes[share.zone] = self._bytes.get(share.zone, 0) + sign * share.memory_bytes
