"""The subscriptions of one node's executor."""

from colo_common.events.eviction import EvictReplica
from colo_common.events.job import StopReplicas
from colo_common.events.node import LeaseRenewed
from colo_common.events.placement import ApplyPlacements
from colo_common.runtime.core import Subscription

__all__ = ["executor_hears"]


def executor_hears(node: str) -> tuple[Subscription, ...]:
    """Subscriptions to the node's commands and its lease; a successor continues where an earlier executor stopped."""
    return tuple(
        Subscription(type=body, parameters={"node": node})
        for body in (ApplyPlacements, StopReplicas, EvictReplica, LeaseRenewed)
    )
