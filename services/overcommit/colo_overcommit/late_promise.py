"""What a node is promised whose newest sample is late: it shrinks with the age of the sample to what is held, and never grows."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from colo_common.events.node import AllocatableChanged
from colo_common.model.freshness import Freshness, FreshnessPolicy
from colo_common.model.placement import ZoneShare
from colo_common.model.quantity import ceil_div
from colo_overcommit.allocatable import Limit, Resource, ZoneInputs
from colo_overcommit.explained_values import values_by_zone
from colo_overcommit.mid import MidInputs, MidResource, only_held_mid

__all__ = ["Promised", "Shrink", "late_mid", "late_terms", "promised_by"]

#: A promise shrinks in fifths: each step is a message to every scheduler, so there are few of them.
STEPS: Final = 5


class Shrink(Struct, frozen=True, kw_only=True):
    """How much of its last promise a late sample still gives, by its age.

    Nothing is taken off before a node is stale. From then on it falls by a fifth at once and in every fifth of `window_ms`, so that
    it is never above the straight line from all of it at `stale_after_ms` to nothing at the end of the window. The window ends
    before the node is lost: one that is longer is cut. With 0 nothing is left as soon as the node is stale.
    """

    freshness: FreshnessPolicy
    window_ms: int

    @property
    def _window_ms(self) -> int:
        return min(self.window_ms, self.freshness.lost_after_ms - self.freshness.stale_after_ms)

    def left_pct(self, age_ms: int) -> int:
        """The percentage that is left of the promise at this age."""
        over_ms = age_ms - self.freshness.stale_after_ms
        if over_ms < 0:
            return 100
        if over_ms >= self._window_ms:
            return 0
        return 100 - 100 // STEPS * (1 + over_ms * STEPS // self._window_ms)

    def next_fall_ms(self, age_ms: int) -> int | None:
        """The age at which less is left than at this one of a late sample; None when nothing is."""
        over_ms = age_ms - self.freshness.stale_after_ms
        if over_ms < 0 or not self.left_pct(age_ms):
            return None
        fifth = over_ms * STEPS // self._window_ms + 1
        return self.freshness.stale_after_ms + ceil_div(fifth * self._window_ms, STEPS)

    def says(self, pct: int) -> str:
        """The source of the percentage, for people."""
        if not self._window_ms or not pct:
            return "the sample is too old to promise more than is held"
        begin, end = self.freshness.stale_after_ms, self.freshness.stale_after_ms + self._window_ms
        ages = f"from {begin / 1000:g} s to {end / 1000:g} s of age"
        return f"the sample is late: {ages} a promise shrinks to what is held, in fifths"


class Promised(NamedTuple):
    """What the last sample that was not late promised in a zone: batch work, and the mid tier."""

    cpu_mcpu: int = 0
    memory_bytes: int = 0
    mid_cpu_mcpu: int = 0
    mid_memory_bytes: int = 0


def promised_by(published: AllocatableChanged, pct: int) -> Mapping[int, Promised]:
    """Zone -> what `pct` of is left, by the number that was published last.

    One of a late sample names in its terms what was promised before it, of which less is left by now. When more is left now, the
    node was on time meanwhile, and nothing was published: no more counts than what that number promised.
    """
    terms = values_by_zone(published.explanation) if published.freshness is Freshness.STALE else {}
    mid = {zone.zone: zone for zone in published.mid}
    found = {}
    for zone in published.zones:
        own, tier = terms.get(zone.zone, {}), mid.get(zone.zone)
        if pct > own.get("cpu_age_pct", 100):
            own = {}
        found[zone.zone] = Promised(
            own.get("cpu_promised", zone.batch_cpu_mcpu),
            own.get("memory_promised", zone.batch_memory_bytes),
            own.get("cpu_mid_promised", tier.cpu_mcpu if tier else 0),
            own.get("memory_mid_promised", tier.memory_bytes if tier else 0),
        )
    return found


def late_terms(
    inputs: tuple[ZoneInputs, ...],
    held: Mapping[int, ZoneShare],
    promised: Mapping[int, Promised],
    pct: int,
    says: str,
) -> tuple[ZoneInputs, ...]:
    """The terms of a sample that is late: no more than `promised` counts, and `pct` of that; `held` is what is held by now.

    Where nothing more than what is held is promised anyway the percentage would explain nothing.
    """
    zones = []
    for zone in inputs:
        share, was = held.get(zone.zone), promised.get(zone.zone, Promised())
        mcpu, size = (share.cpu_mcpu, share.memory_bytes) if share else (0, 0)
        cpu = replace(zone.cpu, held=min(mcpu, zone.cpu.capacity))
        memory = replace(zone.memory, held=min(size, zone.memory.capacity))
        if zone.limit == Limit.POLICY:
            cpu, memory = _late(cpu, was.cpu_mcpu, pct), _late(memory, was.memory_bytes, pct)
            zone = replace(zone, late_by=says)
        zones.append(replace(zone, cpu=cpu, memory=memory))
    return tuple(zones)


def late_mid(
    inputs: tuple[MidInputs, ...],
    batch: tuple[ZoneInputs, ...],
    held: Mapping[int, ZoneShare],
    promised: Mapping[int, Promised],
    pct: int,
) -> tuple[MidInputs, ...]:
    """The terms of the mid tier in a sample that is late, as `late_terms`; when nothing is left it gets what its work holds.

    `inputs` are those of the sample, () where the tier is off; `batch` are the terms of batch work.
    """
    if not pct or not inputs:
        return only_held_mid(batch, held)
    zones = []
    for zone in inputs:
        share, was = held.get(zone.zone), promised.get(zone.zone, Promised())
        mcpu, size = (share.cpu_mcpu, share.memory_bytes) if share else (0, 0)
        zones.append(
            MidInputs(
                zone=zone.zone,
                cpu=_late_tier(zone.cpu, min(mcpu, zone.cpu.capacity), was.mid_cpu_mcpu, pct),
                memory=_late_tier(zone.memory, min(size, zone.memory.capacity), was.mid_memory_bytes, pct),
            )
        )
    return tuple(zones)


def _late(resource: Resource, promised: int, pct: int) -> Resource:
    return replace(resource, promised=promised, age_pct=pct)


def _late_tier(resource: MidResource, held: int, promised: int, pct: int) -> MidResource:
    return replace(resource, held=held, promised=promised, age_pct=pct)
