"""The door of this package: which CPUs of a machine a workload with CPUs of its own gets, or why it gets none.

Two systems' rules are offered, Koordinator's accumulator and the kubelet's static policy; which one a request follows is part of
it. The choice is a function of the arguments: the same topology, holders and request always give the same CPUs.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput, InvariantBroken
from colo_common.model.placement import ZoneShare
from colo_common.model.reasons import Reason
from colo_scheduler.cpus.accumulate import Wish, take_preferred_cpus
from colo_scheduler.cpus.available import available_cpus, keep_bindable, satisfies_binding
from colo_scheduler.cpus.binding import NOT_ENOUGH, BindPolicy, ExclusivePolicy, NoCpus, NumaStrategy
from colo_scheduler.cpus.exclusive import HeldCpus, Holders, is_apart, sum_holders
from colo_scheduler.cpus.topology import CpuTopology
from colo_scheduler.peers.kubelet.distributed import take_distributed
from colo_scheduler.peers.kubelet.packed import take_packed

__all__ = ["CpuChoice", "CpuRequest", "KubeletOptions", "choose_cpus"]

_CPU_MCPU: Final = 1_000
_NONE: Final = CpuSet()
_NOT_WHOLE_CORES: Final = "node(s) requested cpus not multiple cpus per core"
_BIND_CONFLICT: Final = "node(s) cpu bind policy conflicts with pod's required cpu bind policy"


class KubeletOptions(Struct, frozen=True, kw_only=True):
    """The options of the kubelet's static policy, each under the name the kubelet has for it."""

    is_full_pcpus_only: bool = False
    """full-pcpus-only: whole cores or nothing."""
    is_across_numa: bool = False
    """distribute-cpus-across-numa: the same number from each zone instead of packing."""
    is_across_cores: bool = False
    """distribute-cpus-across-cores: not with the first two."""
    is_by_socket: bool = False
    """align-by-socket: zones of one socket count as one place."""
    is_by_l3: bool = False
    """prefer-align-cpus-by-uncorecache: packing looks for whole, then partial last-level caches before cores."""

    def validate(self, field: str = "kubelet") -> None:
        """Raise InvalidInput for options that exclude each other."""
        if self.is_across_cores and (self.is_full_pcpus_only or self.is_across_numa):
            rule = "distribute-cpus-across-cores excludes full-pcpus-only and distribute-cpus-across-numa"
            raise InvalidInput(f"{field}.is_across_cores", rule, self)


class CpuRequest(Struct, frozen=True, kw_only=True):
    """How many whole CPUs, and how they shall lie.

    `bind` is a wish unless `is_bind_required`. `preferred` are CPUs that the request may take although somebody holds them (the
    rest of its reservation, CPUs of replicas that would be preempted); they come first. With `kubelet` the kubelet's rules
    decide, and `bind`, `exclusive`, `strategy` and the order of `preferred` mean nothing.
    """

    count: int
    bind: BindPolicy = BindPolicy.FULL_PCPUS
    is_bind_required: bool = False
    exclusive: ExclusivePolicy = ExclusivePolicy.NONE
    strategy: NumaStrategy = NumaStrategy.LEAST_ALLOCATED
    preferred: tuple[CpuSet, ...] = ()
    kubelet: KubeletOptions | None = None

    def validate(self, field: str = "request") -> None:
        """Raise InvalidInput, naming field and rule, for a count below 1 and for contradictory options."""
        if self.count < 1:
            raise InvalidInput(f"{field}.count", "must be at least 1", self.count)
        if self.kubelet is not None:
            self.kubelet.validate(f"{field}.kubelet")


class CpuChoice(Struct, frozen=True, kw_only=True):
    """The CPUs chosen, and whether they keep the distance that the request's exclusive policy wishes for."""

    cpus: CpuSet
    is_apart: bool = True

    def by_zone(self, topology: CpuTopology) -> tuple[tuple[int, CpuSet], ...]:
        """(zone id, CPUs in it) for each zone that has some, by id."""
        masks = zip(topology.zone_ids, topology.zone_masks, strict=True)
        return tuple((zone_id, CpuSet(here)) for zone_id, mask in masks if (here := mask & self.cpus.mask))


