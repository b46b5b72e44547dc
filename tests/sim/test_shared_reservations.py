"""Two schedulers, one ledger and one store of reservations: whatever comes between whose calls, nothing is promised twice.

Each hears of the other only by messages, which take a while, and acts in the middle of the other's turns.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from msgspec import Struct

from colo_common.events.effects import Effect, Publish, RequestReceived
from colo_common.events.enforcement import ReplicaEnded
from colo_common.events.fact import Fact
from colo_common.events.job import PlacementsRequested
from colo_common.events.placement import PlacementsDecided, PlacementsReleased
from colo_common.events.requests import CreateReservation, DeleteReservation
from colo_common.events.reservation import ReservationChanged
from colo_common.model.partition import PartitionsHeld
from colo_common.model.placement import Placement
from colo_common.model.reasons import EndCause
from colo_common.model.reservation import AllocatePolicy
from colo_scheduler.commit.jobs_asked import AskPending
from colo_scheduler.core import SchedulerCore
from colo_scheduler.ledger.memory import MemoryLedger
from colo_scheduler.ledger.port import CommitLedger, LedgerAnswered, NodeRow, name_of
from colo_scheduler.policy import SchedulerPolicy
from colo_scheduler.reservations.remainder import remainder_of
from tests.support.builders import GIB, a_node
from tests.support.reserve_story import ReservingBench, a_claim, a_reservation
from tests.support.scheduler_story import an_allocatable, now, topology_of

pytestmark = pytest.mark.sim

MCPU, MEMORY = 4_000, 8 * GIB
NODES, NAMES = ("n1", "n2"), ("a", "b", "c")
LEASE_MS = 10**9
STEPS, QUIET_STEPS = 60, 40
SEEDS = (*range(1, 9), 87, 134, 141)


class Peer(ReservingBench):
    """One of them. Before and after each of its calls the other one may have a turn."""

    def __init__(self, world: Shared, name: str) -> None:
        super().__init__(world.rows, ledger=world.ledger, is_loaded=False)
        self.world, self.name = world, name
        self.inbox: list[Any] = []
        self.received_ms = 0
        self.is_busy = False
        self.core = SchedulerCore(SchedulerPolicy(tie_rotation=world.rng.randint(0, 1)), shards=2)
        self.load()

    def perform(self, effect: Effect) -> Struct | None:
        self.world.interleave(self)
        answer: Struct | None = None
        if isinstance(effect, CommitLedger):
            owner = effect.written_by(self.name)
            answer = LedgerAnswered(answers=now(self.ledger.commit(effect.reserves, effect.fences, owner)))
            self.world.judge()
        elif not isinstance(effect, AskPending):
            answer = super().perform(effect)
        self.world.interleave(self)
        return answer

    def turn(self, most: int) -> None:
        """Hear at most so many messages and do what is due."""
        if self.is_busy:
            return
        self.is_busy = True
        self.now_ms = max(self.now_ms, self.world.now_ms)
        events = [self.inbox.pop(0) for _ in range(min(most, len(self.inbox)))]
        effects = [effect for event in events for effect in self.tell(event)] + self.wake()
        self.world.now_ms = max(self.world.now_ms, self.now_ms)
        self.world.take(effects)
        self.is_busy = False


class Shared:
    """Both of them, those who want something, and the bus between all."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.now_ms = 1_000
        self.is_quiet = True
        self.rows: dict[str, tuple[int, bytes]] = {}
        self.ledger = MemoryLedger()
        self.placed: dict[str, Placement] = {}
        self.attempts: dict[str, int] = {}
        self._on_way: list[tuple[int, Peer, Fact]] = []
        self.peers = [Peer(self, "one"), Peer(self, "other")]
        for _ in range(2):
            fences = [now(self.ledger.leases.renew(peer.name, LEASE_MS, 2)) for peer in self.peers]
        for peer, held in zip(self.peers, fences, strict=True):
            peer.inbox += [PartitionsHeld(fences=held), *(a_node(node, topology_of(2)) for node in NODES)]
        self.let_pass(0)
        for peer in self.peers:
            peer.turn(100)
        self.is_quiet = False

    def interleave(self, peer: Peer) -> None:
        """Now and then the other one acts in the middle of this one's turn."""
        if not self.is_quiet and self.rng.random() < 0.3:
            self.peers[peer is self.peers[0]].turn(self.rng.randint(0, 3))

    def take(self, effects: list[Effect]) -> None:
        """What one of them says reaches each a while later, in order."""
        for fact in [effect.fact for effect in effects if isinstance(effect, Publish)]:
            if isinstance(fact, PlacementsDecided):
                self.placed |= {placement.replica: placement for placement in fact.placements}
            if isinstance(fact, (PlacementsReleased, ReservationChanged)):
                for peer in self.peers:
                    peer.received_ms = max(peer.received_ms, self.now_ms + self.rng.choice([0, 0, 5, 500, 5_000]))
                    self._on_way.append((peer.received_ms, peer, fact))

    def deliver(self) -> None:
        for _, peer, fact in [one for one in self._on_way if one[0] <= self.now_ms]:
            peer.inbox.append(fact)
        self._on_way = [one for one in self._on_way if one[0] > self.now_ms]

    def let_pass(self, span_ms: int) -> None:
        """Time goes on, and every node says how it is."""
        self.now_ms += span_ms
        zones = [(MCPU // 2, MEMORY // 2)] * 2
        for peer in self.peers:
            peer.inbox += [an_allocatable(node, zones, at_ms=self.now_ms) for node in NODES]

    def judge(self) -> None:
        """On no node more is held than it may promise: a reservation and its owners are one promise."""
        for row in now(self.ledger.rows(NODES)):
            assert sum(_promised(row).values()) <= MCPU, row

    def act(self) -> None:
        """Somebody wants something, or time passes."""
        rng, peer = self.rng, self.rng.choice(self.peers)
        match rng.choices(("reserve", "delete", "claim", "end", "wait"), (20, 7, 38, 20, 15))[0]:
            case "reserve":
                peer.inbox.append(RequestReceived(request="1", body=CreateReservation(spec=self._spec())))
            case "delete":
                peer.inbox.append(RequestReceived(request="1", body=DeleteReservation(name=rng.choice(NAMES))))
            case "claim":
                number = rng.randint(0, 9)
                replica = f"{'web' if number < 7 else 'batch'}/main/{number}"
                if replica not in self.placed:
                    attempt = self.attempts.setdefault(replica, 1)
                    mcpu, named = rng.choice([500, 1_500, 2_500]), rng.choice(["", *NAMES])
                    placement_request = a_claim(replica, mcpu=mcpu, attempt=attempt, reservation=named)
                    for each in self.peers:
                        each.inbox.append(PlacementsRequested(placement_requests=(placement_request,)))
            case "end" if self.placed:
                place = self.placed.pop(rng.choice(sorted(self.placed)))
                self.attempts[place.replica] = place.attempt + 1
                at = {"node": place.node, "replica": place.replica, "job": place.job, "attempt": place.attempt}
                peer.inbox.append(ReplicaEnded(**at, cause=EndCause.EXITED, exit_code=0))  # type: ignore[arg-type]
            case _:
                self.let_pass(rng.choice([10, 1_000, 3_000, 40_000]))

    def _spec(self) -> Any:
        rng, policy = self.rng, self.rng.choice(list(AllocatePolicy))
        over = rng.choice([0, 0, 1, 2]) if policy is AllocatePolicy.RESTRICTED else 0
        return a_reservation(
            rng.choice(NAMES),
            mcpu=rng.choice([1_000, 2_500, 4_000]),
            gib=2,
            allocate_once=rng.random() < 0.4 and not over,
            policy=policy,
            ttl_ms=rng.choice([0, 1_000, 60_000]),
            pre_allocates=over > 0,
            pre_allocates_several=over == 2,
        )


def _promised(row: NodeRow) -> Counter[int]:
    """CPU by zone: of a reservation only what those who came to it, or were inside it before, leave."""
    promised: Counter[int] = Counter()
    for one in row.holds:
        place, zones = one.placement, one.placement.zones
        if name := name_of(place.replica):
            others = [(each.attempt, each.placement) for each in row.holds if not name_of(each.placement.replica)]
            owners = [
                each
                for attempt, each in others
                if attempt in one.inside or (each.reservation == name and each.decided_at_ms >= place.decided_at_ms)
            ]
            zones = remainder_of(place, owners).zones
        promised.update({share.zone: share.cpu_mcpu for share in zones})
    return promised


@pytest.mark.parametrize("seed", SEEDS)
def test_reservations_that_two_schedulers_serve_are_promised_once_and_known_alike_in_the_end(seed: int) -> None:
    world = Shared(seed)
    for _ in range(STEPS):
        world.act()
        world.deliver()
        for peer in world.rng.sample(world.peers, world.rng.randint(0, 2)):
            peer.turn(world.rng.randint(0, 3))
    world.is_quiet = True
    for _ in range(QUIET_STEPS):
        world.let_pass(10_000)
        world.deliver()
        for peer in world.peers:
            peer.turn(1_000)
    held = {each.attempt for row in now(world.ledger.rows(NODES)) for each in row.holds}
    for peer in world.peers:
        peer.core.check()
        assert peer.core.commits.held.keys() == held
        alive = {each.spec.name: each for each in peer.core.reserve.book.rows() if not each.phase.is_ended}
        assert {name: each.attempt for name, each in alive.items()} == {
            each.spec.name: each.attempt for each in world.peers[0].core.reserve.book.rows() if not each.phase.is_ended
        }
        assert {name for name, each in alive.items() if each.place} == {name_of(replica) for replica, _ in held} - {""}
