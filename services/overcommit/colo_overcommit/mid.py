"""The mid tier: CPU and memory for work between online and batch work, beside what batch work is promised.

Source: the mid formula of koordinator-sh/koordinator (pkg/slo-controller/noderesource/plugins/midresource), for each zone; the
value of a node is the sum of its zones. Shares of a capacity round down; peaks, margins and reservations round up.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from colo_common.events.node import ZoneMid
from colo_common.model.quantity import ceil_div
from colo_overcommit.allocatable import Limit, Resource, ZoneInputs
from colo_overcommit.policy import MidMode, OvercommitPolicy
from colo_overcommit.prod_peaks import ProdUse

__all__ = ["MidInputs", "MidResource", "has_mid_moved", "mid_inputs", "mid_of_zones"]


class MidResource(Struct, frozen=True, kw_only=True):
    """The terms of the mid tier for one resource of one zone, all in one unit: mcpu or bytes.

    `static_pct` None: the tier gets what online work gives back. `used` is the use of all work, `reserved` what the system uses or
    what is kept for it, `prod_requested` what all online work requests. `prod_measured` is the part of that which was measured for
    long enough, `prod_peak` what that work is expected to use, None while it is not known. No more than `most_pct` is given.
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

    @property
    def prod_reclaimable(self) -> int:
        """max(prod_measured - ceil(prod_peak * (100 + margin_pct) / 100), 0); 0 without a peak."""
        if self.prod_peak is None:
            return 0
        return max(self.prod_measured - ceil_div(self.prod_peak * (100 + self.margin_pct), 100), 0)

    @property
    def allocatable(self) -> int:
        """With a static_pct: min(floor(capacity * static_pct / 100), most). Else min(max(min(prod_reclaimable, capacity - used), 0)
        + floor(max(capacity - reserved - prod_requested, 0) * unallocated_pct / 100), most), where most is
        floor(capacity * most_pct / 100).
        """
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
    inputs: Iterable[ZoneInputs], used: Sequence[tuple[int, int]], prod: Sequence[ProdUse], policy: OvercommitPolicy
) -> tuple[MidInputs, ...]:
    """The terms of every zone, in the order of `inputs`; () where the tier is off, and where no batch work is admitted either.

    `used` has mcpu and bytes that all work of the zone uses, `prod` its online work.
    """
    if policy.mid_mode == MidMode.OFF:
        return ()
    zones = []
    for zone, (mcpu, size), online in zip(inputs, used, prod, strict=True):
        if zone.limit != Limit.POLICY:
            return ()
        cpu, memory = _resource(zone.cpu, mcpu, online, 0, policy), _resource(zone.memory, size, online, 1, policy)
        zones.append(MidInputs(zone=zone.zone, cpu=cpu, memory=memory))
    return tuple(zones)


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


def _resource(batch: Resource, used: int, online: ProdUse, index: int, policy: OvercommitPolicy) -> MidResource:
    most_pct = (policy.mid_cpu_most_pct, policy.mid_memory_most_pct)[index]
    if policy.mid_mode == MidMode.STATIC:
        static_pct = (policy.mid_static_cpu_pct, policy.mid_static_memory_pct)[index]
        return MidResource(capacity=batch.capacity, most_pct=most_pct, static_pct=static_pct)
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
    )
