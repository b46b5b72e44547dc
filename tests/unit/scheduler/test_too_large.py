"""What no machine could ever hold is told as such at once, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from colo_common.events.job import PlacementsRequested
from colo_common.events.placement import PlacementRejected
from colo_common.model.constraints import Constraints, CpuBind, DeviceRequest, NumaPolicy
from colo_common.model.node_rules import NodeRules
from colo_common.model.placement import Placement
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import Reason
from colo_common.model.shortage import most_text
from colo_common.model.topology import Device, NodeTopology, uniform_topology
from tests.props.test_scheduler_props import placements_of
from tests.support.builders import GIB, a_node, a_topology
from tests.support.scheduler_story import Bench, a_placement_request, an_allocatable, answer_in

SMALL = a_topology(cpus=4)
"""Two zones of 4 CPUs: 0-3 and 4-7."""


def with_gpus(*memory_gib: int) -> NodeTopology:
    """Two zones; a GPU of each size, each on a root of its own."""
    devices = tuple(
        Device(kind="gpu", device=n, zone=n % 2, pcie=f"pci{n}", memory_bytes=gib * GIB)
        for n, gib in enumerate(memory_gib)
    )
    return structs.replace(a_topology(), devices=devices)


def a_bench(*machines: NodeTopology, rules: NodeRules | None = None) -> Bench:
    bench = Bench()
    for number, machine in enumerate(machines, 1):
        say(bench, f"n{number}", machine, rules or NodeRules())
    return bench


def say(bench: Bench, name: str, machine: NodeTopology, rules: NodeRules) -> list[Placement]:
    """Tell of a node; what is placed then."""
    effects = bench.say(a_node(name, machine, is_online=True, rules=rules, at_ms=bench.now_ms))
    whole = [(zone.cpu_capacity_mcpu, zone.memory_bytes) for zone in machine.zones]
    return placements_of([*effects, *bench.say(an_allocatable(name, whole, at_ms=bench.now_ms))])


def answer(
    bench: Bench, mcpu: int = 1000, qos: QosClass = QosClass.BE, name: str = "a", **place: Any
) -> Placement | PlacementRejected:
    band = PriorityBand.BATCH if qos is QosClass.BE else PriorityBand.PROD
    constraints = Constraints(**place)
    placement_request = a_placement_request(
        f"{name}/t/0", mcpu=mcpu, qos=qos, band=band, constraints=constraints, queued_at_ms=bench.now_ms
    )
    found = answer_in(bench.say(PlacementsRequested(placement_requests=(placement_request,))))
    bench.core.check()
    return found


def delivered(fact: Placement | PlacementRejected) -> str:
    """What machines have, where it is said that none could ever hold it; "" otherwise."""
    if isinstance(fact, Placement) or not fact.never:
        return ""
    assert fact.nearest is not None
    return most_text(**structs.asdict(fact.nearest))


def gpu(**about: Any) -> dict[str, Any]:
    return {"devices": (DeviceRequest(kind="gpu", **about),)}


@pytest.mark.parametrize(
    ("machines", "placement_requests", "says"),
    [
        (
            [with_gpus(16, 16)],
            gpu(core_pct=50, memory_bytes=17 * GIB),
            "a machine has 16Gi of memory on one gpu at most (n1), it needs 17Gi",
        ),
        ([with_gpus(16, 16)], gpu(core_pct=50, memory_bytes=16 * GIB), ""),
        (
            [with_gpus(16), with_gpus(40, 24)],
            gpu(core_pct=50, memory_bytes=48 * GIB),
            "a machine has 40Gi of memory on one gpu at most (n2), it needs 48Gi",
        ),
        (
            # The largest GPU of n1 is large enough, but it has only one such.
            [with_gpus(80, 16), with_gpus(24, 24, 24)],
            gpu(count=2, core_pct=50, memory_bytes=32 * GIB),
            "a machine has 24Gi of memory on each of 2 gpu at most (n2), it needs 32Gi",
        ),
        (
            [with_gpus(0, 0)],
            gpu(core_pct=50, memory_bytes=GIB),
            "no machine has any gpu that tells its memory, it needs 1",
        ),
        (
            [with_gpus(0, 0)],
            gpu(core_pct=50, memory_pct=50),
            "no machine has any gpu that tells its memory, it needs 1",
        ),
        ([with_gpus(0, 0)], gpu(core_pct=50), ""),
        ([with_gpus(0, 0)], gpu(count=2), ""),
        ([with_gpus(16, 16)], gpu(count=3), "a machine has 2 gpu at most (n1), it needs 3"),
        ([a_topology()], gpu(count=1), "no machine has any gpu, it needs 1"),
    ],
    ids=[
        "more than each has",
        "as much as it has",
        "more than the largest of the cluster",
        "of several each",
        "of unknown memory some bytes",
        "of unknown memory a part",
        "of unknown memory a share of its cores",
        "of unknown memory the whole",
        "more devices than there are",
        "no such device",
    ],
)
def test_device_memory_that_no_machine_has_is_never_waited_for(
    machines: list[NodeTopology], placement_requests: dict[str, Any], says: str
) -> None:
    fact = answer(a_bench(*machines), **placement_requests)
    assert delivered(fact) == says
    assert isinstance(fact, Placement) is (says == "")


def test_device_memory_that_others_hold_is_waited_for() -> None:
    bench = a_bench(with_gpus(16))
    share = gpu(core_pct=50, memory_bytes=10 * GIB)
    assert isinstance(answer(bench, **share), Placement)
    second = answer(bench, name="b", **share)
    assert isinstance(second, PlacementRejected)
    assert not second.never
    assert [count.reason for count in second.counts] == [Reason.DEVICE_SHORT]


PINNED = NodeRules(kubelet_reserved_cpus="0-3", kubelet_pinned_cpus="2-3")
"""Two CPUs that the kubelet keeps for good, and two that a pod has; all of them in zone 0."""


@pytest.mark.parametrize(
    ("mcpu", "qos", "place", "says"),
    [
        (5_000, QosClass.LS, {}, ""),
        (6_000, QosClass.LS, {}, ""),
        (7_000, QosClass.LS, {}, "a machine has 6 CPU at most (n1), it needs 7"),
        (6_000, QosClass.LSR, {}, ""),
        (7_000, QosClass.LSR, {}, "a machine has 6 CPU at most (n1), it needs 7"),
        (5_000, QosClass.LSE, {}, ""),
        (6_000, QosClass.LSE, {}, "a machine has 5 CPUs of its own at most (n1), it needs 6"),
        (5_000, QosClass.LSR, {"numa_policy": NumaPolicy.SINGLE_NUMA_NODE}, "a NUMA node has 4 CPU at most"),
    ],
)
def test_cpus_that_a_pod_has_pinned_come_back_and_those_reserved_do_not(
    mcpu: int, qos: QosClass, place: dict[str, Any], says: str
) -> None:
    bench = a_bench(SMALL, rules=PINNED)
    fact = answer(bench, mcpu, qos, **place)
    assert isinstance(fact, PlacementRejected)
    assert delivered(fact).startswith(says)
    assert fact.never is bool(says)
    # When the pod ends, exactly what was said to wait for room finds it.
    bench.now_ms += 10_000
    found = say(bench, "n1", SMALL, NodeRules(kubelet_reserved_cpus="0-1"))
    assert [placement.cpu_mcpu for placement in found] == ([] if says else [mcpu])


def test_a_zone_whose_cpus_are_pinned_is_counted_as_it_is_without_the_pod() -> None:
    rules = NodeRules(kubelet_reserved_cpus="0-1,4-6", kubelet_pinned_cpus="4-6")
    for mcpu, is_never in ((2_000, False), (4_000, False), (5_000, True)):
        fact = answer(a_bench(SMALL, rules=rules), mcpu, QosClass.LSR, numa_policy=NumaPolicy.SINGLE_NUMA_NODE)
        assert isinstance(fact, Placement) is (mcpu == 2_000)
        assert getattr(fact, "never", False) is is_never


def test_what_comes_back_is_counted_as_the_node_claims_it() -> None:
    rules = structs.replace(PINNED, amplification_pct=150)
    for mcpu, is_never in ((9_000, False), (9_001, True)):
        fact = answer(a_bench(SMALL, rules=rules), mcpu, QosClass.LS)
        assert isinstance(fact, PlacementRejected)
        assert fact.never is is_never


def test_whole_cores_that_no_machine_can_make_of_a_number_of_cpus_are_never_waited_for() -> None:
    bound: dict[str, Any] = {"cpu_bind": CpuBind.FULL_PCPUS, "cpu_bind_required": True}
    fact = answer(a_bench(SMALL, SMALL), 3_000, QosClass.LSR, **bound)
    assert "whole physical cores are required" in delivered(fact)
    # A machine without hyper-threads makes any number of whole cores.
    apart = uniform_topology(
        sockets=1, zones_per_socket=1, cpus_per_zone=4, memory_bytes_per_zone=8 * GIB, threads_per_core=1
    )
    bench = a_bench(SMALL, apart)
    assert isinstance(answer(bench, 3_000, QosClass.LSR, **bound), Placement)
    # While that one is full there is something to wait for.
    waits = answer(bench, 3_000, QosClass.LSR, "b", **bound)
    assert isinstance(waits, PlacementRejected)
    assert not waits.never


KEPT = NodeRules(reserved_cpus="0,1", reserved_memory_bytes=2 * GIB)
"""Two CPUs of zone 0 and one GiB of each zone are the node's own."""


