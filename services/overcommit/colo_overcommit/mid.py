"""The mid tier: CPU and memory for work between online and batch work, beside what batch work is promised.

Source: the mid formula of koordinator-sh/koordinator (pkg/slo-controller/noderesource/plugins/midresource), for each zone; the
value of a node is the sum of its zones. Shares of a capacity round down; peaks, margins and reservations round up. Unlike there the
use of the tier's own work does not make the tier smaller, and no less is published than its work holds.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from colo_common.events.node import WorkloadUsage, ZoneMid
from colo_common.model.placement import ZoneShare
from colo_common.model.quantity import ceil_div
from colo_overcommit.allocatable import Limit, Resource, ZoneInputs
from colo_overcommit.held_by_batch import HeldByBatch
from colo_overcommit.policy import MidMode, OvercommitPolicy
from colo_overcommit.prod_peaks import ProdUse

__all__ = ["MidInputs", "MidResource", "has_mid_moved", "mid_inputs", "mid_of_zones", "mid_use", "only_held_mid"]


_NOTHING_HELD: Final[Mapping[int, ZoneShare]] = MappingProxyType({})


class MidResource(Struct, frozen=True, kw_only=True):
    """The terms of the mid tier for one resource of one zone, all in one unit: mcpu or bytes.

    `static_pct` None: the tier gets what online work gives back. `used` is the use of all work but the tier's, `reserved` what the
    system uses or what is kept for it, `prod_requested` what all online work requests. `prod_measured` is the part of that which
    was measured for long enough, `prod_peak` what that work is expected to use, None while it is not known. No more than `most_pct`
    is given. `held` is what work of the tier holds, no more than the capacity. While the sample is late no more than `promised` is
    given, which is what the last sample promised that was not, and `age_pct` of that.
    """

    capacity: int
    most_pct: int
    static_pct: int | None = None
    used: int = 0
    reserved: int = 0
    prod_requested: int = 0
    prod_measured: int = 0
    prod_peak: int | None = None
    margin_pct: int = 0
    unallocated_pct: int = 0
    held: int = 0
    promised: int | None = None
    age_pct: int = 100

    @property
    def prod_reclaimable(self) -> int:
        """max(prod_measured - ceil(prod_peak * (100 + margin_pct) / 100), 0); 0 without a peak."""
        if self.prod_peak is None:
            return 0
        return max(self.prod_measured - ceil_div(self.prod_peak * (100 + self.margin_pct), 100), 0)

    @property
    def allocatable(self) -> int:
        """`raw`, but never below what work of the tier holds."""
        return max(self.raw, self.held)

    @property
    def raw(self) -> int:
        """With a static_pct: min(floor(capacity * static_pct / 100), most). Else min(max(min(prod_reclaimable, capacity - used), 0)
        + floor(max(capacity - reserved - prod_requested, 0) * unallocated_pct / 100), most), where most is
        floor(capacity * most_pct / 100). Of a late sample floor(min(that, promised) * age_pct / 100).
        """
        raw = self._in_time
        if self.promised is not None and raw > self.promised:
            raw = self.promised
        return raw if self.age_pct == 100 else raw * self.age_pct // 100

    @property
    def _in_time(self) -> int:
        most = self.capacity * self.most_pct // 100
        if self.static_pct is not None:
            return min(self.capacity * self.static_pct // 100, most)
        given_back = max(min(self.prod_reclaimable, self.capacity - self.used), 0)
        unallocated = max(self.capacity - self.reserved - self.prod_requested, 0)
        return min(given_back + unallocated * self.unallocated_pct // 100, most)


class MidInputs(Struct, frozen=True, kw_only=True):
    """The terms of the mid tier in one zone."""

    zone: int
    cpu: MidResource
    memory: MidResource


def mid_inputs(
    inputs: Sequence[ZoneInputs],
    used: Sequence[tuple[int, int]],
    prod: Sequence[ProdUse],
    policy: OvercommitPolicy,
    held: Mapping[int, ZoneShare] = _NOTHING_HELD,
) -> tuple[MidInputs, ...]:
    """The terms of every zone, in the order of `inputs`; where the tier is off, and where no batch work is admitted either, those
    of what is held and no more.

    `used` has mcpu and bytes that work of the zone uses, without that of the tier, `prod` its online work.
    """
    if policy.mid_mode == MidMode.OFF or any(zone.limit != Limit.POLICY for zone in inputs):
        return only_held_mid(inputs, held)
    zones = []
    for zone, (mcpu, size), online in zip(inputs, used, prod, strict=True):
        own_mcpu, own_bytes = _held(held, zone)
        cpu = _resource(zone.cpu, mcpu, online, 0, policy, own_mcpu)
        memory = _resource(zone.memory, size, online, 1, policy, own_bytes)
        zones.append(MidInputs(zone=zone.zone, cpu=cpu, memory=memory))
    return tuple(zones)


def only_held_mid(inputs: Iterable[ZoneInputs], held: Mapping[int, ZoneShare]) -> tuple[MidInputs, ...]:
    """The terms of a tier that gets nothing more than its work holds; () where that is nothing."""
    if not held:
        return ()
    zones = []
    for zone in inputs:
        mcpu, size = _held(held, zone)
        cpu = MidResource(capacity=zone.cpu.capacity, most_pct=0, static_pct=0, held=mcpu)
        memory = MidResource(capacity=zone.memory.capacity, most_pct=0, static_pct=0, held=size)
        zones.append(MidInputs(zone=zone.zone, cpu=cpu, memory=memory))
    return tuple(zones)


def mid_use(
    held: HeldByBatch, workloads: Iterable[WorkloadUsage], zones: Sequence[int]
) -> Mapping[int, tuple[int, int]]:
    """Zone -> mcpu and bytes that work of the tier uses; {} without such work.

    A workload's use is divided evenly over the zones it may use, rounded down: less use makes the tier smaller.
    """
    if not held.mid_by_zone():
        return {}
    used = dict.fromkeys(zones, (0, 0))
    for work in workloads:
        if not work.replica or not held.is_mid(work.replica, work.attempt):
            continue
        homes = [zone for zone in work.zones if zone in used] or zones
        for zone in homes:
            mcpu, size = used[zone]
            used[zone] = (mcpu + work.cpu_used_mcpu // len(homes), size + work.memory_used_bytes // len(homes))
    return used


def _held(held: Mapping[int, ZoneShare], zone: ZoneInputs) -> tuple[int, int]:
    share = held.get(zone.zone)
    if share is None:
        return 0, 0
    return min(share.cpu_mcpu, zone.cpu.capacity), min(share.memory_bytes, zone.memory.capacity)


def mid_of_zones(inputs: Iterable[MidInputs]) -> tuple[ZoneMid, ...]:
    """What the mid tier gets in each zone."""
    return tuple(
        ZoneMid(zone=zone.zone, cpu_mcpu=zone.cpu.allocatable, memory_bytes=zone.memory.allocatable) for zone in inputs
    )


def has_mid_moved(
    before: Sequence[ZoneMid], after: Sequence[ZoneMid], inputs: Sequence[MidInputs], shrink_pct: int
) -> bool:
    """Whether the tier appeared or disappeared, or fell by at least `shrink_pct` of a zone's capacity: that cannot wait.

    A rise is published with the next number of batch work, at the latest after `refresh_ms`.
    """
    if [zone.zone for zone in before] != [zone.zone for zone in after]:
        return True
    for old, new, terms in zip(before, after, inputs, strict=True):
        for fell, capacity in (
            (old.cpu_mcpu - new.cpu_mcpu, terms.cpu.capacity),
            (old.memory_bytes - new.memory_bytes, terms.memory.capacity),
        ):
            if fell > 0 and 100 * fell >= shrink_pct * capacity:
                return True
    return False


def _resource(
    batch: Resource, used: int, online: ProdUse, index: int, policy: OvercommitPolicy, held: int
) -> MidResource:
    most_pct = (policy.mid_cpu_most_pct, policy.mid_memory_most_pct)[index]
    if policy.mid_mode == MidMode.STATIC:
        static_pct = (policy.mid_static_cpu_pct, policy.mid_static_memory_pct)[index]
        return MidResource(capacity=batch.capacity, most_pct=most_pct, static_pct=static_pct, held=held)
    return MidResource(
        capacity=batch.capacity,
        most_pct=most_pct,
        used=used,
        reserved=max(batch.system_used, batch.reserved),
        prod_requested=online.requested[index],
        prod_measured=online.measured[index],
        prod_peak=online.peak[index],
        margin_pct=policy.mid_margin_pct,
        unallocated_pct=policy.mid_unallocated_pct,
        held=held,
    )
