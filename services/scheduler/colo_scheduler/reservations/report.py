"""Why a request that names a reservation is not placed."""

from msgspec import structs

from colo_common.events.job import PlacementRequest
from colo_common.events.placement import NearestMiss, ReasonCount
from colo_common.model.reasons import Reason
from colo_scheduler.cluster.cluster import View
from colo_scheduler.cluster.pool import pool_of
from colo_scheduler.placement.filters import STATIC_FILTERS, open_to
from colo_scheduler.placement.report import Report, least_busy
from colo_scheduler.requests.request_class import RequestClass
from colo_scheduler.reservations.owners import claimant_of
from colo_scheduler.reservations.remainder import Remainder
from colo_scheduler.reservations.reservation import Reservation
from colo_scheduler.reservations.snapshot import ReservationSnapshot

__all__ = ["report_for_owner"]

_OF_FACTS = frozenset({Reason.NODE_EXCLUDED, Reason.LOAD_OVER_THRESHOLD, *(each.reason for each in STATIC_FILTERS)})


def report_for_owner(
    places: ReservationSnapshot, view: View, request: RequestClass, placement_request: PlacementRequest
) -> Report:
    """The one reason, reported for all nodes: only the reservation's node counts. `nearest` is that node, if there is one."""
    claimant = claimant_of(placement_request)
    found = places.book.find(claimant.reservation)
    reason = places.book.why_not(claimant, view.now_ms)
    if reason is None and found is not None and pool_of(found.spec.band) is not pool_of(placement_request.band):
        reason = Reason.RESERVATION_NOT_OWNED
    if reason is None:
        reason = _of_node(view, request, found)
    counts = (ReasonCount(reason=reason, nodes=view.node_count),)
    nearest = None
    if found is not None and found.place is not None and reason not in _UNNAMED:
        row = view.rows.get(found.place.node)
        if reason is Reason.LOAD_OVER_THRESHOLD and row is not None:
            nearest = least_busy(view, request, (row,))
        else:
            nearest = _nearest(places, request, found, found.place.node, reason)
    return Report(view.node_count, counts, nearest)


def _counted(left: Remainder, request: RequestClass) -> tuple[int, int, str]:
    """The amount needed, the amount left, and the unit, of huge pages and of devices."""
    for pages in request.place.huge_pages:
        size = sum(each.total_bytes for each in left.huge_pages if each.page_bytes == pages.page_bytes)
        if size < pages.total_bytes:
            return pages.total_bytes, size, "huge-page-bytes"
    for device in request.place.devices:
        count = len({each.device for each in left.devices if each.kind == device.kind})
        if count < max(1, device.count):
            return max(1, device.count), count, device.kind
    return 1, 0, "condition"


_UNNAMED = frozenset({Reason.RESERVATION_UNKNOWN, Reason.RESERVATION_NOT_OWNED})


def _of_node(view: View, request: RequestClass, found: Reservation | None) -> Reason:
    """The rejection reason of the reservation's node itself; that the place is too small, when the node itself has no reason."""
    row = view.rows.get(found.place.node) if found is not None and found.place is not None else None
    if row is None:
        return Reason.RESERVATION_SHORT
    free = request._replace(constraints=structs.replace(request.place, reservation=""))
    reason = open_to(view, free).reason_of(row)
    if reason is not None and reason in _OF_FACTS:
        return reason
    is_agreed = view.inventory_index.agrees[row] or not request.is_detailed
    return Reason.RESERVATION_SHORT if is_agreed else Reason.LEDGER_DISAGREES


def _nearest(
    places: ReservationSnapshot, request: RequestClass, found: Reservation, node: str, reason: Reason
) -> NearestMiss:
    left = places.remainder(found.spec.name)
    need, have, unit = 1, 0, "condition"
    if reason is Reason.RESERVATION_SHORT and left is not None:
        if left.cpu_mcpu < request.cpu_mcpu:
            need, have, unit = request.cpu_mcpu, left.cpu_mcpu, "mcpu"
        elif left.memory_bytes < request.memory_bytes:
            need, have, unit = request.memory_bytes, left.memory_bytes, "bytes"
        else:
            need, have, unit = _counted(left, request)
    return NearestMiss(node=node, reason=reason, need=need, have=have, unit=unit)
