"""Whether one node takes a request for more than amounts of CPU and memory, and the exact zones, CPUs and devices it takes.

Everything is decided together: zones by the NUMA policy in force, in which CPU, memory and huge pages are free and to which devices
belong; then CPUs by number in those zones, and the devices. A fit holds nothing.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from colo_common.model.constraints import CpuBind, CpuPolicy, NumaExclusive
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.node_rules import NodeRules
from colo_common.model.placement import DeviceShare, ZoneHugePages, ZoneShare
from colo_common.model.qos import QosClass
from colo_common.model.reasons import Reason
from colo_common.model.resource_list import CPU, MEMORY
from colo_scheduler.cluster.cluster import View
from colo_scheduler.cluster.holding import EXCLUSIVE, Holding, amplified
from colo_scheduler.cluster.inventory import CPU_MCPU, NodeInventory
from colo_scheduler.cluster.pool import PoolRow, pool_of
from colo_scheduler.cpus.available import keep_bindable
from colo_scheduler.cpus.binding import BindPolicy, ExclusivePolicy, NoCpus, NumaStrategy
from colo_scheduler.cpus.choose import CpuRequest, choose_cpus
from colo_scheduler.cpus.exclusive import HeldCpus
from colo_scheduler.cpus.qos_binding import AskedPolicy, Binding, NodeBindPolicy, ResourceSpec, bind
from colo_scheduler.cpus.siblings import choose_apart_by_zone
from colo_scheduler.devices.choose import NoDevices, choose_devices
from colo_scheduler.devices.hints import device_hints
from colo_scheduler.devices.never import locality_of
from colo_scheduler.numa.amounts import HUGE_PAGES, ZoneAmounts
from colo_scheduler.numa.exclusive import ZoneExclusive, ZoneStatus, status_of_zones
from colo_scheduler.numa.least_zones import distances_between
from colo_scheduler.numa.mask import mask_of, zones_of
from colo_scheduler.numa.policies import Hint, ProviderHints, TopologyPolicy, exclusive_of, policy_of
from colo_scheduler.numa.refusal import Miss, ZoneRefusal
from colo_scheduler.numa.rule import CpuDemand, FitContext, NumaManager, ZoneAssignment
from colo_scheduler.peers.registry import numa_manager
from colo_scheduler.placement.filters import reason_for
from colo_scheduler.requests.request_class import RequestClass

__all__ = ["TRIES_MOST", "NodeFit", "Rejection", "Site", "fit_node", "fit_node_exactly"]

TRIES_MOST: Final = 1_000
"""The most nodes that the exact fit tries for one replica, the best ones; the others are reported as not tried."""

_ASKED: Final = {
    CpuBind.DEFAULT: None,
    CpuBind.FULL_PCPUS: AskedPolicy.FULL_PCPUS,
    CpuBind.SPREAD_BY_PCPUS: AskedPolicy.SPREAD_BY_PCPUS,
}
_DEFAULT_BIND: Final = {"colo": AskedPolicy.SPREAD_BY_PCPUS}
"""What a request that names no order of CPUs gets: the threads of one workload peak together, so colo keeps them on cores of their
own where there is room. Other systems pack them.
"""
_OF_NODE: Final = {
    CpuBind.DEFAULT: NodeBindPolicy.NONE,
    CpuBind.FULL_PCPUS: NodeBindPolicy.FULL_PCPUS_ONLY,
    CpuBind.SPREAD_BY_PCPUS: NodeBindPolicy.SPREAD_BY_PCPUS,
}
_APART: Final = {
    NumaExclusive.DEFAULT: ZoneExclusive.NONE,
    NumaExclusive.PREFERRED: ZoneExclusive.PREFERRED,
    NumaExclusive.REQUIRED: ZoneExclusive.REQUIRED,
}
_STRATEGY: Final = {
    "least-allocated": NumaStrategy.LEAST_ALLOCATED,
    "most-allocated": NumaStrategy.MOST_ALLOCATED,
    "balanced": NumaStrategy.LEAST_ALLOCATED,
}
_UNITS: Final = {CPU: "mcpu", MEMORY: "bytes"}


class NodeFit(NamedTuple):
    """The request's shares of the zones (in its own amounts, they sum to it), and its CPUs and devices."""

    shares: tuple[ZoneShare, ...]
    holding: Holding | None


