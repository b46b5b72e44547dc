"""The subscriptions of one node's executor."""

from colo_common.events.eviction import EvictReplica
from colo_common.events.job import StopReplicas
from colo_common.events.node import LeaseRenewed, NodeFactsWanted, NodeTopologyReported, NodeUsageSampled
from colo_common.events.placement import ApplyPlacements
from colo_common.events.restriction import RestrictionsChanged
from colo_common.runtime.core import Subscription

__all__ = ["executor_hears"]


def executor_hears(node: str, *, with_samples: bool = True) -> tuple[Subscription, ...]:
    """Subscriptions to the node's commands and its lease, where a successor continues.

    To the last table of restrictions and the last report of the node's collector as well. `with_samples`: to the node's samples
    too, for the latency of its online work. The work of a simulated node measures none.
    """
    of_node = (
        ApplyPlacements,
        StopReplicas,
        EvictReplica,
        LeaseRenewed,
        NodeFactsWanted,
        *((NodeUsageSampled,) if with_samples else ()),
    )
    return (
        *(Subscription(type=body, parameters={"node": node}) for body in of_node),
        Subscription(type=RestrictionsChanged, durable=False, replay=True),
        Subscription(type=NodeTopologyReported, parameters={"node": node}, durable=False, replay=True),
    )
