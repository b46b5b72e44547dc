"""Who would have to leave a node so that a replica fits there: the least important ones, and as few as will do.

Only replicas of less importance than the request count: a lower band, or the same band and a lower priority. On each node all of
them are taken away; where the request fits then, they are given back one after the other, the most important first, as long as it
still fits. Among nodes the one is best whose most important victim matters least; then fewer victims; then the lower sum of
priorities; then the node's rank.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from colo_common.model.placement import Placement, ZoneShare
from colo_scheduler.cluster import Node, View
from colo_scheduler.fit import Fit
from colo_scheduler.inventory import holding_of
from colo_scheduler.ledger import Attempt
from colo_scheduler.pool import Pool, pool_of
from colo_scheduler.request import RequestClass
from colo_scheduler.search import look_closely, needs_search
from colo_scheduler.stack import usable
from colo_scheduler.zones import Part, ZoneFree, choose_zones

__all__ = ["NODES_MOST", "Victims", "find_victims", "importance", "take_place_of"]

NODES_MOST: Final = 2_000
"""So many nodes are looked at, those with the most free CPU first."""


class Victims(NamedTuple):
    """The row of a node, who has to leave it (least important first), and the parts of its zones that the request then takes."""

    row: int
    leaving: tuple[Placement, ...]
    parts: tuple[Part, ...]


def importance(placement: Placement) -> tuple[int, int]:
    """Band, then priority: what is higher is more important."""
    return (placement.band.rank, placement.priority)


def find_victims(
    view: View, request: RequestClass, placements: Mapping[Attempt, Placement], gone: frozenset[Attempt] = frozenset()
) -> Victims | None:
    """The best node and its victims; None when no node would do. `gone`: attempts that left the view already."""
    passing, _ = usable(view, request)
    rows = np.flatnonzero(passing[: view.count])
    name = pool_of(request.band)
    pool = view.pool(name)
    if rows.size > NODES_MOST:
        rows = np.sort(rows[np.argsort(-pool.node_free_cpu[rows], kind="stable")[:NODES_MOST]])
    best: tuple[tuple[object, ...], Victims] | None = None
    own = (request.band.rank, request.priority)
    for row in rows.tolist():
        node = view.nodes[row]
        lesser = [
            placement
            for attempt in node.holds
            if attempt not in gone
            and (placement := placements.get(attempt)) is not None
            and importance(placement) < own
            and placement.node == node.name
            and pool_of(placement.band) is name
        ]
        found = _on_node(pool, node, request, lesser)
        if found is None:
            continue
        highest = max(importance(placement) for placement in found.leaving)
        total = sum(placement.priority for placement in found.leaving)
        order = (highest, len(found.leaving), total, int(view.facts.rank[row]))
        if best is None or order < best[0]:
            best = (order, found)
    return None if best is None else best[1]


def take_place_of(view: View, request: RequestClass, victims: Victims, attempt: Attempt) -> bool:
    """Let the victims leave a trial view and take their place; False, and nothing changes, when that is not enough.

    Victims are found by CPU and memory. Whether the request can have its CPUs, devices and aligned zones then is decided as for
    any node; where it cannot, nobody is to leave.
    """
    name, row, node = pool_of(request.band), victims.row, view.nodes[victims.row]
    for placement in victims.leaving:
        view.leave(name, row, placement.zones, (placement.replica, placement.attempt))
    if not needs_search(view, request):
        shares = tuple(
            ZoneShare(zone=node.zone_ids[part.slot], cpu_mcpu=part.cpu_mcpu, memory_bytes=part.memory_bytes)
            for part in victims.parts
        )
        view.take(name, row, shares, attempt)
        return True
    found = look_closely(view, row, request)
    if isinstance(found, Fit):
        view.take(name, row, found.shares, attempt, found.holding)
        return True
    for placement in victims.leaving:
        held = holding_of(placement)
        view.take(name, row, placement.zones, (placement.replica, placement.attempt), held, is_choice=False)
    return False


def _on_node(pool: Pool, node: Node, request: RequestClass, lesser: list[Placement]) -> Victims | None:
    """Fewest victims on one node; None when all of them are not enough, or when none is needed."""
    if not lesser:
        return None
    row = pool.rows[node.row]
    cpu, memory = list(row.cpu), list(row.memory)
    for placement in lesser:
        _move(node, placement, cpu, memory, 1)
    if _parts(node, request, cpu, memory) is None:
        return None
    leaving = []
    # The most important first; of equals the larger, so that fewer have to leave.
    ordered = sorted(lesser, key=lambda p: (importance(p), p.cpu_mcpu, p.memory_bytes, p.replica), reverse=True)
    for placement in ordered:
        _move(node, placement, cpu, memory, -1)
        if _parts(node, request, cpu, memory) is None:
            _move(node, placement, cpu, memory, 1)
            leaving.append(placement)
    parts = _parts(node, request, cpu, memory)
    if not leaving or parts is None:
        return None
    return Victims(node.row, tuple(reversed(leaving)), parts)


def _move(node: Node, placement: Placement, cpu: list[int], memory: list[int], sign: int) -> None:
    for share in placement.zones:
        slot = node.slot(share.zone)
        cpu[slot] += sign * share.cpu_mcpu
        memory[slot] += sign * share.memory_bytes


def _parts(node: Node, request: RequestClass, cpu: list[int], memory: list[int]) -> tuple[Part, ...] | None:
    if sum(cpu) < request.cpu_mcpu or sum(memory) < request.memory_bytes:
        return None
    zones = [ZoneFree(slot, socket, cpu[slot], memory[slot]) for slot, socket in enumerate(node.sockets)]
    return choose_zones(request.cpu_mcpu, request.memory_bytes, zones)
