"""Koordinator's reservations: reasons in words, sums, the poller, and the CPUs of owners. What is nominated was always admitted."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from colo_common.model.cpu_topology import CpuRow, CpuTopology
from colo_common.model.cpuset import CpuSet
from colo_common.model.reservation import AllocatePolicy, ControllerTerm, ObjectTerm, OwnerTerm
from colo_scheduler.cpus.accumulate import Wish
from colo_scheduler.cpus.binding import NOT_ENOUGH, BindPolicy, NoCpus, NumaStrategy
from colo_scheduler.cpus.exclusive import HeldCpus
from colo_scheduler.reservations.expiry import is_over
from colo_scheduler.reservations.fit import NodeRoom, ReservationCapacity
from colo_scheduler.reservations.nominate import nominate, score
from tests.parity.peers.reservation_accounting import Account, Use, books_of
from tests.parity.peers.reservation_filter import (
    NOTHING_MATCHES,
    NOTHING_MEETS,
    Ignored,
    Preemptible,
    Refused,
    nominate_preempting,
    normalize,
    order_of,
    refusal_of,
)
from tests.parity.peers.reservation_owners import PodIdentity, is_exact_match, names_identity, terms_for
from tests.parity.peers.reservation_sync import next_sync_ms
from tests.parity.peers.reserved_cpus import choose_reserved_cpus

ROOM = NodeRoom(allocatable={"cpu": 10_000, "pods": 10}, requested={"cpu": 8_000})
POLICIES = st.sampled_from(AllocatePolicy)
AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "gpu"]), st.integers(0, 9), max_size=3)
OFFERS = st.lists(
    st.builds(
        ReservationCapacity,
        name=st.sampled_from(["a", "b", "c"]),
        policy=POLICIES,
        names=st.just(("cpu", "memory")),
        allocatable=st.fixed_dictionaries({"cpu": st.integers(0, 8), "memory": st.integers(0, 8)}),
        allocated=st.fixed_dictionaries({"cpu": st.integers(0, 8), "memory": st.integers(0, 8)}),
        owners=st.integers(0, 2),
        allocate_once=st.booleans(),
        order=st.integers(-2, 2),
    ),
    max_size=3,
    unique_by=lambda context: context.name,
)
ROOMS = st.builds(
    NodeRoom,
    allocatable=st.fixed_dictionaries({"cpu": st.integers(0, 20), "memory": st.integers(0, 20)}),
    requested=st.fixed_dictionaries({"cpu": st.integers(0, 20), "memory": st.integers(0, 20)}),
)


def an_offer(name: str = "a", cpu: int = 4_000, **more: object) -> ReservationCapacity:
    return ReservationCapacity(name=name, names=("cpu",), allocatable={"cpu": cpu}, allocate_once=False, **more)  # type: ignore[arg-type]


def test_a_request_that_must_use_a_reservation_is_told_when_there_is_none() -> None:
    assert refusal_of({"cpu": 1}, ROOM, [], has_affinity=True) == Refused(reasons=(NOTHING_MATCHES,))
    assert refusal_of({"cpu": 1}, ROOM, [an_offer()], has_affinity=True, only="b") == Refused(reasons=(NOTHING_MEETS,))


def test_without_affinity_the_node_alone_may_do() -> None:
    small = an_offer(cpu=1_000, policy=AllocatePolicy.RESTRICTED)
    assert refusal_of({"cpu": 2_000}, ROOM, [small], has_affinity=False) is None
    assert refusal_of({"cpu": 2_000}, ROOM, [small], has_affinity=True) is not None


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


def test_a_reservation_that_shares_no_resource_helps_only_who_must_use_it() -> None:
    context = ReservationCapacity(name="a", names=("cpu",), allocatable={"cpu": 4, "memory": 4})
    room = NodeRoom(allocatable={"cpu": 9, "memory": 4}, requested={"cpu": 4, "memory": 4})
    assert refusal_of({"memory": 4}, room, [context], has_affinity=True) is None
    assert refusal_of({"memory": 4}, room, [context], has_affinity=False) == Refused(
        reasons=("Insufficient memory by node",)
    )


def test_what_would_leave_counts_as_free_on_the_node_and_inside_its_reservation() -> None:
    full = an_offer(policy=AllocatePolicy.RESTRICTED, allocated={"cpu": 4_000}, owners=2)
    preemptible = Preemptible(inside={"a": {"cpu": 1_000}})
    assert refusal_of({"cpu": 1_000}, ROOM, [full], has_affinity=True) is not None
    assert refusal_of({"cpu": 1_000}, ROOM, [full], has_affinity=True, preemptible=preemptible) is None
    assert nominate({"cpu": 1_000}, ROOM, [full, full], has_affinity=True) is None
    assert nominate_preempting({"cpu": 1_000}, ROOM, [full, full], preemptible, has_affinity=True) == full
    on_node = Preemptible(on_node={"cpu": 1_000})
    assert refusal_of({"cpu": 3_000}, ROOM, [], has_affinity=False) is not None
    assert refusal_of({"cpu": 3_000}, ROOM, [], has_affinity=False, preemptible=on_node) is None


def test_an_ignored_resource_is_neither_asked_for_nor_short() -> None:
    ignored = Ignored(names=frozenset({"gpu", "cpu"}), groups=frozenset({"acme.com"}))
    request, room = ignored.leave_out({"cpu": 9_000, "gpu": 1, "acme.com/nic": 1, "other.com/nic": 1}, ROOM)
    refused = refusal_of(request, room, [], has_affinity=False)
    assert refused == Refused(reasons=("Insufficient cpu by node", "Insufficient other.com/nic by node"))


def test_terms_hold_for_the_namespace_and_the_uid_that_they_name() -> None:
    terms = [
        OwnerTerm(object=ObjectTerm(name="a", namespace="n", uid="u")),
        OwnerTerm(controller=ControllerTerm(name="rs", namespace="m")),
    ]
    assert names_identity(terms)
    left = terms_for(PodIdentity(namespace="n", uid="u"), terms)
    assert left == [OwnerTerm(object=ObjectTerm(name="a"))]
    assert not names_identity(left)
    assert terms_for(PodIdentity(namespace="m"), terms) == [OwnerTerm(controller=ControllerTerm(name="rs"))]


@given(st.integers(0, 100_000), st.none() | st.integers(0, 50_000), st.none() | st.integers(0, 50_000))
def test_a_poller_wakes_in_time_and_never_spins(now_ms: int, ttl_ms: int | None, expires_ms: int | None) -> None:
    wait = next_sync_ms(now_ms, 0, ttl_ms, expires_ms)
    assert wait == 0 or 3_000 <= wait <= 15_000
    if wait == 0 and ttl_ms != 0 and (ttl_ms or expires_ms is not None):
        limit = expires_ms if expires_ms is not None else ttl_ms
        assert limit is not None
        assert now_ms >= limit
        assert is_over(now_ms + 1, 0, ttl_ms, expires_ms)


@given(
    st.lists(AMOUNTS, max_size=3),
    st.lists(st.tuples(AMOUNTS, st.sampled_from(["", "0", "1", "2"])), max_size=5),
    st.sets(st.sampled_from(["0", "1", "2"])),
)
def test_a_node_has_promised_the_larger_of_reservation_and_owners_and_nothing_twice(
    reserved: list[dict[str, int]], uses: list[tuple[dict[str, int], str]], matched: set[str]
) -> None:
    accounts = [
        Account(name=str(index), reserved=amounts, names=tuple(amounts)) for index, amounts in enumerate(reserved)
    ]
    known = {account.name for account in accounts}
    assume(all(name == "" or name in known for _, name in uses))
    books = books_of(accounts, [Use(request=request, reservation=name) for request, name in uses], sorted(matched))
    for resource in ("cpu", "memory", "gpu"):
        expected = sum(request.get(resource, 0) for request, name in uses if not name)
        for account in accounts:
            taken = sum(request.get(resource, 0) for request, name in uses if name == account.name)
            here = account.reserved.get(resource)
            expected += taken if here is None else max(here, taken)
        assert books.promised.get(resource, 0) == expected
        assert books.requested.get(resource, 0) >= expected
        assert books.raw.get(resource, 0) >= books.requested.get(resource, 0)


@given(AMOUNTS, ROOMS, OFFERS, st.booleans())
def test_what_is_nominated_was_admitted_and_the_best_of_what_fits(
    request: dict[str, int], room: NodeRoom, offers: list[ReservationCapacity], has_affinity: bool
) -> None:
    chosen = nominate(request, room, offers, has_affinity=has_affinity)
    if chosen is None or (has_affinity and len(offers) == 1):
        return
    assert refusal_of(request, room, offers, has_affinity=has_affinity) is None
    assert not (chosen.allocate_once and chosen.owners)
    usable = [
        context
        for context in offers
        if not (context.allocate_once and context.owners)
        and refusal_of(request, room, [context], has_affinity=True) is None
        and (has_affinity or any(name in request for name in context.names))
    ]
    assert chosen in usable
    orders = [context.order for context in usable if context.order]
    if orders and len(usable) > 1:
        assert chosen.order == min(orders)
    elif not orders:
        assert score(request, chosen) == max(score(request, context) for context in usable)


@given(AMOUNTS, ROOMS, OFFERS, st.booleans())
def test_what_fits_a_smaller_request_never_fits_only_the_larger_one(
    request: dict[str, int], room: NodeRoom, offers: list[ReservationCapacity], has_affinity: bool
) -> None:
    larger = {name: amount + 1 for name, amount in request.items()}
    if refusal_of(larger, room, offers, has_affinity=has_affinity) is None:
        assert not isinstance(refusal_of(request, room, offers, has_affinity=has_affinity), Refused)


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 1_000)))
def test_normalising_keeps_the_order_and_ends_at_100(scores: dict[str, int]) -> None:
    stretched = normalize(scores)
    assert max(stretched.values(), default=0) in (0, 100)
    for one, value in scores.items():
        assert all(stretched[one] <= stretched[other] for other, more in scores.items() if value <= more)


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
