"""Whether a workload may have the class it asks for: Koordinator's verdict on a pod.

For comparing with what others decide: what colo refuses stands in `colo_common.model.place_rules`.
"""

from enum import StrEnum
from typing import Final

from colo_common.model.qos import LEGAL_BANDS, PriorityBand, QosClass
from tests.parity.peers.effective_qos import labelled_band, labelled_qos
from tests.parity.peers.pod import PRIORITY_LABEL, Pod

__all__ = ["Refusal", "refusals"]

_MCPU_PER_CPU: Final = 1000
#: The classes whose bands Koordinator checks. It leaves LSE and SYSTEM alone, and LS may have every band.
_CHECKED: Final = (QosClass.LSR, QosClass.BE)


class Refusal(StrEnum):
    """Why a pod is not admitted."""

    QOS_IMMUTABLE = "qos_immutable"
    PRIORITY_CLASS_IMMUTABLE = "priority_class_immutable"
    PRIORITY_LABEL_IMMUTABLE = "priority_label_immutable"
    BATCH_RESOURCES_NEED_BE = "batch_resources_need_be"
    FORBIDDEN_COMBINATION = "forbidden_combination"
    CPU_REQUEST_REQUIRED = "cpu_request_required"
    CPU_REQUEST_NOT_INTEGER = "cpu_request_not_integer"


def refusals(pod: Pod, before: Pod | None = None, *, keeps_priority_label: bool = True) -> tuple[Refusal, ...]:
    """Every reason against a pod, in the order of `Refusal`; none means admitted.

    `before` is the pod that it replaces: class, band and, with `keeps_priority_label`, the priority label must stay. All by the
    labels alone (koordinator-sh/koordinator:pkg/webhook/pod/validating/cluster_colocation_profile.go:40).
    """
    found: list[Refusal] = []
    qos, band = labelled_qos(pod.labels), labelled_band(pod.labels, pod.priority)
    if before is not None:
        found.extend(_changes(pod, before, keeps_priority_label=keeps_priority_label))
    request = pod.request
    if (request.batch_cpu_mcpu or request.batch_memory_bytes) and qos is not QosClass.BE:
        found.append(Refusal.BATCH_RESOURCES_NEED_BE)
    if _is_forbidden(qos, band):
        found.append(Refusal.FORBIDDEN_COMBINATION)
    if qos is not None and qos.has_own_cpus:
        if request.cpu_mcpu == 0:
            found.append(Refusal.CPU_REQUEST_REQUIRED)
        elif request.cpu_mcpu % _MCPU_PER_CPU:
            found.append(Refusal.CPU_REQUEST_NOT_INTEGER)
    return tuple(found)


def _changes(pod: Pod, before: Pod, *, keeps_priority_label: bool) -> list[Refusal]:
    found: list[Refusal] = []
    if labelled_qos(pod.labels) is not labelled_qos(before.labels):
        found.append(Refusal.QOS_IMMUTABLE)
    if labelled_band(pod.labels, pod.priority) is not labelled_band(before.labels, before.priority):
        found.append(Refusal.PRIORITY_CLASS_IMMUTABLE)
    if keeps_priority_label and pod.labels.get(PRIORITY_LABEL, "") != before.labels.get(PRIORITY_LABEL, ""):
        found.append(Refusal.PRIORITY_LABEL_IMMUTABLE)
    return found


def _is_forbidden(qos: QosClass | None, band: PriorityBand | None) -> bool:
    """Neither LSR nor BE goes without a band, and both only with their own."""
    return qos is not None and qos in _CHECKED and (band is None or band not in LEGAL_BANDS[qos])
