"""What people ask for when they want a place held: for whom, how much, for how long, and how owners may use it."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Literal

from msgspec import Struct

from colo_common.model.constraints import UNCONSTRAINED, Constraints, Taint
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.workload import ResourceRequest

__all__ = [
    "DEFAULT_TTL_MS",
    "OWNER_TERMS_MAX",
    "TTL_MOST_MS",
    "AllocatePolicy",
    "ControllerTerm",
    "LabelRule",
    "ObjectTerm",
    "OwnerTerm",
    "ReservationSpec",
]

DEFAULT_TTL_MS: Final = 86_400_000
TTL_MOST_MS: Final = 10 * 365 * DEFAULT_TTL_MS
OWNER_TERMS_MAX: Final = 100


class AllocatePolicy(StrEnum):
    """Whether owners may go beyond the boundary of what is reserved.

    DEFAULT and ALIGNED: they may use the reservation and free resources of the node together. RESTRICTED: only the reservation.
    DEFAULT cannot stand beside another policy on one node.
    """

    DEFAULT = "default"
    ALIGNED = "aligned"
    RESTRICTED = "restricted"

    @property
    def is_bounded(self) -> bool:
        """Whether owners must stay inside what is reserved."""
        return self is AllocatePolicy.RESTRICTED


class ObjectTerm(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One object by id, name, namespace or API version; "" says nothing."""

    uid: str = ""
    name: str = ""
    namespace: str = ""
    api_version: str = ""


class ControllerTerm(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Any object with such an owner. `namespace` is the object's; "" and None say nothing."""

    name: str = ""
    uid: str = ""
    kind: str = ""
    api_version: str = ""
    namespace: str = ""
    is_controller: bool | None = None


class LabelRule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule about one label. `In` and `NotIn` need values; a label that is absent satisfies `NotIn` and `DoesNotExist`."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = "In"
    values: tuple[str, ...] = ()

    def holds_for(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels obey the rule."""
        match self.operator:
            case "In":
                return self.key in labels and labels[self.key] in self.values
            case "NotIn":
                return self.key not in labels or labels[self.key] not in self.values
            case "Exists":
                return self.key in labels
            case "DoesNotExist":
                return self.key not in labels


class OwnerTerm(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One kind of owner. `labels` must all hold; an empty tuple holds for everyone."""

    object: ObjectTerm | None = None
    controller: ControllerTerm | None = None
    labels: tuple[LabelRule, ...] = ()


class ReservationSpec(Struct, frozen=True, kw_only=True):
    """A place to hold: `request` and, in `constraints`, CPUs of one's own, alignment, huge pages, devices, labels and tolerations.

    owners: who may use it; none means nobody.
    allocate_once: the first owner ends it, what it does not need is free again. Otherwise the place is used again and again.
    policy, restricted: whether owners may go beyond what is held, and under RESTRICTED for which of "cpu" and "memory" they may
        not (empty: neither).
    ttl_ms: how long from its creation; None no limit of this kind, 0 for ever. expires_ms: a moment (Unix ms).
    order: a smaller one is used first, 0 says nothing.
    pre_allocates, pre_allocates_several: it may be placed over owners that already run; their places become part of it.
    is_unschedulable: it is held, but no owner gets it now. taints: only owners that tolerate them get it.
    """

    name: str
    request: ResourceRequest
    owners: tuple[OwnerTerm, ...] = ()
    constraints: Constraints = UNCONSTRAINED
    qos: QosClass = QosClass.BE
    band: PriorityBand = PriorityBand.BATCH
    priority: int = 0
    allocate_once: bool = True
    policy: AllocatePolicy = AllocatePolicy.DEFAULT
    restricted: tuple[str, ...] = ()
    ttl_ms: int | None = DEFAULT_TTL_MS
    expires_ms: int | None = None
    order: int = 0
    pre_allocates: bool = False
    pre_allocates_several: bool = False
    is_unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    labels: dict[str, str] = {}