class Rejection(NamedTuple):
    """Why the node does not take the request; reasons of quantity with the amount needed, the amount there is, and the zone."""

    reason: Reason
    need: int = 1
    have: int = 0
    unit: str = "condition"
    zone: int | None = None


class Site(NamedTuple):
    """One node: the free amounts of the request's pool by column, the sockets of its zones, and its inventory."""

    row: PoolRow
    zones: tuple[int, ...]
    sockets: tuple[int, ...]
    inventory: NodeInventory


class _Wish(NamedTuple):
    """The request under this node's rules. `manager`: the system that assigns zones and CPUs to it there.

    `cpu_price` is the cost of one CPU by number in the node's amounts, 0 for a request without CPUs by number.
    """

    policy: TopologyPolicy
    exclusive: ZoneExclusive
    binding: Binding | None
    is_apart: bool
    cpu_price: int
    manager: NumaManager
    is_in_cores: bool

    @property
    def cpus(self) -> int:
        """How many CPUs by number the request takes."""
        return self.binding.cpus if self.binding else 0


def fit_node_exactly(view: View, row: int, request: RequestClass) -> NodeFit | Rejection:
    """Whether this node, which passed all filters, takes the request."""
    inventory = view.inventory_index.of(row)
    node = view.nodes[row]
    if inventory is None:
        return Rejection(Reason.TOPOLOGY_UNKNOWN)
    return fit_node(Site(view.pools[pool_of(request.band)].rows[row], node.zone_ids, node.sockets, inventory), request)


def fit_node(site: Site, request: RequestClass) -> NodeFit | Rejection:
    """Decide one node. The same node and request give the same result."""
    wish = _wish(request, site.inventory.rules)
    if isinstance(wish, Rejection):
        return wish
    most = site.inventory.own_most(request.qos) if request.qos.has_own_cpus else wish.cpus
    if wish.cpus > most:
        return Rejection(Reason.CPUS_SHORT, wish.cpus, most, "cpus")
    usable = _usable_cpus(site.inventory, wish)
    zones = _zones(site, request, wish, usable)
    wanted = _amounts(request, wish)
    fit_context = _fit_context(site.inventory, request, wish)
    if isinstance(fit_context, Rejection):
        return fit_context
    found = wish.manager.fit_zones(wish.policy, zones, wanted, fit_context, site.inventory.rules)
    if isinstance(found, ZoneRefusal):
        return _rejection(found, request, wish)
    counts = _whole_cpus(found, zones, wish)
    cpus = _managed_cpus(site.inventory, wish, zones, counts, found)
    is_managed = cpus is not None
    if cpus is None:
        cpus = _choose_cpus(site.inventory, wish, usable, counts)
    if isinstance(cpus, NoCpus):
        have = wish.cpus - cpus.short_count
        return Rejection(cpus.reason, wish.cpus, have, "cpus") if cpus.short_count else Rejection(cpus.reason)
    if is_managed:
        # Another system may take CPUs of other zones than were foreseen.
        counts = _counts_of(site.inventory, cpus)
    near = zones_of(found.affinity) if found.affinity else [part.zone for part in found.parts]
    devices = _devices(site.inventory, request, wish, near)
    if isinstance(devices, Rejection):
        return devices
    return _fitted(found, request, wish, counts, cpus, devices)


# ---- the request on this node


