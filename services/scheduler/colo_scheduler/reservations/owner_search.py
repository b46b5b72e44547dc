"""Chooses the reservation in whose place an owner is placed.

An owner is placed in its reservation first: in the remainder, if it fits inside; else, unless the reservation is restricted, in the
remainder and the node's free capacity together. Of several reservations the first by order is used, else the fuller.

The reservation's CPUs by number and devices are given to the owner before any others: first only they are offered. An owner that
needs more than the remainder takes the whole remainder and the rest from free capacity: at once, where that uses the whole
remainder, else in two parts; only where zones have to align may some of the remainder stay.
"""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from colo_common.events.job import PlacementRequest
from colo_common.model.constraints import CpuBind, NumaPolicy
from colo_common.model.cpuset import CpuSet
from colo_common.model.placement import Placement, ZoneShare
from colo_common.model.resource_list import CPU, MEMORY
from colo_scheduler.cluster.cluster import View
from colo_scheduler.cluster.holding import amplified
from colo_scheduler.cluster.inventory import CPU_MCPU, NodeInventory
from colo_scheduler.cluster.inventory_index import is_strict
from colo_scheduler.cluster.node import Node
from colo_scheduler.cluster.pool import PoolName, pool_of
from colo_scheduler.cpus.available import satisfies_binding
from colo_scheduler.cpus.binding import BindPolicy
from colo_scheduler.numa.zones import ZoneFree, choose_zones
from colo_scheduler.placement.choice import Choice
from colo_scheduler.placement.filters import open_to
from colo_scheduler.placement.fit import NodeFit, Site, fit_node, fit_node_exactly
from colo_scheduler.requests.request_class import RequestClass
from colo_scheduler.reservations.fit import NodeRoom, ReservationCapacity
from colo_scheduler.reservations.nominate import node_scores, nominate, score
from colo_scheduler.reservations.owner_room import room_for_owner
from colo_scheduler.reservations.owners import Claimant, claimant_of
from colo_scheduler.reservations.remainder import Remainder
from colo_scheduler.reservations.snapshot import ReservationSnapshot

__all__ = [
    "Taken",
    "serve",
]


def choose_for_owner(
    view: View, row: int, request: RequestClass, context: ReservationCapacity, place: Placement, left: Remainder
) -> Choice | None:
    """The owner's place, None when it fits neither inside the reservation nor, where it may go beyond, on the node."""
    node = view.nodes[row]
    numbers = view.pools[pool_of(request.band)].rows[row]
    free = [
        ZoneShare(zone=zone, cpu_mcpu=numbers.cpu[slot], memory_bytes=numbers.memory[slot])
        for slot, zone in enumerate(node.zone_ids)
    ]
    own = _priced(node, place, left)
    is_bounded = context.policy.is_bounded
    inside = room_for_owner(own, free, bounded=(CPU, MEMORY))
    choice = _fit(view, node, request, place, left, inside, is_inside=True, is_bounded=is_bounded)
    if choice is not None:
        return choice
    bounded = set(context.names) if is_bounded else set()
    if bounded >= {CPU, MEMORY}:
        return None
    beyond = room_for_owner(own, free, bounded=bounded)
    at_once = _fit(view, node, request, place, left, beyond, is_inside=is_bounded, is_bounded=is_bounded)
    if bounded or _leaves_none(at_once, request, left):
        return at_once
    return _reserved_first(view, node, request, place, left, inside) or at_once


def _leaves_none(choice: Choice | None, request: RequestClass, left: Remainder) -> bool:
    """Whether the choice takes as many of the remaining CPUs as the request needs."""
    cpus = CpuSet.parse(left.cpus)
    taken = CpuSet(choice.holding.cpus) if choice is not None and choice.holding is not None else CpuSet()
    return len(cpus & taken) == min(len(cpus), request.own_cpus)


