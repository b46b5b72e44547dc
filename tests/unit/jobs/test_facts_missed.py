"""Facts that a stream discarded before the jobs service received them: what the ledger holds says what they were."""

from colo_common.events.effects import FactsMissed
from colo_common.events.requests import HoldEntry, HoldsListed
from colo_common.model.placement import ZoneShare
from colo_jobs.effects import AskHolds
from tests.support.jobs_world import JobsWorld, a_spec, a_task, stops_of


def a_hold(replica: str, attempt: int = 1, node: str = "n1") -> HoldEntry:
    return HoldEntry(
        node=node, replica=replica, attempt=attempt, zones=(ZoneShare(zone=0, cpu_mcpu=1_000, memory_bytes=1),)
    )


def test_places_and_ends_that_were_missed_come_from_the_ledger() -> None:
    world = JobsWorld()
    world.submit(a_spec(a_task(replicas=4)))
    world.run("j1/main/0")
    world.run("j1/main/1")
    world.feed(FactsMissed(stream="COLO_RUN"))
    assert AskHolds() in world.own
    # Placed while the question was under way: the list does not have it yet.
    world.run("j1/main/2")
    incomplete = HoldsListed(holds=(a_hold("j1/main/3", node="n2"),), asked_at_ms=0)
    assert stops_of(world.feed(incomplete)) == []
    assert [world.replica(f"j1/main/{index}").state for index in range(4)] == [*["Running"] * 3, "Assigned"]
    assert world.replica("j1/main/3").node == "n2"
    # A node that is ordered to stop what has ended there says again how it ended.
    complete = HoldsListed(holds=(a_hold("j1/main/1"), a_hold("j1/main/3", node="n2")), asked_at_ms=5)
    assert stops_of(world.feed(complete)) == [("n1", "j1/main/0", 1)]
    world.feed(world.ended("j1/main/0"))
    assert world.replica("j1/main/0").state == "Succeeded"
    # Once is enough.
    assert world.feed(complete) == []
