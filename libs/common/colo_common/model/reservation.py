"""The specification of a reservation: its owners, its amount, its lifetime, and how owners may use it."""

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
    """Whether an owner may use more than the reservation holds.

    DEFAULT and ALIGNED: it may use the reservation and free resources of the node together. RESTRICTED: only the reservation.
    A node cannot have reservations with DEFAULT and with another policy at the same time.
    """

    DEFAULT = "default"
    ALIGNED = "aligned"
    RESTRICTED = "restricted"

    @property
    def is_bounded(self) -> bool:
        """Whether owners must stay inside what is reserved."""
        return self is AllocatePolicy.RESTRICTED


class ObjectTerm(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Matches one object by id, name, namespace and API version; "" matches every value."""

    uid: str = ""
    name: str = ""
    namespace: str = ""
    api_version: str = ""


class ControllerTerm(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Matches every object whose owner has these values. `namespace` is the object's; "" and None match every value."""

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
    """One kind of owner: an object that matches every given term. All `labels` rules must hold; () holds for every object."""

    object: ObjectTerm | None = None
    controller: ControllerTerm | None = None
    labels: tuple[LabelRule, ...] = ()


class ReservationSpec(Struct, frozen=True, kw_only=True):
    """A place to hold: `request`, and in `constraints` CPUs of its own, alignment, huge pages, devices, labels and tolerations.

    owners: the replicas that may use it; () means no replica.
    allocate_once: the first owner ends the reservation, and the rest of the place is free again. Otherwise owners use the place one
        after the other.
    policy, restricted: whether an owner may use more than the reservation holds, and under RESTRICTED for which of "cpu" and
        "memory" it may not (empty: neither).
    ttl_ms: lifetime from the creation; None: no such limit, 0: for ever. expires_ms: the end as Unix ms.
    order: a reservation with a smaller order is used first; 0 means no order.
    pre_allocates, pre_allocates_several: the reservation may be placed over one or several owners that already run; their places
        become part of it.
    is_unschedulable: the place is held, but no owner gets it now. taints: only owners that tolerate them get it.
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
