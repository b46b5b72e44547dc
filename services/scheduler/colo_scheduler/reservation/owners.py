"""For whom a reservation is held: terms that name an object, what controls it, or its labels.

The terms are alternatives; inside a term everything that is said must hold, and what is left empty holds for everyone. No term at
all means nobody, one empty term means everybody (koordinator-sh/koordinator:pkg/util/reservation/reservation.go).
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from colo_common.events.job import ReplicaWant
from colo_common.model.constraints import Toleration
from colo_common.model.invalid import InvalidInput

__all__ = [
    "Claimant",
    "ControllerTerm",
    "Controller",
    "LabelRule",
    "ObjectTerm",
    "OwnerTerm",
    "check_term",
    "claimant_of",
    "is_exact_match",
    "is_of_job",
    "is_owner",
]


class ObjectTerm(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One object by id, name, namespace or API version; "" says nothing."""

    uid: str = ""
    name: str = ""
    namespace: str = ""
    api_version: str = ""


class Controller(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What owns an object. `is_controller` None: it was not said whether the owner controls it."""

    name: str = ""
    uid: str = ""
    kind: str = ""
    api_version: str = ""
    is_controller: bool | None = None


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


class Claimant(Struct, frozen=True, kw_only=True):
    """Who asks for a place, as far as owners are told apart.

    `reservation` names the only reservation it may use ("" any). `exact` names resources that must be asked for in the very amount
    that is reserved. `ignores_reservations`: it may use what is held for others as if it were free.
    """

    name: str
    namespace: str = ""
    uid: str = ""
    api_version: str = ""
    labels: dict[str, str] = {}
    controllers: tuple[Controller, ...] = ()
    request: dict[str, int] = {}
    reservation: str = ""
    exact: tuple[str, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    ignores_reservations: bool = False


def claimant_of(want: ReplicaWant) -> Claimant:
    """A waiting replica as a claimant: its own name, the job that controls it, the job's labels, and what it asks for."""
    return Claimant(
        name=want.replica,
        labels=dict(want.labels),
        controllers=(Controller(name=want.job, kind="Job", is_controller=True),),
        request={"cpu": want.request.cpu_mcpu, "memory": want.request.memory_bytes},
        reservation=want.constraints.reservation,
        tolerations=want.constraints.tolerations,
    )


def is_owner(claimant: Claimant, terms: Sequence[OwnerTerm]) -> bool:
    """Whether some term names the claimant."""
    return any(_holds(claimant, term) for term in terms)


def is_of_job(term: OwnerTerm, job: str) -> bool:
    """Whether the term can only name replicas of this job: by what controls them, or by the replica's own name."""
    by_controller = term.controller is not None and term.controller.name == job
    return by_controller or (term.object is not None and term.object.name.startswith(f"{job}/"))


def _holds(claimant: Claimant, term: OwnerTerm) -> bool:
    return (
        (term.object is None or _is_object(claimant, term.object))
        and (term.controller is None or _is_controlled(claimant, term.controller))
        and all(rule.holds_for(claimant.labels) for rule in term.labels)
    )


def _is_object(claimant: Claimant, term: ObjectTerm) -> bool:
    return (
        term.uid in ("", claimant.uid)
        and term.name in ("", claimant.name)
        and term.namespace in ("", claimant.namespace)
        and term.api_version in ("", claimant.api_version)
    )


def _is_controlled(claimant: Claimant, term: ControllerTerm) -> bool:
    if term.namespace not in ("", claimant.namespace):
        return False
    return any(
        term.is_controller in (None, owner.is_controller)
        and term.uid in ("", owner.uid)
        and term.name in ("", owner.name)
        and term.kind in ("", owner.kind)
        and term.api_version in ("", owner.api_version)
        for owner in claimant.controllers
    )


def is_exact_match(
    request: Mapping[str, int], reserved: Mapping[str, int], names: Sequence[str], *, stops_at_absent: bool = False
) -> bool:
    """Whether the named resources are asked for in the very amount that is reserved; no names: yes.

    A name that only one side has is no match; one that neither has says nothing. `stops_at_absent` ends the comparison with yes at
    such a name, as koordinator-sh/koordinator:apis/extension/reservation.go does, where later names then go unchecked.
    """
    for name in names:
        if name not in request and name not in reserved:
            if stops_at_absent:
                return True
            continue
        if name not in request or name not in reserved or request[name] != reserved[name]:
            return False
    return True


def check_term(term: OwnerTerm, field: str) -> None:
    """Raise InvalidInput for a term whose label rules contradict themselves."""
    for index, rule in enumerate(term.labels):
        where = f"{field}.labels[{index}]"
        if not rule.key:
            raise InvalidInput(f"{where}.key", "must not be empty", rule.key)
        if rule.operator in ("In", "NotIn") and not rule.values:
            raise InvalidInput(f"{where}.values", f"{rule.operator} needs at least one value", rule.values)
        if rule.operator in ("Exists", "DoesNotExist") and rule.values:
            raise InvalidInput(f"{where}.values", f"{rule.operator} takes no values", rule.values)
