"""Reservations: owners, fit, choice, score, expiry, accounting, and the CPUs that owners get.

A resource that others look after, and a pod that preemption would remove, are no question that colo asks; such cases become the
same question in amounts. Reasons in words, the poller's sleep and Koordinator's sums are `reference only`.
"""

from __future__ import annotations

from typing import Any

from colo_common.model.cpu_topology import CpuRow, CpuTopology
from colo_common.model.cpuset import CpuSet
from colo_common.model.reservation import AllocatePolicy, ControllerTerm, LabelRule, ObjectTerm, OwnerTerm
from colo_scheduler.cpus.accumulate import Wish
from colo_scheduler.cpus.binding import BindPolicy, ExclusivePolicy, NoCpus, NumaStrategy
from colo_scheduler.cpus.exclusive import HeldCpus
from colo_scheduler.reservations.expiry import is_over
from colo_scheduler.reservations.fit import NodeRoom, ReservationCapacity, fits_node, fits_reservation, restricted_names
from colo_scheduler.reservations.nominate import node_scores, nominate, score
from colo_scheduler.reservations.owners import Claimant, Controller, is_owner
from tests.parity.peers.reservation_accounting import Account, Use, books_of
from tests.parity.peers.reservation_filter import (
    Ignored,
    Preemptible,
    nominate_preempting,
    normalize,
    offer_without,
    order_of,
    refusal_of,
    room_without,
)
from tests.parity.peers.reservation_owners import PodIdentity, is_exact_match, names_identity, terms_for
from tests.parity.peers.reservation_sync import next_sync_ms
from tests.parity.peers.reserved_cpus import choose_reserved_cpus
from tests.parity.table import JsonObject, Reference, reference_only, table_of_kinds

_POLICIES = {
    "": AllocatePolicy.DEFAULT,
    "Aligned": AllocatePolicy.ALIGNED,
    "Restricted": AllocatePolicy.RESTRICTED,
}
_ENDED = ("Failed", "Succeeded")
_S = 1000


def _context(row: JsonObject) -> ReservationCapacity:
    return ReservationCapacity(
        name=row["name"],
        policy=_POLICIES[row.get("policy") or ""],
        names=tuple(row.get("resource_names", row["allocatable"])),
        allocatable=dict(row["allocatable"]),
        allocated=dict(row.get("allocated") or {}),
        withheld=dict(row.get("reserved") or {}),
        owners=row.get("allocated_pods", 0),
        allocate_once=row.get("allocate_once", True),
        order=order_of(str(row.get("order") or "")),
    )


def _room(case: JsonObject) -> NodeRoom:
    return NodeRoom(
        allocatable=dict(case["node_allocatable"]),
        requested=dict(case.get("node_requested") or {}),
        consumed=dict(case.get("reservations_allocated_total") or {}),
        replicas=case.get("pods_on_node", 0),
    )


def _preemptible(case: JsonObject) -> Preemptible:
    inside = (case.get("preemptible_in_reservation") or {}).items()
    return Preemptible(on_node=dict(case.get("preemptible") or {}), inside={name: dict(part) for name, part in inside})


def _ignored(case: JsonObject) -> Ignored:
    return Ignored(
        names=frozenset(case.get("ignored_resources") or ()), groups=frozenset(case.get("ignored_groups") or ())
    )


def _filter(case: JsonObject) -> object:
    request, room = _ignored(case).leave_out(case["pod_requests"], _room(case))
    refused = refusal_of(
        request,
        room,
        [_context(row) for row in case["reservations"]],
        has_affinity=case["has_affinity"],
        only=case.get("requested_reservation_name") or "",
        skips_node=case.get("skip_fits_node", False),
        preemptible=_preemptible(case),
    )
    return Reference({"admit": refused is None, "reasons": refused.reasons if refused else []})


