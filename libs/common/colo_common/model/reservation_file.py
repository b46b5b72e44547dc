"""Reads a reservation file (reservation.yaml, or the same as JSON) into a ReservationSpec.

name: night
cpu: "4"
memory: 8Gi
owners:                   # alternatives, at least one; [{anyone: true}]: everybody
  - job: render           # the name in the job's file, or the id it got
  - replica: render/frames/0
  - labels: {team: films}
allocate_once: true       # the first owner ends it; false: the place is used again and again
policy: default           # default, aligned: owners may go beyond it; restricted: they may not
pre_allocates: false      # true: over an owner that runs already where no free place is left (restricted, used again and again)
pre_allocates_several: false  # true: over as many of them as it needs
restricted: [cpu]         # only with policy restricted: of which of cpu and memory (both when absent)
ttl: 24h                  # from its creation; 0: for ever
expires: "2026-11-22T08:00:00Z"
order: 0                  # a smaller one is used first, 0 means no order
qos: BE
band: batch
priority: 0
place:                    # as in a job's task: CPUs of one's own, alignment, devices, node labels
  node_labels: {disk: ssd}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from colo_common.model.duration import parse_duration_ms
from colo_common.model.invalid import InvalidInput
from colo_common.model.job_place import constraints_of
from colo_common.model.job_rules import check_name
from colo_common.model.moment import parse_moment_ms
from colo_common.model.plain_values import mapping_of, text_of
from colo_common.model.qos import QosClass, default_band, parse_band, parse_qos
from colo_common.model.quantity import parse_bytes, parse_mcpu
from colo_common.model.reservation import (
    DEFAULT_TTL_MS,
    OWNER_TERMS_MAX,
    TTL_MOST_MS,
    AllocatePolicy,
    ControllerTerm,
    LabelRule,
    ObjectTerm,
    OwnerTerm,
    ReservationSpec,
)
from colo_common.model.reservation_rules import check_reservation
from colo_common.model.workload import ResourceRequest

__all__ = ["reservation_from_mapping"]

_KEYS: Final = (
    "name", "cpu", "memory", "owners", "allocate_once", "policy", "restricted", "ttl", "expires", "order", "qos", "band",
    "priority", "place", "pre_allocates", "pre_allocates_several",
)  # fmt: skip
_OWNER_KEYS: Final = ("job", "replica", "labels", "anyone")
_WHO: Final = "for example [{job: render}]; [{anyone: true}] is for everybody"
_NUMBER_MOST: Final = 1 << 53


def reservation_from_mapping(mapping: object, now_ms: int = 0) -> ReservationSpec:
    """Return the reservation that a mapping (from YAML or JSON) describes.

    Raises InvalidInput with the path ("owners[0].replica") and the rule. `expires` must not lie before `now_ms`; with `now_ms` 0 it
    may be any time.
    """
    fields = mapping_of(mapping, "reservation", _KEYS, within="")
    for key, example in (("name", "night"), ("cpu", '"4"'), ("memory", "8Gi"), ("owners", "[{job: render}]")):
        if key not in fields:
            raise InvalidInput(key, f"is needed, for example {example}", None)
    qos = parse_qos(fields["qos"], "qos") if "qos" in fields else QosClass.BE
    has_moment = fields.get("expires") is not None
    expires_ms = _moment_ms(fields["expires"]) if has_moment else None
    ttl_ms = None if has_moment else DEFAULT_TTL_MS
    if fields.get("ttl") is not None:
        ttl_ms = parse_duration_ms(fields["ttl"], "ttl", max_ms=TTL_MOST_MS)
    spec = ReservationSpec(
        name=check_name(fields["name"], "name"),
        request=ResourceRequest(
            cpu_mcpu=parse_mcpu(fields["cpu"], "cpu"), memory_bytes=parse_bytes(fields["memory"], "memory")
        ),
        owners=_owners(fields.get("owners")),
        constraints=constraints_of(fields.get("place"), "place"),
        qos=qos,
        band=parse_band(fields["band"], "band") if "band" in fields else default_band(qos),
        priority=_whole(fields, "priority"),
        allocate_once=_flag(fields, "allocate_once", default=True),
        pre_allocates=_flag(fields, "pre_allocates", default=False),
        pre_allocates_several=_flag(fields, "pre_allocates_several", default=False),
        policy=_policy(fields.get("policy")),
        restricted=_restricted(fields.get("restricted")),
        ttl_ms=ttl_ms,
        expires_ms=expires_ms,
        order=_whole(fields, "order"),
    )
    check_reservation(spec, now_ms or expires_ms or 0)
    return spec


def _moment_ms(value: object) -> int:
    # YAML reads a timestamp without quotes as a datetime.
    text = getattr(value, "isoformat", None)
    return parse_moment_ms(text() if callable(text) else value, "expires")


def _owners(value: object) -> tuple[OwnerTerm, ...]:
    terms = () if value is None else _list(value, "owners", OWNER_TERMS_MAX)
    if not terms:
        raise InvalidInput("owners", f"must name who may use the place, {_WHO}", value)
    return tuple(_owner(item, f"owners[{at}]") for at, item in enumerate(terms))


def _owner(value: object, field: str) -> OwnerTerm:
    owner = mapping_of(value, field, _OWNER_KEYS)
    is_anyone = _flag(owner, "anyone", default=False, within=f"{field}.")
    if is_anyone and len(owner) > 1:
        raise InvalidInput(f"{field}.anyone", "must stand alone: it is everybody already", value)
    if not is_anyone and not any(owner.get(key) for key in ("job", "replica", "labels")):
        raise InvalidInput(field, f"must name a job, a replica or labels, {_WHO}", value)
    controller = named = None
    if "job" in owner:
        controller = ControllerTerm(name=check_name(owner["job"], f"{field}.job"), kind="Job")
    if "replica" in owner:
        named = ObjectTerm(name=_replica(owner["replica"], f"{field}.replica"))
    labels = mapping_of(owner.get("labels") or {}, f"{field}.labels")
    rules = tuple(LabelRule(key=key, values=(text_of(labels[key], f"{field}.labels.{key}"),)) for key in sorted(labels))
    return OwnerTerm(object=named, controller=controller, labels=rules)


def _replica(value: object, field: str) -> str:
    parts = value.split("/") if isinstance(value, str) else []
    if len(parts) != 3 or not (parts[2].isascii() and parts[2].isdigit() and len(parts[2]) <= 9):
        raise InvalidInput(field, 'must be "job/task/index"', value)
    check_name(parts[0], field)
    check_name(parts[1], field)
    return f"{parts[0]}/{parts[1]}/{int(parts[2])}"


def _policy(value: object) -> AllocatePolicy:
    known = [policy.value for policy in AllocatePolicy]
    if value is None:
        return AllocatePolicy.DEFAULT
    if not isinstance(value, str) or value.lower() not in known:
        raise InvalidInput("policy", f"must be one of {' '.join(known)}", value)
    return AllocatePolicy(value.lower())


def _restricted(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    return tuple(text_of(item, f"restricted[{at}]") for at, item in enumerate(_list(value, "restricted", 2)))


def _whole(fields: Mapping[str, Any], key: str) -> int:
    value = fields.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not -_NUMBER_MOST <= value <= _NUMBER_MOST:
        raise InvalidInput(key, "must be a whole number", value)
    return value


def _flag(fields: Mapping[str, Any], key: str, *, default: bool, within: str = "") -> bool:
    value = fields.get(key, default)
    if not isinstance(value, bool):
        raise InvalidInput(f"{within}{key}", "must be true or false", value)
    return value


def _list(value: object, field: str, most: int) -> Sequence[object]:
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise InvalidInput(field, "must be a list", value)
    if len(value) > most:
        raise InvalidInput(field, f"must be at most {most}", len(value))
    return value
