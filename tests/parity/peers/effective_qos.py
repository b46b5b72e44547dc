"""The class, band and priority that count for a pod: what its labels say, and what follows where they say nothing.

Both readings are used, and they differ. The labelled one decides admission, pools and CPU sets; the effective one decides what is
overcommitted and evicted (koordinator-sh/koordinator:apis/extension/{qos,priority}_utils.go).

For comparing with what others decide: a job of colo names its class and its band.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from colo_common.model.qos import (
    KUBERNETES_QOS,
    PriorityBand,
    QosClass,
    band_from_priority,
    default_band,
)
from tests.parity.peers.pod import PRIORITY_CLASS_LABEL, QOS_LABEL, KubernetesQos, Pod, kubernetes_qos

__all__ = ["Effective", "effective", "effective_of_pod", "labelled_band", "labelled_qos"]

_DEFAULT_PRIORITIES: Final = {
    PriorityBand.PROD: 9500,
    PriorityBand.MID: 7500,
    PriorityBand.BATCH: 5500,
    PriorityBand.FREE: 3500,
}
"""The number of a pod that names a band and no priority (koordinator-sh/koordinator:apis/extension/priority.go:38)."""

_BAND_OF_LABEL: Final = {f"koord-{band.value}": band for band in PriorityBand}


class Effective(Struct, frozen=True, kw_only=True):
    """Class, band and priority number that count; the labelled ones beside them, None where the labels say nothing."""

    labelled_qos: QosClass | None
    qos: QosClass | None
    labelled_band: PriorityBand | None
    band: PriorityBand | None
    priority: int


def labelled_qos(labels: Mapping[str, str]) -> QosClass | None:
    """The class that the label names; None without the label and for any other name."""
    name = labels.get(QOS_LABEL, "")
    return QosClass[name] if name in QosClass.__members__ else None


def labelled_band(labels: Mapping[str, str], priority: int | None) -> PriorityBand | None:
    """The band that the label names, else the one that the priority number lies in, else None.

    A label with an unknown name means no band, whatever the number.
    """
    name = labels.get(PRIORITY_CLASS_LABEL)
    if name is not None:
        return _BAND_OF_LABEL.get(name)
    return None if priority is None else band_from_priority(priority)


def effective(labels: Mapping[str, str], priority: int | None, kubernetes: KubernetesQos | None) -> Effective:
    """What counts for these labels, this priority number and this Kubernetes class.

    Class: labelled, else Guaranteed is LSR, Burstable LS, BestEffort BE. Band: labelled, else batch for BE and prod for all other
    classes; a priority number outside every band counts as none. Number: the given one unless it is missing or 0, else the
    default of the band, 0 without one.
    """
    own_qos, own_band = labelled_qos(labels), labelled_band(labels, priority)
    qos = own_qos
    if qos is None and kubernetes is not None:
        qos = KUBERNETES_QOS[kubernetes.value]
    band = own_band
    if band is None and qos is not None:
        band = default_band(qos)
    number = priority or (_DEFAULT_PRIORITIES[band] if band is not None else 0)
    return Effective(labelled_qos=own_qos, qos=qos, labelled_band=own_band, band=band, priority=number)


def effective_of_pod(pod: Pod | None) -> Effective:
    """What counts for a pod; nothing at all for no pod."""
    if pod is None:
        return effective({}, None, None)
    return effective(pod.labels, pod.priority, kubernetes_qos(pod))