def _fits_node(case: JsonObject) -> object:
    left = _context(case["reservation"]).left if case.get("reservation") else {}
    request, room = _ignored(case).leave_out(case["pod_requests"], _room(case))
    room = room_without(room, _preemptible(case).on_node)
    return {"insufficient": fits_node(request, room, case.get("matched_reservations", 0), left=left)}


def _reusable_inside(case: JsonObject) -> dict[str, int]:
    """What would be free in the only reservation of a case, whether it stands under its name or not."""
    found: dict[str, Any] = case.get("preemptible_in_reservation") or case.get("preemptible") or {}
    name = case["reservation"]["name"]
    return dict(found.get(name, found))


def _fits_reservation(case: JsonObject) -> object:
    request, _ = _ignored(case).leave_out(case["pod_requests"], NodeRoom(allocatable={}, requested={}))
    short = fits_reservation(request, offer_without(_context(case["reservation"]), _reusable_inside(case)))
    return {"insufficient": bool(short)}


def _controller(row: JsonObject) -> dict[str, Any]:
    return {
        "name": row.get("name") or "",
        "uid": row.get("uid") or "",
        "kind": row.get("kind") or "",
        "api_version": row.get("api_version") or "",
        "is_controller": row.get("controller"),
    }


def _label_rules(selector: JsonObject | None) -> tuple[LabelRule, ...]:
    if not selector:
        return ()
    expressions = selector.get("match_expressions") or selector.get("matchExpressions") or ()
    labels = selector.get("match_labels") or selector.get("matchLabels")
    exact = labels if labels is not None or expressions else selector
    rules = [LabelRule(key=key, values=(value,)) for key, value in sorted((exact or {}).items())]
    rules += [
        LabelRule(key=rule["key"], operator=rule["operator"], values=tuple(rule.get("values") or ()))
        for rule in expressions
    ]
    return tuple(rules)


def _term(row: JsonObject) -> OwnerTerm:
    named, controller = row.get("object"), row.get("controller")
    return OwnerTerm(
        object=None
        if named is None
        else ObjectTerm(**{key: named.get(key) or "" for key in ("uid", "name", "namespace", "api_version")}),
        controller=None
        if controller is None
        else ControllerTerm(namespace=controller.get("namespace") or "", **_controller(controller)),
        labels=_label_rules(row.get("label_selector")),
    )


def _match_owners(case: JsonObject) -> object:
    pod = case["pod"]
    claimant = Claimant(
        name=pod["name"],
        labels=dict(pod.get("labels") or {}),
        controllers=tuple(Controller(**_controller(owner)) for owner in pod.get("owner_references") or ()),
    )
    identity = PodIdentity(**{key: pod.get(key) or "" for key in ("namespace", "uid", "api_version")})
    terms = [_term(row) for row in case.get("owners") or ()]
    answer = {"match": is_owner(claimant, terms_for(identity, terms))}
    return Reference(answer) if names_identity(terms) else answer


def _restricted_resources(case: JsonObject) -> object:
    return {"resource_names": restricted_names(case["resource_names"], case.get("options") or ())}


def _exact_match(case: JsonObject) -> object:
    names = case.get("resource_names") or ()
    return {"match": is_exact_match(case["pod_requests"], case["allocatable"], names, stops_at_absent=True)}


def _score(case: JsonObject) -> object:
    return {"score": score(case["pod_requests"], offer_without(_context(case["reservation"]), _reusable_inside(case)))}


def _nominate(case: JsonObject) -> object:
    kept = next((value for key, value in case.items() if "nominat" in key and value), "")
    only, has_affinity = case.get("requested_reservation_name") or "", case["has_affinity"]
    request, room, offers = case["pod_requests"], _room(case), [_context(row) for row in case["reservations"]]
    preemptible = _preemptible(case)
    if preemptible.on_node or preemptible.inside:
        chosen = nominate_preempting(
            request, room, offers, preemptible, has_affinity=has_affinity, kept=kept, only=only
        )
        return Reference({"reservation": chosen.name if chosen else None})
    chosen = nominate(request, room, offers, has_affinity=has_affinity, kept=kept, only=only)
    return {"reservation": chosen.name if chosen else None}


