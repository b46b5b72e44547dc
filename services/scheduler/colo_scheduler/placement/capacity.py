"""Finds requests that no known node could hold even when empty: these wait for another machine, not for free capacity."""

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
from msgspec import structs

from colo_common.events.placement import NearestMiss
from colo_common.model.constraints import DeviceRequest
from colo_common.model.qos import QosClass
from colo_common.model.reasons import Reason
from colo_common.model.shortage import DEVICE_MEMORY
from colo_scheduler.cluster.cluster import Cluster, View
from colo_scheduler.cluster.holding import amplified
from colo_scheduler.cluster.inventory import CPU_MCPU
from colo_scheduler.cluster.node import Node
from colo_scheduler.cluster.pool import PoolName
from colo_scheduler.devices.layout import DeviceLayout
from colo_scheduler.devices.need import need_of
from colo_scheduler.devices.never import DeviceAsk, ask_of, never_holds
from colo_scheduler.numa.zones import CPU_MAX_MCPU, IntArray, cpu_held_together, parts_of_rows
from colo_scheduler.placement.filters import reason_for
from colo_scheduler.requests.request_class import RequestClass

__all__ = ["layout_shortage", "too_large"]


def too_large(cluster: Cluster, view: View, request: RequestClass) -> NearestMiss | None:
    """The node that comes closest in an amount every node lacks; None when some node could hold the request or none is known."""
    if not view.facts.known[: view.count].any():
        return None
    found = None
    if request.is_prod:
        found = _too_large_online(view, request, np.flatnonzero(view.facts.known[: view.count]))
    elif not cluster.batch_capacity.could_hold(request.cpu_mcpu, request.memory_bytes):
        amounts, answers = (request.cpu_mcpu, request.memory_bytes), cluster.batch_capacity.too_large
        if amounts not in answers:
            answers[amounts] = _too_large_whole(cluster, request)
        found = answers[amounts]
        if found is not None and request.is_mid:
            found = structs.replace(found, reason=reason_for(found.reason, request))
    if found is None and request.is_detailed:
        known = np.flatnonzero(view.facts.known[: view.count])
        found = _too_large_for_a_zone(cluster, view, request, known) if request.is_in_one_zone else None
        return found or _too_many(view, request, known)
    return found


def _too_large_whole(cluster: Cluster, request: RequestClass) -> NearestMiss | None:
    """Compares with all of each node's capacity that is not reserved for good."""
    capacity_cpu, capacity_memory = cluster.batch_capacity.of_rows(len(cluster.nodes))
    cpu, memory = capacity_cpu.sum(axis=1), capacity_memory.sum(axis=1)
    known = np.array([node.row for node in cluster.nodes if node.topology is not None], dtype=np.int64)
    if int(cpu.max()) < request.cpu_mcpu:
        return _most(cluster.nodes, known, cpu[known], Reason.BATCH_CPU_SHORT, request.cpu_mcpu, "mcpu")
    if int(memory.max()) < request.memory_bytes:
        return _most(cluster.nodes, known, memory[known], Reason.BATCH_MEMORY_SHORT, request.memory_bytes, "bytes")
    parts = parts_of_rows(request.cpu_mcpu, request.memory_bytes, capacity_cpu[known], capacity_memory[known])
    have = cpu_held_together(request.cpu_mcpu, request.memory_bytes, parts)
    return _most(cluster.nodes, known, have, Reason.ZONE_FIT_SHORT, request.cpu_mcpu, "mcpu")


def _too_large_online(view: View, request: RequestClass, known: IntArray) -> NearestMiss | None:
    """Compares with the capacity that the nodes' own rules leave for good."""
    pool = view.pool(PoolName.PROD)
    cpu, memory = pool.allocatable_cpu[known], pool.allocatable_memory[known]
    if int(cpu.max()) < request.cpu_mcpu:
        # CPUs pinned by a kubelet come back: counted only where they decide.
        cpu = cpu + _coming_back(view, known).sum(axis=1)
    for reason, have, need, unit in (
        (Reason.BATCH_CPU_SHORT, cpu, request.cpu_mcpu, "mcpu"),
        (Reason.BATCH_MEMORY_SHORT, memory, request.memory_bytes, "bytes"),
    ):
        if int(have.max()) < need:
            return _most(view.nodes, known, have, reason_for(reason, request), need, unit)
    return None