@pytest.mark.parametrize(
    ("mcpu", "memory_gib", "place", "says"),
    [
        (6_000, 1, {}, ""),
        (6_001, 1, {}, "a machine has 6 CPU at most (n1), it needs 6.001"),
        (1_000, 126, {}, ""),
        (1_000, 127, {}, "a machine has 126Gi of memory at most (n1), it needs 127Gi"),
        (4_000, 1, {"numa_policy": NumaPolicy.SINGLE_NUMA_NODE}, ""),
        (4_001, 1, {"numa_policy": NumaPolicy.SINGLE_NUMA_NODE}, "a NUMA node has 4 CPU at most (zone 1 of n1)"),
        (1_000, 64, {"numa_policy": NumaPolicy.SINGLE_NUMA_NODE}, "a NUMA node has 63Gi of memory at most"),
    ],
)
def test_what_a_node_keeps_for_itself_is_never_batch(
    mcpu: int, memory_gib: int, place: dict[str, Any], says: str
) -> None:
    bench = a_bench(SMALL, rules=KEPT)
    placement_request = a_placement_request(
        "a/t/0", mcpu=mcpu, memory_bytes=memory_gib * GIB, constraints=Constraints(**place)
    )
    fact = answer_in(bench.say(PlacementsRequested(placement_requests=(placement_request,))))
    assert delivered(fact).startswith(says)
    assert isinstance(fact, Placement) is (says == "")


def test_a_machine_that_keeps_everything_for_itself_never_runs_batch_work() -> None:
    fact = answer(a_bench(SMALL, rules=NodeRules(system_cpus="0-7")))
    assert delivered(fact) == "no machine has any CPU, it needs 1"
