"""Facts about reservations. The scheduler publishes them."""

from colo_common.events.fact import Fact
from colo_common.model.placement import ZoneShare
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.units import Ms, NodeName, Number, ReplicaName

__all__ = ["ReservationChanged"]


class ReservationChanged(Fact, frozen=True, kw_only=True):
    """The phase of a reservation changed, or the part that an Available reservation holds beside its owners changed.

    `phase`: Pending, Available, Succeeded, Failed or Deleted; `reason`: why it ended. `replica` and `attempt` name its entry in the
    ledger, which is no running replica. `node` and `zones`: what the reservation holds beside its owners, empty unless it is
    Available. `owners` is the number of replicas that use it now.
    """

    reservation: str
    phase: str
    reason: str = ""
    replica: ReplicaName = ""
    attempt: Number = 0
    qos: QosClass = QosClass.BE
    band: PriorityBand = PriorityBand.BATCH
    node: NodeName = ""
    zones: tuple[ZoneShare, ...] = ()
    owners: Number = 0
    expires_at_ms: Ms = 0
