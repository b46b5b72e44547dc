"""What batch work holds on a node, by zone: the sum of its placements that are not released."""

from collections.abc import Iterable

from colo_common.model.placement import ZoneShare, attempt_key

__all__ = ["Held"]


class Held:
    """Shares by attempt; `by_zone` is their sum. Taking the same attempt twice, or dropping an unknown one, changes nothing."""

    def __init__(self) -> None:
        self._attempts: dict[str, tuple[ZoneShare, ...]] = {}
        self._mcpu: dict[int, int] = {}
        self._bytes: dict[int, int] = {}

    def take(self, replica: str, attempt: int, shares: tuple[ZoneShare, ...]) -> None:
        """The attempt holds these shares from now on."""
        key = attempt_key(replica, attempt)
        if key not in self._attempts:
            self._attempts[key] = shares
            self._add(shares, 1)

    def drop(self, replica: str, attempt: int) -> None:
        """The attempt holds nothing any more."""
        shares = self._attempts.pop(attempt_key(replica, attempt), ())
        self._add(shares, -1)

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

    def _add(self, shares: Iterable[ZoneShare], sign: int) -> None:
        for share in shares:
            self._mcpu[share.zone] = self._mcpu.get(share.zone, 0) + sign * share.cpu_mcpu
            self._bytes[share.zone] = self._bytes.get(share.zone, 0) + sign * share.memory_bytes
