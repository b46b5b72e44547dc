"""How a workload wants its CPUs bound to cores, and what its node demands.

The words and what goes before what are those of Koordinator (koordinator-sh/koordinator:
pkg/scheduler/plugins/nodenumaresource/{plugin,util}.go).
"""

from enum import StrEnum
from typing import Final

from msgspec import Struct

from colo_common.model.invalid import InvalidInput
from colo_common.model.qos import PriorityBand, QosClass
from colo_scheduler.cpus.binding import BindPolicy, ExclusivePolicy

__all__ = ["AskedPolicy", "Binding", "NodeBindPolicy", "ResourceSpec", "bind"]

_MCPU_PER_CPU: Final = 1000


class AskedPolicy(StrEnum):
    """The words of a pod. Default leaves it to the scheduler; ConstrainedBurst means no CPUs by number."""

    DEFAULT = "Default"
    FULL_PCPUS = "FullPCPUs"
    SPREAD_BY_PCPUS = "SpreadByPCPUs"
    CONSTRAINED_BURST = "ConstrainedBurst"


class NodeBindPolicy(StrEnum):
    """The bind policy that a node demands of every workload that requests CPU."""

    NONE = "None"
    FULL_PCPUS_ONLY = "FullPCPUsOnly"
    SPREAD_BY_PCPUS = "SpreadByPCPUs"


class ResourceSpec(Struct, frozen=True, kw_only=True):
    """What a pod asks for. A required policy must be met, a preferred one is the order of the choice."""

    required: AskedPolicy | None = None
    preferred: AskedPolicy | None = None
    exclusive: ExclusivePolicy = ExclusivePolicy.NONE


class Binding(Struct, frozen=True, kw_only=True):
    """CPUs by number: how many, on which cores, and whether the policy must be met."""

    cpus: int
    policy: BindPolicy
    is_required: bool
    exclusive: ExclusivePolicy


_BINDING: Final = {
    AskedPolicy.FULL_PCPUS: BindPolicy.FULL_PCPUS,
    AskedPolicy.SPREAD_BY_PCPUS: BindPolicy.SPREAD_BY_PCPUS,
}
_OF_NODE: Final = {
    NodeBindPolicy.FULL_PCPUS_ONLY: BindPolicy.FULL_PCPUS,
    NodeBindPolicy.SPREAD_BY_PCPUS: BindPolicy.SPREAD_BY_PCPUS,
}


def bind(
    spec: ResourceSpec,
    *,
    qos: QosClass | None,
    band: PriorityBand | None,
    cpu_mcpu: int,
    default: AskedPolicy = AskedPolicy.FULL_PCPUS,
    node: NodeBindPolicy = NodeBindPolicy.NONE,
    field: str = "requests.cpu",
) -> Binding | None:
    """The CPUs by number that a workload needs on such a node, or None when it runs in a pool.

    LSE and LSR work of the prod band gets them when the policy that counts (required, else preferred, else `default`) is one of
    whole cores or one thread a core. A node with a policy of its own gives them to everybody, and demands its policy. Raises
    InvalidInput when CPUs are needed and the request is not whole CPUs, and when the pod requires another policy than the node.
    """
    if cpu_mcpu <= 0:
        return None
    required = spec.required if spec.required is not AskedPolicy.DEFAULT else None
    preferred = spec.preferred if spec.preferred is not AskedPolicy.DEFAULT else None
    own = _BINDING.get(required or preferred or default)
    may_bind = qos is not None and qos.has_own_cpus and band is PriorityBand.PROD
    of_node = _OF_NODE.get(node)
    policy = of_node or (own if may_bind else None)
    if policy is None:
        return None
    if cpu_mcpu % _MCPU_PER_CPU:
        raise InvalidInput(field, "must be whole CPUs to be bound to cores", f"{cpu_mcpu}m")
    if of_node is not None and required is not None and _BINDING.get(required) is not of_node:
        raise InvalidInput("requiredCPUBindPolicy", f"must be {of_node.value}, which the node demands", required.value)
    return Binding(
        cpus=cpu_mcpu // _MCPU_PER_CPU,
        policy=policy,
        is_required=of_node is not None or required is not None,
        exclusive=spec.exclusive,
    )
