"""Which CPUs of a machine a workload with CPUs of its own gets, or why it gets none.

The rules are those of Koordinator's accumulator. The choice is a function of the arguments: the same topology, holders and request
always give the same CPUs.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from colo_common.model.cpu_topology import CpuTopology
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput, InvariantBroken
from colo_common.model.placement import ZoneShare
from colo_common.model.reasons import Reason
from colo_scheduler.cpus.accumulate import Wish, take_preferred_cpus
from colo_scheduler.cpus.available import available_cpus, keep_bindable, satisfies_binding
from colo_scheduler.cpus.binding import NOT_ENOUGH, BindPolicy, ExclusivePolicy, NoCpus, NumaStrategy
from colo_scheduler.cpus.exclusive import HeldCpus, Holders, sum_holders

__all__ = ["CpuRequest", "choose_cpus"]

_CPU_MCPU: Final = 1_000
_NONE: Final = CpuSet()
_NOT_WHOLE_CORES: Final = "node(s) requested cpus not multiple cpus per core"
_BIND_CONFLICT: Final = "node(s) cpu bind policy conflicts with pod's required cpu bind policy"


class CpuRequest(Struct, frozen=True, kw_only=True):
    """How many whole CPUs, and how they shall lie.

    `bind` is a wish unless `is_bind_required`. `preferred` are CPUs that the request may take although they are held (the
    rest of its reservation, CPUs of replicas that would be preempted); they come first.
    """

    count: int
    bind: BindPolicy = BindPolicy.FULL_PCPUS
    is_bind_required: bool = False
    exclusive: ExclusivePolicy = ExclusivePolicy.NONE
    strategy: NumaStrategy = NumaStrategy.LEAST_ALLOCATED
    preferred: tuple[CpuSet, ...] = ()

    def validate(self, field: str = "request") -> None:
        """Raise InvalidInput, naming field and rule, for a count below 1."""
        if self.count < 1:
            raise InvalidInput(f"{field}.count", "must be at least 1", self.count)


def choose_cpus(
    topology: CpuTopology,
    request: CpuRequest,
    held: Sequence[HeldCpus] = (),
    reserved: CpuSet = _NONE,
    zones: Sequence[ZoneShare] = (),
) -> CpuSet | NoCpus:
    """Choose `request.count` CPUs that are neither `reserved` nor held by others; or say why not.

    `held` are the CPUs others hold by number, one entry a holder. `reserved` are CPUs that no request is given: the kubelet's, the
    node owner's, an exclusive system set. `zones` is a zone decision already made (a NUMA hint): floor(cpu_mcpu / 1000) CPUs are
    taken in each of these zones, and there are none unless that gives all. Without `zones` the whole machine is open.

    Guarantees: exactly `count` CPUs, all available; with a required bind policy whole cores, or no two of a core; an exclusive
    policy is kept whenever the rules find a way. Work is bounded: a sort of the machine's cores for each zone asked.

    Raises InvalidInput for a request that breaks a rule and for `zones` that name a zone twice.
    """
    request.validate()
    if len({share.zone for share in zones}) != len(zones):
        raise InvalidInput("zones", "each zone must be named once", [share.zone for share in zones])
    holders = sum_holders(held, request.preferred)
    free = available_cpus(topology, holders, reserved)
    found = _choose(topology, request, holders, free, zones)
    if isinstance(found, NoCpus):
        return found
    if found & ~free or found.bit_count() != request.count:
        raise InvariantBroken("chosen CPUs are not free or not as many as asked", found=found, count=request.count)
    return CpuSet(found)


def _not_enough(need: int, free: int) -> NoCpus:
    return NoCpus(reason=Reason.CPUS_SHORT, detail=NOT_ENOUGH, short_count=max(0, need - free.bit_count()))


def _choose(
    topology: CpuTopology, request: CpuRequest, holders: Holders, free: int, zones: Sequence[ZoneShare]
) -> int | NoCpus:
    """Koordinator's filter, choice and check (plugin.go:363, resource_manager.go:357)."""
    if request.is_bind_required:
        if request.bind is BindPolicy.FULL_PCPUS and request.count % topology.cpus_per_core:
            return NoCpus(reason=Reason.CPUS_NOT_WHOLE_CORES, detail=_NOT_WHOLE_CORES)
        free = keep_bindable(topology, free, request.bind)
    if free.bit_count() < request.count:
        return _not_enough(request.count, free)
    wish = Wish(request.bind, request.exclusive, request.strategy)
    preferred = 0
    for cpus in request.preferred:
        preferred |= cpus.mask
    if zones:
        found = _in_zones(topology, request.count, free, preferred, wish, holders, zones)
    else:
        found = take_preferred_cpus(topology, free, preferred, request.count, wish, holders)
    if isinstance(found, NoCpus) or not request.is_bind_required:
        return found
    if not satisfies_binding(topology, found, request.bind):
        return NoCpus(reason=Reason.CPU_BIND_CONFLICT, detail=_BIND_CONFLICT)
    return found


def _in_zones(
    topology: CpuTopology,
    count: int,
    free: int,
    preferred: int,
    wish: Wish,
    holders: Holders,
    zones: Sequence[ZoneShare],
) -> int | NoCpus:
    taken = 0
    for share in zones:
        in_zone = free & topology.cpus_of_zone(share.zone).mask
        need = min(share.cpu_mcpu // _CPU_MCPU, in_zone.bit_count())
        found = take_preferred_cpus(topology, in_zone, preferred, need, wish, holders)
        if isinstance(found, NoCpus):
            return found
        taken |= found
    if taken.bit_count() != count:
        return _not_enough(count, taken)
    return taken
