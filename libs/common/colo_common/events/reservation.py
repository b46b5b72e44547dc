"""Facts about reservations: said by the scheduler."""

from colo_common.events.fact import Fact
from colo_common.model.placement import ZoneShare
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.units import Ms, NodeName, Number, ReplicaName

__all__ = ["ReservationChanged"]


class ReservationChanged(Fact, frozen=True, kw_only=True):
    """A reservation is in this phase now, or, in the phase Available, what it holds in its own name is another.

    `phase`: Pending, Available, Succeeded, Failed or Deleted; `reason`: why it ended. `replica` and `attempt` name what stands for
    it in the ledger: no replica that runs. `node` and `zones`: what is held there for it beside what its owners hold, nothing
    unless it is Available. `owners` use it now.
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
