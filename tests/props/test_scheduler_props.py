"""The scheduler as a whole: never over what is free, nothing held twice, the same as the obvious one."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from colo_common.events.effects import Effect, Publish
from colo_common.events.enforcement import ReplicaEnded
from colo_common.events.job import PlacementsRequested, ReplicasWithdrawn
from colo_common.events.placement import PlacementsDecided
from colo_common.model.placement import Placement
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.topology import Zone
from colo_scheduler.core import SchedulerCore
from colo_scheduler.policy import SchedulerPolicy
from tests.support.builders import GIB, a_node
from tests.support.profiles import examples
from tests.support.scheduler_story import Bench, a_placement_request, an_allocatable, topology_of
from tests.support.scheduler_twin import TwinNode, TwinZone, best_node

MACHINES = {"small": topology_of(1), "two zones": topology_of(2), "two sockets": topology_of(4, sockets=2)}
free_zones = st.tuples(st.integers(0, 6).map(lambda n: n * 1000), st.integers(0, 6).map(lambda n: n * GIB))
machines = st.sampled_from(sorted(MACHINES)).flatmap(
    lambda name: st.tuples(
        st.just(name),
        st.lists(free_zones, min_size=len(MACHINES[name].zones), max_size=len(MACHINES[name].zones)),
    )
)
clusters = st.lists(machines, min_size=1, max_size=5)
requests = st.tuples(st.sampled_from([500, 1000, 2500, 4000]), st.sampled_from([1, 2, 3]))


def delivered(bench: Bench, cluster: list[tuple[str, list[tuple[int, int]]]], order: list[int]) -> list[Effect]:
    effects: list[Effect] = []
    for number in order:
        name, zones = cluster[number]
        effects += bench.tell(a_node(f"n{number}", MACHINES[name]))
        effects += bench.tell(an_allocatable(f"n{number}", zones))
    return effects + bench.wake()


def placements_of(effects: list[Effect]) -> list[Placement]:
    return [
        placement
        for effect in effects
        if isinstance(effect, Publish) and isinstance(effect.fact, PlacementsDecided)
        for placement in effect.fact.placements
    ]


def twin_nodes(cluster: list[tuple[str, list[tuple[int, int]]]]) -> dict[str, TwinNode]:
    nodes = {}
    for number, (name, zones) in enumerate(cluster):
        known: tuple[Zone, ...] = MACHINES[name].zones
        twins = tuple(TwinZone(z.zone, z.socket, cpu, memory) for z, (cpu, memory) in zip(known, zones, strict=True))
        nodes[f"n{number}"] = TwinNode(f"n{number}", twins, sum(c for c, _ in zones), sum(m for _, m in zones))
    return nodes


@given(clusters, st.lists(requests, min_size=1, max_size=8))
def test_every_choice_is_what_an_exhaustive_search_would_choose(
    cluster: list[tuple[str, list[tuple[int, int]]]], asked: list[tuple[int, int]]
) -> None:
    bench = Bench()
    delivered(bench, cluster, list(range(len(cluster))))
    nodes = twin_nodes(cluster)
    weights = SchedulerPolicy().weights
    for number, (cpu, gib) in enumerate(asked):
        # The same shape may be wanted several times: with equal priority and age each is decided alone here.
        placement_request = a_placement_request(f"j{number}/t/0", mcpu=cpu, memory_bytes=gib * GIB, queued_at_ms=number)
        expected = best_node(cpu, gib * GIB, list(nodes.values()), weights.fewest_zones, weights.most_free)
        placed = placements_of(bench.say(PlacementsRequested(placement_requests=(placement_request,))))
        assert [placement.node for placement in placed] == ([] if expected is None else [expected])
        for placement in placed:
            nodes[placement.node] = less(nodes[placement.node], placement)


def less(node: TwinNode, placement: Placement) -> TwinNode:
    taken = {share.zone: share for share in placement.zones}
    zones = tuple(
        zone._replace(cpu=zone.cpu - taken[zone.zone].cpu_mcpu, memory=zone.memory - taken[zone.zone].memory_bytes)
        if zone.zone in taken
        else zone
        for zone in node.zones
    )
    return node._replace(zones=zones)


@given(clusters, requests, st.integers(1, 12))
def test_a_class_decided_together_is_placed_as_its_replicas_one_by_one(
    cluster: list[tuple[str, list[tuple[int, int]]]], request: tuple[int, int], count: int
) -> None:
    cpu, gib = request
    placement_requests = [
        a_placement_request(f"j/t/{n:02}", mcpu=cpu, memory_bytes=gib * GIB, queued_at_ms=n) for n in range(count)
    ]
    together, alone = Bench(), Bench()
    delivered(together, cluster, list(range(len(cluster))))
    delivered(alone, cluster, list(range(len(cluster))))
    at_once = placements_of(together.say(PlacementsRequested(placement_requests=tuple(placement_requests))))
    one_by_one = [
        p
        for placement_request in placement_requests
        for p in placements_of(alone.say(PlacementsRequested(placement_requests=(placement_request,))))
    ]
    assert {p.replica: (p.node, p.zones) for p in at_once} == {p.replica: (p.node, p.zones) for p in one_by_one}


@given(clusters, st.lists(requests, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_the_order_in_which_nodes_become_known_decides_nothing(
    cluster: list[tuple[str, list[tuple[int, int]]]], asked: list[tuple[int, int]], rng: object
) -> None:
    placement_requests = tuple(
        a_placement_request(f"j{n}/t/0", mcpu=cpu, memory_bytes=gib * GIB, queued_at_ms=n)
        for n, (cpu, gib) in enumerate(asked)
    )
    order = list(range(len(cluster)))
    first = Bench()
    delivered(first, cluster, order)
    rng.shuffle(order)  # type: ignore[attr-defined]
    second = Bench()
    delivered(second, cluster, order)
    assert placements_of(first.say(PlacementsRequested(placement_requests=placement_requests))) == placements_of(
        second.say(PlacementsRequested(placement_requests=placement_requests))
    )


class Rules:
    """Random lives of a scheduler, told as a list of steps; few replicas, so that what is wanted also ends and comes again."""

    placement_request = st.tuples(st.just("want"), st.integers(0, 4), requests, st.integers(0, 2))
    steps = st.lists(
        st.one_of(
            placement_request,
            placement_request,
            st.tuples(st.just("end"), st.integers(0, 4)),
            st.tuples(st.just("withdraw"), st.integers(0, 4)),
            st.tuples(st.just("shrink"), st.integers(0, 4), free_zones),
            st.tuples(st.just("restart")),
            st.tuples(st.just("wait"), st.integers(1, 100_000)),
        ),
        min_size=8,
        max_size=25,
    )


def test_whatever_happens_nothing_is_held_twice_or_above_what_was_allocatable_and_all_of_it_happens() -> None:
    reached: Counter[str] = Counter()

    @examples(2.4)
    @given(clusters, Rules.steps)
    def lives(cluster: list[tuple[str, list[tuple[int, int]]]], steps: list[tuple[object, ...]]) -> None:
        reached.update(check_life(cluster, steps).keys())

    lives()
    # Of 60 lives and more.
    every = ("placed", "placed beside another", "ended", "taken back", "shrunk", "restarted", "told again")
    assert [name for name in every if reached[name] < 10] == []


def check_life(cluster: list[tuple[str, list[tuple[int, int]]]], steps: list[tuple[object, ...]]) -> Counter[str]:
    """Assert after every step that nothing is held twice or beyond what was allocatable; return what the steps reached.

    A replica that ends is one of those that are held, so that few of these steps say nothing.
    """
    reached: Counter[str] = Counter()
    bench = Bench()
    delivered(bench, cluster, list(range(len(cluster))))
    allocatable = {f"n{n}": list(zones) for n, (_, zones) in enumerate(cluster)}
    attempts: dict[int, int] = {}
    held: dict[str, Placement] = {}
    ever: dict[tuple[str, int], Placement] = {}
    for step in steps:
        effects: list[Effect] = []
        match step:
            case ("want", int(number), (int(cpu), int(gib)), int(priority)):
                if f"j/t/{number}" in held:
                    continue
                placement_request = a_placement_request(
                    f"j/t/{number}",
                    attempt=attempts.get(number, 1),
                    mcpu=cpu,
                    memory_bytes=gib * GIB,
                    priority=priority,
                )
                effects = bench.say(PlacementsRequested(placement_requests=(placement_request,)))
            case ("end", int(number)):
                if held:
                    placement = held.pop(sorted(held)[number % len(held)])
                    reached["ended"] += 1
                    attempts[int(placement.replica.rpartition("/")[2])] = placement.attempt + 1
                    effects = bench.say(ended(placement))
            case ("withdraw", int(number)):
                if held and number % 2:
                    number = int(sorted(held)[number % len(held)].rpartition("/")[2])
                attempt = attempts.get(number, 1)
                attempts[number] = attempt + 1
                reached["taken back"] += held.pop(f"j/t/{number}", None) is not None
                effects = bench.say(ReplicasWithdrawn(attempts=((f"j/t/{number}", attempt),), reason=Reason.CANCELLED))
            case ("shrink", int(number), zone):
                node = f"n{number % len(cluster)}"
                reached["shrunk"] += any(placement.node == node for placement in held.values())
                # Allocatable is never published below what is held.
                allocatable[node] = [
                    (max(zone[0], cpu), max(zone[1], memory))  # type: ignore[index]
                    for cpu, memory in held_of(held, node, len(allocatable[node]))
                ]
                effects = bench.say(an_allocatable(node, allocatable[node], at_ms=bench.now_ms))
            case ("restart",):
                reached["restarted"] += bool(held)
                bench.core = SchedulerCore()
                assert not [p for p in placements_of(bench.load()) if (p.replica, p.attempt) not in ever]
                effects = bench.wake()
                for name, zones in sorted(allocatable.items()):
                    bench.tell(a_node(name, MACHINES[cluster[int(name[1:])][0]]))
                    effects += bench.say(an_allocatable(name, zones, at_ms=bench.now_ms))
            case ("wait", int(span)):
                bench.now_ms += span
                effects = bench.wake()
            case _:
                raise AssertionError(step)
        for placement in placements_of(effects):
            # What no node starts is told again, and then it is the same and still held.
            reached["placed"] += 1
            reached["placed beside another"] += any(other.node == placement.node for other in held.values())
            reached["told again"] += (placement.replica, placement.attempt) in ever
            before = ever.setdefault((placement.replica, placement.attempt), placement)
            assert before is placement or before == held.get(placement.replica) == placement
            held[placement.replica] = placement
        for node, zones in sorted(allocatable.items()):
            for (cpu, memory), (most_cpu, most_memory) in zip(held_of(held, node, len(zones)), zones, strict=True):
                assert cpu <= most_cpu
                assert memory <= most_memory
    return +reached


def ended(placement: Placement) -> ReplicaEnded:
    return ReplicaEnded(
        node=placement.node,
        replica=placement.replica,
        job=placement.job,
        attempt=placement.attempt,
        cause=EndCause.EXITED,
        exit_code=0,
    )


def held_of(held: dict[str, Placement], node: str, zones: int) -> list[tuple[int, int]]:
    sums = [[0, 0] for _ in range(zones)]
    for placement in held.values():
        if placement.node == node:
            for share in placement.zones:
                sums[share.zone][0] += share.cpu_mcpu
                sums[share.zone][1] += share.memory_bytes
    return [(cpu, memory) for cpu, memory in sums]
