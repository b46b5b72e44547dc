"""Whatever nodes come and go: the rows that are left say what rows of a cluster say that never had the others."""

from hypothesis import given
from hypothesis import strategies as st

from colo_common.events.job import PlacementsRequested, ReplicasWithdrawn
from colo_common.model.constraints import Constraints, Taint
from colo_common.model.freshness import Freshness
from colo_common.model.node_rules import NodeRules
from colo_common.model.placement import Attempt
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import Reason
from colo_scheduler.cluster.cluster import Cluster
from colo_scheduler.cluster.pool import PoolName
from tests.support.builders import GIB, a_node, a_topology
from tests.support.profiles import examples
from tests.support.scheduler_story import Bench, a_placement_request, an_allocatable

NAMES = tuple(f"n{number}" for number in range(7))


def delivered(cluster: Cluster, now_ms: int) -> dict[str, object]:
    """All that the arrays say of every node, by name; ranks apart from their order."""
    view = cluster.view(now_ms)
    facts, found = view.facts, {}
    pools = {name: view.pool(name) for name in PoolName}
    for name, row in view.rows.items():
        assert view.nodes[row].name == name
        assert view.nodes[row].row == row
        columns = len(view.nodes[row].zone_ids)
        found[name] = (
            bool(facts.known[row]),
            bool(facts.fresh[row]),
            bool(facts.settled[row]),
            bool(facts.online[row]),
            bool(facts.colocated[row]),
            facts.socket[row, :columns].tolist(),
            int(view.inventory_index.own_cpus[row]),
            min(int(view.inventory_index.batch_left[row]), 1_000),
            bool(view.inventory_index.agrees[row]),
            [pool.free_cpu[row, :columns].tolist() for pool in pools.values()],
            [pool.free_memory[row, :columns].tolist() for pool in pools.values()],
            [int(pool.allocatable_cpu[row]) for pool in pools.values()],
            [amounts[:columns] for amounts in cluster.batch_capacity.of_row(row)],
        )
    order = sorted(view.rows, key=lambda name: int(facts.rank[view.rows[name]]))
    return {**found, "order": order, "limited": view.inventory_index.limited, "strict": view.inventory_index.strict}


steps = st.lists(
    st.tuples(
        st.sampled_from(("node", "want", "lost", "forget", "end")),
        st.sampled_from(NAMES),
        st.integers(0, 3),
    ),
    max_size=40,
)


def do_node(bench: Bench, name: str, kind: int) -> None:
    rules = NodeRules(batch_replicas_most=5 if kind == 2 else None, is_colocated=kind != 3)
    topology = a_topology(sockets=1 + kind % 2, zones_per_socket=1, cpus=8, memory_gib=32)
    taints = (Taint(key="kept"),) if kind == 1 else ()
    zones = [(6_000 + 1_000 * kind, 24 * GIB)] * len(topology.zones)
    node = a_node(
        name, topology, labels={"name": name, f"kind-{kind}": "yes"}, taints=taints, rules=rules, at_ms=bench.now_ms
    )
    bench.say(node)
    bench.say(an_allocatable(name, zones, at_ms=bench.now_ms))


@examples(0.6)
@given(steps)
def test_rows_of_nodes_that_stay_are_as_if_the_others_had_never_been(moves: list[tuple[str, str, int]]) -> None:
    bench = Bench()
    cluster = bench.core.cluster
    reported: dict[str, list[int]] = {}
    for number, (what, name, kind) in enumerate(moves):
        bench.now_ms += 1
        node = cluster.find(name)
        match what:
            case "node":
                do_node(bench, name, kind)
                reported.setdefault(name, []).append(kind)
            case "want":
                qos, band = ((QosClass.LSR, PriorityBand.PROD), (QosClass.BE, PriorityBand.BATCH))[kind % 2]
                placement_request = a_placement_request(
                    f"j{number}/t/0", mcpu=1_000 * (1 + kind), qos=qos, band=band, constraints=Constraints()
                )
                bench.say(PlacementsRequested(placement_requests=(placement_request,)))
            case "lost" if node is not None:
                zones = [(0, 0)] * len(node.zone_ids)
                bench.say(an_allocatable(name, zones, at_ms=bench.now_ms, freshness=Freshness.LOST))
            case "end" if node is not None:
                end(bench, list(node.holds))
            case "forget" if node is not None and not node.holds and not node.in_flight:
                cluster.forget(node)
                reported.pop(name, None)
            case _:
                pass
        cluster.check()
        bench.core.check()
    fresh = Bench(ledger=bench.ledger)
    for name in sorted(reported, key=lambda name: -len(name)):
        found = cluster.find(name)
        assert found is not None
        assert found.reported is not None
        assert found.allocatable is not None
        fresh.tell(found.reported)
        fresh.tell(found.allocatable)
    assert delivered(cluster, bench.now_ms) == delivered(fresh.core.cluster, bench.now_ms)


def end(bench: Bench, attempts: list[Attempt]) -> None:
    if attempts:
        bench.say(ReplicasWithdrawn(attempts=tuple(attempts), reason=Reason.CANCELLED))
