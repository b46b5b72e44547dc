"""QoS classes, priority bands, the names other systems use for them, and which pairs may occur together."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from colo_common.model.invalid import InvalidInput


class QosClass(StrEnum):
    """How the kernel treats a workload, from the node's own services down to best effort."""

    SYSTEM = "SYSTEM"
    """Daemons of the node itself."""
    LSE = "LSE"
    """Latency-sensitive, exclusive: LSR whose CPUs no batch work gets either, so that they are in nobody else's set."""
    LSR = "LSR"
    """Latency-sensitive, reserved: its CPUs may be shared with BE only."""
    LS = "LS"
    """Latency-sensitive: runs on the shared pool."""
    BE = "BE"
    """Best effort: runs on what the others leave idle."""

    @property
    def has_own_cpus(self) -> bool:
        """Return whether the scheduler picks whole CPUs for this class."""
        return self in (QosClass.LSE, QosClass.LSR)


ONLINE_CLASSES: Final = frozenset({QosClass.LSE, QosClass.LSR, QosClass.LS})
"""The latency-sensitive classes: work that the others must not hurt."""


class PriorityBand(StrEnum):
    """The order of importance between workloads; a higher band preempts a lower one."""

    PROD = "prod"
    MID = "mid"
    BATCH = "batch"
    FREE = "free"

    @property
    def rank(self) -> int:
        """Return 3 for prod down to 0 for free: a larger rank is more important."""
        return _BAND_RANKS[self]


_BAND_RANKS: Final = {PriorityBand.PROD: 3, PriorityBand.MID: 2, PriorityBand.BATCH: 1, PriorityBand.FREE: 0}

PRIORITY_RANGES: Final = {
    PriorityBand.PROD: range(9000, 10000),
    PriorityBand.MID: range(7000, 8000),
    PriorityBand.BATCH: range(5000, 6000),
    PriorityBand.FREE: range(3000, 4000),
}
"""Numbers of a pod's priority that belong to a band (koordinator-sh/koordinator:apis/extension/priority.go:38)."""

PEER_QOS_NAMES: Final = {
    # openFuyao: LSR with no BE on its CPUs. That is LSE, which differs from LSR in this and in nothing else.
    "HLS": QosClass.LSE,
    "dedicated_cores": QosClass.LSR,  # Katalyst; with exclusive NUMA nodes see qos_from_katalyst
    "shared_cores": QosClass.LS,
    "reclaimed_cores": QosClass.BE,
    "system_cores": QosClass.SYSTEM,
}

KUBERNETES_QOS: Final = {
    "Guaranteed": QosClass.LSR,
    "Burstable": QosClass.LS,
    "BestEffort": QosClass.BE,
}
"""The class of a pod without a label (koordinator-sh/koordinator:apis/extension/qos_utils.go:32)."""

LEGAL_BANDS: Final = {
    QosClass.SYSTEM: (PriorityBand.PROD,),
    QosClass.LSE: (PriorityBand.PROD,),
    QosClass.LSR: (PriorityBand.PROD,),
    QosClass.LS: (PriorityBand.PROD, PriorityBand.MID, PriorityBand.BATCH, PriorityBand.FREE),
    QosClass.BE: (PriorityBand.MID, PriorityBand.BATCH, PriorityBand.FREE),
}
"""Which bands a class may have.

LSR, LS and BE follow Koordinator's admission. It leaves LSE and SYSTEM unchecked, but gives exclusive CPUs to prod
work only, so an LSE workload of another band would silently lose its promise; here it is refused instead.
"""


def parse_qos(text: object, field: str) -> QosClass:
    """Return the class for a colo name or a name of another system ("HLS", Katalyst's levels). Names are case-sensitive."""
    if isinstance(text, str):
        if text in QosClass.__members__:
            return QosClass[text]
        if text in PEER_QOS_NAMES:
            return PEER_QOS_NAMES[text]
    known = " ".join([*QosClass.__members__, *PEER_QOS_NAMES])
    raise InvalidInput(field, f"must be one of {known}", text)


def parse_band(text: object, field: str) -> PriorityBand:
    """Return the band for "prod", "mid", "batch" or "free", also in Koordinator's form "koord-prod"."""
    if isinstance(text, str):
        for band in PriorityBand:
            if text in (band.value, f"koord-{band.value}"):
                return band
    raise InvalidInput(field, "must be one of prod mid batch free", text)


def qos_from_kubernetes(kubernetes_qos: object, field: str) -> QosClass:
    """Return the class of a pod that carries no label, from its Kubernetes QoS."""
    if isinstance(kubernetes_qos, str) and kubernetes_qos in KUBERNETES_QOS:
        return KUBERNETES_QOS[kubernetes_qos]
    raise InvalidInput(field, "must be one of Guaranteed Burstable BestEffort", kubernetes_qos)


def band_from_priority(priority: int) -> PriorityBand | None:
    """Return the band a priority number belongs to, or None for a number outside every band."""
    for band, numbers in PRIORITY_RANGES.items():
        if priority in numbers:
            return band
    return None


def default_band(qos: QosClass) -> PriorityBand:
    """Return the band of a workload that names none: batch for BE, prod for every other class."""
    return PriorityBand.BATCH if qos is QosClass.BE else PriorityBand.PROD


def is_legal_pair(qos: QosClass, band: PriorityBand) -> bool:
    """Return whether a workload may have this class and this band together."""
    return band in LEGAL_BANDS[qos]


def check_pair(qos: QosClass, band: PriorityBand, field: str) -> None:
    """Raise InvalidInput when the class may not have the band; the rule lists the bands it may have."""
    if not is_legal_pair(qos, band):
        allowed = LEGAL_BANDS[qos]
        bands = f"band{'' if len(allowed) == 1 else 's'} {' '.join(allowed)}"
        raise InvalidInput(field, f"QoS class {qos.value} may only have the priority {bands}", band.value)
