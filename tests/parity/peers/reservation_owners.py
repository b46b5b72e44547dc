"""Owners of a reservation as Kubernetes names objects, and requests that must be of the very size of a reservation.

(koordinator-sh/koordinator:pkg/util/reservation/reservation.go, apis/extension/reservation.go). A replica of colo has neither
namespace nor uid, and asks for no exact size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from colo_common.model.reservation import ObjectTerm, OwnerTerm


class PodIdentity(Struct, frozen=True, kw_only=True):
    """What tells a pod apart beside its name and its labels."""

    namespace: str = ""
    uid: str = ""
    api_version: str = ""


def terms_for(pod: PodIdentity, terms: Sequence[OwnerTerm]) -> list[OwnerTerm]:
    """The terms that do not name another namespace, uid or version than the pod's, less what they say of these."""
    return [_without_identity(term) for term in terms if _may_name(pod, term)]


def names_identity(terms: Sequence[OwnerTerm]) -> bool:
    """Whether a term says something that a replica of colo does not have."""
    return any(
        (term.object is not None and bool(term.object.uid or term.object.namespace or term.object.api_version))
        or (term.controller is not None and bool(term.controller.namespace))
        for term in terms
    )


def _may_name(pod: PodIdentity, term: OwnerTerm) -> bool:
    named, controller = term.object, term.controller
    return (
        named is None
        or (
            named.uid in ("", pod.uid)
            and named.namespace in ("", pod.namespace)
            and named.api_version in ("", pod.api_version)
        )
    ) and (controller is None or controller.namespace in ("", pod.namespace))


def _without_identity(term: OwnerTerm) -> OwnerTerm:
    named = None if term.object is None else ObjectTerm(name=term.object.name)
    controller = None if term.controller is None else replace(term.controller, namespace="")
    return replace(term, object=named, controller=controller)


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