def _coming_back(view: View, known: IntArray) -> IntArray:
    """The CPU that prod work may get when kubelet-pinned pods end: by row and column, in the node's amplified amounts."""
    back = np.zeros((known.size, view.pool(PoolName.PROD).columns), dtype=np.int64)
    for index, row in enumerate(known.tolist()):
        inventory = view.inventory_index.of(row)
        if inventory is None or not inventory.returning:
            continue
        kept = {share.zone: share.cpu_mcpu for share in view.nodes[row].reserved}
        now = view.pools[PoolName.PROD].rows[row].allocatable_cpu
        for slot, zone in enumerate(inventory.topology.zones):
            returned = (inventory.cpus.cpus_of_zone(zone.zone).mask & inventory.returning).bit_count() * CPU_MCPU
            whole = amplified(max(0, zone.cpu_capacity_mcpu - kept.get(zone.zone, 0) + returned), inventory.rules)
            back[index, slot] = max(0, min(whole, CPU_MAX_MCPU) - now[slot])
    return back


def _too_large_for_a_zone(cluster: Cluster, view: View, request: RequestClass, known: IntArray) -> NearestMiss | None:
    """Compares with single zones, where one zone has to hold the whole request."""
    if request.is_prod:
        rows = [view.pools[PoolName.PROD].rows[row] for row in known.tolist()]
        cpu = np.array([row.allocatable_cpu for row in rows], dtype=np.int64)
        memory = np.array([row.allocatable_memory for row in rows], dtype=np.int64)
    else:
        cpu, memory = (capacity[known] for capacity in cluster.batch_capacity.of_rows(view.count))
    has_memory = memory >= request.memory_bytes
    if not has_memory.any():
        return _most_in_a_zone(view, known, memory, Reason.ZONE_FIT_SHORT, request.memory_bytes, "bytes")
    # The CPU of a zone is reported only for zones that have the memory.
    if request.is_prod and int(cpu[has_memory].max()) < request.cpu_mcpu:
        cpu = cpu + _coming_back(view, known)
    cpu = np.where(has_memory, cpu, 0)
    if int(cpu.max()) >= request.cpu_mcpu:
        return None
    return _most_in_a_zone(view, known, cpu, Reason.ZONE_FIT_SHORT, request.cpu_mcpu, "mcpu")


def _too_many(view: View, request: RequestClass, known: IntArray) -> NearestMiss | None:
    """Compares counts: CPUs by number, devices of each kind, huge pages of each size."""
    place = request.place
    wanted: list[tuple[Reason, IntArray, int, str]] = []
    if request.own_cpus:
        # LSE work leaves one CPU to the rest of the node.
        most = [max(0, _cpus(view, row) - (request.qos is QosClass.LSE)) for row in known.tolist()]
        cpus = np.array(most, dtype=np.int64)
        wanted.append((Reason.CPUS_SHORT, cpus, request.own_cpus, "cpus"))
    for device in place.devices:
        wanted.extend(_devices_wanted(view, device, known))
    for pages in place.huge_pages:
        have = np.array([_pages(view, row, pages.page_bytes) for row in known.tolist()], dtype=np.int64)
        wanted.append((Reason.HUGE_PAGES_SHORT, have, pages.total_bytes, "bytes"))
    for reason, have, need, unit in wanted:
        if int(have.max()) < need:
            return _most(view.nodes, known, have, reason, need, unit)
    return _never_together(view, request, known) if place.devices else None


def _never_together(view: View, request: RequestClass, known: IntArray) -> NearestMiss | None:
    """Compares the layout of the devices, where the layout is what fails on every node."""
    ask = ask_of(request.place)
    layouts = view.facts.layout[known]
    if any(never_holds(view.facts.layouts[each], ask) is None for each in np.unique(layouts).tolist()):
        return None
    have, need, unit, reason = layout_shortage(view.facts.layouts, ask, layouts)
    return _most(view.nodes, known, have, reason, need, unit)


