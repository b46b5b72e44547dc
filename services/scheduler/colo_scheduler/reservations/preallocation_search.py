"""A place for a reservation over running owners: their holds become part of it, and the rest is taken beside them.

Only when no node has a free place for the whole. The rest is chosen as for any request, so the reservation has the owners' CPUs and
free ones. Fewer owners are better, and several only where the reservation allows them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from colo_common.model.constraints import NumaPolicy as RulePolicy
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import UNKNOWN_CPUS, Attempt, Placement, ZoneShare
from colo_common.model.reservation import ReservationSpec
from colo_common.model.resource_list import CPU, MEMORY
from colo_common.model.workload import RunSpec
from colo_scheduler.cluster.cluster import View
from colo_scheduler.cluster.holding import Holding
from colo_scheduler.cluster.pool import pool_of
from colo_scheduler.commit.held import HeldAttempt
from colo_scheduler.cpus.available import satisfies_binding
from colo_scheduler.cpus.binding import BindPolicy, ExclusivePolicy
from colo_scheduler.ledger.port import name_of
from colo_scheduler.numa.amounts import ZoneAmounts
from colo_scheduler.numa.policies import TopologyPolicy
from colo_scheduler.numa.rule import ZoneAssignment, fit_zones
from colo_scheduler.placement.choice import Choice
from colo_scheduler.placement.filters import open_to
from colo_scheduler.placement.fit import NodeFit, fit_node_exactly
from colo_scheduler.requests.request_class import RequestClass
from colo_scheduler.reservations.nominate import pre_allocation_score
from colo_scheduler.reservations.owners import Claimant, Controller, is_owner, job_of
from colo_scheduler.reservations.pre_allocation import check_pre_allocation

__all__ = ["NODES_MOST", "OWNERS_MOST", "PreallocationSearch", "place_over", "running_owners"]

NODES_MOST: Final = 256
"""The most nodes with running owners that are tried for one reservation, the first by name."""
OWNERS_MOST: Final = 32
"""The most owners over which a reservation is placed."""


class PreallocationSearch(NamedTuple):
    """`whole` is the reservation's place, `more` its part that no owner holds, `owners` their placements inside it."""

    whole: Choice
    more: Choice
    owners: tuple[Placement, ...]


def running_owners(
    spec: ReservationSpec, held: Mapping[Attempt, HeldAttempt], is_used: Callable[[Attempt], bool]
) -> dict[str, list[Placement]]:
    """The owners that hold committed places outside of any reservation, by node, each the largest first.

    Owners match by their own name and by their job's id; the labels of running replicas are not known any more.
    """
    terms = [term for term in spec.owners if not term.labels]
    jobs = {job_of(term) for term in terms}
    found: dict[str, list[Placement]] = {}
    for attempt, each in held.items() if terms else ():
        if "" not in jobs and attempt[0].partition("/")[0] not in jobs:
            continue
        place = each.placement
        if each.is_assumed or name_of(attempt[0]) or is_used(attempt) or not _may_be_inside(spec, place):
            continue
        controller = Controller(name=place.job, kind="Job", is_controller=True)
        if is_owner(Claimant(name=place.replica, controllers=(controller,)), terms):
            found.setdefault(place.node, []).append(place)
    for places in found.values():
        places.sort(key=lambda place: (-place.cpu_mcpu, -place.memory_bytes, place.replica))
    return found


def _may_be_inside(spec: ReservationSpec, place: Placement) -> bool:
    """CPUs by number are of one class inside and outside; an owner has CPUs by number only if the reservation has.

    A reservation is placed over nobody whose CPUs are not known.
    """
    if place.cpus == UNKNOWN_CPUS:
        return False
    is_alike = place.qos is spec.qos or not (place.qos.has_own_cpus or spec.qos.has_own_cpus or place.cpus)
    return is_alike and pool_of(place.band) is pool_of(spec.band) and not place.reservation


def place_over(
    view: View, request: RequestClass, spec: ReservationSpec, owners: Mapping[str, Sequence[Placement]]
) -> PreallocationSearch | None:
    """The best node: fewest owners, then the first by name; None when the reservation fits over no node's owners."""
    passing = open_to(view, request).passing
    best: tuple[int, PreallocationSearch] | None = None
    for name in sorted(owners)[:NODES_MOST]:
        row = view.rows.get(name)
        if row is None or not passing[row]:
            continue
        found = _on_node(view, row, request, spec, owners[name])
        score = pre_allocation_score(len(found.owners)) if found else 0
        if found is not None and (best is None or score > best[0]):
            best = (score, found)
    return best[1] if best else None


def _on_node(
    view: View, row: int, request: RequestClass, spec: ReservationSpec, owners: Sequence[Placement]
) -> PreallocationSearch | None:
    if not spec.pre_allocates_several:
        tries: Iterable[Sequence[Placement]] = ([owner] for owner in owners[:OWNERS_MOST])
    else:
        tries = _growing(spec, owners)
    for inside in tries:
        found = _over(view, row, request, spec, inside)
        if found is not None:
            return found
    return None


