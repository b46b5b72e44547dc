"""Reservations under any order of events: never promised twice, never lost, over at the very millisecond, all of it given back."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from hypothesis import assume, given
from hypothesis import strategies as st

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import DeviceShare, Placement
from colo_common.model.reservation import AllocatePolicy
from colo_scheduler.reservations.book import KEEP_ENDED_MS, ReservationBook
from colo_scheduler.reservations.expiry import last_ms
from colo_scheduler.reservations.lifecycle import ReservationPhase
from colo_scheduler.reservations.remainder import Remainder, remainder_of
from colo_scheduler.reservations.reservation import BookChange, HoldChanged
from tests.support.reservation_story import a_claimant, a_place, a_placement, a_spec, an_owner

NAMES = ("r1", "r2", "r3")
NODES = ("n1", "n2")
POLICIES = st.sampled_from(AllocatePolicy)
SHARES = st.dictionaries(
    st.integers(0, 2), st.tuples(st.integers(0, 4).map(lambda n: n * 500), st.integers(0, 3)), min_size=1
)
CPUS = st.sets(st.integers(0, 7)).map(lambda cpus: CpuSet.from_iterable(cpus).format())
GPUS = st.dictionaries(st.integers(0, 2), st.tuples(st.integers(0, 100), st.integers(0, 8)), max_size=3).map(
    lambda found: tuple(
        DeviceShare(kind="gpu", device=n, zone=0, core_pct=core, memory_bytes=memory)
        for n, (core, memory) in sorted(found.items())
    )
)


class Step(NamedTuple):
    """One thing that happens: `number` picks a replica, `at` moves the clock."""

    verb: str
    name: str
    node: str
    number: int
    at: int
    shares: dict[int, tuple[int, int]]
    policy: AllocatePolicy
    once: bool


STEPS = st.builds(
    Step,
    verb=st.sampled_from(["create", "bind", "use", "use", "leave", "wake", "delete", "node_gone", "workload_gone"]),
    name=st.sampled_from(NAMES),
    node=st.sampled_from(NODES),
    number=st.integers(0, 3),
    at=st.integers(0, 3_000),
    shares=SHARES,
    policy=POLICIES,
    once=st.booleans(),
)


def do(book: ReservationBook, step: Step, now_ms: int) -> tuple[BookChange, ...]:
    """Do one step. What the book refuses must leave it as it was."""
    before = (book.rows(), [book.remainder(name) for name in NAMES], [book.owners(name) for name in NAMES])
    replica = a_claimant(step.number)
    owner = an_owner(step.number, step.shares, of=step.name, node=step.node)
    try:
        match step.verb:
            case "create":
                spec = a_spec(step.name, policy=step.policy, allocate_once=step.once, ttl_ms=2_000)
                return book.create(spec, now_ms)
            case "bind":
                zones = {0: (2_500, 4), 1: (1_500, 4)} if step.once else None
                known = book.find(step.name)
                return book.bind(a_place(step.name, step.node, zones, attempt=known.attempt if known else 1), now_ms)
            case "use":
                return book.use(replica, owner, now_ms)
            case "leave":
                return book.leave((owner.replica, 1))
            case "delete":
                return book.delete(step.name)
            case "node_gone":
                return book.node_deleted(step.node, now_ms)
            case "workload_gone":
                return book.workload_deleted("web" if step.once else "other", now_ms)
            case _:
                return book.wake(now_ms)
    except InvalidInput:
        assert before == (book.rows(), [book.remainder(name) for name in NAMES], [book.owners(name) for name in NAMES])
        return ()


def held_of(left: Remainder | None) -> tuple[int, int]:
    return (0, 0) if left is None else (left.cpu_mcpu, left.memory_bytes)


def check_promises(book: ReservationBook) -> None:
    """Owners and remainder hold the larger of what is reserved and what owners have, by resource."""
    book.check()
    for name in NAMES:
        found = book.find(name)
        if found is None or found.phase is not ReservationPhase.AVAILABLE:
            assert book.remainder(name) is None
            continue
        owners = book.owners(name)
        assert not (owners and found.spec.allocate_once)
        for left, reserved, taken in zip(
            held_of(book.remainder(name)),
            (found.spec.request.cpu_mcpu, found.spec.request.memory_bytes),
            (sum(owner.cpu_mcpu for owner in owners), sum(owner.memory_bytes for owner in owners)),
            strict=True,
        ):
            assert left + taken == max(reserved, taken)


@given(st.lists(STEPS, max_size=40))
def test_reservation_and_owners_together_hold_the_larger_of_both_whatever_happens(steps: list[Step]) -> None:
    book, now_ms = ReservationBook(), 0
    holds: dict[str, Remainder | None] = dict.fromkeys(NAMES)
    for step in steps:
        now_ms += step.at
        for change in do(book, step, now_ms):
            if isinstance(change, HoldChanged):
                holds[change.name] = book.held(change)
        check_promises(book)
        assert holds == {name: book.remainder(name) for name in NAMES}, "a hold changed and nobody was told"


@given(st.lists(STEPS, max_size=30))
def test_equal_events_give_equal_answers(steps: list[Step]) -> None:
    def run() -> list[object]:
        book, now_ms, reported = ReservationBook(), 0, list[object]()
        for step in steps:
            now_ms += step.at
            reported += [do(book, step, now_ms), book.deadline_ms(), book.matching(a_claimant(), now_ms)]
        return [*reported, book.rows()]

    assert run() == run()


@given(st.lists(STEPS, max_size=30))
def test_everything_that_was_held_is_given_back_in_the_end(steps: list[Step]) -> None:
    book, now_ms = ReservationBook(), 0
    for step in steps:
        now_ms += step.at
        do(book, step, now_ms)
    for number in range(4):
        book.leave((f"web/task/{number}", 1))
    for name in NAMES:
        found = book.find(name)
        if found is not None and found.phase is ReservationPhase.AVAILABLE:
            assert found.place is not None
            assert book.remainder(name) == remainder_of(found.place, ())
    while (due := book.deadline_ms()) is not None:
        book.wake(due)
        assert (book.deadline_ms() or due + 1) > due
    assert book.rows() == ()
    assert [book.remainder(name) for name in NAMES] == [None] * 3
    book.check()


@given(st.lists(STEPS, max_size=30))
def test_a_restart_from_rows_and_ledger_is_the_same_book(steps: list[Step]) -> None:
    book, now_ms = ReservationBook(), 0
    for step in steps:
        now_ms += step.at
        do(book, step, now_ms)
    again = ReservationBook()
    again.load(book.rows(), [owner for name in NAMES for owner in book.owners(name)], now_ms)
    assert again.rows() == book.rows()
    assert again.deadline_ms() == book.deadline_ms()
    assert [again.remainder(name) for name in NAMES] == [book.remainder(name) for name in NAMES]
    again.check()


@given(
    st.none() | st.integers(0, 9_000),
    st.none() | st.integers(1_000, 9_000),
    st.booleans(),
    st.integers(0, 20_000),
)
def test_a_reservation_is_over_at_the_promised_millisecond_in_every_phase(
    ttl_ms: int | None, expires_ms: int | None, bound: bool, later_ms: int
) -> None:
    assume(not (ttl_ms == 0 and expires_ms is not None))
    book = ReservationBook()
    book.create(a_spec(ttl_ms=ttl_ms, expires_ms=expires_ms), 1_000)
    if bound:
        with contextlib.suppress(InvalidInput):
            book.bind(a_place(attempt=1_000), 1_000)
    last = last_ms(1_000, ttl_ms, expires_ms)
    if last is None:
        assert book.deadline_ms() is None
        assert book.wake(later_ms + KEEP_ENDED_MS) == ()
        return
    limits = [expires_ms, None if ttl_ms is None else 1_000 + ttl_ms]
    assert last == min(limit for limit in limits if limit is not None)
    assert book.deadline_ms() == last + 1
    found = book.find("r1")
    assert book.wake(last) == ()
    assert book.find("r1") == found
    book.wake(last + 1)
    ended = book.find("r1")
    assert ended is not None
    assert (ended.phase, ended.reason, ended.ended_ms) == (ReservationPhase.FAILED, "expired", last + 1)


@given(SHARES, st.lists(st.tuples(SHARES, CPUS, GPUS), max_size=4), CPUS, GPUS)
def test_what_is_left_never_exceeds_the_place_nor_lies_with_an_owner(
    zones: dict[int, tuple[int, int]],
    owners: list[tuple[dict[int, tuple[int, int]], str, tuple[DeviceShare, ...]]],
    cpus: str,
    gpus: tuple[DeviceShare, ...],
) -> None:
    place = a_place(zones=zones, cpus=cpus, devices=gpus)
    users: list[Placement] = [
        a_placement(f"web/task/{index}", "n1", shares, cpus=own, devices=devices)
        for index, (shares, own, devices) in enumerate(owners)
    ]
    left = remainder_of(place, users)
    for attribute, reserved in (("cpu_mcpu", place.cpu_mcpu), ("memory_bytes", place.memory_bytes)):
        taken = sum(getattr(user, attribute) for user in users)
        assert getattr(left, attribute) == max(0, reserved - taken)
    by_zone = {share.zone: share for share in place.zones}
    for share in left.zones:
        inside = [other for user in users for other in user.zones if other.zone == share.zone]
        most = by_zone[share.zone].cpu_mcpu - sum(other.cpu_mcpu for other in inside)
        assert 0 <= share.cpu_mcpu <= max(0, most)
    assert CpuSet.parse(left.cpus) <= CpuSet.parse(cpus)
    assert all(CpuSet.parse(left.cpus).is_disjoint(CpuSet.parse(user.cpus)) for user in users)
    for gpu in gpus:
        rest = next((share for share in left.devices if share.device == gpu.device), None)
        used = [share for user in users for share in user.devices if share.device == gpu.device]
        assert (rest.core_pct if rest else 0) == max(0, gpu.core_pct - sum(share.core_pct for share in used))
        assert (rest.memory_bytes if rest else 0) == max(0, gpu.memory_bytes - sum(s.memory_bytes for s in used))


AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "gpu"]), st.integers(0, 9), max_size=3)
