"""The holds of placed work on a node, summed by zone: batch work, the mid tier and exclusive (LSE) work separately."""

from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

from msgspec.structs import replace

from colo_common.events.node import NodeUsageSampled
from colo_common.model.dropped_attempts import DroppedAttempts
from colo_common.model.placement import ZoneShare, attempt_key
from colo_common.model.qos import PriorityBand, QosClass

__all__ = ["HeldByBatch", "OnlineHold", "with_bands"]


class OnlineHold(NamedTuple):
    """What one attempt of online work or of the mid tier holds.

    `is_new`: it was placed before our eyes, at `taken_ms`, and not read from a list.
    """

    key: str
    shares: tuple[ZoneShare, ...]
    taken_ms: int
    is_new: bool
    is_exclusive: bool


_CHARGED: Final = (PriorityBand.PROD, PriorityBand.MID)


class _Sums:
    """Sums of CPU and memory by zone."""

    def __init__(self) -> None:
        self.mcpu: dict[int, int] = {}
        self.bytes: dict[int, int] = {}

    def add(self, shares: Iterable[ZoneShare], sign: int) -> None:
        for share in shares:
            self.mcpu[share.zone] = self.mcpu.get(share.zone, 0) + sign * share.cpu_mcpu
            self.bytes[share.zone] = self.bytes.get(share.zone, 0) + sign * share.memory_bytes