def _growing(spec: ReservationSpec, owners: Sequence[Placement]) -> Iterable[Sequence[Placement]]:
    """One owner, two, three: the largest first, without the owners that do not fit inside any more."""
    inside: list[Placement] = []
    cpu_mcpu, memory_bytes = spec.request.cpu_mcpu, spec.request.memory_bytes
    for owner in owners:
        if len(inside) == OWNERS_MOST:
            return
        if owner.cpu_mcpu <= cpu_mcpu and owner.memory_bytes <= memory_bytes:
            cpu_mcpu, memory_bytes = cpu_mcpu - owner.cpu_mcpu, memory_bytes - owner.memory_bytes
            inside.append(owner)
            yield tuple(inside)


def _over(
    view: View, row: int, request: RequestClass, spec: ReservationSpec, inside: Sequence[Placement]
) -> PreallocationSearch | None:
    cpu_mcpu = spec.request.cpu_mcpu - sum(owner.cpu_mcpu for owner in inside)
    memory_bytes = spec.request.memory_bytes - sum(owner.memory_bytes for owner in inside)
    if cpu_mcpu < 0 or memory_bytes < 0:
        return None
    more = _sibling(view, row, request._replace(cpu_mcpu=cpu_mcpu, memory_bytes=memory_bytes))
    if more is None:
        return None
    whole = _joined(row, request, more, inside)
    place = _as_placement(view.nodes[row].name, request, whole)
    try:
        check_pre_allocation(spec, place, inside)
    except InvalidInput:
        return None
    return PreallocationSearch(whole, more, tuple(inside)) if _keeps_rules(view, row, request, whole) else None


def _sibling(view: View, row: int, rest: RequestClass) -> Choice | None:
    """A place on the node's free capacity for the part that no owner holds."""
    if not rest.cpu_mcpu and not rest.memory_bytes:
        return Choice(row, ())
    if view.needs_search(rest):
        found = fit_node_exactly(view, row, rest)
        return Choice(row, found.shares, found.holding) if isinstance(found, NodeFit) else None
    node, numbers = view.nodes[row], view.pools[pool_of(rest.band)].rows[row]
    zones = [
        ZoneAmounts(zone, node.sockets[slot], {CPU: max(0, numbers.cpu[slot]), MEMORY: max(0, numbers.memory[slot])})
        for slot, zone in enumerate(node.zone_ids)
    ]
    answer = fit_zones(TopologyPolicy.NONE, zones, {CPU: rest.cpu_mcpu, MEMORY: rest.memory_bytes})
    if not isinstance(answer, ZoneAssignment):
        return None
    return Choice(
        row,
        tuple(
            ZoneShare(zone=zone, cpu_mcpu=amounts.get(CPU, 0), memory_bytes=amounts.get(MEMORY, 0))
            for zone, amounts in answer.parts
        ),
    )


def _joined(row: int, request: RequestClass, more: Choice, inside: Sequence[Placement]) -> Choice:
    cpu: dict[int, int] = {}
    memory: dict[int, int] = {}
    cpus = more.holding.cpus if more.holding else 0
    for shares in (more.shares, *(owner.zones for owner in inside)):
        for share in shares:
            cpu[share.zone] = cpu.get(share.zone, 0) + share.cpu_mcpu
            memory[share.zone] = memory.get(share.zone, 0) + share.memory_bytes
    for owner in inside:
        cpus |= CpuSet.parse(owner.cpus).mask
    exclusive = more.holding.exclusive if more.holding else ExclusivePolicy.NONE
    return Choice(
        row,
        tuple(ZoneShare(zone=zone, cpu_mcpu=cpu[zone], memory_bytes=memory[zone]) for zone in sorted(cpu)),
        Holding(request.qos, cpus, exclusive=exclusive) if cpus else None,
        inside=tuple((owner.replica, owner.attempt) for owner in inside),
    )


def _as_placement(node: str, request: RequestClass, whole: Choice) -> Placement:
    return Placement(
        replica="",
        job="",
        attempt=0,
        node=node,
        zones=whole.shares,
        cpu_mcpu=request.cpu_mcpu,
        memory_bytes=request.memory_bytes,
        qos=request.qos,
        band=request.band,
        run=RunSpec(),
        cpus=CpuSet(whole.holding.cpus).format() if whole.holding else "",
    )


def _keeps_rules(view: View, row: int, request: RequestClass, whole: Choice) -> bool:
    """Whether the places of the owners and the rest together keep the rules that a place chosen at once has to keep."""
    inventory, place = view.inventory_index.of(row), request.place
    if inventory is None:
        return whole.holding is None
    is_one_zone = inventory.rules.numa_policy in (RulePolicy.SINGLE_NUMA_NODE, RulePolicy.RESTRICTED)
    if request.is_prod and is_one_zone and len(whole.shares) != 1:
        return False
    if place.cpu_bind_required and whole.holding is not None:
        order = BindPolicy.FULL_PCPUS if place.cpu_bind.value == "full-pcpus" else BindPolicy.SPREAD_BY_PCPUS
        return satisfies_binding(inventory.cpus, whole.holding.cpus, order)
    return True