def _reserved_first(
    view: View, node: Node, request: RequestClass, place: Placement, left: Remainder, rooms: Sequence[ZoneShare]
) -> Choice | None:
    """The remainder's part of the request, and the rest from free capacity; None where the request cannot be placed in parts."""
    cpus = CpuSet.parse(left.cpus)
    if not cpus or not request.own_cpus or not _is_divisible(view, node, request):
        return None
    mcpu = min(request.own_cpus, len(cpus)) * CPU_MCPU
    memory_bytes = min(request.memory_bytes, left.memory_bytes)
    own = request._replace(cpu_mcpu=mcpu, memory_bytes=memory_bytes)
    reserved = _fit(view, node, own, place, left, rooms, is_inside=True, is_bounded=False)
    rest = request._replace(cpu_mcpu=request.cpu_mcpu - mcpu, memory_bytes=request.memory_bytes - memory_bytes)
    more = fit_node_exactly(view, node.row, rest)
    if reserved is None or not isinstance(more, NodeFit):
        return None
    chosen = (reserved.holding.cpus if reserved.holding else 0) | (more.holding.cpus if more.holding else 0)
    inventory, asked = view.inventory_index.of(node.row), request.place
    if asked.cpu_bind_required and inventory is not None:
        order = BindPolicy.FULL_PCPUS if asked.cpu_bind is CpuBind.FULL_PCPUS else BindPolicy.SPREAD_BY_PCPUS
        if not satisfies_binding(inventory.cpus, chosen, order):
            return None
    holding = reserved.holding or more.holding
    return Choice(node.row, _summed(reserved.shares, more.shares), holding._replace(cpus=chosen) if holding else None)


def _is_divisible(view: View, node: Node, request: RequestClass) -> bool:
    """Whether no part of the request has to be near another part, by the request or by the node's rules."""
    inventory, place = view.inventory_index.of(node.row), request.place
    aligns = place.numa_policy is not NumaPolicy.NONE or place.devices or place.huge_pages
    return inventory is not None and not aligns and not is_strict(inventory)


def _summed(*parts: Sequence[ZoneShare]) -> tuple[ZoneShare, ...]:
    shares = [share for part in parts for share in part]
    return tuple(
        ZoneShare(
            zone=zone,
            cpu_mcpu=sum(share.cpu_mcpu for share in shares if share.zone == zone),
            memory_bytes=sum(share.memory_bytes for share in shares if share.zone == zone),
        )
        for zone in sorted({share.zone for share in shares})
    )


def _priced(node: Node, place: Placement, left: Remainder) -> tuple[ZoneShare, ...]:
    """The remainder in the amounts that it costs in its pool: CPUs by number cost as much as the machine claims them to be."""
    if node.reported is None or not place.cpus or pool_of(place.band) is not PoolName.PROD:
        return left.zones
    rules = node.reported.rules
    return tuple(
        ZoneShare(zone=each.zone, cpu_mcpu=amplified(each.cpu_mcpu, rules), memory_bytes=each.memory_bytes)
        for each in left.zones
    )


def _fit(
    view: View,
    node: Node,
    request: RequestClass,
    place: Placement,
    left: Remainder,
    rooms: Sequence[ZoneShare],
    *,
    is_inside: bool,
    is_bounded: bool,
) -> Choice | None:
    by_zone = {room.zone: room for room in rooms}
    cpu = [by_zone[zone].cpu_mcpu for zone in node.zone_ids]
    memory = [by_zone[zone].memory_bytes for zone in node.zone_ids]
    if not view.needs_search(request):
        zones = [ZoneFree(slot, socket, cpu[slot], memory[slot]) for slot, socket in enumerate(node.sockets)]
        parts = choose_zones(request.cpu_mcpu, request.memory_bytes, zones)
        if parts is None:
            return None
        return Choice(
            node.row,
            tuple(
                ZoneShare(zone=node.zone_ids[part.slot], cpu_mcpu=part.cpu_mcpu, memory_bytes=part.memory_bytes)
                for part in parts
            ),
        )
    inventory = view.inventory_index.of(node.row)
    if inventory is None:
        return None
    numbers = view.pools[pool_of(request.band)].rows[node.row].copy()
    numbers.cpu[: len(cpu)], numbers.memory[: len(memory)] = cpu, memory
    kinds = {share.kind for share in place.devices}
    if is_bounded:
        kinds |= {device.kind for device in request.place.devices}
    offered = _offered(inventory, place, left, kinds) if is_inside else _without(inventory, place)
    offered.preferred = CpuSet.parse(left.cpus).mask
    found = fit_node(Site(numbers, node.zone_ids, node.sockets, offered), request)
    return Choice(node.row, found.shares, found.holding) if isinstance(found, NodeFit) else None


