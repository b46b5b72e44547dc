"""After a total loss jobs come back under their ids: what ended before is not the end of what waits now."""

import pytest
from msgspec.structs import replace

from colo_common.events.enforcement import ReplicaEnded
from colo_common.events.placement import PlacementsDecided
from colo_common.events.requests import HoldEntry, HoldsListed
from colo_jobs.effects import AskHolds
from tests.support.jobs_world import JobsWorld, requests_of

NAME = "j1/main/0"
SUBMITTED_MS = 500_000
BEFORE_MS, AFTER_MS = SUBMITTED_MS - 60_000, SUBMITTED_MS + 10


@pytest.fixture
def world() -> JobsWorld:
    """One replica that waits for its place, with the number that it had in its earlier life."""
    world = JobsWorld()
    world.now_ms = SUBMITTED_MS
    world.submit()
    world.now_ms = SUBMITTED_MS + 1_000
    return world


def an_end(world: JobsWorld, decided_at_ms: int, node: str = "n1") -> ReplicaEnded:
    return replace(world.ended(NAME, node=node), decided_at_ms=decided_at_ms)


def a_decision(world: JobsWorld, decided_at_ms: int, node: str = "n1") -> PlacementsDecided:
    found = world.placed(NAME, node=node)
    return replace(found, placements=tuple(replace(each, decided_at_ms=decided_at_ms) for each in found.placements))


def seen(world: JobsWorld) -> tuple[str, int]:
    record = world.replica(NAME)
    return record.state, record.attempt


def test_an_end_from_before_the_submission_completes_nothing_and_its_number_is_left(world: JobsWorld) -> None:
    assert world.feed(an_end(world, BEFORE_MS)) == []
    assert seen(world) == ("Pending", 1)
    assert AskHolds() in world.own
    # What was listed in part only says nothing yet.
    assert requests_of(world.feed(HoldsListed(holds=(), asked_at_ms=0))) == []
    assert requests_of(world.feed(HoldsListed(holds=(), asked_at_ms=5))) == [(NAME, 2)]
    assert seen(world) == ("Pending", 2)
    # Told once more it is late.
    world.feed(an_end(world, BEFORE_MS))
    assert seen(world) == ("Pending", 2)


def test_an_end_of_this_life_counts_before_its_decision_arrives_and_from_older_executors_as_ever() -> None:
    for decided_at_ms in (AFTER_MS, 0):
        world = JobsWorld()
        world.now_ms = SUBMITTED_MS
        world.submit()
        world.feed(an_end(world, decided_at_ms))
        assert world.replica(NAME).state == "Succeeded"
        assert AskHolds() not in world.own


def test_where_the_clock_of_the_scheduler_is_behind_the_decision_itself_tells(world: JobsWorld) -> None:
    world.feed(an_end(world, BEFORE_MS))
    world.feed(a_decision(world, BEFORE_MS))
    assert seen(world) == ("Succeeded", 1)
    world.feed(HoldsListed(holds=(), asked_at_ms=5))
    assert seen(world) == ("Succeeded", 1)


def test_another_decision_places_the_attempt_and_the_end_is_forgotten(world: JobsWorld) -> None:
    world.feed(an_end(world, BEFORE_MS, node="n2"))
    world.feed(a_decision(world, AFTER_MS))
    world.feed(HoldsListed(holds=(), asked_at_ms=5))
    assert seen(world) == ("Assigned", 1)


def test_where_the_ledger_holds_the_attempt_it_is_placed_there(world: JobsWorld) -> None:
    world.feed(an_end(world, BEFORE_MS, node="n2"))
    zones = world.placed(NAME).placements[0].zones
    held = HoldEntry(node="n1", replica=NAME, attempt=1, zones=zones, decided_at_ms=AFTER_MS)
    world.feed(HoldsListed(holds=(held,), asked_at_ms=5))
    assert (*seen(world), world.replica(NAME).node) == ("Assigned", 1, "n1")


def test_where_the_ledger_holds_the_very_place_that_ended_it_has_ended(world: JobsWorld) -> None:
    """The clock of the scheduler is behind, and its decision is lost."""
    world.feed(an_end(world, BEFORE_MS))
    zones = world.placed(NAME).placements[0].zones
    held = HoldEntry(node="n1", replica=NAME, attempt=1, zones=zones, decided_at_ms=BEFORE_MS)
    world.feed(HoldsListed(holds=(held,), asked_at_ms=5))
    assert seen(world) == ("Succeeded", 1)


def test_an_end_that_is_told_by_the_node_before_its_order_arrives_starts_the_next_attempt(world: JobsWorld) -> None:
    """Its executor began again, and tells what had ended there, also under the number that was placed there just now."""
    world.feed(a_decision(world, AFTER_MS))
    assert requests_of(world.feed(an_end(world, BEFORE_MS))) == [(NAME, 2)]
    assert seen(world) == ("Pending", 2)


def test_the_end_of_the_decision_that_is_known_counts_also_before_the_start(world: JobsWorld) -> None:
    world.feed(a_decision(world, AFTER_MS), an_end(world, AFTER_MS))
    assert seen(world) == ("Succeeded", 1)


def test_what_was_started_here_ends_with_whatever_its_node_says(world: JobsWorld) -> None:
    """The node went on with the attempt of before, and said so: it is the same work."""
    world.feed(a_decision(world, AFTER_MS), world.started(NAME), an_end(world, BEFORE_MS))
    assert seen(world) == ("Succeeded", 1)
