"""Another scheduler writes to a node between a decision and its commit, or a commit and its answer: no over-commit."""

from collections.abc import Sequence

import pytest

from colo_common.events.effects import Effect, Publish, Wake
from colo_common.events.enforcement import NodeRecovered, ReplicaEnded
from colo_common.events.job import PlacementsRequested, ReplicasWithdrawn
from colo_common.events.placement import ApplyPlacements, NodeRelease, PlacementsDecided, PlacementsReleased
from colo_common.model.partition import PartitionsHeld
from colo_common.model.reasons import EndCause, Reason
from colo_scheduler.commit.jobs_asked import StartedKnown
from colo_scheduler.core import SchedulerCore
from colo_scheduler.ledger.memory import MemoryLedger
from colo_scheduler.ledger.port import (
    CommitLedger,
    Hold,
    HoldRefused,
    HoldsReleased,
    LedgerAnswered,
    LedgerChanges,
    LedgerLoaded,
    LedgerRefused,
    LedgerRows,
    LoadLedgerRows,
    NodeAnswer,
    NodeCommit,
    NodeRow,
    ReleaseHolds,
)
from tests.support.builders import GIB, a_node, a_placement, a_topology
from tests.support.scheduler_story import a_placement_request, an_allocatable, now

CAPACITY_MCPU = 4_000


class Two:
    """A core and its ledger, to which a rival may write at any moment."""

    def __init__(self, shards: int = 0) -> None:
        self.ledger = MemoryLedger()
        self.core = SchedulerCore(shards=shards)
        self.core.handle(LedgerLoaded(), 0)
        self.core.handle(a_node("n1", a_topology(zones_per_socket=1)), 0)
        self.core.handle(an_allocatable("n1", [(CAPACITY_MCPU, 32 * GIB)]), 0)

    def decide(self, *placement_requests: tuple[str, int]) -> list[CommitLedger]:
        """What the core asks of the ledger for these replicas of so much CPU."""
        self.core.handle(
            PlacementsRequested(
                placement_requests=tuple(
                    a_placement_request(replica, mcpu=mcpu) for replica, mcpu in placement_requests
                )
            ),
            0,
        )
        return [effect for effect in self.core.handle(Wake(), 0) if isinstance(effect, CommitLedger)]

    def rival(self, replica: str, mcpu: int) -> None:
        """Somebody else takes this on the node, knowing what is held there."""
        (row,) = now(self.ledger.rows(["n1"]))
        generation = row.revision + 1
        taken = Hold(placement=a_placement(replica, mcpu=mcpu), generation=generation)
        (answer,) = now(self.ledger.commit([NodeCommit(node="n1", expect=row.revision, holds=(taken,))], owner="rival"))
        assert answer.accepted == ((replica, 1),)

    def commit(self, call: CommitLedger) -> LedgerAnswered:
        """The answer, which nobody has heard yet."""
        return LedgerAnswered(answers=now(self.ledger.commit(call.reserves, call.fences, call.written_by("own"))))

    def release(self, replica: str) -> HoldsReleased:
        """The answer to the end of a replica's first attempt, which nobody has heard yet."""
        return HoldsReleased(released=now(self.ledger.release([(replica, 1)])))

    def refresh(self) -> list[tuple[str, ...]]:
        """The rows that are read after a look at what changed."""
        changes = tuple(sorted(now(self.ledger.changes()).items()))
        return loaded(self.core.handle(LedgerChanges(changes=changes), 0))

    def tell(self, answer: LedgerAnswered | LedgerRefused) -> list[Effect]:
        """The core hears it, and the rows that it asks for."""
        effects = self.core.handle(answer, 0)
        for nodes in loaded(effects):
            effects += self.core.handle(LedgerRows(rows=now(self.ledger.rows(nodes))), 0)
        self.core.check()
        return effects

    def held_mcpu(self) -> int:
        """What the ledger says is held on the node."""
        (row,) = now(self.ledger.rows(["n1"]))
        return sum(each.placement.cpu_mcpu for each in row.holds)


