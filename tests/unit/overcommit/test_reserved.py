"""What reservations hold counts as held, and no more of it than their owners leave."""

from colo_common.events.reservation import ReservationChanged
from colo_common.model.placement import ZoneShare
from colo_common.model.qos import PriorityBand
from colo_overcommit.core import OvercommitCore
from colo_overcommit.policy import OvercommitPolicy

GIB = 1 << 30


def changed(mcpu: int, *, band: PriorityBand = PriorityBand.BATCH, node: str = "n1") -> ReservationChanged:
    zones = (ZoneShare(zone=0, cpu_mcpu=mcpu, memory_bytes=GIB),) if mcpu else ()
    return ReservationChanged(
        reservation="night",
        phase="Available" if mcpu else "Succeeded",
        replica="reservation:night/hold/0",
        attempt=1,
        node=node,
        band=band,
        zones=zones,
    )


def test_a_reservation_holds_what_its_last_event_named() -> None:
    core = OvercommitCore(OvercommitPolicy())
    for mcpu in (4_000, 4_000, 1_500, 0, 2_000):
        core.handle(changed(mcpu), 0)
        assert core.nodes["n1"].held.cpu_mcpu == mcpu


def test_a_reservation_for_online_work_takes_nothing_from_batch_work() -> None:
    core = OvercommitCore(OvercommitPolicy())
    core.handle(changed(4_000, band=PriorityBand.PROD), 0)
    assert core.nodes["n1"].held.cpu_mcpu == 0


def test_a_reservation_that_waits_is_on_no_node() -> None:
    core = OvercommitCore(OvercommitPolicy())
    core.handle(changed(0, node=""), 0)
    assert core.nodes == {}
