"""Pools: what is free of batch and of prod capacity, in lists and arrays, and copies that change alone."""

import pytest

from colo_common.model.invalid import InvariantBroken
from colo_common.model.placement import ZoneShare
from colo_common.model.qos import PriorityBand
from colo_scheduler.cluster.cluster import Cluster
from colo_scheduler.cluster.node import Node
from colo_scheduler.cluster.pool import PoolName, pool_of
from tests.support.builders import GIB, a_node, a_topology
from tests.support.scheduler_story import an_allocatable

CPU = 1000
ONE = (ZoneShare(zone=1, cpu_mcpu=CPU, memory_bytes=GIB),)


def a_cluster(nodes: int = 1) -> tuple[Cluster, Node]:
    """Machines of two zones with 4 CPUs and 8 GiB each, of which 3 CPUs and 6 GiB are promised to batch work."""
    cluster = Cluster()
    for number in range(nodes):
        cluster.on_topology(a_node(f"n{number}", a_topology(zones_per_socket=2, cpus=4, memory_gib=8)))
        cluster.on_allocatable(an_allocatable(f"n{number}", [(3 * CPU, 6 * GIB)] * 2))
    return cluster, cluster.nodes[0]


def free(cluster: Cluster, name: PoolName, row: int = 0) -> list[tuple[int, int]]:
    pool = cluster.view(0).pool(name)
    return list(zip(pool.free_cpu[row].tolist(), (pool.free_memory[row] // GIB).tolist(), strict=True))


def test_each_band_works_in_its_pool() -> None:
    assert {band: pool_of(band) for band in PriorityBand} == {
        PriorityBand.PROD: PoolName.PROD,
        PriorityBand.MID: PoolName.MID,
        PriorityBand.BATCH: PoolName.BATCH,
        PriorityBand.FREE: PoolName.BATCH,
    }


def test_batch_and_prod_work_hold_of_different_capacity() -> None:
    cluster, node = a_cluster()
    cluster.hold(node, ("b", 1), ONE)
    cluster.hold(node, ("p", 1), ONE, PoolName.PROD)
    cluster.hold(node, ("p2", 1), ONE, PoolName.PROD)
    assert free(cluster, PoolName.BATCH) == [(3000, 6), (2000, 5)]
    assert free(cluster, PoolName.PROD) == [(4000, 8), (2000, 6)]
    cluster.drop(node, ("p", 1))
    assert free(cluster, PoolName.PROD) == [(4000, 8), (3000, 7)]
    assert free(cluster, PoolName.BATCH) == [(3000, 6), (2000, 5)]
    cluster.check()


def test_an_attempt_that_moves_to_the_other_pool_leaves_the_first() -> None:
    cluster, node = a_cluster()
    cluster.hold(node, ("a", 1), ONE, PoolName.PROD)
    cluster.hold(node, ("a", 1), ONE)
    assert free(cluster, PoolName.PROD) == [(4000, 8), (4000, 8)]
    assert free(cluster, PoolName.BATCH) == [(3000, 6), (2000, 5)]
    cluster.check()


def test_holds_stay_when_the_machine_or_the_promise_changes() -> None:
    cluster, node = a_cluster()
    cluster.hold(node, ("b", 1), ONE)
    cluster.on_allocatable(an_allocatable("n0", [(CPU, GIB), (CPU, 2 * GIB)], at_ms=1))
    assert free(cluster, PoolName.BATCH) == [(1000, 1), (0, 1)]
    # A machine of four zones widens every row.
    cluster.on_topology(a_node("n9", a_topology(sockets=2, zones_per_socket=2)))
    assert free(cluster, PoolName.BATCH) == [(1000, 1), (0, 1), (0, 0), (0, 0)]
    cluster.check()


@pytest.mark.parametrize("changed", [1, 30], ids=["number by number", "as arrays"])
def test_arrays_follow_their_rows_however_many_changed(changed: int) -> None:
    cluster, _ = a_cluster(40)
    cluster.view(0).pool(PoolName.BATCH)
    for node in cluster.nodes[:changed]:
        cluster.hold(node, ("b", 1), ONE)
    for row in range(40):
        assert free(cluster, PoolName.BATCH, row) == ([(3000, 6), (2000, 5)] if row < changed else [(3000, 6)] * 2)
    cluster.check()


def test_a_number_that_nobody_wrote_is_found() -> None:
    cluster, _ = a_cluster()
    cluster.view(0).pool(PoolName.BATCH).node_free_cpu[0] += 1
    with pytest.raises(InvariantBroken, match="an array differs from its rows"):
        cluster.check()


@pytest.mark.parametrize(("rotation", "first"), [(0, 0), (1, 1), (2, 2), (3, 0), (7, 1)])
def test_schedulers_with_different_rotations_prefer_different_equal_nodes(rotation: int, first: int) -> None:
    cluster = Cluster(tie_rotation=rotation)
    for number in range(3):
        cluster.on_topology(a_node(f"n{number}"))
    assert cluster.view(0).facts.rank.tolist()[first] == 0
