"""Whose a reservation is, and what may be asked to be reserved."""

from __future__ import annotations

import pytest

from colo_common.model.constraints import Constraints, Taint, Toleration
from colo_common.model.invalid import InvalidInput
from colo_common.model.job_rules import LIMITS
from colo_common.model.placement import ZoneShare
from colo_common.model.reasons import Reason
from colo_common.model.reservation import TTL_MOST_MS, AllocatePolicy, ControllerTerm, LabelRule, ObjectTerm, OwnerTerm
from colo_scheduler.reservations.book import ReservationBook
from colo_scheduler.reservations.owner_room import room_for_owner
from colo_scheduler.reservations.owners import claimant_of
from tests.support.reservation_story import GIB, a_book, a_claimant, a_place, a_spec, an_owner


def test_every_bound_of_a_reservation_is_inside() -> None:
    book = ReservationBook()
    book.create(a_spec("a", cpu_mcpu=1, ttl_ms=TTL_MOST_MS, priority=LIMITS.PRIORITY_MAX), 9)
    book.create(a_spec("b", cpu_mcpu=LIMITS.MCPU_MAX, priority=-LIMITS.PRIORITY_MAX, ttl_ms=None, expires_ms=9), 9)
    assert book.placement_requests() == ("a", "b")


def test_taints_and_a_stop_keep_owners_away_unless_they_tolerate_or_name_the_reservation() -> None:
    taint = Taint(key="kept")
    book = a_book(taints=(taint, Taint(key="soft", effect="PreferNoSchedule")), is_unschedulable=True)
    stop = Toleration(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
    assert book.matching(a_claimant(), 0) == ()
    assert book.matching(a_claimant(tolerations=(Toleration(key="kept"),)), 0) == ()
    for other in (
        Toleration(key="other"),
        Toleration(key="kept", value="x"),
        Toleration(key="kept", effect="NoExecute"),
    ):
        assert book.matching(a_claimant(tolerations=(other, stop)), 0) == ()
    assert len(book.matching(a_claimant(tolerations=(Toleration(key="kept"), stop)), 0)) == 1
    assert len(book.matching(a_claimant(reservation="r1"), 0)) == 1
    assert book.matching(a_claimant(reservation="r2"), 0) == ()


def test_one_who_ignores_reservations_sees_all_of_them_and_becomes_no_owner() -> None:
    book = a_book()
    stranger = a_claimant(job="other", ignores_reservations=True)
    assert len(book.matching(stranger, 0)) == 1
    with pytest.raises(InvalidInput, match="must be held for this owner"):
        book.use(stranger, an_owner(), 1)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": "Not A Name"}, "name"),
        ({"cpu_mcpu": 0}, "cpu"),
        ({"memory_gib": -1}, "memory"),
        ({"cpu_mcpu": 1 << 40}, "cpu"),
        ({"ttl_ms": -1}, "ttl"),
        ({"expires_ms": 10}, "expires"),
        ({"ttl_ms": 0, "expires_ms": 2_000}, "expires"),
        ({"restricted": ("cpu",)}, "restricted"),
        ({"policy": AllocatePolicy.RESTRICTED, "restricted": ("gpu",)}, "restricted"),
        ({"pre_allocates": True}, "pre_allocates"),
        ({"pre_allocates_several": True}, "pre_allocates_several"),
        ({"policy": AllocatePolicy.RESTRICTED, "pre_allocates": True, "allocate_once": True}, "pre_allocates"),
        ({"owners": (OwnerTerm(),) * 101}, "owners"),
        ({"priority": 1 << 40}, "priority"),
        ({"constraints": Constraints(reservation="r9")}, "place.reservation"),
    ],
)
def test_a_contradictory_reservation_is_refused_by_field_and_nothing_is_kept(
    fields: dict[str, object], field: str
) -> None:
    book = ReservationBook()
    with pytest.raises(InvalidInput) as caught:
        book.create(a_spec(**fields), 1_000)  # type: ignore[arg-type]
    assert caught.value.field == field
    assert book.rows() == ()
    assert book.deadline_ms() is None


def test_the_claimant_of_a_want_carries_its_job_its_labels_and_the_reservation_it_names() -> None:
    placement_request = a_book(
        bound=False, constraints=Constraints(tolerations=(Toleration(key="a"),)), labels={"k": "v"}
    ).placement_request("r1")
    claimant = claimant_of(placement_request)
    assert claimant.labels == {"k": "v"}
    assert claimant.controllers[0].name == placement_request.job
    assert claimant.request == {"cpu": 4_000, "memory": 8 * GIB}
    assert claimant.tolerations == (Toleration(key="a"),)


def test_who_names_a_reservation_is_told_why_it_cannot_use_it() -> None:
    book = a_book(policy=AllocatePolicy.RESTRICTED, ttl_ms=5_000)
    book.create(a_spec("waiting"), 0)

    def why_not(name: str, job: str = "web", cpu: int = 4_000, now_ms: int = 0) -> Reason | None:
        return book.why_not(a_claimant(job=job, reservation=name, request={"cpu": cpu}), now_ms)

    assert why_not("r1") is None
    assert why_not("r1", cpu=4_001) is Reason.RESERVATION_SHORT
    assert why_not("r1", job="other") is Reason.RESERVATION_NOT_OWNED
    assert why_not("waiting") is Reason.RESERVATION_UNKNOWN
    assert why_not("nobody-made-it") is Reason.RESERVATION_UNKNOWN
    assert why_not("r1", now_ms=5_001) is Reason.RESERVATION_UNKNOWN


def test_a_claimant_finds_its_own_among_many_by_job_by_name_and_by_labels() -> None:
    book = ReservationBook()
    terms = {
        "by-job": OwnerTerm(controller=ControllerTerm(name="web")),
        "by-kind": OwnerTerm(controller=ControllerTerm(kind="Job")),
        "by-name": OwnerTerm(object=ObjectTerm(name="web/task/0")),
        "by-label": OwnerTerm(labels=(LabelRule(key="tier", values=("front",)),)),
        "other-job": OwnerTerm(controller=ControllerTerm(name="other")),
        "other-name": OwnerTerm(object=ObjectTerm(name="web/task/1")),
    }
    for index, (name, term) in enumerate(terms.items()):
        book.create(a_spec(name, owners=(term,)), 0)
        book.bind(a_place(name, f"n{index}", attempt=index + 1), 0)
    found = [match.name for match in book.matching(a_claimant(labels={"tier": "front"}), 0)]
    assert found == ["by-job", "by-kind", "by-name", "by-label"]


def test_an_owner_may_take_what_is_left_and_what_is_free_or_only_what_is_left() -> None:
    book = a_book(policy=AllocatePolicy.RESTRICTED, restricted=("memory",))
    left = book.remainder("r1")
    assert left is not None
    free = [ZoneShare(zone=0, cpu_mcpu=-500, memory_bytes=GIB), ZoneShare(zone=1, cpu_mcpu=2_000, memory_bytes=GIB)]
    assert room_for_owner(left.zones, free, bounded=("memory",)) == (
        ZoneShare(zone=0, cpu_mcpu=3_500, memory_bytes=8 * GIB),
        ZoneShare(zone=1, cpu_mcpu=2_000, memory_bytes=0),
    )
    assert room_for_owner(left.zones, free)[1] == ZoneShare(zone=1, cpu_mcpu=2_000, memory_bytes=GIB)
