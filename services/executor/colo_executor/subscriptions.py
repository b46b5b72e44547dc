"""What the executor of one node hears."""

from colo_common.events.eviction import EvictReplica
from colo_common.events.job import StopReplicas
from colo_common.events.node import LeaseRenewed
from colo_common.events.placement import ApplyPlacements
from colo_common.runtime.core import Subscription

__all__ = ["executor_hears"]


def executor_hears(node: str) -> tuple[Subscription, ...]:
    """The node's orders, which go on where an earlier executor stopped, and its lease."""
    return tuple(
        Subscription(type=body, parameters={"node": node})
        for body in (ApplyPlacements, StopReplicas, EvictReplica, LeaseRenewed)
    )
