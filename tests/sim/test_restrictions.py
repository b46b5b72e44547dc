"""Worlds in which operators forbid something for a while, and label nodes anew: everybody obeys, and every job ends well."""

from __future__ import annotations

from collections import Counter

import pytest

from colo_common.model.qos import QosClass
from colo_common.model.restriction import Restriction, RestrictionKind, RestrictionScope
from colo_sim.world import World, WorldSettings
from colo_sim.world_operator import Forbidden
from tests.sim.test_world import NO_FAULTS, live, living
from tests.support.profiles import seeds

pytestmark = pytest.mark.sim

SECOND_MS = 1_000


def a_world(seed: int) -> WorldSettings:
    return WorldSettings(seed=seed, nodes=3, jobs=12, online_jobs=8, restrictions=12)


def test_whatever_goes_wrong_operators_are_obeyed_and_every_job_ends_well() -> None:
    judged: Counter[str] = Counter()
    for seed in seeds((5, 6), nightly=range(1, 9)):
        judged.update(live(a_world(seed))[1].judged)
    assert judged["suspended"] > 100, "the invariant checker saw too little"
    assert judged["RestrictionsChanged"] > 20
    assert judged["RestrictionsApplied"] > 20
    assert judged["evicted node-drained"] > 0
    assert judged["evicted colocation-off"] > 0


def planned(*plans: Forbidden) -> WorldSettings:
    """A world without faults, in which operators forbid as much as is planned."""
    return WorldSettings(
        seed=7,
        nodes=3,
        jobs=48,
        online_jobs=24,
        restrictions=max(1, len(plans)),
        spikes=0,
        jobs_within_ms=240 * SECOND_MS,
        faults=NO_FAULTS,
    )


def on_node(kind: RestrictionKind, node: str, *, at_s: int, for_s: int) -> Forbidden:
    found = Restriction(kind=kind, scope=RestrictionScope.NODE, target=node, by="ana")
    return Forbidden(at_ms=at_s * SECOND_MS, for_ms=for_s * SECOND_MS, restriction=found)


def running(world: World, node: str) -> tuple[set[tuple[str, int]], set[tuple[str, int]]]:
    """The attempts of batch and of online work that run there."""
    replicas = world.nodes[node].advance().replicas
    batch = {(one.replica, one.attempt) for one in replicas if one.qos is QosClass.BE}
    return batch, {(one.replica, one.attempt) for one in replicas} - batch


def batch_used_ns(world: World) -> dict[tuple[str, int], int]:
    replicas = [one for node in world.nodes.values() for one in node.advance().replicas if one.qos is QosClass.BE]
    return {(one.replica, one.attempt): one.usage_ns for one in replicas}


def test_a_quiesce_a_drain_and_a_cordon_each_for_a_while() -> None:
    quiesce = Restriction(kind=RestrictionKind.QUIESCE, scope=RestrictionScope.FLEET, by="ana")
    plans = (
        Forbidden(at_ms=60 * SECOND_MS, for_ms=40 * SECOND_MS, restriction=quiesce),
        on_node(RestrictionKind.DRAIN, "node-01", at_s=120, for_s=60),
        on_node(RestrictionKind.CORDON, "node-02", at_s=200, for_s=40),
    )
    with living(planned(*plans)) as world:
        world.operator.plans = plans
        world.run_until(62 * SECOND_MS)
        used = batch_used_ns(world)
        assert len(used) > 1
        world.run_until(99 * SECOND_MS)
        assert batch_used_ns(world) == used
        world.run_until(110 * SECOND_MS)
        later = batch_used_ns(world)
        assert all(later.get(key, 1 << 62) > before for key, before in used.items())

        assert all(running(world, "node-01"))
        world.run_until(165 * SECOND_MS)
        assert running(world, "node-01") == (set(), set())
        world.run_until(179 * SECOND_MS)
        assert running(world, "node-01") == (set(), set())

        world.run_until(203 * SECOND_MS)
        before = running(world, "node-02")
        assert all(before)
        world.run_until(238 * SECOND_MS)
        assert all(now <= was for now, was in zip(running(world, "node-02"), before, strict=True))
        assert any(running(world, "node-01"))
        judged = world.invariant_checker.counts
        assert judged["evicted node-drained"] > 1
        assert judged["NodeDrained"] == 1


def test_a_node_whose_label_leaves_it_to_batch_work_or_to_online_work() -> None:
    """Online work on a node that is for batch work from now on stays until an operator says so; batch work leaves by itself."""
    plans = (on_node(RestrictionKind.DRAIN, "node-01", at_s=86, for_s=74),)
    with living(planned(*plans)) as world:
        world.operator.plans = plans
        world.run_until(66 * SECOND_MS)
        world.set_label("node-01", "offline")
        world.run_until(71 * SECOND_MS)
        _, online = running(world, "node-01")
        assert online
        world.run_until(85 * SECOND_MS)
        batch, later = running(world, "node-01")
        assert batch
        assert later
        assert later <= online
        # The operator confirms: the drain lets online work leave, too, and the label keeps it away.
        world.run_until(158 * SECOND_MS)
        assert running(world, "node-01") == (set(), set())
        world.run_until(230 * SECOND_MS)
        batch, online = running(world, "node-01")
        assert batch
        assert not online

        batch, online = running(world, "node-02")
        assert batch
        assert online
        world.set_label("node-02", "false")
        world.run_until(275 * SECOND_MS)
        batch, _ = running(world, "node-02")
        assert not batch
        judged = world.invariant_checker.counts
        assert judged["evicted colocation-off"] > 0
