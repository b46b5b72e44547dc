"""The nearest miss of each reason of quantity, as people read it, from the core that refused."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from colo_common.events.node import LoadSummary
from colo_common.events.placement import PlacementRejected
from colo_common.model.constraints import CpuPolicy, DeviceRequest, HugePages, NumaPolicy
from colo_common.model.node_rules import NodeRules
from colo_common.model.qos import QosClass
from colo_common.model.reasons import Reason
from colo_common.model.shortage import LOAD_UNITS, most_text, shortage_text
from colo_common.model.topology import Device
from colo_scheduler.load.dynamic_rules import METRICS, DynamicRules
from colo_scheduler.load.rules import LoadRules
from colo_scheduler.policy import SchedulerPolicy
from tests.support.builders import GIB, a_node, a_topology
from tests.support.scheduler_story import a_placement_request, an_allocatable, gpus
from tests.unit.scheduler.test_node_choice import rejection, used
from tests.unit.scheduler.test_places import BE, LS, LSE, LSR, a_bench, placed, refused
from tests.unit.scheduler.test_signals import a_bench as loaded_bench
from tests.unit.scheduler.test_signals import a_load, online, place

PAGE = 2 << 20
ALIGNED = NumaPolicy.SINGLE_NUMA_NODE


def delivered(fact: PlacementRejected) -> str:
    """The nearest miss, or what machines have where that is the matter."""
    assert fact.nearest is not None
    miss = structs.asdict(fact.nearest)
    return most_text(**miss) if fact.never else shortage_text(**miss)


# Each machine has two zones of four CPUs and 8 GiB; what is held before, what is asked, and what is told of it.
CASES: list[tuple[list[tuple[QosClass, int, dict[str, Any]]], tuple[QosClass, int, dict[str, Any]], Reason, str]] = [
    ([(BE, 4, {})], (BE, 6, {}), Reason.BATCH_CPU_SHORT, "2 CPU short in n1 (4 of 6)"),
    ([(LS, 4, {})], (LS, 6, {}), Reason.CPU_SHORT, "2 CPU short in n1 (4 of 6)"),
    (
        [(LSR, 3, {}), (LSR, 2, {})],
        (LSR, 3, {"numa_policy": ALIGNED}),
        Reason.ZONE_FIT_SHORT,
        "1 CPU short in zone 1 of n1 (2 of 3)",
    ),
    (
        [(LS, 3, {}), (LS, 2, {})],
        (LS, 3, {"cpu_policy": CpuPolicy.NUMA}),
        Reason.ZONE_FIT_SHORT,
        "1 CPU short in zone 1 of n1 (2 of 3)",
    ),
    (
        [],
        (LSR, 5, {"numa_policy": ALIGNED}),
        Reason.ZONE_FIT_SHORT,
        "a NUMA node has 4 CPU at most (zone 0 of n1), it needs 5",
    ),
    (
        [],
        (BE, 5, {"numa_policy": ALIGNED}),
        Reason.ZONE_FIT_SHORT,
        "a NUMA node has 4 CPU at most (zone 0 of n1), it needs 5",
    ),
    ([], (LSE, 8, {}), Reason.CPUS_SHORT, "a machine has 7 CPUs of its own at most (n1), it needs 8"),
    ([], (BE, 9, {}), Reason.BATCH_CPU_SHORT, "a machine has 8 CPU at most (n1), it needs 9"),
    (
        [(LS, 1, {"devices": (DeviceRequest(kind="gpu", count=1),)})],
        (LS, 1, {"devices": (DeviceRequest(kind="gpu", count=2),)}),
        Reason.DEVICE_SHORT,
        "1 gpu short in n1 (1 of 2)",
    ),
    (
        [(LS, 1, {"huge_pages": (HugePages(page_bytes=PAGE, total_bytes=3 * PAGE),)})],
        (LS, 1, {"huge_pages": (HugePages(page_bytes=PAGE, total_bytes=4 * PAGE),)}),
        Reason.HUGE_PAGES_SHORT,
        "2Mi of huge pages short in n1 (6Mi of 8Mi)",
    ),
    (
        [(LS, 1, {"huge_pages": (HugePages(page_bytes=PAGE, total_bytes=3 * PAGE),)})],
        (LSR, 1, {"huge_pages": (HugePages(page_bytes=PAGE, total_bytes=3 * PAGE),), "numa_policy": ALIGNED}),
        Reason.ZONE_FIT_SHORT,
        "2Mi of huge pages short in zone 0 of n1 (4Mi of 6Mi)",
    ),
    (
        [],
        (LS, 1, {"huge_pages": (HugePages(page_bytes=PAGE, total_bytes=7 * PAGE),)}),
        Reason.HUGE_PAGES_SHORT,
        "a machine has 12Mi of huge pages at most (n1), it needs 14Mi",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("before", "wanted", "reason", "text"), CASES)
def test_what_was_short_is_told_with_its_amount_and_its_zone(
    before: list[tuple[QosClass, int, dict[str, Any]]],
    wanted: tuple[QosClass, int, dict[str, Any]],
    reason: Reason,
    text: str,
) -> None:
    machine = a_topology(cpus=4, memory_gib=8)
    first, second = machine.zones
    zones = (
        structs.replace(first, huge_pages=(HugePages(page_bytes=PAGE, total_bytes=2 * PAGE),)),
        structs.replace(second, huge_pages=(HugePages(page_bytes=PAGE, total_bytes=4 * PAGE),)),
    )
    bench = a_bench(structs.replace(machine, zones=zones, devices=gpus(2, 2)))
    for number, (qos, cpus, about) in enumerate(before):
        placed(bench, f"before{number}", qos, cpus, **about)
    qos, cpus, about = wanted
    fact = refused(bench, "job", qos, cpus, **about)
    assert fact.nearest is not None
    assert (fact.nearest.reason, delivered(fact)) == (reason, text)


def test_of_several_kinds_of_devices_the_one_that_is_short_there_is_told() -> None:
    nics = tuple(Device(kind="nic", device=number, zone=0) for number in range(4))
    machine = structs.replace(a_topology(cpus=4, memory_gib=8), devices=(*gpus(2, 2), *nics))
    bench = a_bench(machine)
    placed(bench, "nics", LS, 1, devices=(DeviceRequest(kind="nic", count=3),))
    bench.say(a_node("n2", machine, is_online=True))
    bench.say(an_allocatable("n2", [(4_000, 8 * GIB)] * 2))
    gpu = placed(bench, "gpu", LS, 1, devices=(DeviceRequest(kind="gpu", count=1), DeviceRequest(kind="nic", count=2)))
    assert gpu.node == "n2"
    # Three NICs are short in n1, in n2 a GPU and two NICs.
    asked = (DeviceRequest(kind="gpu", count=2), DeviceRequest(kind="nic", count=4))
    assert delivered(refused(bench, "both", LS, 1, devices=asked)) == "1 gpu short in n2 (1 of 2)"


def test_memory_that_is_short_is_told_in_units_that_people_read() -> None:
    bench = loaded_bench({"n1": None})
    place(bench, a_placement_request("held/main/0", memory_bytes=63 * GIB + GIB // 2))
    assert delivered(rejection(bench)) == "512Mi of memory short in n1 (512Mi of 1Gi)"


def test_batch_replicas_are_told_by_how_many_there_are() -> None:
    bench = a_bench(rules=NodeRules(batch_replicas_most=1))
    placed(bench, "a", BE, 1)
    assert delivered(refused(bench, "b", BE, 1)) == "1 of 1 batch replicas in n1"


def test_the_least_busy_of_busy_nodes_is_told_with_its_load() -> None:
    rules = SchedulerPolicy(load=LoadRules(cpu_pct=65, memory_pct=50))
    bench = loaded_bench({"a": a_load(12_000), "b": a_load(10_500), "c": a_load(14_000)}, rules)
    # 10.5 CPUs are in use, and the newcomer is expected to use 0.85 more; what is above the limit already is told as it is.
    assert delivered(rejection(bench)) == "CPU load 66 % of 65 % in b"
    nearly = loaded_bench({"a": a_load(10_000)}, rules)
    assert delivered(rejection(nearly)) == "CPU load 68 % of 65 % in a"
    full = structs.replace(a_load(0), memory_used_bytes=40 * GIB)
    assert delivered(rejection(loaded_bench({"a": full}, rules))) == "memory load 63 % of 50 % in a"


def test_a_percentile_that_is_too_high_is_told_as_the_load_that_it_is() -> None:
    rules = SchedulerPolicy(load=LoadRules(cpu_pct=65, usage="p95"))
    assert delivered(rejection(loaded_bench({"a": used(p95=80)}, rules))) == "CPU load 80 % of 65 % in a"


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_above_its_limit_is_told_by_its_window(name: str) -> None:
    field = {"5m": "avg", "1h": "hour", "1d": "day"}[name.rpartition("_")[2]]
    loads: dict[str, LoadSummary | None] = {"a": used(**{field: 90}), "b": used(**{field: 71})}
    fact = rejection(loaded_bench(loads, SchedulerPolicy(dynamic=DynamicRules(limits_pct={name: 65}))))
    words = LOAD_UNITS[METRICS[name].unit]
    assert words.startswith("CPU" if name.startswith("cpu") else "memory")
    assert delivered(fact) == f"{words} 71 % of 65 % in b"


def test_online_work_with_cpus_of_its_own_is_judged_by_online_work_of_the_whole_node() -> None:
    # Koordinator's prod usage is that of all prod pods, whatever CPUs they run on, and it judges LSE and LSR as any prod work.
    busy = a_load(11_000, prod_mcpu=10_000, system_mcpu=900)
    for qos in (LSE, LSR):
        bench = loaded_bench({"a": busy})
        placement_request = structs.replace(online("web/main/0"), qos=qos)
        assert place(bench, placement_request) == ["-"]
    calm = a_load(15_000, prod_mcpu=1_000, system_mcpu=900)
    for qos in (LSE, LSR):
        assert place(loaded_bench({"a": calm}), structs.replace(online("web/main/0"), qos=qos)) == ["a"]
