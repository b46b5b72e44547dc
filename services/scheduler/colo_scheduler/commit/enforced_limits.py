"""The limit of CPU that a node enforces on batch work, in the node's own CPUs.

Batch CPU is promised, requested and limited in CPUs of a reference machine where the node has a rule `cpu_normalization_pct`
(koordinator-sh/koordinator:pkg/koordlet/runtimehooks/hooks/batchresource). Prod work and the mid tier go by the node's own CPUs.
"""

from msgspec.structs import replace

from colo_common.events.job import PlacementRequest
from colo_common.model.quantity import ceil_div
from colo_common.model.workload import RunSpec
from colo_scheduler.cluster.node import Node
from colo_scheduler.cluster.pool import PoolName, pool_of

__all__ = ["run_on"]


def run_on(request: PlacementRequest, node: Node) -> RunSpec:
    """What the request runs, on a normalized node with the limit of CPU of batch work divided by the ratio, rounded up."""
    limits, reported = request.run.limits, node.reported
    if limits is None or not limits.cpu_mcpu or reported is None or reported.rules.cpu_normalization_pct == 100:
        return request.run
    if pool_of(request.band) is not PoolName.BATCH:
        return request.run
    mcpu = ceil_div(limits.cpu_mcpu * 100, reported.rules.cpu_normalization_pct)
    return replace(request.run, limits=replace(limits, cpu_mcpu=mcpu))
