"""Fit, owners, choice and accounting of reservations where no table looks."""

from __future__ import annotations

import pytest

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.reservation import AllocatePolicy, LabelRule, OwnerTerm
from colo_common.model.reservation_rules import check_term
from colo_scheduler.cpus.accumulate import Wish
from colo_scheduler.cpus.binding import NOT_ENOUGH, BindPolicy, NoCpus, NumaStrategy
from colo_scheduler.cpus.exclusive import HeldCpus
from colo_scheduler.cpus.topology import CpuRow, CpuTopology
from colo_scheduler.reservations.accounting import Account, Use, books_of
from colo_scheduler.reservations.fit import (
    NOTHING_MATCHES,
    NOTHING_MEETS,
    NodeRoom,
    ReservationCapacity,
    ReservationRefused,
    fits_node,
    policies_conflict,
    refusal_of,
)
from colo_scheduler.reservations.held_cpus import choose_reserved_cpus, cpus_left
from colo_scheduler.reservations.nominate import (
    first_by_order,
    node_scores,
    nominate,
    normalize,
    order_of,
    pre_allocation_score,
)
from colo_scheduler.reservations.owners import is_exact_match, is_owner
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


def test_a_request_that_must_use_a_reservation_is_told_when_there_is_none() -> None:
    assert refusal_of({"cpu": 1}, ROOM, [], has_affinity=True) == ReservationRefused(reasons=(NOTHING_MATCHES,))
    assert refusal_of({"cpu": 1}, ROOM, [an_offer()], has_affinity=True, only="b") == ReservationRefused(
        reasons=(NOTHING_MEETS,)
    )


def test_without_affinity_the_node_alone_may_do() -> None:
    small = an_offer(cpu=1_000, policy=AllocatePolicy.RESTRICTED)
    assert refusal_of({"cpu": 2_000}, ROOM, [small], has_affinity=False) is None
    assert refusal_of({"cpu": 2_000}, ROOM, [small], has_affinity=True) is not None


def test_a_reservation_that_shares_no_resource_helps_only_who_must_use_it() -> None:
    context = ReservationCapacity(name="a", names=("cpu",), allocatable={"cpu": 4, "memory": 4})
    room = NodeRoom(allocatable={"cpu": 9, "memory": 4}, requested={"cpu": 4, "memory": 4})
    assert refusal_of({"memory": 4}, room, [context], has_affinity=True) is None
    assert refusal_of({"memory": 4}, room, [context], has_affinity=False) == ReservationRefused(
        reasons=("Insufficient memory by node",)
    )
    assert nominate({"memory": 4}, room, [context, context], has_affinity=False) is None


def test_only_the_default_policy_cannot_stand_beside_another() -> None:
    default, aligned, restricted = AllocatePolicy
    assert policies_conflict(default, [aligned])
    assert policies_conflict(restricted, [default])
    assert not policies_conflict(restricted, [aligned])
    assert not policies_conflict(default, [default])


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("7", 7),
        ("-7", -7),
        ("+7", 7),
        ("", 0),
        ("0", 0),
        (" 7", 0),
        ("1_0", 0),
        ("9" * 19, 0),
        (str(1 << 63), 0),
        (str((1 << 63) - 1), (1 << 63) - 1),
        (str(-(1 << 63)), -(1 << 63)),
        ("x", 0),
        ("٣", 0),
    ],
)
def test_an_order_is_a_whole_number_of_64_bits_or_none(text: str, order: int) -> None:
    assert order_of(text) == order


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
    assert normalize(scores) == {"n1": 8, "n2": 100, "n3": 0}
    assert normalize({"n1": 0}) == {"n1": 0}
    assert [pre_allocation_score(used) for used in (0, 1, 2)] == [100, 50, 33]


def test_an_owner_that_outgrows_its_reservation_does_not_make_the_node_look_freer() -> None:
    account = Account(name="r", reserved={"cpu": 4_000}, names=("cpu",))
    books = books_of([account], [Use(request={"cpu": 6_000}, reservation="r")], ())
    assert books.raw == {"cpu": 10_000}
    assert books.requested == {"cpu": 6_000}
    assert books.promised == {"cpu": 6_000}


def test_exact_match_looks_at_every_name_unless_told_to_stop() -> None:
    assert not is_exact_match({"cpu": 1}, {"cpu": 2}, ["memory", "cpu"])
    assert is_exact_match({"cpu": 1}, {"cpu": 2}, ["memory", "cpu"], stops_at_absent=True)
    assert not is_exact_match({"cpu": 1}, {}, ["cpu"])


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


FOUR_CORES = CpuTopology.from_rows(CpuRow(cpu, cpu // 2, 0, 0) for cpu in range(8))


def held(cpus: str) -> HeldCpus:
    return HeldCpus(cpus=CpuSet.parse(cpus))


def choose(need: int, policy: AllocatePolicy) -> CpuSet | str:
    found = choose_reserved_cpus(
        FOUR_CORES,
        Wish(bind=BindPolicy.SPREAD_BY_PCPUS, strategy=NumaStrategy.MOST_ALLOCATED),
        held_by_others=[held("0")],
        reserved=held("4-7"),
        owners=[held("5")],
        need=need,
        policy=policy,
    )
    return found.detail if isinstance(found, NoCpus) else found


def test_an_owner_takes_the_cpus_of_its_reservation_first() -> None:
    assert choose(2, AllocatePolicy.ALIGNED) == CpuSet.parse("4,6")
    assert choose(4, AllocatePolicy.DEFAULT) == CpuSet.parse("1,4,6-7")
    assert choose(7, AllocatePolicy.ALIGNED) == NOT_ENOUGH


def test_a_restricted_owner_stays_inside() -> None:
    assert choose(3, AllocatePolicy.RESTRICTED) == CpuSet.parse("4,6-7")
    assert choose(4, AllocatePolicy.RESTRICTED) == NOT_ENOUGH


def test_what_owners_use_is_not_left_also_when_it_lies_elsewhere() -> None:
    assert cpus_left(CpuSet.parse("4-7"), [CpuSet.parse("5,9"), CpuSet.parse("7")]) == CpuSet.parse("4,6")