def loaded(effects: Sequence[Effect]) -> list[tuple[str, ...]]:
    """The rows that are asked for."""
    return [effect.nodes for effect in effects if isinstance(effect, LoadLedgerRows)]


def refused(replica: str, reason: Reason) -> HoldRefused:
    return HoldRefused(replica=replica, attempt=1, reason=reason)


@pytest.mark.parametrize("is_apart", [False, True], ids=["in one call", "in two calls"])
def test_what_counts_on_an_earlier_decision_does_not_pass_because_a_rival_wrote_as_often(is_apart: bool) -> None:
    two = Two()
    # Different requests: two turns, and the second counts on the first. They need not go in one call.
    (call,) = two.decide(("j/t/0", 1_000), ("k/t/0", 3_000))
    assert [reserve.is_chained for reserve in call.reserves] == [False, True]
    two.rival("r/t/0", 2_000)
    calls = [CommitLedger(reserves=(reserve,)) for reserve in call.reserves] if is_apart else [call]
    for answer in [two.commit(each) for each in calls]:
        two.tell(answer)
    assert two.held_mcpu() == 2_000
    # Decided again on what is there now: the larger one does not fit any more.
    for again in [effect for effect in two.core.handle(Wake(), 1) if isinstance(effect, CommitLedger)]:
        two.tell(two.commit(again))
    assert two.held_mcpu() == 3_000 <= CAPACITY_MCPU


def test_what_counts_on_an_earlier_decision_does_not_pass_because_an_own_call_came_late() -> None:
    """It was given up: its bytes were somewhere on the way, and the row that was read then said nothing of it."""
    two = Two()
    (late,) = two.decide(("g/t/0", 3_000))
    two.tell(LedgerRefused(effect=late, is_late=True))
    (call,) = two.decide(("j/t/0", 1_000), ("k/t/0", 3_000))
    assert [reserve.is_chained for reserve in call.reserves] == [False, True]
    assert [each.accepted for each in two.commit(late).answers] == [(("g/t/0", 1),)]
    two.tell(two.commit(call))
    assert two.held_mcpu() == 3_000
    (again,) = [effect for effect in two.core.handle(Wake(), 1) if isinstance(effect, CommitLedger)]
    two.tell(two.commit(again))
    assert two.held_mcpu() == CAPACITY_MCPU


def test_a_release_that_was_asked_again_does_not_hide_what_a_rival_took() -> None:
    """The answer names the node again, and its changes are one more: but that one was the rival's."""
    two = Two()
    (call,) = two.decide(("j/t/0", 1_000))
    two.tell(two.commit(call))
    two.core.handle(two.release("j/t/0"), 0)
    assert two.refresh() == []
    two.rival("r/t/0", 1_000)
    two.core.handle(two.release("j/t/0"), 0)
    assert two.refresh() == [("n1",)]


def test_a_refusal_does_not_hide_what_a_rival_released() -> None:
    two = Two()
    two.rival("r/t/0", 1_000)
    two.core.handle(LedgerRows(rows=now(two.ledger.rows(["n1"]))), 0)
    # Over in the ledger, and nobody has said so here.
    two.release("j/t/0")
    (call,) = two.decide(("j/t/0", 1_000))
    two.release("r/t/0")
    two.tell(two.commit(call))
    assert two.refresh() == [("n1",)]


def test_a_want_that_a_rival_served_to_its_end_waits_no_more() -> None:
    """It fits nowhere here, so that no commit would find out."""
    two = Two()
    assert two.decide(("j/t/0", 2 * CAPACITY_MCPU)) == []
    deleted = NodeRelease(node="n9", attempts=(("j/t/0", 1),))
    two.core.handle(PlacementsReleased(at_ms=0, nodes=(deleted,)), 0)
    assert len(two.core.queue) == 0


