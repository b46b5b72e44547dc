"""How the CPU of a simulated machine is shared out: pure integer arithmetic, every division rounds down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

__all__ = ["Claim", "Shares", "share_batch_cpu", "spread_online_cpu"]


class Claim(Protocol):
    """A batch replica as far as sharing is concerned: it could use `cpu_mcpu` at once, on any CPU of its zones."""

    @property
    def cpu_mcpu(self) -> int: ...

    @property
    def zones(self) -> tuple[int, ...]: ...


class Shares(NamedTuple):
    """The CPU granted to each claim, in order, and the batch use of each zone. Both sum to the same number."""

    granted_mcpu: list[int]
    zone_mcpu: list[int]


def share_batch_cpu(claims: Sequence[Claim], room_mcpu: Sequence[int], quota_mcpu: int | None) -> Shares:
    """Return the CPU that batch replicas get from the room of each zone under the quota of the whole tier.

    The quota shrinks every claim in proportion; each claim is split evenly over its zones; a zone that is asked for
    more than its room serves in proportion; what a claim then lacks it takes from room left in its other zones, in the
    order of claims. No claim gets more than it asked, no zone gives more than its room, the sum never exceeds the quota.
    """
    wanted_mcpu = [claim.cpu_mcpu for claim in claims]
    total_mcpu = sum(wanted_mcpu)
    quota_left_mcpu = total_mcpu if quota_mcpu is None else quota_mcpu
    if quota_left_mcpu < total_mcpu:
        aimed_mcpu = [wanted * quota_left_mcpu // total_mcpu for wanted in wanted_mcpu]
    else:
        aimed_mcpu = wanted_mcpu
    parts = [_split(aimed, claim.zones) for aimed, claim in zip(aimed_mcpu, claims, strict=True)]
    asked_mcpu = [0] * len(room_mcpu)
    for split in parts:
        for zone, part in split:
            asked_mcpu[zone] += part
    zone_mcpu = [0] * len(room_mcpu)
    granted_mcpu = []
    for split in parts:
        granted = 0
        for zone, part in split:
            if asked_mcpu[zone] > room_mcpu[zone]:
                part = part * room_mcpu[zone] // asked_mcpu[zone]
            granted += part
            zone_mcpu[zone] += part
        granted_mcpu.append(granted)
    quota_left_mcpu -= sum(granted_mcpu)
    for index, claim in enumerate(claims):
        for zone in claim.zones:
            more = min(wanted_mcpu[index] - granted_mcpu[index], room_mcpu[zone] - zone_mcpu[zone], quota_left_mcpu)
            if more > 0:
                granted_mcpu[index] += more
                zone_mcpu[zone] += more
                quota_left_mcpu -= more
    return Shares(granted_mcpu, zone_mcpu)


def _split(amount: int, zones: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Return (zone, part) pairs whose parts sum to the amount and differ by at most 1."""
    if len(zones) == 1:
        return ((zones[0], amount),)
    part, rest = divmod(amount, len(zones))
    return tuple((zone, part + (position < rest)) for position, zone in enumerate(zones))


def spread_online_cpu(demand_mcpu: int, weights: Sequence[int], weight_sum: int, zone_capacity_mcpu: int) -> list[int]:
    """Return the online demand of each zone: by weight; the excess of a full zone goes to the next zones with room.

    The sum is the demand, or the capacity where the demand exceeds it.
    """
    spread = [demand_mcpu * weight // weight_sum for weight in weights]
    spread[-1] += demand_mcpu - sum(spread)
    if max(spread) <= zone_capacity_mcpu:
        return spread
    over = 0
    for zone, part in enumerate(spread):
        if part > zone_capacity_mcpu:
            over += part - zone_capacity_mcpu
            spread[zone] = zone_capacity_mcpu
    for zone, part in enumerate(spread):
        more = min(over, zone_capacity_mcpu - part)
        spread[zone] += more
        over -= more
    return spread
