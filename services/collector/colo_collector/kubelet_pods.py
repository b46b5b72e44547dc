"""What a node's kubelet says of its pods: names, classes and priorities, from its /pods answer."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct, field

from colo_collector.pods import Pod
from colo_common.model.invalid import InvalidInput
from colo_common.model.qos import (
    KUBERNETES_QOS,
    PriorityBand,
    QosClass,
    band_from_priority,
    is_legal_pair,
    parse_qos,
)

__all__ = ["ANSWER_MAX_BYTES", "read_pods"]

ANSWER_MAX_BYTES: Final = 64 << 20
_PODS_MAX: Final = 2_000
_TEXT_MAX: Final = 253
_QOS_LABELS: Final = ("colo.io/qos", "koordinator.sh/qosClass", "katalyst.kubewharf.io/qos_level")
_FILE_HASH: Final = "kubernetes.io/config.hash"


class _Meta(Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Spec(Struct):
    priority: int | None = None


class _Status(Struct):
    qos: str = field(name="qosClass", default="")


class _Pod(Struct):
    metadata: _Meta = field(default_factory=_Meta)
    spec: _Spec = field(default_factory=_Spec)
    status: _Status = field(default_factory=_Status)


class _PodList(Struct):
    items: list[msgspec.Raw] | None = None


_LIST: Final = msgspec.json.Decoder(_PodList)
_POD: Final = msgspec.json.Decoder(_Pod)


def read_pods(answer: bytes) -> tuple[dict[str, Pod], int]:
    """The pods by the uid that their group is named by, and how many of them were malformed and are left out.

    The class is that of the labels `colo.io/qos`, `koordinator.sh/qosClass` or Katalyst's, else Kubernetes' own. A pod from a
    file is known by the hash of the file, too. Raises InvalidInput for an answer that is no list of pods.
    """
    if len(answer) > ANSWER_MAX_BYTES:
        raise InvalidInput("pods", f"must be at most {ANSWER_MAX_BYTES} bytes", len(answer))
    try:
        items = _LIST.decode(answer).items or []
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidInput("pods", f"must be a kubelet's list of pods: {error}", answer[:80]) from error
    found: dict[str, Pod] = {}
    malformed = max(len(items) - _PODS_MAX, 0)
    for item in items[:_PODS_MAX]:
        try:
            read = _POD.decode(item)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            malformed += 1
            continue
        meta = read.metadata
        if not meta.uid or not meta.name:
            malformed += 1
            continue
        pod = _pod_of(read)
        found[meta.uid] = pod
        hashed = (meta.annotations or {}).get(_FILE_HASH, "")
        if hashed:
            found[hashed] = pod
    return found, malformed


def _pod_of(read: _Pod) -> Pod:
    labels = read.metadata.labels or {}
    qos = _class(labels, read.status.qos)
    band = None if read.spec.priority is None else band_from_priority(read.spec.priority)
    if qos is QosClass.BE and band is PriorityBand.BATCH:
        # Batch work of another system: what it uses is not colo's to promise again.
        band = PriorityBand.MID
    if qos is not None and band is not None and not is_legal_pair(qos, band):
        band = None
    return Pod(
        name=read.metadata.name[:_TEXT_MAX],
        namespace=read.metadata.namespace[:_TEXT_MAX],
        qos=qos,
        band=band,
    )


def _class(labels: dict[str, str], kubernetes: str) -> QosClass | None:
    for label in _QOS_LABELS:
        value: Any = labels.get(label)
        if value is not None:
            try:
                return parse_qos(value, label)
            except InvalidInput:
                continue
    return KUBERNETES_QOS.get(kubernetes)
