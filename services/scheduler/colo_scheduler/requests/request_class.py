"""A request class: placement requests that every node answers alike, and that are therefore decided together."""

from typing import Final, NamedTuple

from colo_common.events.job import PlacementRequest
from colo_common.model.constraints import UNCONSTRAINED, Constraints, CpuPolicy, NumaPolicy
from colo_common.model.qos import PriorityBand, QosClass, is_legal_pair
from colo_common.model.reasons import Reason
from colo_scheduler.ledger.port import name_of

__all__ = ["RequestClass", "class_of"]

_CPU_MCPU: Final = 1_000


class RequestClass(NamedTuple):
    """Everything of a placement request that a filter, a scorer or the order of classes looks at.

    `avoid`: node, until (Unix ms), sorted.
    `has_command`: a real machine can run it; `has_work`: a simulated machine can. `constraints` None: any place with room will do.
    `reserves`: the reservation that the request stands for; it runs nothing and is a class of its own.
    `job`: the job of a request that asks to be spread over nodes and is scored by where the job's replicas are; else empty.
    """

    priority: int
    cpu_mcpu: int
    memory_bytes: int
    qos: QosClass
    band: PriorityBand
    avoid: tuple[tuple[str, int], ...]
    has_command: bool
    has_work: bool
    constraints: Constraints | None = None
    reserves: str = ""
    job: str = ""

    @property
    def refusal(self) -> Reason | None:
        """The reason why no node is tried at all; None where nodes are tried.

        Work of class SYSTEM is not placed, and a QoS class goes only with its bands. A request that names a reservation is placed
        in that reservation or not at all.
        """
        if self.qos is QosClass.SYSTEM or not is_legal_pair(self.qos, self.band):
            return Reason.QOS_NOT_ADMITTED
        if self.constraints is not None and self.constraints.reservation:
            return Reason.RESERVATION_UNKNOWN
        return None

    @property
    def is_admitted(self) -> bool:
        """Whether nodes are tried."""
        return self.refusal is None

    @property
    def is_prod(self) -> bool:
        """Whether this is online work, which takes capacity of the machine itself and not of overcommit's allocatable."""
        return self.band is PriorityBand.PROD

    @property
    def is_mid(self) -> bool:
        """Whether this is work of the tier between online and batch work, which takes capacity of the mid tier alone."""
        return self.band is PriorityBand.MID

    @property
    def place(self) -> Constraints:
        """The constraints; UNCONSTRAINED where the request has none."""
        return UNCONSTRAINED if self.constraints is None else self.constraints

    @property
    def own_cpus(self) -> int:
        """The number of CPUs it needs by number: for LSE, LSR and CPU policies exclusive and immovable. 0 for the shared pool."""
        if self.qos.has_own_cpus or (self.constraints is not None and self.constraints.cpu_policy in _FIXED):
            return self.cpu_mcpu // _CPU_MCPU
        return 0

    @property
    def is_in_one_zone(self) -> bool:
        """Whether one zone has to hold the whole request."""
        place = self.place
        return place.numa_policy is NumaPolicy.SINGLE_NUMA_NODE or place.cpu_policy is CpuPolicy.NUMA

    @property
    def is_detailed(self) -> bool:
        """Whether the fit on a node depends on more than amounts of CPU and memory by zone."""
        if self.qos.has_own_cpus:
            return True
        place = self.constraints
        return place is not None and (
            place.numa_policy is not NumaPolicy.NONE
            or place.cpu_policy in _PLACED
            or bool(place.devices)
            or bool(place.huge_pages)
        )


_FIXED: Final = (CpuPolicy.EXCLUSIVE, CpuPolicy.IMMOVABLE)
_PLACED: Final = (*_FIXED, CpuPolicy.NUMA)


def class_of(placement_request: PlacementRequest) -> RequestClass:
    """The class that a placement request belongs to."""
    reserves = name_of(placement_request.replica)
    asked, run, constraints = placement_request.request, placement_request.run, placement_request.constraints
    return RequestClass(
        placement_request.priority,
        asked.cpu_mcpu,
        asked.memory_bytes,
        placement_request.qos,
        placement_request.band,
        tuple(sorted(placement_request.avoid)) if placement_request.avoid else (),
        bool(run.command or reserves),
        run.work_mcpu_ms >= 1 or bool(reserves),
        None if constraints == UNCONSTRAINED else constraints,
        reserves,
        placement_request.job if constraints.spread else "",
    )
