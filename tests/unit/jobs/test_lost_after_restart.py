"""A restart forgets which nodes are lost; the bus says it again."""

from colo_common.events.node import FreshnessChanged
from colo_common.model.freshness import Freshness
from colo_common.runtime.core import source_of
from colo_jobs.lost import LostNodes
from colo_jobs.shell import HEARS
from tests.support.jobs_world import JobsWorld


def test_the_last_freshness_of_every_node_is_replayed_at_every_start() -> None:
    (subscription,) = [one for one in HEARS if one.type is FreshnessChanged]
    source = source_of("jobs", subscription)
    assert source.last_per_subject
    assert source.durable == ""


def test_a_replica_placed_on_a_lost_node_is_placed_again_after_a_restart() -> None:
    for is_freshness_first in (True, False):
        world = JobsWorld()
        world.submit()
        lost, placed = world.freshness("n1", Freshness.LOST), world.placed("j1/main/0", "n1")
        world.feed(lost)
        world.restart()
        for fact in (lost, placed) if is_freshness_first else (placed, lost):
            world.feed(fact)
        assert (world.replica().state, world.replica().attempt) == ("Pending", 2)


def test_nodes_whose_freshness_is_old_are_forgotten() -> None:
    lost = LostNodes(forget_ms=1_000)
    for number in range(10):
        fact = FreshnessChanged(
            node=f"n{number}",
            freshness=Freshness.LOST,
            previous=Freshness.STALE,
            sample_seq=1,
            age_ms=0,
            at_ms=number * 500,
        )
        assert lost.record(fact, number * 500)
    assert len(lost) == 2
    assert lost.is_lost("n9")
    assert not lost.is_lost("n0")


def test_an_instance_of_overcommit_that_was_replaced_loses_no_node() -> None:
    def reported(state: Freshness, boot: str, fence: int) -> FreshnessChanged:
        return FreshnessChanged(
            node="n1",
            freshness=state,
            previous=Freshness.STALE,
            sample_seq=1,
            age_ms=0,
            boot_id=boot,
            seq=1,
            fence=fence,
        )

    lost = LostNodes()
    assert lost.record(reported(Freshness.FRESH, "new", 8), 1_000)
    assert not lost.record(reported(Freshness.LOST, "old", 5), 2_000)
    assert not lost.is_lost("n1")
    # The next holder may find it lost, and so may one that is alone by its settings.
    assert lost.record(reported(Freshness.LOST, "newer", 9), 3_000)
    assert lost.is_lost("n1")
    assert lost.record(reported(Freshness.FRESH, "alone", 0), 4_000)
    assert not lost.is_lost("n1")