class HeldByBatch:
    """The zone shares of each attempt. `by_zone` sums those of batch work, `mid_by_zone` those of the mid tier, `exclusive_by_zone`
    those of LSE work.

    Taking the same attempt twice, or dropping an unknown one, changes nothing. Online work (band prod) is in no sum, unless it is
    LSE: its measured usage counts instead. Of LSE work the request counts, because no other work may run on its idle CPUs.

    A dropped attempt is not taken again (the last 1,000 are remembered): an attempt holds once, and messages come out of order.
    """

    def __init__(self) -> None:
        self._attempts: dict[str, tuple[ZoneShare, ...]] = {}
        self._taken_ms: dict[str, int] = {}
        self._dropped = DroppedAttempts()
        self._batch = _Sums()
        self._mid = _Sums()
        self._lse = _Sums()
        self._sums_of: dict[str, _Sums] = {}
        # The results of `by_zone` and `mid_by_zone`, computed when a sum changes, because every sample reads them.
        self._by_zone: dict[int, ZoneShare] = {}
        self._mid_by_zone: dict[int, ZoneShare] = {}
        self._online: dict[str, bool] = {}
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
        is_new: bool = False,
        is_reservation: bool = False,
    ) -> None:
        """Add the shares of an attempt, unless it is known or was dropped. `is_new`: it was placed now, nobody has measured it.

        `is_reservation`: it holds a place for others and uses nothing itself.
        """
        key = attempt_key(replica, attempt)
        if key not in self._attempts and key not in self._dropped:
            self._attempts[key] = shares
            self._taken_ms[key] = now_ms
            if band in _CHARGED and not is_reservation:
                self._online[key] = is_new
            sums = self._sums_for(qos, band)
            if sums is not None:
                self._sums_of[key] = sums
                self._add(sums, shares, 1)

    def _sums_for(self, qos: QosClass, band: PriorityBand) -> _Sums | None:
        if band is PriorityBand.PROD:
            return self._lse if qos is QosClass.LSE else None
        return self._mid if band is PriorityBand.MID else self._batch

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
        """Replace the shares of an attempt; () removes them. A reservation's own hold changes when owners come and go."""
        self._remove(attempt_key(replica, attempt))
        if shares:
            self.take(replica, attempt, shares, now_ms, qos=qos, band=band, is_reservation=True)

    def drop(self, replica: str, attempt: int) -> None:
        """Remove the shares of an attempt for good: a later `take` of it changes nothing."""
        key = attempt_key(replica, attempt)
        self._remove(key)
        self._dropped.add(key)

    def keep(self, keys: Collection[str], before_ms: int) -> int:
        """Remove the attempts that were taken before `before_ms` and are not in `keys`; return their number."""
        unlisted = [key for key, taken_ms in self._taken_ms.items() if taken_ms < before_ms and key not in keys]
        for key in unlisted:
            self._remove(key)
        return len(unlisted)

    def by_zone(self) -> dict[int, ZoneShare]:
        """Zone -> sum of batch work's shares, for zones with a hold. Callers must not change the dict."""
        return self._by_zone

    def mid_by_zone(self) -> dict[int, ZoneShare]:
        """Zone -> sum of the mid tier's shares, for zones with a hold. Callers must not change the dict."""
        return self._mid_by_zone

    def exclusive_by_zone(self) -> dict[int, int]:
        """Zone -> CPU that LSE work holds (mcpu), for zones with a hold."""
        if not self.has_exclusive:
            return {}
        return {zone: mcpu for zone, mcpu in sorted(self._lse.mcpu.items()) if mcpu}

    @property
    def has_charged(self) -> bool:
        """Whether online work that colo placed, or work of the mid tier, holds something here."""
        return bool(self._online)

    def online(self) -> Iterator[OnlineHold]:
        """The holds of online work, in the order in which they came."""
        return (each for each in self.charged() if self._sums_of.get(each.key) is not self._mid)

    def charged(self, since_ms: int | None = None) -> Iterator[OnlineHold]:
        """The holds of online work and of the mid tier, in the order in which they came; with `since_ms` the new ones that came
        after it, and those that nobody can have measured yet are among them.
        """
        for key, is_new in self._online.items():
            taken_ms = self._taken_ms[key]
            if since_ms is None or (is_new and taken_ms > since_ms):
                is_exclusive = self._sums_of.get(key) is self._lse
                yield OnlineHold(key, self._attempts[key], taken_ms, is_new, is_exclusive)

    def holds(self, replica: str, attempt: int) -> bool:
        """Whether the attempt holds something."""
        return attempt_key(replica, attempt) in self._attempts

    def is_exclusive(self, replica: str, attempt: int) -> bool:
        """Whether the attempt is LSE work that holds something."""
        return self._sums_of.get(attempt_key(replica, attempt)) is self._lse

    def is_mid(self, replica: str, attempt: int) -> bool:
        """Whether the attempt is work of the mid tier that holds something."""
        return self._sums_of.get(attempt_key(replica, attempt)) is self._mid

    @property
    def attempts(self) -> tuple[str, ...]:
        """The keys of all attempts with a hold."""
        return tuple(self._attempts)

    @property
    def cpu_mcpu(self) -> int:
        """CPU that batch work holds in all zones."""
        return sum(self._batch.mcpu.values())

    @property
    def memory_bytes(self) -> int:
        """Memory that batch work holds in all zones."""
        return sum(self._batch.bytes.values())

    @property
    def mid_cpu_mcpu(self) -> int:
        """CPU that work of the mid tier holds in all zones."""
        return sum(self._mid.mcpu.values())

    @property
    def mid_memory_bytes(self) -> int:
        """Memory that work of the mid tier holds in all zones."""
        return sum(self._mid.bytes.values())

    def __len__(self) -> int:
        return len(self._attempts)

    def _remove(self, key: str) -> None:
        self._taken_ms.pop(key, None)
        self._online.pop(key, None)
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
        by_zone = {
            zone: ZoneShare(zone=zone, cpu_mcpu=mcpu[zone], memory_bytes=memory[zone])
            for zone in sorted(mcpu)
            if mcpu[zone] or memory[zone]
        }
        if sums is self._mid:
            self._mid_by_zone = by_zone
        else:
            self._by_zone = by_zone


def with_bands(sample: NodeUsageSampled, held: HeldByBatch) -> NodeUsageSampled:
    """The sample with the band of work of the mid tier as its placement says it: a node shows only in which tree a replica runs."""
    if not held.mid_by_zone():
        return sample
    return replace(
        sample,
        workloads=tuple(
            replace(work, band=PriorityBand.MID)
            if work.replica and work.band is not PriorityBand.MID and held.is_mid(work.replica, work.attempt)
            else work
            for work in sample.workloads
        ),
    )