def _wish(request: RequestClass, rules: NodeRules) -> _Wish | Rejection:
    place = request.place
    manager = numa_manager(rules, is_prod=request.is_prod)
    conflict = manager.conflict(place, request.own_cpus, rules)
    if conflict is not None:
        return Rejection(conflict)
    if request.qos is QosClass.BE and request.own_cpus and rules.colocation_mode == "container":
        # Online work of the same kernel could starve the CPUs for as long as it is busy.
        return Rejection(Reason.CPU_BIND_CONFLICT)
    own = TopologyPolicy(place.numa_policy.value)
    policy = policy_of(TopologyPolicy(rules.numa_policy.value) if request.is_prod else TopologyPolicy.NONE, own)
    if policy is None:
        return Rejection(Reason.NUMA_POLICY_CONFLICT)
    asked = _ASKED[place.cpu_bind]
    spec = ResourceSpec(
        required=asked if place.cpu_bind_required else None,
        preferred=asked,
        exclusive=EXCLUSIVE[place.cpu_exclusive],
    )
    node = _OF_NODE[rules.cpu_bind] if request.is_prod else NodeBindPolicy.NONE
    try:
        binding = bind(
            spec,
            qos=request.qos,
            band=request.band,
            cpu_mcpu=request.cpu_mcpu,
            default=_DEFAULT_BIND.get(rules.numa_rule, AskedPolicy.FULL_PCPUS),
            node=node,
        )
    except InvalidInput:
        return Rejection(Reason.CPU_BIND_CONFLICT)
    is_apart = False
    if binding is None and request.own_cpus:
        order = BindPolicy.FULL_PCPUS if asked is AskedPolicy.FULL_PCPUS else BindPolicy.SPREAD_BY_PCPUS
        binding = Binding(
            cpus=request.own_cpus, policy=order, is_required=place.cpu_bind_required, exclusive=spec.exclusive
        )
        is_apart = asked is None
    if place.cpu_policy is CpuPolicy.NUMA:
        policy = TopologyPolicy.SINGLE
    elif policy is TopologyPolicy.NONE and place.devices and manager.aligns_devices:
        # Devices and CPUs share zones where they can.
        policy = TopologyPolicy.BEST_EFFORT
    price = 0
    if binding is not None:
        price = amplified(CPU_MCPU, rules) if request.is_prod else CPU_MCPU
    exclusive = exclusive_of(own, _APART[place.numa_exclusive])
    is_in_cores = binding is not None and (
        (binding.is_required and binding.policy is BindPolicy.FULL_PCPUS) or manager.takes_whole_cores(rules)
    )
    return _Wish(policy, exclusive, binding, is_apart, price, manager, is_in_cores)


def _amounts(request: RequestClass, wish: _Wish) -> dict[str, int]:
    amounts = {CPU: wish.cpus * wish.cpu_price if wish.binding else request.cpu_mcpu, MEMORY: request.memory_bytes}
    for pages in request.place.huge_pages:
        amounts[f"{HUGE_PAGES}{pages.page_bytes}"] = pages.total_bytes
    return amounts


# ---- zones


def _usable_cpus(inventory: NodeInventory, wish: _Wish) -> int:
    free = inventory.free_cpus
    if wish.is_in_cores:
        return keep_bindable(inventory.cpus, free, BindPolicy.FULL_PCPUS)
    if wish.binding is not None and wish.binding.is_required:
        return keep_bindable(inventory.cpus, free, wish.binding.policy)
    return free


