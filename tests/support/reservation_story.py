"""Reservations, owners and places for tests, short to write."""

from __future__ import annotations

from typing import Any

from colo_common.model.placement import Placement, ZoneShare
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reservation import ControllerTerm, OwnerTerm, ReservationSpec
from colo_common.model.workload import ResourceRequest, RunSpec
from colo_scheduler.reservations.book import ReservationBook
from colo_scheduler.reservations.owners import Claimant, Controller
from colo_scheduler.reservations.reservation import HoldChanged

GIB = 1 << 30
FOR_WEB = (OwnerTerm(controller=ControllerTerm(name="web")),)


def replica_of(name: str) -> str:
    """The replica that stands for a reservation."""
    return f"reservation:{name}/hold/0"


def a_hold(name: str = "r1", node: str = "n1", attempt: int = 1) -> HoldChanged:
    """What is said when the hold of a reservation changed; its first attempt when nothing else is said."""
    return HoldChanged(name=name, node=node, attempt=(replica_of(name), attempt))


def a_spec(name: str = "r1", cpu_mcpu: int = 4_000, memory_gib: int = 8, **more: Any) -> ReservationSpec:
    """A reservation for job "web" that is used again and again."""
    fields: dict[str, Any] = {"owners": FOR_WEB, "allocate_once": False, **more}
    request = ResourceRequest(cpu_mcpu=cpu_mcpu, memory_bytes=memory_gib * GIB)
    return ReservationSpec(name=name, request=request, **fields)


def a_claimant(index: int = 0, job: str = "web", **more: Any) -> Claimant:
    """A replica of a job."""
    return Claimant(name=f"{job}/task/{index}", controllers=(Controller(name=job, kind="Job"),), **more)


def a_placement(
    replica: str, node: str, zones: dict[int, tuple[int, int]], *, attempt: int = 1, **more: Any
) -> Placement:
    """A place of so much CPU (mcpu) and memory (GiB) by zone."""
    shares = tuple(
        ZoneShare(zone=zone, cpu_mcpu=cpu, memory_bytes=memory * GIB) for zone, (cpu, memory) in sorted(zones.items())
    )
    return Placement(
        replica=replica,
        job=replica.split("/", maxsplit=1)[0],
        attempt=attempt,
        node=node,
        zones=shares,
        cpu_mcpu=sum(share.cpu_mcpu for share in shares),
        memory_bytes=sum(share.memory_bytes for share in shares),
        qos=QosClass.BE,
        band=PriorityBand.BATCH,
        run=RunSpec(),
        **more,
    )


def a_place(
    name: str = "r1", node: str = "n1", zones: dict[int, tuple[int, int]] | None = None, **more: Any
) -> Placement:
    """The place of a reservation: 4 CPUs and 8 GiB in zone 0 when nothing else is said."""
    return a_placement(replica_of(name), node, zones or {0: (4_000, 8)}, **more)


def an_owner(
    index: int = 0, zones: dict[int, tuple[int, int]] | None = None, *, of: str = "r1", node: str = "n1", **more: Any
) -> Placement:
    """A replica of "web" that uses a reservation: 1 CPU and 2 GiB of zone 0 when nothing else is said."""
    return a_placement(f"web/task/{index}", node, zones or {0: (1_000, 2)}, reservation=of, **more)


def a_book(*, bound: bool = True, **more: Any) -> ReservationBook:
    """A book with reservation r1: 4 CPUs and 8 GiB on n1, zone 0."""
    book = ReservationBook()
    book.create(a_spec(**more), 0)
    if bound:
        book.bind(a_place(), 0)
    return book
