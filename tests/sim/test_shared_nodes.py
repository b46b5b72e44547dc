"""Worlds in which several instances of overcommit and evictor share the nodes: a share moves in time, and nothing is lost by it."""

from __future__ import annotations

import pytest

from colo_common.events.fact import Fact
from colo_common.events.node import AllocatableChanged, FreshnessChanged
from colo_sim.faults import HARSH, NO_NETWORK_FAULTS, FaultPlan
from colo_sim.world import World, WorldSettings
from tests.sim.test_world import live, living
from tests.support.profiles import seeds

pytestmark = [pytest.mark.sim, pytest.mark.timeout(240)]

PARTITIONS = 4
NO_FAULTS = FaultPlan(network_faults=NO_NETWORK_FAULTS, quiet_after_ms=0, weights=())
MOVES_WITHIN_MS = 10_000
MINUTE_MS = 60_000


def shares(world: World, service: str) -> list[int]:
    """How many partitions each instance that runs holds."""
    processes = world.overcommits if service == "overcommit" else world.evictors
    return [
        sum(process.role.partitions.holds(each) for each in range(PARTITIONS)) for process in processes if process.is_up
    ]


def published_in(world: World) -> list[Fact]:
    """What is stored on the bus from now on."""
    published: list[Fact] = []
    checked = world.bus.stored

    def stored(fact: Fact, message_id: str) -> None:
        published.append(fact)
        checked(fact, message_id)

    world.bus.stored = stored
    return published


def assert_promised(world: World, published: list[Fact]) -> None:
    """Every node got numbers in the order of its samples, none was taken for silent, and no lease of batch work ended."""
    assert not [fact for fact in published if isinstance(fact, FreshnessChanged)]
    for node in world.nodes:
        found = [fact for fact in published if isinstance(fact, AllocatableChanged) and fact.node == node]
        assert found, f"nobody promises for {node}"
        assert [fact.sampled_at_ms for fact in found] == sorted(fact.sampled_at_ms for fact in found)
    # No executor was without a renewal for so long that it stepped batch work down.
    assert world.invariant_checker.counts["lease_ended"] == 0


def test_a_share_moves_within_ten_seconds_and_no_node_notices() -> None:
    settings = WorldSettings(seed=11, nodes=12, sharers=2, partitions=PARTITIONS, faults=NO_FAULTS, spikes=0, jobs=4)
    with living(settings) as world:
        published = published_in(world)
        world.run_until(MINUTE_MS)
        assert [shares(world, service) for service in ("overcommit", "evictor")] == [[2, 2], [2, 2]]
        del published[:]
        for process in (world.overcommits[0], world.evictors[0]):
            process.crash()
        world.run_until(MINUTE_MS + MOVES_WITHIN_MS)
        assert [shares(world, service) for service in ("overcommit", "evictor")] == [[4], [4]]
        for process in (world.overcommits[0], world.evictors[0]):
            process.start()
        world.run_until(MINUTE_MS + 2 * MOVES_WITHIN_MS)
        assert [shares(world, service) for service in ("overcommit", "evictor")] == [[2, 2], [2, 2]]
        world.run_until(3 * MINUTE_MS)
        assert_promised(world, published)
        assert world.run().judged["launches"] > 0


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 3)])
def test_the_number_of_partitions_is_changed_by_a_rolling_restart_and_no_node_notices(before: int, after: int) -> None:
    settings = WorldSettings(
        seed=12,
        nodes=12,
        sharers=2,
        partitions=before,
        schedulers=2,
        shards=before,
        faults=NO_FAULTS,
        spikes=0,
        jobs=12,
        jobs_within_ms=150_000,
    )
    with living(settings) as world:
        published = published_in(world)

        def held() -> dict[str, list[int]]:
            return {
                "overcommit": shares(world, "overcommit"),
                "evictor": shares(world, "evictor"),
                "scheduler": [
                    sum(core.shards.holds(each) for each in range(PARTITIONS))
                    for core in world.scheduler_cores.values()
                ],
            }

        world.run_until(MINUTE_MS)
        assert {sum(each) for each in held().values()} == {before}
        del published[:]
        world.partitions |= dict.fromkeys(("overcommit", "evictor", "scheduler"), after)
        for number in (0, 1):
            for process in (world.overcommits[number], world.evictors[number], world.schedulers[number]):
                process.crash()
                process.start()
            world.run_until(MINUTE_MS + (number + 1) * MOVES_WITHIN_MS)
            # The first one waits for those that have the old number; those hold everything meanwhile.
            if number == 0:
                assert held() == {service: [0, before] for service in held()}
            else:
                assert {sum(each) for each in held().values()} == {after}
        world.run_until(4 * MINUTE_MS)
        assert {max(each) for each in held().values()} == {(after + 1) // 2}
        assert_promised(world, published)
        assert world.run().judged["launches"] > 0


@pytest.mark.parametrize("seed", seeds((3, 8, 21), nightly=range(40)))
def test_whatever_strikes_those_that_share_nothing_is_promised_twice_or_left_alone(seed: int) -> None:
    outcome = live(WorldSettings(seed=seed, sharers=2 + seed % 2, partitions=PARTITIONS, faults=HARSH))[1]
    for judged in ("commits", "launches", "promises", "ReplicaEnded", "ReplicasChanged"):
        assert outcome.judged[judged] > 10, f"the invariant checker saw too little: {outcome.judged}"