def _zones(site: Site, request: RequestClass, wish: _Wish, usable: int) -> list[ZoneAmounts]:
    """The amounts each zone has for the request. CPUs by number are counted whole, so that any split of them can be made."""
    inventory, cpus = site.inventory, site.inventory.cpus
    unit = cpus.cpus_per_core if wish.is_in_cores else 1
    found = []
    for slot, zone in enumerate(site.zones):
        free = {CPU: max(0, site.row.cpu[slot]), MEMORY: max(0, site.row.memory[slot])}
        capacity = {CPU: site.row.allocatable_cpu[slot], MEMORY: site.row.allocatable_memory[slot]}
        if wish.cpu_price:
            mask = cpus.cpus_of_zone(zone).mask
            whole = min(free[CPU] // wish.cpu_price, (mask & usable).bit_count())
            if request.qos.has_own_cpus and inventory.shared_cpus:
                whole = min(whole, inventory.own_most_of(zone))
            whole = whole // unit * unit
            most = min(capacity[CPU] // wish.cpu_price, (mask & ~inventory.withheld).bit_count()) // unit * unit
            free[CPU], capacity[CPU] = whole * wish.cpu_price, most * wish.cpu_price
        for pages in request.place.huge_pages:
            name = f"{HUGE_PAGES}{pages.page_bytes}"
            free[name], capacity[name] = inventory.zone_pages(zone, pages.page_bytes)
        found.append(ZoneAmounts(zone, site.sockets[slot], free, capacity))
    return found


def _fit_context(inventory: NodeInventory, request: RequestClass, wish: _Wish) -> FitContext | Rejection:
    status: dict[int, ZoneStatus] = {}
    if wish.exclusive is not ZoneExclusive.NONE:
        holders = [_zones_of(inventory, holding.cpus) for holding in inventory.holdings.values() if holding.cpus]
        status = status_of_zones(inventory.cpus.zone_ids, holders)
    providers: tuple[ProviderHints, ...] = ()
    if request.place.devices and wish.policy is not TopologyPolicy.NONE:
        hints = device_hints(
            inventory.devices,
            request.place.devices,
            inventory.cpus.zone_ids,
            locality=locality_of(request.place.joint_devices, inventory.rules),
            partitions=inventory.partitions,
        )
        if isinstance(hints, NoDevices):
            return _no_devices(hints)
        providers = ({"devices": [Hint(mask_of(hint.zones), hint.is_preferred, hint.score) for hint in hints]},)
    cores = inventory.cpus.cpus_per_core if wish.is_in_cores else 1
    return FitContext(
        providers=providers,
        exclusive=wish.exclusive,
        status=status,
        distances=distances_between(inventory.topology) if inventory.rules.numa_closest else None,
        cpu_unit_mcpu=max(1, wish.cpu_price * cores),
        is_guaranteed=wish.binding is not None,
    )


def _zones_of(inventory: NodeInventory, cpus: int) -> int:
    pairs = zip(inventory.cpus.zone_ids, inventory.cpus.zone_masks, strict=True)
    return mask_of(zone for zone, mask in pairs if mask & cpus)


def _rejection(refusal: ZoneRefusal, request: RequestClass, wish: _Wish) -> Rejection:
    reason = refusal.reason
    if reason is Reason.CPU_SHORT:
        reason = Reason.CPUS_SHORT if wish.binding else _in_pool(reason, request)
    elif reason is Reason.MEMORY_SHORT:
        reason = _in_pool(reason, request)
    if not refusal.misses:
        return Rejection(reason)
    miss: Miss = refusal.misses[0]
    zone = miss.zones[0] if len(miss.zones) == 1 else None
    return Rejection(reason, miss.need, miss.have, _UNITS.get(miss.resource, "huge-page-bytes"), zone)


def _in_pool(reason: Reason, request: RequestClass) -> Reason:
    """Too little CPU or memory, as the reason of the request's pool."""
    if request.is_prod:
        return reason
    batch = Reason.BATCH_CPU_SHORT if reason is Reason.CPU_SHORT else Reason.BATCH_MEMORY_SHORT
    return reason_for(batch, request)


# ---- CPUs and devices


def _whole_cpus(found: ZoneAssignment, zones: list[ZoneAmounts], wish: _Wish) -> dict[int, int]:
    """How many CPUs by number each zone gives, whole CPUs where the parts are not; empty for the shared pool."""
    if wish.binding is None:
        return {}
    room = {zone.zone: zone.free[CPU] // wish.cpu_price for zone in zones}
    counts = {part.zone: part.amounts.get(CPU, 0) // wish.cpu_price for part in found.parts}
    rest = wish.cpus - sum(counts.values())
    for zone, count in counts.items():
        more = min(rest, room[zone] - count)
        counts[zone] = count + more
        rest -= more
    return {zone: count for zone, count in counts.items() if count}


def _managed_cpus(
    inventory: NodeInventory, wish: _Wish, zones: list[ZoneAmounts], counts: dict[int, int], found: ZoneAssignment
) -> int | NoCpus | None:
    """The CPUs that the node's manager numbers, as a mask; None where colo chooses them, and where none are needed."""
    if wish.binding is None:
        return None
    demand = CpuDemand(
        topology=inventory.cpus,
        held=[HeldCpus(cpus=CpuSet(each.cpus)) for each in inventory.holdings.values()],
        withheld=CpuSet(inventory.withheld),
        counts=counts,
        most={zone.zone: zone.free[CPU] // wish.cpu_price for zone in zones},
        affinity=zones_of(found.affinity or 0),
    )
    cpus = wish.manager.take_cpus(demand, inventory.rules)
    return cpus.mask if isinstance(cpus, CpuSet) else cpus


def _counts_of(inventory: NodeInventory, cpus: int) -> dict[int, int]:
    pairs = zip(inventory.cpus.zone_ids, inventory.cpus.zone_masks, strict=True)
    return {zone: (mask & cpus).bit_count() for zone, mask in pairs if mask & cpus}


def _choose_cpus(inventory: NodeInventory, wish: _Wish, usable: int, counts: dict[int, int]) -> int | NoCpus:
    binding = wish.binding
    if binding is None:
        return 0
    reserved = CpuSet(inventory.withheld)
    if wish.is_apart:
        busy = reserved.mask
        for holding in inventory.holdings.values():
            busy |= holding.cpus
        chosen = choose_apart_by_zone(inventory.cpus, counts, CpuSet(busy))
        if chosen is None:
            have = usable.bit_count()
            return NoCpus(reason=Reason.CPUS_SHORT, detail="", short_count=max(1, binding.cpus - have))
        return chosen.mask
    asked = CpuRequest(
        count=binding.cpus,
        bind=binding.policy,
        is_bind_required=binding.is_required,
        exclusive=binding.exclusive,
        strategy=_STRATEGY[inventory.rules.numa_allocate],
        preferred=(CpuSet(inventory.preferred),) if inventory.preferred else (),
    )
    held = [HeldCpus(cpus=CpuSet(each.cpus), exclusive=each.exclusive) for each in inventory.holdings.values()]
    zones = [ZoneShare(zone=zone, cpu_mcpu=count * CPU_MCPU, memory_bytes=0) for zone, count in counts.items()]
    found = choose_cpus(inventory.cpus, asked, held, reserved, zones)
    return found if isinstance(found, NoCpus) else found.mask


def _devices(
    inventory: NodeInventory, request: RequestClass, wish: _Wish, zones: Sequence[int]
) -> tuple[DeviceShare, ...] | Rejection:
    asked = request.place.devices
    if not asked:
        return ()
    is_strict = wish.policy in (TopologyPolicy.SINGLE, TopologyPolicy.RESTRICTED)
    found = choose_devices(
        inventory.devices,
        asked,
        zones,
        only_in_zones=is_strict,
        locality=locality_of(request.place.joint_devices, inventory.rules),
        partitions=inventory.partitions,
    )
    return _no_devices(found) if isinstance(found, NoDevices) else found.shares


def _no_devices(refused: NoDevices) -> Rejection:
    # A shortage without an amount is reported as a condition.
    if refused.have >= refused.need:
        return Rejection(refused.reason)
    return Rejection(refused.reason, refused.need, refused.have, refused.unit)


def _fitted(
    found: ZoneAssignment,
    request: RequestClass,
    wish: _Wish,
    counts: dict[int, int],
    cpus: int,
    devices: tuple[DeviceShare, ...],
) -> NodeFit:
    shares: list[ZoneShare] = []
    pages: list[ZoneHugePages] = []
    by_zone = {part.zone: part.amounts for part in found.parts}
    for zone in sorted({*by_zone, *counts}):
        amounts = by_zone.get(zone, {})
        mcpu = counts.get(zone, 0) * CPU_MCPU if wish.binding else amounts.get(CPU, 0)
        memory_bytes = amounts.get(MEMORY, 0)
        if mcpu or memory_bytes:
            shares.append(ZoneShare(zone=zone, cpu_mcpu=mcpu, memory_bytes=memory_bytes))
        for asked in request.place.huge_pages:
            total_bytes = amounts.get(f"{HUGE_PAGES}{asked.page_bytes}", 0)
            if total_bytes:
                pages.append(ZoneHugePages(zone=zone, page_bytes=asked.page_bytes, total_bytes=total_bytes))
    if not (cpus or devices or pages):
        return NodeFit(tuple(shares), None)
    exclusive = wish.binding.exclusive if wish.binding else ExclusivePolicy.NONE
    return NodeFit(tuple(shares), Holding(request.qos, cpus, devices, tuple(pages), exclusive))
