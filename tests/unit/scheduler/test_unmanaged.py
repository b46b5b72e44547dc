"""How much prod work leaves to online work that colo did not place."""

import pytest

from colo_common.events.job import PlacementsRequested
from colo_common.events.node import UnmanagedUse
from colo_common.model.invalid import InvalidInput
from colo_common.model.node_rules import UNRULED, NodeRules
from colo_common.model.qos import PriorityBand, QosClass
from colo_scheduler.cluster.pool import PoolName
from colo_scheduler.cluster.unmanaged import claimed_of, room_of, shared_cpus_of
from colo_scheduler.placement.explain import report_of
from colo_scheduler.policy import SchedulerPolicy, check_policy
from colo_scheduler.requests.request_class import class_of
from tests.props.test_scheduler_props import placements_of
from tests.support.builders import GIB, a_node
from tests.support.scheduler_story import Bench, a_placement_request, an_allocatable, topology_of

NODE = a_node("n0", topology_of(2, cpus=16, memory_gib=64), is_online=True)
PROD = PriorityBand.PROD


def use(zone: int, mcpu: int, gib: int = 0, p95: int = 0, p95_gib: int = 0) -> UnmanagedUse:
    return UnmanagedUse(
        zone=zone,
        cpu_mcpu=mcpu,
        memory_bytes=gib * GIB,
        cpu_p95_mcpu=p95,
        memory_p95_bytes=p95_gib * GIB,
    )


def a_bench(
    unmanaged: tuple[UnmanagedUse, ...] | None, rules: NodeRules = UNRULED, policy: SchedulerPolicy | None = None
) -> Bench:
    bench = Bench(policy)
    bench.tell(a_node("n0", NODE.topology, is_online=True, rules=rules))
    bench.tell(an_allocatable("n0", [(3_000, 6 * GIB)] * 2, unmanaged=unmanaged))
    bench.core.check()
    return bench


def free(bench: Bench) -> tuple[list[int], list[int]]:
    row = bench.core.cluster.view(bench.now_ms).pool(PoolName.PROD).rows[0]
    return row.cpu, [memory // GIB for memory in row.memory]


def place(bench: Bench, mcpu: int, qos: QosClass = QosClass.LS, name: str = "j/t/0") -> int:
    """How many CPUs it was given, 0 without a place."""
    placement_request = a_placement_request(name, mcpu=mcpu, qos=qos, band=PROD)
    found = placements_of(bench.say(PlacementsRequested(placement_requests=(placement_request,))))
    bench.core.check()
    return sum(placement.cpu_mcpu for placement in found) // 1_000


@pytest.mark.parametrize(
    ("unmanaged", "cpu", "gib"),
    [
        ((), [16_000, 16_000], [64, 64]),
        ((use(0, 4_000, 10), use(1, 1)), [10_000, 15_998], [49, 64]),
        ((use(0, 4_000, 10, p95=6_000, p95_gib=20),), [7_000, 16_000], [34, 64]),
        ((use(1, 6_000, p95=4_000), use(7, 9_000)), [16_000, 7_000], [64, 64]),
        ((use(0, 12_000),), [-2_000, 16_000], [64, 64]),
        (None, [0, 0], [0, 0]),
    ],
    ids=["none", "now", "p95", "now-above-p95-and-a-zone-that-is-not", "more-than-there-is", "unknown"],
)
def test_half_as_much_again_as_is_used_is_left(
    unmanaged: tuple[UnmanagedUse, ...] | None, cpu: list[int], gib: list[int]
) -> None:
    assert free(a_bench(unmanaged)) == (cpu, gib)


def test_the_room_follows_what_is_heard_and_wakes_who_waits() -> None:
    bench = a_bench((use(0, 10_000), use(1, 10_000)))
    assert place(bench, 8_000) == 0
    bench.now_ms = 2_000
    found = placements_of(bench.tell(an_allocatable("n0", [(3_000, 6 * GIB)] * 2, at_ms=2_000)) + bench.wake())
    assert [placement.cpu_mcpu for placement in found] == [8_000]
    bench.core.check()


def test_a_node_claims_more_and_the_room_costs_as_much_more() -> None:
    bench = a_bench((use(0, 4_001),), NodeRules(amplification_pct=150))
    # ceil(1.5 * 4001) = 6002 real, 9003 claimed.
    assert free(bench)[0] == [24_000 - 9_003, 24_000]


def test_batch_work_is_not_asked_for_the_room_again() -> None:
    bench = a_bench((use(0, 16_000), use(1, 16_000)))
    assert bench.core.cluster.view(0).pool(PoolName.BATCH).rows[0].cpu == [3_000, 3_000]


@pytest.mark.parametrize("qos", [QosClass.LSE, QosClass.LSR])
@pytest.mark.parametrize("rules", [UNRULED, NodeRules(reserved_cpus="0-1", reserved_cpus_only=True)])
def test_own_cpus_leave_the_shared_pool_the_room(qos: QosClass, rules: NodeRules) -> None:
    bench = a_bench((use(0, 4_001), use(1, 4_000)), rules)
    # 7 CPUs of zone 0 and 6 of zone 1 stay, of those that nobody keeps back.
    kept = 2 if rules is not UNRULED else 0
    most = (16 - 7 - kept) + (16 - 6)
    given = sum(place(bench, 1_000, qos, f"j/t/{number}") for number in range(32))
    assert given == most
    inventory = bench.core.cluster.view(bench.now_ms).inventory_index.of(0)
    assert inventory is not None
    assert [inventory.own_most_of(zone) for zone in (0, 1)] == [0, 0]


@pytest.mark.parametrize(("qos", "mcpu"), [(QosClass.LSE, 12_000), (QosClass.LSR, 12_000), (QosClass.LS, 12_000)])
def test_what_does_not_fit_is_told_with_what_is_left(qos: QosClass, mcpu: int) -> None:
    bench = a_bench((use(0, 8_000), use(1, 9_000)))
    view = bench.core.cluster.view(bench.now_ms)
    report = report_of(view, class_of(a_placement_request("j/t/0", mcpu=mcpu, qos=qos, band=PROD)))
    assert [(count.reason.value, count.nodes) for count in report.counts] == [("cpu-short", 1)]
    assert report.nearest is not None
    assert (report.nearest.need, report.nearest.have, report.nearest.unit) == (12_000, 4_000 + 2_500, "mcpu")
    assert not report.is_unresolvable


def test_the_policy_says_how_much() -> None:
    assert free(a_bench((use(0, 4_000),), policy=SchedulerPolicy(prod_room_pct=100)))[0] == [12_000, 16_000]
    for wrong in (99, 1_001):
        with pytest.raises(InvalidInput, match="prod_room_pct"):
            check_policy(SchedulerPolicy(prod_room_pct=wrong))


def test_nothing_is_known_of_a_node_that_said_nothing() -> None:
    assert room_of(None, an_allocatable("n0", [(1, 1)]), 150) == ()
    assert room_of(NODE, None, 150) == ()
    assert claimed_of((), None) == ()
    assert shared_cpus_of(room_of(NODE, an_allocatable("n0", [], unmanaged=(use(0, 1), use(1, 0))), 150)) == {0: 1}
