"""Fit, owners, choice and accounting of reservations where no table looks."""

from __future__ import annotations

import pytest

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.reservation import AllocatePolicy, LabelRule, OwnerTerm
from colo_common.model.reservation_rules import check_term
from colo_scheduler.reservations.fit import (
    NodeRoom,
    ReservationCapacity,
    fits_node,
    policies_conflict,
)
from colo_scheduler.reservations.held_cpus import cpus_left
from colo_scheduler.reservations.nominate import (
    first_by_order,
    node_scores,
    nominate,
    pre_allocation_score,
)
from colo_scheduler.reservations.owners import is_owner
from tests.support.reservation_story import a_claimant

ROOM = NodeRoom(allocatable={"cpu": 10_000, "pods": 10}, requested={"cpu": 8_000})


def an_offer(name: str = "a", cpu: int = 4_000, **more: object) -> ReservationCapacity:
    return ReservationCapacity(name=name, names=("cpu",), allocatable={"cpu": cpu}, allocate_once=False, **more)  # type: ignore[arg-type]


def test_a_node_that_promised_too_much_cpu_takes_no_memory_either() -> None:
    room = NodeRoom(allocatable={"cpu": 1_000, "memory": 100}, requested={"cpu": 2_000})
    assert fits_node({"memory": 10}, room, 0) == ("cpu",)
    assert fits_node({}, room, 0) == ()


def test_a_node_takes_replicas_up_to_its_count_and_matched_reservations_do_not_count() -> None:
    room = NodeRoom(allocatable={"cpu": 10, "pods": 3}, requested={}, replicas=3)
    assert fits_node({"cpu": 1}, room, 1) == ()
    assert fits_node({"cpu": 1}, room, 0) == ("pods",)


def test_what_is_short_is_told_in_one_order() -> None:
    names = [f"acme.com/{dead_letter}" for dead_letter in "hgfedcba"]
    room = NodeRoom(allocatable={}, requested={})
    assert fits_node({**dict.fromkeys(names, 1), "memory": 1, "cpu": 1}, room, 0) == ("cpu", "memory", *sorted(names))


def test_a_reservation_that_shares_no_resource_helps_only_who_must_use_it() -> None:
    context = ReservationCapacity(name="a", names=("cpu",), allocatable={"cpu": 4, "memory": 4})
    room = NodeRoom(allocatable={"cpu": 9, "memory": 4}, requested={"cpu": 4, "memory": 4})
    assert nominate({"memory": 4}, room, [context, context], has_affinity=True) == context
    assert nominate({"memory": 4}, room, [context, context], has_affinity=False) is None


def test_only_the_default_policy_cannot_stand_beside_another() -> None:
    default, aligned, restricted = AllocatePolicy
    assert policies_conflict(default, [aligned])
    assert policies_conflict(restricted, [default])
    assert not policies_conflict(restricted, [aligned])
    assert not policies_conflict(default, [default])


def test_the_smallest_order_wins_over_the_fullest() -> None:
    offers = [an_offer("full", 2_000), an_offer("late", order=5), an_offer("early", order=-3)]
    assert first_by_order(offers) == offers[2]
    assert nominate({"cpu": 2_000}, ROOM, offers, has_affinity=False) == offers[2]
    assert nominate({"cpu": 2_000}, ROOM, [*offers[:1], an_offer("b")], has_affinity=False) == offers[0]
    assert nominate({"cpu": 2_000}, ROOM, offers, has_affinity=False, kept="late") == offers[1]
    assert nominate({"cpu": 2_000}, ROOM, offers, has_affinity=False, only="full") == offers[0]


def test_a_used_up_reservation_is_not_nominated() -> None:
    used = ReservationCapacity(name="a", names=("cpu",), allocatable={"cpu": 4_000}, owners=1)
    assert nominate({"cpu": 1_000}, ROOM, [used, an_offer("b")], has_affinity=False) == an_offer("b")


def test_the_node_of_the_smallest_order_leads_and_the_rest_keep_their_distance() -> None:
    scores = node_scores({"n1": 80, "n2": 40, "n3": 0}, {"n2": 3, "n3": 0, "n4": 1})
    assert scores == {"n1": 80, "n2": 1000, "n3": 0}
    assert [pre_allocation_score(used) for used in (0, 1, 2)] == [100, 50, 33]


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        (LabelRule(key="a", values=("1", "2")), True),
        (LabelRule(key="a", values=("3",)), False),
        (LabelRule(key="b", values=("1",)), False),
        (LabelRule(key="a", operator="NotIn", values=("1",)), False),
        (LabelRule(key="b", operator="NotIn", values=("1",)), True),
        (LabelRule(key="a", operator="Exists"), True),
        (LabelRule(key="b", operator="Exists"), False),
        (LabelRule(key="a", operator="DoesNotExist"), False),
        (LabelRule(key="b", operator="DoesNotExist"), True),
    ],
)
def test_label_rules_hold_as_they_say(rule: LabelRule, matches: bool) -> None:
    assert is_owner(a_claimant(labels={"a": "1"}), [OwnerTerm(labels=(rule,))]) is matches


def test_nobody_owns_what_has_no_terms_and_everybody_what_has_an_empty_one() -> None:
    assert not is_owner(a_claimant(), [])
    assert is_owner(a_claimant(), [OwnerTerm()])


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        (LabelRule(key=""), "owners[2].labels[0].key"),
        (LabelRule(key="a"), "owners[2].labels[0].values"),
        (LabelRule(key="a", operator="Exists", values=("1",)), "owners[2].labels[0].values"),
    ],
)
def test_a_label_rule_that_contradicts_itself_is_refused(rule: LabelRule, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_term(OwnerTerm(labels=(rule,)), "owners[2]")
    assert caught.value.field == field


def test_what_owners_use_is_not_left_also_when_it_lies_elsewhere() -> None:
    assert cpus_left(CpuSet.parse("4-7"), [CpuSet.parse("5,9"), CpuSet.parse("7")]) == CpuSet.parse("4,6")