@pytest.mark.parametrize("is_late", [False, True], ids=["refused", "too late"])
def test_a_want_whose_shard_was_lost_meanwhile_is_left_to_others_whatever_the_refusal_was(is_late: bool) -> None:
    two = Two(shards=1)
    two.core.handle(PartitionsHeld(fences=((0, 1),)), 0)
    (call,) = two.decide(("j/t/0", 1_000))
    two.core.handle(PartitionsHeld(fences=()), 0)
    two.tell(LedgerRefused(effect=call, is_late=is_late))
    assert len(two.core.queue) == 0


def test_a_call_that_was_sent_again_after_a_rival_wrote_does_not_hide_what_the_rival_took() -> None:
    two = Two()
    (call,) = two.decide(("j/t/0", 1_000))
    two.commit(call)
    # That answer was lost, and before the call comes again the node is not what it was.
    two.rival("r/t/0", 3_000)
    effects = two.tell(two.commit(call))
    assert loaded(effects) == [("n1",)]
    assert two.decide(("j/t/1", 1_000)) == []
    assert two.held_mcpu() == CAPACITY_MCPU


@pytest.mark.parametrize("reason", [Reason.SHARD_LOST, Reason.ALREADY_HELD, Reason.OLDER_ATTEMPT])
def test_a_refusal_does_not_hide_what_a_rival_took(reason: Reason) -> None:
    two = Two(shards=1)
    two.core.handle(PartitionsHeld(fences=((0, 1),)), 0)
    (call,) = two.decide(("j/t/0", 1_000))
    two.rival("r/t/0", 3_500)
    (reserve,) = call.reserves
    answer = NodeAnswer(node="n1", revision=reserve.expect + 1, changes=1, refused=(refused("j/t/0", reason),))
    two.core.handle(PartitionsHeld(fences=((0, 2),)), 0)
    assert ("n1",) in loaded(two.tell(LedgerAnswered(answers=(answer,))))
    assert two.decide(("k/t/0", 1_000)) == []


def test_what_is_ordered_again_for_a_node_that_came_back_is_told_before_where_nobody_may_have_heard_of_it() -> None:
    core = Two().core
    reservations = tuple(Hold(placement=a_placement(f"j/t/{n}"), generation=1) for n in range(2))
    row = NodeRow(node="n1", revision=1, changes=1, holds=reservations)
    core.handle(LedgerRows(rows=(row,)), 0)
    core.handle(StartedKnown(started=(("j/t/0", 1),)), 0)
    core.handle(NodeRecovered(node="n1", running=(), boot_id="b", seq=1), 10)
    reported = [effect.fact for effect in core.handle(LedgerRows(rows=(row,)), 10) if isinstance(effect, Publish)]
    delivered, ordered = reported
    assert isinstance(delivered, PlacementsDecided)
    assert isinstance(ordered, ApplyPlacements)
    assert [placement.replica for placement in delivered.placements] == ["j/t/1"]
    assert [placement.replica for placement in ordered.placements] == ["j/t/0", "j/t/1"]


def test_what_is_over_is_not_ordered_again_although_its_row_was_read_before_it_was_released() -> None:
    two = Two()
    (call,) = two.decide(("j/t/0", 1_000), ("k/t/0", 1_000))
    two.tell(two.commit(call))
    core = two.core
    core.handle(ReplicasWithdrawn(attempts=(("j/t/0", 1),), reason=Reason.CANCELLED), 10)
    core.handle(NodeRecovered(node="n1", running=(), boot_id="b", seq=1), 10)
    effects = core.handle(LedgerRows(rows=now(two.ledger.rows(["n1"]))), 10)
    (ordered,) = [e.fact for e in effects if isinstance(e, Publish) and isinstance(e.fact, ApplyPlacements)]
    assert [placement.replica for placement in ordered.placements] == ["k/t/0"]


