"""Several schedulers share the wants: who decides which, under which fence, and what is asked when a shard is taken."""

import pytest
from msgspec import structs

from colo_common.events.effects import Effect, Publish, Wake
from colo_common.events.job import PlacementsRequested
from colo_common.events.placement import ApplyPlacements, NodeRelease, PlacementsDecided, PlacementsReleased
from colo_common.events.requests import PendingReply
from colo_common.model.invalid import InvalidInput
from colo_common.model.partition import Partitions, PartitionsHeld, partition_of
from colo_common.model.reasons import Reason
from colo_scheduler.commit.jobs_asked import AskPending, AskStarted, StartedKnown
from colo_scheduler.core import SchedulerCore
from colo_scheduler.ledger.port import (
    CommitLedger,
    Hold,
    HoldRefused,
    LedgerAnswered,
    LedgerLoaded,
    LedgerRows,
    LoadLedgerRows,
    NodeAnswer,
    NodeRow,
    RefreshLedger,
)
from colo_scheduler.policy import SchedulerPolicy
from tests.support.builders import GIB, a_node, a_placement
from tests.support.scheduler_story import a_placement_request, an_allocatable

JOBS = tuple(f"j{number}" for number in range(12))


def a_core(*fences: tuple[int, int], shards: int = 2) -> SchedulerCore:
    core = SchedulerCore(shards=shards)
    core.handle(a_node("n1"), 0)
    core.handle(an_allocatable("n1", ((16_000, 64 * GIB), (16_000, 64 * GIB))), 0)
    core.handle(LedgerLoaded(), 0)
    core.handle(PartitionsHeld(fences=fences), 0)
    core.handle(Wake(), 0)
    return core


def commits(effects: list[Effect]) -> list[CommitLedger]:
    return [effect for effect in effects if isinstance(effect, CommitLedger)]


def wanted(*jobs: str) -> PlacementsRequested:
    return PlacementsRequested(placement_requests=tuple(a_placement_request(f"{job}/t/0", mcpu=100) for job in jobs))


def of_shard(shard: int, count: int = 2) -> str:
    return next(job for job in JOBS if partition_of(job, count) == shard)


def test_only_wants_of_own_shards_are_decided_and_the_commit_names_their_fences() -> None:
    core = a_core((1, 7))
    core.handle(wanted(*JOBS), 0)
    (commit,) = commits(core.handle(Wake(), 0))
    placed = {one.placement.job for reserve in commit.reserves for one in reserve.holds}
    assert placed == {job for job in JOBS if partition_of(job, 2) == 1}
    assert commit.fences == ((1, 7),)
    core.check()


def test_two_schedulers_place_equal_work_on_nodes_of_their_own_shards() -> None:
    nodes = [f"n{number}" for number in range(8)]
    for shard in (0, 1):
        core = a_core((shard, 7))
        for node in nodes:
            core.handle(a_node(node), 0)
            core.handle(an_allocatable(node, ((16_000, 64 * GIB), (16_000, 64 * GIB))), 0)
        core.handle(wanted(*JOBS), 0)
        (commit,) = commits(core.handle(Wake(), 0))
        own = {node for node in nodes if partition_of(node, 2) == shard}
        assert own
        assert {reserve.node for reserve in commit.reserves} <= own
        core.check()


def test_a_node_of_another_shard_is_chosen_where_it_is_much_freer_or_takes_the_work_in_fewer_zones() -> None:
    own, other = (
        next(f"n{number}" for number in range(8) if partition_of(f"n{number}", 2) == shard) for shard in (0, 1)
    )
    for zones, request_mcpu in (((16_000, 16_000), 16_000), ((9_000, 9_000), 10_000)):
        core = SchedulerCore(shards=2)
        for node, free in ((own, zones), (other, (16_000, 16_000))):
            core.handle(a_node(node), 0)
            core.handle(an_allocatable(node, tuple((mcpu, 64 * GIB) for mcpu in free)), 0)
        core.handle(LedgerLoaded(), 0)
        core.handle(PartitionsHeld(fences=((0, 7),)), 0)
        core.handle(Wake(), 0)
        job = of_shard(0)
        requests = tuple(a_placement_request(f"{job}/t/{number}", mcpu=request_mcpu) for number in range(2))
        core.handle(PlacementsRequested(placement_requests=requests), 0)
        (commit,) = commits(core.handle(Wake(), 0))
        assert other in {reserve.node for reserve in commit.reserves}, zones
        core.check()


