"""The owners of a reservation: terms that name an object, its controller, or its labels.

The terms are alternatives; inside a term every given field must match, and an empty field matches everything. No term at all means
no owner, one empty term means every claimant (koordinator-sh/koordinator:pkg/util/reservation/reservation.go).
"""

from collections.abc import Sequence

from msgspec import Struct

from colo_common.events.job import PlacementRequest
from colo_common.model.constraints import Toleration
from colo_common.model.reservation import ControllerTerm, ObjectTerm, OwnerTerm

__all__ = [
    "Claimant",
    "Controller",
    "claimant_of",
    "is_of_job",
    "is_owner",
    "job_of",
]


class Controller(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An owner reference of an object. `is_controller` None: unknown whether the owner controls it."""

    name: str = ""
    uid: str = ""
    kind: str = ""
    api_version: str = ""
    is_controller: bool | None = None


class Claimant(Struct, frozen=True, kw_only=True):
    """A claimant of a place, as owner terms see it. `also_named`: with the name in the job's file in place of its id.

    `reservation` names the only reservation it may use ("" any). `ignores_reservations`: it may use capacity held for others as if
    that were free.
    """

    name: str
    also_named: str = ""
    labels: dict[str, str] = {}
    controllers: tuple[Controller, ...] = ()
    request: dict[str, int] = {}
    reservation: str = ""
    tolerations: tuple[Toleration, ...] = ()
    ignores_reservations: bool = False


def claimant_of(placement_request: PlacementRequest) -> Claimant:
    """A waiting replica as a claimant: its own name, the job that controls it, the job's labels, and its requested amounts.

    Its job has two names: the id given at submission, and the name in its file, which is known before that.
    """
    names = (
        (placement_request.job, placement_request.job_name)
        if placement_request.job_name not in ("", placement_request.job)
        else (placement_request.job,)
    )
    return Claimant(
        name=placement_request.replica,
        also_named=names[-1] + placement_request.replica.removeprefix(placement_request.job) if len(names) > 1 else "",
        labels=dict(placement_request.labels),
        controllers=tuple(Controller(name=name, kind="Job", is_controller=True) for name in names),
        request={"cpu": placement_request.request.cpu_mcpu, "memory": placement_request.request.memory_bytes},
        reservation=placement_request.constraints.reservation,
        tolerations=placement_request.constraints.tolerations,
    )


def is_owner(claimant: Claimant, terms: Sequence[OwnerTerm]) -> bool:
    """Whether some term names the claimant."""
    return any(_holds(claimant, term) for term in terms)


def is_of_job(term: OwnerTerm, job: str) -> bool:
    """Whether the term can only name replicas of this job: by their controller, or by the replica's own name."""
    by_controller = term.controller is not None and term.controller.name == job
    return by_controller or (term.object is not None and term.object.name.startswith(f"{job}/"))


def job_of(term: OwnerTerm) -> str:
    """The job for which `is_of_job` is true, "" when there is none."""
    if term.controller is not None and term.controller.name:
        return term.controller.name
    return term.object.name.partition("/")[0] if term.object is not None and "/" in term.object.name else ""


def _holds(claimant: Claimant, term: OwnerTerm) -> bool:
    return (
        (term.object is None or _is_object(claimant, term.object))
        and (term.controller is None or _is_controlled(claimant, term.controller))
        and all(rule.holds_for(claimant.labels) for rule in term.labels)
    )


def _is_object(claimant: Claimant, term: ObjectTerm) -> bool:
    return (
        term.name in ("", claimant.name, claimant.also_named)
        and not (
            term.uid or term.namespace or term.api_version
        )  # a replica has none of these fields, so the term names no replica
    )


def _is_controlled(claimant: Claimant, term: ControllerTerm) -> bool:
    return not term.namespace and any(
        term.is_controller in (None, owner.is_controller)
        and term.uid in ("", owner.uid)
        and term.name in ("", owner.name)
        and term.kind in ("", owner.kind)
        and term.api_version in ("", owner.api_version)
        for owner in claimant.controllers
    )