def choose_cpus(
    topology: CpuTopology,
    request: CpuRequest,
    held: Sequence[HeldCpus] = (),
    reserved: CpuSet = _NONE,
    zones: Sequence[ZoneShare] = (),
) -> CpuChoice | NoCpus:
    """Choose `request.count` CPUs that are neither `reserved` nor held by others; or say why not.

    `held` are the CPUs others hold by number, one entry a holder. `reserved` are CPUs nobody is given: the kubelet's, the node
    owner's, an exclusive system set. `zones` is a zone decision already made (a NUMA hint): Koordinator's rules then take
    floor(cpu_mcpu / 1000) CPUs in each of these zones and fail unless that gives all; the kubelet's rules take what the zones have
    and the rest elsewhere. Without `zones` the whole machine is open.

    Guarantees: exactly `count` CPUs, all available; with a required bind policy whole cores, or no two of a core; an exclusive
    policy is kept whenever the rules found a way, and `is_apart` tells. Work is bounded: a sort of the machine's cores for each
    zone asked, and for the kubelet's distribution at most `even_zones.STEPS_MAX` sets of zones.

    Raises InvalidInput for a request that breaks a rule and for `zones` that name a zone twice.
    """
    request.validate()
    if len({share.zone for share in zones}) != len(zones):
        raise InvalidInput("zones", "each zone must be named once", [share.zone for share in zones])
    holders = sum_holders(held, request.preferred)
    free = available_cpus(topology, holders, reserved)
    if request.kubelet is not None:
        found = _by_kubelet(topology, request.count, request.kubelet, free, zones)
    else:
        found = _by_koordinator(topology, request, holders, free, zones)
    if isinstance(found, NoCpus):
        return found
    if found & ~free or found.bit_count() != request.count:
        raise InvariantBroken("chosen CPUs are not free or not as many as asked", found=found, count=request.count)
    apart = request.kubelet is not None or is_apart(topology, request.exclusive, holders, found)
    return CpuChoice(cpus=CpuSet(found), is_apart=apart)


def _not_enough(need: int, free: int) -> NoCpus:
    return NoCpus(reason=Reason.CPUS_SHORT, detail=NOT_ENOUGH, short_count=max(0, need - free.bit_count()))


def _by_koordinator(
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


def _by_kubelet(
    topology: CpuTopology, count: int, options: KubeletOptions, free: int, zones: Sequence[ZoneShare]
) -> int | NoCpus:
    """The kubelet's static policy: aligned CPUs first, the rest anywhere (policy_static.go, allocateCPUs)."""
    if options.is_full_pcpus_only:
        per_core = topology.cpus_per_core
        if count % per_core:
            detail = f"SMT Alignment Error: requested {count} cpus not multiple cpus per core = {per_core}"
            return NoCpus(reason=Reason.CPUS_NOT_WHOLE_CORES, detail=detail)
        free = keep_bindable(topology, free, BindPolicy.FULL_PCPUS)
    if free.bit_count() < count:
        return _not_enough(count, free)
    aligned = _aligned(topology, options, zones) & free
    taken = 0
    for part, need in ((aligned, min(count, aligned.bit_count())), (free, count)):
        found = _take_by_kubelet(topology, options, part & ~taken, need - taken.bit_count())
        if isinstance(found, NoCpus):
            return found
        taken |= found
    return taken


def _aligned(topology: CpuTopology, options: KubeletOptions, zones: Sequence[ZoneShare]) -> int:
    mask = 0
    for share in zones:
        mask |= topology.cpus_of_zone(share.zone).mask
    if options.is_by_socket:
        for socket_mask in topology.socket_masks:
            if mask & socket_mask:
                mask |= socket_mask
    return mask


def _take_by_kubelet(topology: CpuTopology, options: KubeletOptions, free: int, need: int) -> int | NoCpus:
    if not options.is_across_numa:
        return take_packed(topology, free, need, is_across_cores=options.is_across_cores, is_by_l3=options.is_by_l3)
    group = topology.cpus_per_core if options.is_full_pcpus_only else 1
    return take_distributed(topology, free, need, group, is_by_socket=options.is_by_socket)
