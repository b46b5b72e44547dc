"""A request class: placement requests that every node answers alike, and that are therefore decided together."""

from typing import Final, NamedTuple

from colo_common.events.job import PlacementRequest
from colo_common.model.constraints import UNCONSTRAINED, Constraints, CpuPolicy, NumaPolicy
from colo_common.model.qos import PriorityBand, QosClass, is_legal_pair
from colo_common.model.reasons import Reason
from colo_scheduler.ledger.reservation_names import name_of

__all__ = ["RequestClass", "class_of"]

_CPU_MCPU: Final = 1_000


class RequestClass(NamedTuple):
    """Everything of a placement request that a filter, a scorer or the order of classes looks at.

    `avoid`: node, until (Unix ms), sorted.
    `has_command`: a real machine can run it; `has_work`: a simulated one can. `constraints` None: any place with room will do.
    `reserves`: the reservation that this stands for, which runs nothing and is a class of its own.
    `job`: the job of one that had rather be spread over nodes, and is decided by where its own replicas are.
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
        """Why no node is asked at all, None where nodes are.

        Work of the node itself is not placed, and a class goes only with its bands. What names a reservation goes there or nowhere.
        """
        if self.qos is QosClass.SYSTEM or not is_legal_pair(self.qos, self.band):
            return Reason.QOS_NOT_ADMITTED
        if self.constraints is not None and self.constraints.reservation:
            return Reason.RESERVATION_UNKNOWN
        return None

    @property
    def is_admitted(self) -> bool:
        """Whether nodes are asked."""
        return self.refusal is None

    @property
    def is_prod(self) -> bool:
        """Whether this is online work, which takes of the machine itself and not of what overcommit promises."""
        return self.band is PriorityBand.PROD

    @property
    def place(self) -> Constraints:
        """The constraints, none where there are none."""
        return UNCONSTRAINED if self.constraints is None else self.constraints

    @property
    def own_cpus(self) -> int:
        """How many CPUs it wants by number: LSE and LSR, and whoever wants CPUs that do not move. 0 for the shared pool."""
        if self.qos.has_own_cpus or (self.constraints is not None and self.constraints.cpu_policy in _FIXED):
            return self.cpu_mcpu // _CPU_MCPU
        return 0

    @property
    def is_in_one_zone(self) -> bool:
        """Whether one zone has to hold all of it."""
        place = self.place
        return place.numa_policy is NumaPolicy.SINGLE_NUMA_NODE or place.cpu_policy is CpuPolicy.NUMA

    @property
    def is_detailed(self) -> bool:
        """Whether amounts of CPU and memory by zone do not say yet that a node can take it."""
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
