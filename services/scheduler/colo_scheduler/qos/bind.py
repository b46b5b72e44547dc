"""How a workload wants its CPUs bound to cores, and what its node demands.

A pod says so in the annotation `scheduling.koordinator.sh/resource-spec`, a node in the label `node.koordinator.sh/cpu-bind-policy`
(koordinator-sh/koordinator:pkg/scheduler/plugins/nodenumaresource/{plugin,util}.go).
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import Struct

from colo_common.model.invalid import InvalidInput
from colo_common.model.qos import PriorityBand, QosClass
from colo_scheduler.cpus.binding import BindPolicy, ExclusivePolicy

__all__ = [
    "NODE_BIND_LABEL",
    "RESOURCE_SPEC_ANNOTATION",
    "AskedPolicy",
    "Binding",
    "NodeBindPolicy",
    "ResourceSpec",
    "bind",
    "node_bind_policy",
    "read_resource_spec",
]

RESOURCE_SPEC_ANNOTATION: Final = "scheduling.koordinator.sh/resource-spec"
NODE_BIND_LABEL: Final = "node.koordinator.sh/cpu-bind-policy"
_MCPU_PER_CPU: Final = 1000
_SPEC_MAX_CHARACTERS: Final = 4096


class AskedPolicy(StrEnum):
    """The words of a pod. Default leaves it to the scheduler; ConstrainedBurst means no CPUs by number."""

    DEFAULT = "Default"
    FULL_PCPUS = "FullPCPUs"
    SPREAD_BY_PCPUS = "SpreadByPCPUs"
    CONSTRAINED_BURST = "ConstrainedBurst"


class NodeBindPolicy(StrEnum):
    """What a node demands of every workload that requests CPU."""

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


class _Spec(Struct, frozen=True, kw_only=True, rename="camel"):
    required_cpu_bind_policy: str | None = msgspec.field(name="requiredCPUBindPolicy", default=None)
    preferred_cpu_bind_policy: str | None = msgspec.field(name="preferredCPUBindPolicy", default=None)
    preferred_cpu_exclusive_policy: str | None = msgspec.field(name="preferredCPUExclusivePolicy", default=None)


_DECODER: Final = msgspec.json.Decoder(_Spec)
_BINDING: Final = {
    AskedPolicy.FULL_PCPUS: BindPolicy.FULL_PCPUS,
    AskedPolicy.SPREAD_BY_PCPUS: BindPolicy.SPREAD_BY_PCPUS,
}
_OF_NODE: Final = {
    NodeBindPolicy.FULL_PCPUS_ONLY: BindPolicy.FULL_PCPUS,
    NodeBindPolicy.SPREAD_BY_PCPUS: BindPolicy.SPREAD_BY_PCPUS,
}


def read_resource_spec(annotations: Mapping[str, str], field: str = "annotations") -> ResourceSpec:
    """What the annotation says; the empty spec without it. Raises InvalidInput for text that is no such JSON and unknown names."""
    text = annotations.get(RESOURCE_SPEC_ANNOTATION, "")
    if not text:
        return ResourceSpec()
    name = f"{field}[{RESOURCE_SPEC_ANNOTATION}]"
    if len(text) > _SPEC_MAX_CHARACTERS:
        raise InvalidInput(name, f"must be at most {_SPEC_MAX_CHARACTERS} characters", text)
    try:
        spec = _DECODER.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidInput(name, f"must be a JSON object: {error}", text) from error
    return ResourceSpec(
        required=_asked_policy(spec.required_cpu_bind_policy, f"{name}.requiredCPUBindPolicy"),
        preferred=_asked_policy(spec.preferred_cpu_bind_policy, f"{name}.preferredCPUBindPolicy"),
        exclusive=_exclusive_policy(spec.preferred_cpu_exclusive_policy, f"{name}.preferredCPUExclusivePolicy"),
    )


def node_bind_policy(
    labels: Mapping[str, str], kubelet_policy: str, *, is_full_pcpus_only: bool, field: str = "node.labels"
) -> NodeBindPolicy:
    """What a node demands: its label, else whole cores where the kubelet's static policy hands out whole cores only, else nothing.

    Raises InvalidInput for a label with an unknown name.
    """
    name = labels.get(NODE_BIND_LABEL, "")
    if name:
        for policy in NodeBindPolicy:
            if name == policy.value:
                return policy
        known = " ".join(policy.value for policy in NodeBindPolicy)
        raise InvalidInput(f"{field}[{NODE_BIND_LABEL}]", f"must be one of {known}", name)
    if kubelet_policy == "static" and is_full_pcpus_only:
        return NodeBindPolicy.FULL_PCPUS_ONLY
    return NodeBindPolicy.NONE


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


def _asked_policy(name: str | None, field: str) -> AskedPolicy | None:
    if not name:
        return None
    for policy in AskedPolicy:
        if name == policy.value:
            return policy
    raise InvalidInput(field, "must be one of " + " ".join(policy.value for policy in AskedPolicy), name)


def _exclusive_policy(name: str | None, field: str) -> ExclusivePolicy:
    if not name:
        return ExclusivePolicy.NONE
    for policy in ExclusivePolicy:
        if name == policy.value:
            return policy
    raise InvalidInput(field, "must be one of " + " ".join(policy.value for policy in ExclusivePolicy), name)