def test_a_scheduler_that_is_alone_names_no_fences_and_decides_everything() -> None:
    core = a_core(shards=0)
    core.handle(wanted(*JOBS), 0)
    (commit,) = commits(core.handle(Wake(), 0))
    assert commit.fences == ()
    assert sum(len(reserve.holds) for reserve in commit.reserves) == len(JOBS)


def test_taking_a_shard_asks_what_others_placed_and_what_waits_and_asks_again_later() -> None:
    core = a_core()
    effects = core.handle(PartitionsHeld(fences=((0, 1), (1, 2))), 100)
    # Who had the shard before may not have lived to say that facts are lost.
    assert effects == [RefreshLedger(), AskPending(compare_holds=True)]
    core.handle(Wake(), 100)
    assert core.deadline_ms() == 100 + core.policy.ask_again_ms
    assert AskPending() in core.handle(Wake(), 100 + core.policy.ask_again_ms)
    assert core.handle(PartitionsHeld(fences=((0, 1), (1, 2))), 9_000) == []


def test_what_waits_is_asked_for_now_and_then_by_who_holds_shards() -> None:
    """A want that was missed is said by nobody else."""
    core = a_core((0, 1))
    core.handle(Wake(), core.policy.ask_again_ms)
    asked = [at_ms for at_ms in range(0, 1_000_000, 1_000) if AskPending() in core.handle(Wake(), at_ms)]
    assert asked == [300_000, 600_000, 900_000]
    core.handle(PartitionsHeld(fences=()), 1_000_000)
    assert AskPending() not in core.handle(Wake(), 2_000_000)


def test_wants_of_a_shard_that_is_lost_wait_here_no_more() -> None:
    core = a_core((0, 1), (1, 2))
    core.handle(wanted(*JOBS), 0)
    core.handle(PartitionsHeld(fences=((0, 1),)), 0)
    assert len(core.queue) == sum(partition_of(job, 2) == 0 for job in JOBS)
    core.check()


@pytest.mark.parametrize("is_kept", [True, False], ids=["kept under a new fence", "lost"])
def test_a_fenced_commit_is_decided_again_only_where_the_shard_is_still_ours(is_kept: bool) -> None:
    job = of_shard(0)
    core = a_core((0, 1))
    core.handle(wanted(job), 0)
    (commit,) = commits(core.handle(Wake(), 0))
    core.handle(PartitionsHeld(fences=((0, 5),) if is_kept else ()), 0)
    refused = HoldRefused(replica=f"{job}/t/0", attempt=1, reason=Reason.SHARD_LOST)
    core.handle(LedgerAnswered(answers=(NodeAnswer(node="n1", revision=0, changes=0, refused=(refused,)),)), 0)
    core.check()
    again = commits(core.handle(Wake(), 0))
    assert [call.fences for call in again] == ([((0, 5),)] if is_kept else [])
    assert commit.fences == ((0, 1),)


def test_a_place_whose_scheduler_ended_before_it_told_is_told_by_the_one_that_takes_over() -> None:
    job = of_shard(0)
    core = a_core()
    core.handle(PartitionsHeld(fences=((0, 3),)), 10_000)
    placement = a_placement(f"{job}/t/0", node="n1")
    row = NodeRow(node="n1", revision=1, changes=1, holds=(Hold(placement=placement, generation=1),))
    core.handle(LedgerRows(rows=(row,)), 10_000)
    pending = PendingReply(placement_requests=(a_placement_request(f"{job}/t/0"),), total=1)
    reported = [effect.fact for effect in core.handle(pending, 15_000) if isinstance(effect, Publish)]
    assert [type(fact) for fact in reported] == [PlacementsDecided, ApplyPlacements]
    assert core.counts["placements_told_again"] == 1