def test_a_place_that_another_scheduler_took_for_the_same_attempt_is_held_where_the_row_says_so() -> None:
    """It was assumed here on another node: the refusal that follows must not make the row's place free."""
    two = Two()
    two.core.handle(a_node("n2", a_topology(zones_per_socket=1)), 0)
    two.core.handle(an_allocatable("n2", [(CAPACITY_MCPU, 32 * GIB)]), 0)
    (call,) = two.decide(("j/t/0", 3_000))
    (reserve,) = call.reserves
    elsewhere = "n2" if reserve.node == "n1" else "n1"
    taken = Hold(placement=a_placement("j/t/0", node=elsewhere, mcpu=3_000), generation=1)
    row = NodeRow(node=elsewhere, revision=1, changes=1, holds=(taken,))
    reported = two.core.handle(LedgerRows(rows=(row,)), 0)
    assert [type(effect.fact) for effect in reported if isinstance(effect, Publish)] == [
        PlacementsDecided,
        ApplyPlacements,
    ]
    answer = NodeAnswer(node=reserve.node, revision=0, changes=0, refused=(refused("j/t/0", Reason.SHARD_LOST),))
    two.core.handle(LedgerAnswered(answers=(answer,)), 0)
    two.core.check()
    assert {attempt: held.placement.node for attempt, held in two.core.commits.held.items()} == {
        ("j/t/0", 1): elsewhere
    }
    (next_call,) = two.decide(("k/t/0", 3_000))
    assert [each.node for each in next_call.reserves] == [reserve.node]


def over_on(node: str) -> ReplicaEnded:
    return ReplicaEnded(node=node, replica="r/t/0", job="r", attempt=1, cause=EndCause.EXITED, exit_code=0)


@pytest.mark.parametrize("node", ["n2", "n1"])
def test_an_end_frees_a_place_that_a_rival_took_on_its_own_node_only(node: str) -> None:
    """The number is held where this scheduler does not know yet, and a leftover of the same number ends somewhere."""
    two = Two()
    two.rival("r/t/0", 1_000)
    two.core.handle(over_on(node), 0)
    releases = [effect for effect in two.core.handle(Wake(), 0) if isinstance(effect, ReleaseHolds)]
    assert [each.endings for each in releases] == [[(("r/t/0", 1), node)]]
    for each in releases:
        two.core.handle(HoldsReleased(released=now(two.ledger.release(each.attempts, each.nodes))), 0)
    assert two.held_mcpu() == (1_000 if node == "n2" else 0)
    two.core.handle(LedgerRows(rows=now(two.ledger.rows(["n1"]))), 0)
    assert not [effect for effect in two.core.handle(Wake(), 1) if isinstance(effect, ReleaseHolds)]
    assert (("r/t/0", 1) in two.core.commits.held) == (node == "n2")


def test_a_place_that_is_committed_while_its_number_ends_elsewhere_is_published() -> None:
    two = Two()
    (call,) = two.decide(("r/t/0", 1_000))
    answer = two.commit(call)
    two.core.handle(over_on("n2"), 0)
    published = [effect.fact for effect in two.tell(answer) if isinstance(effect, Publish)]
    assert [fact.placements[0].node for fact in published if isinstance(fact, PlacementsDecided)] == ["n1"]
    for each in [effect for effect in two.core.handle(Wake(), 0) if isinstance(effect, ReleaseHolds)]:
        two.core.handle(HoldsReleased(released=now(two.ledger.release(each.attempts, each.nodes))), 0)
    assert two.held_mcpu() == 1_000


def test_a_release_that_a_rival_published_for_another_node_leaves_the_place() -> None:
    two = Two()
    (call,) = two.decide(("r/t/0", 1_000))
    two.tell(two.commit(call))
    for node, is_held in (("n2", True), ("n1", False)):
        two.core.handle(PlacementsReleased(nodes=(NodeRelease(node=node, attempts=(("r/t/0", 1),)),)), 0)
        assert (("r/t/0", 1) in two.core.commits.held) == is_held
