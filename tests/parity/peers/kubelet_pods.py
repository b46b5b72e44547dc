"""Which entries of a kubelet's checkpoint count where Koordinator places pods too, and how it names the kubelet's policy.

(koordinator-sh/koordinator:pkg/koordlet/statesinformer/impl/states_noderesourcetopology.go)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from colo_common.model.cpuset import CpuSet
from colo_common.model.qos import QosClass

_POLICIES: Final = {"single-numa-node": "SingleNUMANode", "restricted": "Restricted", "best-effort": "BestEffort"}
_SCOPES: Final = {"container": "ContainerLevel", "pod": "PodLevel"}

Entries = Mapping[str, Mapping[str, str]]


class RunningPod(Struct, frozen=True, kw_only=True):
    """A pod that runs on the node: its labelled class and the CPUs that the scheduler gave it by number."""

    uid: str
    qos: QosClass | None = None
    cpus: CpuSet = CpuSet()


def unmanaged(entries: Entries, pods: Sequence[RunningPod]) -> Entries:
    """The entries less pods labelled LS or BE and pods that were given CPUs by the scheduler; those of unknown pods stay."""
    managed = {pod.uid for pod in pods if pod.qos in (QosClass.LS, QosClass.BE) or pod.cpus}
    return {uid: containers for uid, containers in entries.items() if uid not in managed}


def topology_policy(policy: str, scope: str) -> str:
    """The node's policy as NodeResourceTopology names it ("RestrictedPodLevel"), from the kubelet's topology manager.

    "None" for policy none and for names that are not known.
    """
    if policy in _POLICIES and scope in _SCOPES:
        return _POLICIES[policy] + _SCOPES[scope]
    return "None"
