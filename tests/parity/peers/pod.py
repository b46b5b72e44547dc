"""What a Kubernetes pod says about its class: labels, priority and the resources of its containers.

For comparing with what others decide: a job of colo names its class and its band.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct, field

__all__ = [
    "PRIORITY_CLASS_LABEL",
    "PRIORITY_LABEL",
    "QOS_LABEL",
    "Amounts",
    "Container",
    "KubernetesQos",
    "Pod",
    "kubernetes_qos",
]

QOS_LABEL: Final = "koordinator.sh/qosClass"
PRIORITY_CLASS_LABEL: Final = "koordinator.sh/priority-class"
PRIORITY_LABEL: Final = "koordinator.sh/priority"


class KubernetesQos(StrEnum):
    """The class that Kubernetes itself derives from requests and limits."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


class Amounts(Struct, frozen=True, kw_only=True):
    """Requests or limits; 0 means not named. Batch CPU is milli-CPU, too, as everywhere in Koordinator."""

    cpu_mcpu: int = 0
    memory_bytes: int = 0
    batch_cpu_mcpu: int = 0
    batch_memory_bytes: int = 0


class Container(Struct, frozen=True, kw_only=True):
    """The resources of one container."""

    requests: Amounts = Amounts()
    limits: Amounts = Amounts()


class Pod(Struct, frozen=True, kw_only=True):
    """A pod as far as its class goes. `status_qos` is what the API server recorded, None before it did."""

    labels: Mapping[str, str] = field(default_factory=dict)
    priority: int | None = None
    containers: tuple[Container, ...] = ()
    status_qos: KubernetesQos | None = None

    @property
    def request(self) -> Amounts:
        """What all containers request together."""
        requests = [container.requests for container in self.containers]
        return Amounts(
            cpu_mcpu=sum(each.cpu_mcpu for each in requests),
            memory_bytes=sum(each.memory_bytes for each in requests),
            batch_cpu_mcpu=sum(each.batch_cpu_mcpu for each in requests),
            batch_memory_bytes=sum(each.batch_memory_bytes for each in requests),
        )


def kubernetes_qos(pod: Pod) -> KubernetesQos:
    """The recorded class, else the computed one (kubernetes/kubernetes:pkg/apis/core/v1/helper/qos/qos.go).

    BestEffort when no container names CPU or memory; Guaranteed when every container limits both and, over all containers, what
    is requested equals what is limited for both; else Burstable.
    """
    if pod.status_qos is not None:
        return pod.status_qos
    limits = [container.limits for container in pod.containers]
    cpu_limit_mcpu = sum(each.cpu_mcpu for each in limits)
    memory_limit_bytes = sum(each.memory_bytes for each in limits)
    request = pod.request
    if not (request.cpu_mcpu or request.memory_bytes or cpu_limit_mcpu or memory_limit_bytes):
        return KubernetesQos.BEST_EFFORT
    is_limited = all(each.cpu_mcpu and each.memory_bytes for each in limits)
    if is_limited and (request.cpu_mcpu, request.memory_bytes) == (cpu_limit_mcpu, memory_limit_bytes):
        return KubernetesQos.GUARANTEED
    return KubernetesQos.BURSTABLE
