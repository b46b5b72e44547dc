"""Reservations through the core under random events, conflicts and restarts: ledger, book and cluster stay one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from colo_common.events.effects import Effect, Publish, RequestReceived
from colo_common.events.enforcement import ReplicaEnded
from colo_common.events.job import PlacementsRequested
from colo_common.events.placement import PlacementsDecided
from colo_common.events.requests import CreateReservation, DeleteReservation
from colo_common.model.placement import Placement
from colo_common.model.reasons import EndCause
from colo_common.model.reservation import AllocatePolicy
from colo_scheduler.ledger.port import Hold, NodeCommit, name_of
from colo_scheduler.reservations.lifecycle import ReservationPhase
from colo_scheduler.reservations.reservation import attempt_of
from tests.support.builders import GIB, a_node, a_placement
from tests.support.profiles import examples
from tests.support.reserve_story import ReservingBench, a_claim, a_reservation
from tests.support.scheduler_story import an_allocatable, now, topology_of

MCPU, MEMORY = 4_000, 8 * GIB
NODES = ("n1", "n2")
NAMES = ("a", "b", "c")
steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("reserve"),
            st.sampled_from(NAMES),
            st.sampled_from([1000, 2500, 4000, 9000]),
            st.booleans(),
            st.sampled_from(list(AllocatePolicy)),
            st.sampled_from([0, 1_000, 60_000]),
            st.sampled_from([0, 1, 2]),
        ),
        st.tuples(st.just("delete"), st.sampled_from(NAMES)),
        st.tuples(
            st.just("claim"), st.integers(0, 9), st.sampled_from([500, 1500, 4000]), st.sampled_from(["", *NAMES])
        ),
        st.tuples(st.just("end"), st.integers(0, 9)),
        st.tuples(st.just("rival"), st.sampled_from(NODES), st.integers(0, 99)),
        st.tuples(st.just("meddle"), st.sampled_from(NAMES)),
        st.tuples(st.just("restart")),
        st.tuples(st.just("wait"), st.integers(1, 70_000)),
    ),
    max_size=25,
)


class Life:
    """A scheduler with a store, beside rivals that write into its ledger now and then."""

    def __init__(self) -> None:
        self.bench = ReservingBench()
        self.attempts: dict[str, int] = {}
        self.held: dict[str, Placement] = {}
        self.tell()

    def tell(self) -> list[Effect]:
        effects: list[Effect] = []
        for name in NODES:
            effects += self.bench.say(a_node(name, topology_of(2)))
            zones = [(MCPU // 2, MEMORY // 2), (MCPU // 2, MEMORY // 2)]
            effects += self.bench.say(an_allocatable(name, zones, at_ms=self.bench.now_ms))
        return effects

    def step(self, step: tuple[object, ...]) -> list[Effect]:
        bench = self.bench
        match step:
            case ("reserve", str(name), int(mcpu), bool(once), AllocatePolicy() as policy, int(ttl_ms), int(over)):
                takes_over = over > 0 and policy is AllocatePolicy.RESTRICTED
                spec = a_reservation(
                    name,
                    mcpu=mcpu,
                    gib=2,
                    allocate_once=once and not takes_over,
                    policy=policy,
                    ttl_ms=ttl_ms,
                    pre_allocates=takes_over,
                    pre_allocates_several=takes_over and over == 2,
                )
                return bench.say(RequestReceived(request="1", body=CreateReservation(spec=spec)))
            case ("delete", str(name)):
                return bench.say(RequestReceived(request="1", body=DeleteReservation(name=name)))
            case ("claim", int(number), int(mcpu), str(reservation)):
                replica = f"{'web' if number < 7 else 'batch'}/main/{number}"
                if replica in self.held:
                    return []
                placement_request = a_claim(
                    replica, mcpu=mcpu, attempt=self.attempts.setdefault(replica, 1), reservation=reservation
                )
                return bench.say(PlacementsRequested(placement_requests=(placement_request,)))
            case ("end", int(number)):
                replica = f"{'web' if number < 7 else 'batch'}/main/{number}"
                placement = self.held.pop(replica, None)
                if placement is None:
                    return []
                self.attempts[replica] = placement.attempt + 1
                return bench.say(
                    ReplicaEnded(
                        node=placement.node,
                        replica=replica,
                        job=placement.job,
                        attempt=placement.attempt,
                        cause=EndCause.EXITED,
                        exit_code=0,
                    )
                )
            case ("rival", str(node), int(number)):
                self.rival(node, f"rival/main/{number}")
                return []
            case ("meddle", str(name)):
                # Another scheduler wrote the same row again.
                if name in bench.rows:
                    version, value = bench.rows[name]
                    bench.rows[name] = (version + 1, value)
                return []
            case ("restart",):
                return [*bench.restart(), *self.tell()]
            case ("wait", int(span)):
                bench.now_ms += span
                return bench.wake()
            case _:
                raise AssertionError(step)

    def rival(self, node: str, replica: str) -> None:
        (row,) = now(self.bench.ledger.rows([node]))
        whole = sum(each.placement.cpu_mcpu for each in row.holds)
        if whole + 100 > MCPU:
            return
        placement = a_placement(replica, node=node, mcpu=100, gib=1)
        held = Hold(placement=placement, generation=row.revision + 1)
        now(self.bench.ledger.commit([NodeCommit(node=node, expect=row.revision, holds=(held,))]))

    def note(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Publish) and isinstance(effect.fact, PlacementsDecided):
                for placement in effect.fact.placements:
                    assert not name_of(placement.replica)
                    self.held[placement.replica] = placement

    def check(self) -> None:
        core = self.bench.core
        book = core.reserve.book
        for row in now(self.bench.ledger.rows(NODES)):
            holds = {each.attempt: each.placement for each in row.holds}
            # A reservation and its owners are one promise: the larger of the two.
            inside = {each: name for name in NAMES if (row_ := book.find(name)) is not None for each in row_.over}
            owners = {
                name: sum(
                    each.cpu_mcpu
                    for attempt, each in holds.items()
                    if each.reservation == name or inside.get(attempt) == name
                )
                for name in NAMES
            }
            promised = 0
            for placement in holds.values():
                name = name_of(placement.replica)
                found = book.find(name) if name else None
                is_used_now = found is not None and found.place == placement
                promised += max(0, placement.cpu_mcpu - owners[name]) if is_used_now else placement.cpu_mcpu
                if name:
                    assert found is not None
                    assert attempt_of(found) == (placement.replica, placement.attempt)
                    assert found.phase is ReservationPhase.AVAILABLE
            assert promised <= MCPU, holds
        for name in NAMES:
            found, kept = book.find(name), self.bench.rows.get(name)
            assert (found is None) == (kept is None), name
            if found is not None and found.phase is ReservationPhase.AVAILABLE:
                assert found.place is not None
                (row,) = now(self.bench.ledger.rows([found.place.node]))
                assert attempt_of(found) in [each.attempt for each in row.holds]


@examples(0.4)
@given(steps)
def test_ledger_book_and_cluster_agree_whatever_happens(delivered: list[tuple[object, ...]]) -> None:
    life = Life()
    for step in delivered:
        life.note(life.step(step))
        life.bench.core.check()
        life.check()
    before = {row.spec.name: (row.phase, row.place) for row in life.bench.core.reserve.book.rows()}
    life.bench.restart()
    after = {row.spec.name: (row.phase, row.place) for row in life.bench.core.reserve.book.rows()}
    assert before == after