@pytest.mark.parametrize("is_started", [False, True], ids=["not started", "started since"])
def test_an_order_that_was_never_sent_is_sent_by_the_one_that_takes_over(is_started: bool) -> None:
    job = of_shard(0)
    core = a_core()
    attempt = (f"{job}/t/0", 1)
    held = Hold(placement=a_placement(attempt[0], node="n1"), generation=1)
    unmanaged = Hold(placement=a_placement(f"{of_shard(1)}/t/0", node="n1"), generation=1)
    row = NodeRow(node="n1", revision=1, changes=1, holds=(held, unmanaged))
    core.handle(LedgerRows(rows=(row,)), 10_000)
    core.handle(PartitionsHeld(fences=((0, 3),)), 10_000)
    effects = core.handle(Wake(), 10_000 + core.policy.ask_again_ms)
    assert [effect.attempts for effect in effects if isinstance(effect, AskStarted)] == [(attempt,)]
    assert core.handle(StartedKnown(waiting=(attempt,)), 15_000) == []
    effects = core.handle(Wake(), 15_000)
    assert [effect.nodes for effect in effects if isinstance(effect, LoadLedgerRows)] == [("n1",)]
    again = structs.replace(row, confirmed=(attempt,) if is_started else ())
    reported = [effect.fact for effect in core.handle(LedgerRows(rows=(again,)), 16_000) if isinstance(effect, Publish)]
    ordered = [p.replica for fact in reported if isinstance(fact, ApplyPlacements) for p in fact.placements]
    assert ordered == ([] if is_started else [attempt[0]])


def test_what_another_scheduler_released_is_free_here_too() -> None:
    core = a_core((0, 1), (1, 2))
    core.handle(wanted("j0"), 0)
    (commit,) = commits(core.handle(Wake(), 0))
    answer = NodeAnswer(node="n1", revision=1, changes=1, accepted=(("j0/t/0", 1),))
    core.handle(LedgerAnswered(answers=(answer,)), 0)
    core.handle(PlacementsReleased(nodes=(NodeRelease(node="n1", attempts=(("j0/t/0", 1),)),)), 0)
    assert not core.commits.held
    core.check()
    assert commit.reserves[0].node == "n1"


def test_schedulers_that_share_begin_at_other_nodes() -> None:
    def first_choice(tie_rotation: int) -> str:
        core = SchedulerCore(SchedulerPolicy(tie_rotation=tie_rotation))
        for name in ("n1", "n2", "n3"):
            core.handle(a_node(name), 0)
            core.handle(an_allocatable(name, ((16_000, 64 * GIB), (16_000, 64 * GIB))), 0)
        core.handle(LedgerLoaded(), 0)
        core.handle(wanted("j0"), 0)
        return commits(core.handle(Wake(), 0))[0].reserves[0].node

    assert {first_choice(rotation) for rotation in range(3)} == {"n1", "n2", "n3"}


@pytest.mark.parametrize("count", [-1, 257])
def test_an_absurd_number_of_shards_is_refused(count: int) -> None:
    with pytest.raises(InvalidInput, match="from 0 \\(not shared\\) to 256"):
        Partitions(count)


def test_a_scheduler_that_holds_shards_and_knows_no_node_yet_decides() -> None:
    core = SchedulerCore(shards=16)
    core.handle(LedgerLoaded(), 0)
    core.handle(PartitionsHeld(fences=tuple((shard, 1) for shard in range(16))), 0)
    core.handle(wanted(*JOBS), 0)
    assert not commits(core.handle(Wake(), 1))
    core.check()