def layout_shortage(
    known: Sequence[DeviceLayout], ask: DeviceAsk, layouts: IntArray
) -> tuple[IntArray, int, str, Reason]:
    """The amount each row has, by its layout, of the least amount needed; then that least amount, its unit and the reason.

    Where nodes lack different amounts, the reason is that of the node that comes closest; the other nodes count as having 0.
    """
    refused = {place: never_holds(known[place], ask) for place in np.unique(layouts).tolist()}
    found = [each for each in refused.values() if each is not None and each.have < each.need]
    if not found:
        reasons = {each.reason for each in refused.values() if each is not None}
        reason = Reason.DEVICE_LAYOUT if Reason.DEVICE_LAYOUT in reasons else Reason.DEVICE_UNKNOWN
        return np.zeros(layouts.size, dtype=np.int64), 1, "condition", reason
    best = max(found, key=lambda each: (Fraction(each.have, each.need), each.need, each.unit))
    have = [
        each.have if each is not None and (each.need, each.unit) == (best.need, best.unit) else 0
        for each in (refused[place] for place in layouts.tolist())
    ]
    return np.array(have, dtype=np.int64), best.need, best.unit, best.reason


def _cpus(view: View, row: int) -> int:
    inventory = view.inventory_index.of(row)
    return (inventory.cpus.all_mask & ~inventory.withheld_for_good).bit_count() if inventory else 0


def _devices_wanted(view: View, device: DeviceRequest, known: IntArray) -> Iterator[tuple[Reason, IntArray, int, str]]:
    """Each node's devices of a kind: the count, the count that report memory, and the most memory that enough of them have."""
    places, kinds = np.unique(view.facts.layout[known], return_inverse=True)
    memory = [
        sorted(
            (each.memory_bytes for each in view.facts.layouts[place].devices if each.kind == device.kind), reverse=True
        )
        for place in places.tolist()
    ]
    need, count = need_of(device), max(1, device.count)

    def by_node(have: list[int]) -> IntArray:
        found: IntArray = np.array(have, dtype=np.int64)[kinds]
        return found

    number = by_node([len(each) for each in memory])
    yield Reason.DEVICE_SHORT if number.any() else Reason.DEVICE_UNKNOWN, number, count, device.kind
    if not need.is_whole and (need.memory_bytes or need.memory_pct):
        delivered = by_node([sum(size > 0 for size in each) for each in memory])
        yield Reason.DEVICE_SHORT, delivered, count, f"{device.kind} that tells its memory"
    if need.memory_bytes:
        each_of = "one" if count == 1 else f"each of {count}"
        least = by_node([each[count - 1] if len(each) >= count else 0 for each in memory])
        yield Reason.DEVICE_SHORT, least, need.memory_bytes, f"{DEVICE_MEMORY}{each_of} {device.kind}"


def _pages(view: View, row: int, page_bytes: int) -> int:
    inventory = view.inventory_index.of(row)
    return sum(inventory.zone_pages(zone, page_bytes)[1] for zone in view.nodes[row].zone_ids) if inventory else 0


def _most(nodes: list[Node], rows: IntArray, have: IntArray, reason: Reason, need: int, unit: str) -> NearestMiss:
    most = int(have.max())
    name = min(nodes[row].name for row in rows[have == most].tolist())
    return NearestMiss(node=name, reason=reason, need=need, have=most, unit=unit)


def _most_in_a_zone(view: View, rows: IntArray, have: IntArray, reason: Reason, need: int, unit: str) -> NearestMiss:
    """The shortage in the zone that has most; `have` is by row and column."""
    near = _most(view.nodes, rows, have.max(axis=1), reason, need, unit)
    slot = int(np.argmax(have[np.flatnonzero(rows == view.rows[near.node])[0]]))
    return structs.replace(near, zone=view.nodes[view.rows[near.node]].zone_ids[slot])
