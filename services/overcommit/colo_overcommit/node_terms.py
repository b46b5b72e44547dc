"""The measured terms of one node by a sample, from what is known of the node and a policy."""

from colo_common.events.node import NodeUsageSampled
from colo_common.model.topology import NodeTopology
from colo_overcommit.allocatable import ZoneInputs, zone_inputs
from colo_overcommit.exclusive import exclusive_by_zone
from colo_overcommit.known_node import KnownNode
from colo_overcommit.online_charge import charges_by_zone
from colo_overcommit.policy import OvercommitPolicy

__all__ = ["node_terms"]


def node_terms(
    known: KnownNode, topology: NodeTopology, sample: NodeUsageSampled, policy: OvercommitPolicy, now_ms: int
) -> tuple[ZoneInputs, ...]:
    """The terms before risk control, estimators and systems outside change them. Raises InvalidInput for other zones than the
    topology's.
    """
    return zone_inputs(
        topology,
        sample,
        known.held.by_zone(),
        policy,
        reserved=known.reserved,
        exclusive=exclusive_by_zone(known.held, topology, sample.workloads),
        charges=charges_by_zone(
            known.held,
            topology,
            sample.workloads,
            cpu_policy=policy.cpu_policy,
            memory_policy=policy.memory_policy,
            ramp_ms=policy.ramp_ms,
            now_ms=now_ms,
        ),
        is_colocated=known.is_colocated,
        forbidden=known.forbidden,
        normalization_pct=known.normalization_pct,
    )
