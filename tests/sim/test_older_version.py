"""Worlds in which some processes know the first version of the wire only, beside new ones: nothing is lost or doubled."""

from __future__ import annotations

import pytest

from colo_sim.faults import NO_NETWORK_FAULTS, FaultPlan
from colo_sim.world import World, WorldSettings
from tests.sim.test_world import living
from tests.support.older_wire import OlderWire
from tests.support.profiles import seeds

pytestmark = [pytest.mark.sim, pytest.mark.timeout(240)]

MINUTE_MS = 60_000
#: Of two instances of each service one, and the agents of two of four nodes.
OLDER = (
    "jobs",
    "scheduler-1",
    "overcommit-1",
    "evictor-1",
    "executor@node-01",
    "collector@node-01",
    "executor@node-02",
    "collector@node-03",
)
NO_FAULTS = FaultPlan(network_faults=NO_NETWORK_FAULTS, quiet_after_ms=0, weights=())


def restart(world: World, key: str, wire: OlderWire | None) -> None:
    """Replace a process by one of another version, unless its node is lost for good. Without power it starts when the node does."""
    if wire is None:
        world.wires.pop(key, None)
    else:
        world.wires[key] = wire
    for process in (each for each in world.processes() if each.key == key):
        process.crash()
        world.fault_injector.revive(process)


@pytest.mark.parametrize("faults", [NO_FAULTS, FaultPlan()], ids=["quiet", "rough"])
@pytest.mark.parametrize("seed", seeds((3,), nightly=range(1, 13)))
def test_both_versions_side_by_side_and_a_rolling_update_lose_and_double_nothing(seed: int, faults: FaultPlan) -> None:
    settings = WorldSettings(
        seed=seed, jobs=8, jobs_within_ms=200_000, schedulers=2, shards=4, sharers=2, partitions=4, faults=faults
    )
    older = OlderWire()
    with living(settings) as world:
        world.wires |= dict.fromkeys(OLDER, older)
        world.run_until(2 * MINUTE_MS)
        assert older.cut.keys() >= {"PlacementsDecided", "AllocatableChanged", "NodeUsageSampled", "SubmitJob"}
        # The update goes on: the old ones are replaced one by one, and one of them is put back.
        for key in OLDER:
            restart(world, key, None)
            world.run_until(world.elapsed_ms + 5_000)
        restart(world, "jobs", older)
        world.run_until(world.elapsed_ms + 30_000)
        restart(world, "jobs", None)
        outcome = world.run()
    for judged in ("commits", "launches", "promises", "ReplicaEnded", "ReplicasChanged"):
        assert outcome.judged[judged] > 10, f"the invariant checker saw too little: {outcome.judged}"