def _normalize(case: JsonObject) -> object:
    return {"scores": normalize(node_scores(case["node_scores"], case.get("orders") or {}))}


def _times(case: JsonObject) -> dict[str, int | None]:
    def ms(key: str) -> int | None:
        value = case.get(key)
        return None if value is None else round(value * _S)

    return {"ttl_ms": ms("ttl_seconds"), "expires_ms": ms("expires_at")}


def _expiry(case: JsonObject) -> object:
    if case["phase"] in _ENDED:
        return {"expired": False}
    if not case.get("node"):  # the recorded loop looks at reservations with a node only; the book ends them all
        return {"expired": False}
    is_node_deleted = case.get("node_exists") is False or bool(case.get("node_missing"))
    over = is_over(round(case["now"] * _S), round(case["created_at"] * _S), **_times(case))
    return {"expired": over or is_node_deleted}


def _next_sync(case: JsonObject) -> object:
    if case["phase"] in _ENDED:
        return {"next_sync_seconds": 0}
    left = next_sync_ms(round(case["now"] * _S), round(case["created_at"] * _S), **_times(case))
    return {"next_sync_seconds": left / _S}


def _accounting(case: JsonObject) -> object:
    accounts = [
        Account(name=row["name"], reserved=dict(row["allocatable"]), names=tuple(row["resource_names"]))
        for row in case["reservations"]
    ]
    uses = [Use(request=dict(pod["requests"]), reservation=pod.get("reservation") or "") for pod in case["pods"]]
    books = books_of(accounts, uses, case["matched"])
    return {
        "raw_requested": books.raw,
        "requested_after_unmatched": books.requested,
        "matched_allocated_total": books.matched_allocated,
        "allocated": books.allocated,
    }


def _cpu_topology(shape: JsonObject) -> CpuTopology:
    threads, cores, zones = shape["threads_per_core"], shape["cores_per_numa"], shape["numa_per_socket"]
    count = shape["sockets"] * zones * cores * threads
    rows = []
    for cpu in range(count):
        core = cpu // threads
        zone = core // cores
        rows.append(CpuRow(cpu, core, zone, zone // zones))
    return CpuTopology.from_rows(rows)


def _held(cpus: list[int]) -> HeldCpus:
    return HeldCpus(cpus=CpuSet.from_iterable(cpus))


def _cpu_reserve(case: JsonObject) -> object:
    found = choose_reserved_cpus(
        _cpu_topology(case["topology"]),
        Wish(
            bind=BindPolicy.FULL_PCPUS if case["bind_policy"] == "FullPCPUs" else BindPolicy.SPREAD_BY_PCPUS,
            exclusive=ExclusivePolicy(case.get("exclusive_policy") or "None"),
            strategy=NumaStrategy.MOST_ALLOCATED
            if case["numa_strategy"] == "MostAllocated"
            else NumaStrategy.LEAST_ALLOCATED,
        ),
        held_by_others=[_held(case.get("allocated_by_others") or [])],
        reserved=_held(case["reserved_cpus"]),
        owners=[_held(case.get("consumed_by_owners") or [])],
        need=case["num_cpus_needed"],
        policy=_POLICIES[case.get("policy") or ""],
        max_ref_count=case.get("max_ref_count") or 1,
    )
    return {"error": found.detail} if isinstance(found, NoCpus) else {"cpus": list(found)}


TABLE = table_of_kinds(
    "reservation",
    {
        "filter": _filter,
        "fits_node": _fits_node,
        "fits_reservation": _fits_reservation,
        "match_owners": _match_owners,
        "restricted_resources": _restricted_resources,
        "exact_match": reference_only(_exact_match),
        "score": _score,
        "nominate": _nominate,
        "normalize": reference_only(_normalize),
        "expiry": _expiry,
        "next_sync": reference_only(_next_sync),
        "accounting": reference_only(_accounting),
        "cpu_reserve": reference_only(_cpu_reserve),
    },
)
