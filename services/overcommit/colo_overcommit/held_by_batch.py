"""What placed work holds on a node, by zone: the sums of placements that are not released, batch work and exclusive work apart."""

from collections.abc import Collection, Iterable
from typing import Final

from msgspec import Struct

from colo_common.events.requests import Hold
from colo_common.model.placement import ZoneShare, attempt_key
from colo_common.model.qos import PriorityBand, QosClass

__all__ = ["HeldByBatch", "HoldsListed"]

_DROPPED_KEPT: Final = 1_000


class HoldsListed(Struct, frozen=True, kw_only=True):
    """Everything that the scheduler's ledger held at some moment after `asked_at_ms`; 0: the list may lack something."""

    holds: tuple[Hold, ...]
    asked_at_ms: int


class _Sums:
    """CPU and memory by zone."""

    def __init__(self) -> None:
        self.mcpu: dict[int, int] = {}
        self.bytes: dict[int, int] = {}

    def add(self, shares: Iterable[ZoneShare], sign: int) -> None:
        for share in shares:
            self.mcpu[share.zone] = self.mcpu.get(share.zone, 0) + sign * share.cpu_mcpu
            self.bytes[share.zone] = self.bytes.get(share.zone, 0) + sign * share.memory_bytes


class HeldByBatch:
    """Shares by attempt; `by_zone` is the sum of batch work's. Taking the same attempt twice, or dropping an unknown one, changes
    nothing.

    Online work (band prod) takes nothing from what batch work may have: what it uses is measured. Only of LSE work the request
    counts, `exclusive_by_zone`, because the CPUs that it leaves idle are nobody's.

    What was dropped is not taken again (the last 1,000 are remembered): an attempt holds once, and messages come out of order.
    """

    def __init__(self) -> None:
        self._attempts: dict[str, tuple[ZoneShare, ...]] = {}
        self._taken_ms: dict[str, int] = {}
        self._dropped: dict[str, None] = {}
        self._batch = _Sums()
        self._lse = _Sums()
        self._sums_of: dict[str, _Sums] = {}
        # What `by_zone` answers: it is asked with every sample, so it is made when a sum changes.
        self._by_zone: dict[int, ZoneShare] = {}
        self.has_exclusive = False
        """Whether LSE work holds, or ever held, something here."""

    def take(
        self,
        replica: str,
        attempt: int,
        shares: tuple[ZoneShare, ...],
        now_ms: int,
        *,
        qos: QosClass = QosClass.BE,
        band: PriorityBand = PriorityBand.BATCH,
    ) -> None:
        """The attempt holds these shares from now on."""
        key = attempt_key(replica, attempt)
        if key not in self._attempts and key not in self._dropped:
            self._attempts[key] = shares
            self._taken_ms[key] = now_ms
            sums = self._batch if band is not PriorityBand.PROD else self._lse if qos is QosClass.LSE else None
            if sums is not None:
                self._sums_of[key] = sums
                self._add(sums, shares, 1)

    def put(
        self,
        replica: str,
        attempt: int,
        shares: tuple[ZoneShare, ...],
        now_ms: int,
        *,
        qos: QosClass = QosClass.BE,
        band: PriorityBand = PriorityBand.BATCH,
    ) -> None:
        """The attempt holds exactly these shares from now on, which may be none: for what is held for owners that come and go."""
        self._let_go(attempt_key(replica, attempt))
        if shares:
            self.take(replica, attempt, shares, now_ms, qos=qos, band=band)

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
        """Zone -> sum of batch work's shares, for zones in which it holds something; not to be changed by who asked."""
        return self._by_zone

    def exclusive_by_zone(self) -> dict[int, int]:
        """Zone -> CPU that LSE work asked for (mcpu), for zones in which it holds some."""
        if not self.has_exclusive:
            return {}
        return {zone: mcpu for zone, mcpu in sorted(self._lse.mcpu.items()) if mcpu}

    def holds(self, replica: str, attempt: int) -> bool:
        """Whether the attempt holds something."""
        return attempt_key(replica, attempt) in self._attempts

    def is_exclusive(self, replica: str, attempt: int) -> bool:
        """Whether the attempt is LSE work that holds something."""
        return self._sums_of.get(attempt_key(replica, attempt)) is self._lse

    @property
    def attempts(self) -> tuple[str, ...]:
        """Everything that holds something, as attempt keys."""
        return tuple(self._attempts)

    @property
    def cpu_mcpu(self) -> int:
        """CPU that batch work holds in all zones."""
        return sum(self._batch.mcpu.values())

    @property
    def memory_bytes(self) -> int:
        """Memory that batch work holds in all zones."""
        return sum(self._batch.bytes.values())

    def __len__(self) -> int:
        return len(self._attempts)

    def _let_go(self, key: str) -> None:
        self._taken_ms.pop(key, None)
        shares = self._attempts.pop(key, ())
        sums = self._sums_of.pop(key, None)
        if sums is not None:
            self._add(sums, shares, -1)

    def _add(self, sums: _Sums, shares: tuple[ZoneShare, ...], sign: int) -> None:
        sums.add(shares, sign)
        if sums is self._lse:
            self.has_exclusive = True
            return
        mcpu, memory = sums.mcpu, sums.bytes
        self._by_zone = {
            zone: ZoneShare(zone=zone, cpu_mcpu=mcpu[zone], memory_bytes=memory[zone])
            for zone in sorted(mcpu)
            if mcpu[zone] or memory[zone]
        }
