"""Places that were committed and never told: told by whoever comes after, in whatever parts, until a node has started them."""

import itertools
from collections.abc import Sequence

from msgspec import structs

from colo_common.events.effects import Effect, Publish, Wake
from colo_common.events.enforcement import ReplicaEnded, ReplicaStarted
from colo_common.events.placement import ApplyPlacements, PlacementsDecided
from colo_common.events.requests import PendingReply
from colo_common.model.reasons import EndCause
from colo_scheduler.core import SchedulerCore
from colo_scheduler.ledger import LedgerLoaded, LedgerRows, LoadRows, NodeRow, Reservation
from tests.support.builders import GIB, a_node, a_placement
from tests.support.scheduler_story import a_want, an_allocatable

DECIDED_MS = 1_000
REPLICAS = ("j/t/0", "j/t/1", "j/t/2")


def a_row(*replicas: str, confirmed: Sequence[str] = ()) -> LedgerRows:
    """What one commit put on n1: all of it is of one generation."""
    reservations = tuple(
        Reservation(placement=structs.replace(a_placement(each), decided_at_ms=DECIDED_MS), generation=4)
        for each in replicas
    )
    attempts = tuple((each, 1) for each in confirmed)
    return LedgerRows(rows=(NodeRow(node="n1", revision=4, changes=4, reservations=reservations, confirmed=attempts),))


def a_core(*replicas: str, now_ms: int = DECIDED_MS) -> SchedulerCore:
    """It knows of the places since just now: their fact and order have gone out, or not."""
    core = SchedulerCore()
    core.handle(a_node("n1"), now_ms)
    core.handle(an_allocatable("n1", ((16_000, 64 * GIB), (16_000, 64 * GIB)), at_ms=now_ms), now_ms)
    core.handle(a_row(*replicas), now_ms)
    core.handle(LedgerLoaded(), now_ms)
    return core


def orders(effects: Sequence[Effect]) -> dict[str, list[str]]:
    """What is ordered under which id."""
    said = [effect for effect in effects if isinstance(effect, Publish)]
    return {
        effect.id: [placement.replica for placement in effect.fact.placements]
        for effect in said
        if isinstance(effect.fact, ApplyPlacements)
    }


def listed(*replicas: str) -> PendingReply:
    """The jobs service says that these wait."""
    return PendingReply(wants=tuple(a_want(each) for each in replicas), total=len(replicas))


def refresh(core: SchedulerCore, now_ms: int) -> list[Effect]:
    """A look at the ledger at this moment."""
    effects: list[Effect] = []
    while (deadline_ms := core.deadline_ms()) is not None and deadline_ms <= now_ms:
        effects = core.handle(Wake(), now_ms)
        if any(isinstance(effect, LoadRows) for effect in effects):
            return effects
    return effects


def test_places_of_one_commit_are_ordered_together_when_the_jobs_service_does_not_know_them() -> None:
    core = a_core(*REPLICAS)
    said = orders(core.handle(listed(*REPLICAS), 60_000))
    assert list(said.values()) == [list(REPLICAS)]


def test_parts_of_one_commit_that_are_told_one_after_the_other_are_not_taken_for_each_other() -> None:
    core = a_core(*REPLICAS)
    first = orders(core.handle(listed(REPLICAS[0]), 60_000))
    second = orders(core.handle(listed(*REPLICAS[1:]), 60_000))
    assert [*first.values(), *second.values()] == [[REPLICAS[0]], list(REPLICAS[1:])]
    assert first.keys().isdisjoint(second.keys())


def test_the_same_order_has_the_same_id_whoever_sends_it() -> None:
    one, other = a_core(*REPLICAS), a_core(*reversed(REPLICAS))
    assert orders(one.handle(listed(*REPLICAS), 60_000)) == orders(other.handle(listed(*REPLICAS), 70_000))


def test_what_no_node_starts_is_told_again_after_longer_and_longer_waits() -> None:
    core = a_core(REPLICAS[0])
    told = []
    for now_ms in range(DECIDED_MS, 600_000, 1_000):
        asked = any(isinstance(effect, LoadRows) and effect.nodes for effect in refresh(core, now_ms))
        effects = core.handle(a_row(REPLICAS[0]), now_ms) if asked else []
        if asked:
            facts = [type(effect.fact) for effect in effects if isinstance(effect, Publish)]
            assert facts == [PlacementsDecided, ApplyPlacements]
            told.append(now_ms - DECIDED_MS)
        core.check()
    # At the looks that follow 10 s, then twice the age.
    waits = [later - earlier for earlier, later in itertools.pairwise(told)]
    assert 10_000 <= told[0] <= 10_000 + core.policy.ledger_refresh_ms
    assert len(told) == 5
    assert all(wait >= age for wait, age in zip(waits, told, strict=False))


def test_what_a_node_started_is_not_told_again_although_the_others_are() -> None:
    core = a_core(*REPLICAS)
    started = ReplicaStarted(node="n1", replica=REPLICAS[1], job="j", attempt=1, pid=7, at_ms=2_000)
    core.handle(started, 2_000)
    core.handle(
        ReplicaEnded(
            node="n1", replica=REPLICAS[2], job="j", attempt=1, cause=EndCause.EXITED, exit_code=0, at_ms=3_000
        ),
        3_000,
    )
    effects = refresh(core, 60_000)
    assert [effect.nodes for effect in effects if isinstance(effect, LoadRows)] == [("n1",)]
    # The row is of before the confirmation and the release.
    assert list(orders(core.handle(a_row(*REPLICAS), 60_000)).values()) == [[REPLICAS[0]]]


def test_what_another_scheduler_heard_to_have_started_is_not_told_again() -> None:
    core = a_core(REPLICAS[0])
    refresh(core, 60_000)
    assert orders(core.handle(a_row(REPLICAS[0], confirmed=[REPLICAS[0]]), 60_000)) == {}
    assert not any(isinstance(effect, LoadRows) for effect in refresh(core, 600_000))