def _without(inventory: NodeInventory, place: Placement) -> NodeInventory:
    """The node's inventory as if the reservation did not exist."""
    offered = inventory.copy()
    offered.drop((place.replica, place.attempt))
    return offered


def _offered(inventory: NodeInventory, place: Placement, left: Remainder, kinds: Collection[str]) -> NodeInventory:
    """The same, where of CPUs by number and these kinds of devices only the reservation's remainder is free."""
    offered = _without(inventory, place)
    if place.cpus:
        offered.withheld |= offered.cpus.all_mask & ~CpuSet.parse(left.cpus).mask
    for kind in sorted(kinds):
        offered.devices.limit(kind, left.devices)
    return offered


class Taken(NamedTuple):
    """An owner and its place in a reservation."""

    placement_request: PlacementRequest
    choice: Choice
    reservation: str


def serve(
    places: ReservationSnapshot,
    view: View,
    request: RequestClass,
    placement_requests: Sequence[PlacementRequest],
    take: Callable[[Taken], None],
) -> tuple[list[Taken], list[PlacementRequest]]:
    """Place the owners among the requests, in order; `take` makes view and places hold each. Returns them and the rest."""
    served: list[Taken] = []
    others: list[PlacementRequest] = []
    for placement_request in placement_requests:
        taken = _find_for_owner(places, view, request, placement_request)
        if taken is None:
            others.append(placement_request)
            continue
        take(taken)
        served.append(taken)
    return served, others


def _find_for_owner(
    places: ReservationSnapshot, view: View, request: RequestClass, placement_request: PlacementRequest
) -> Taken | None:
    """The owner's place now, None when no reservation has one for it."""
    claimant = claimant_of(placement_request)
    by_node = places.offers(claimant, placement_request, view.now_ms)
    if not by_node:
        return None
    passing = open_to(view, request).passing
    found: dict[str, tuple[ReservationCapacity, Choice]] = {}
    for name, offers in by_node.items():
        row = view.rows.get(name)
        if row is not None and passing[row] and (place := _on_node(places, view, row, request, claimant, offers)):
            found[name] = place
    if not found:
        return None
    scores = node_scores(
        {name: score(claimant.request, context) for name, (context, _) in found.items()},
        {name: context.order for name, (context, _) in found.items()},
    )
    context, choice = found[min(found, key=lambda name: (-scores[name], name))]
    return Taken(placement_request, choice._replace(reservation=context.name), context.name)


def _on_node(
    places: ReservationSnapshot,
    view: View,
    row: int,
    request: RequestClass,
    claimant: Claimant,
    offers: list[ReservationCapacity],
) -> tuple[ReservationCapacity, Choice] | None:
    if request.is_detailed and not view.inventory_index.agrees[row]:
        return None
    numbers = view.pools[pool_of(request.band)].rows[row]
    whole = {CPU: numbers.whole_cpu, MEMORY: numbers.whole_memory}
    free = {CPU: sum(numbers.cpu), MEMORY: sum(numbers.memory)}
    room = NodeRoom(allocatable=whole, requested={name: whole[name] - free[name] for name in whole})
    named = claimant.reservation
    # A reservation without a remainder attracts only owners that name it to its node.
    rest = [context for context in offers if named or places.has_left(context.name)]
    while (context := nominate(claimant.request, room, rest, has_affinity=bool(named), only=named)) is not None:
        choice = _choose(places, view, row, request, context)
        if choice is not None:
            return context, choice
        rest = [other for other in rest if other is not context]
    return None


def _choose(
    places: ReservationSnapshot, view: View, row: int, request: RequestClass, context: ReservationCapacity
) -> Choice | None:
    left, found = places.remainder(context.name), places.book.find(context.name)
    if left is None or found is None or found.place is None:
        return None
    return choose_for_owner(view, row, request, context, found.place, left)
