"""Nodes whose zones the kubelet, Koordinator or Crane's agent hands out: online work goes there by their rules."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from colo_common.model.constraints import CpuBind, CpuPolicy, DeviceRequest, NumaExclusive, NumaPolicy
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.node_rules import NodeRules
from colo_common.model.qos import QosClass
from colo_common.model.reasons import Reason
from colo_common.model.topology import NodeTopology
from tests.support.builders import GIB, a_node, a_topology
from tests.support.scheduler_story import gpus, topology_of
from tests.unit.scheduler.test_places import BE, LS, LSE, LSR, a_bench, placed, reasons, refused, words

SINGLE, RESTRICTED, BEST = NumaPolicy.SINGLE_NUMA_NODE, NumaPolicy.RESTRICTED, NumaPolicy.BEST_EFFORT


def by_kubelet(policy: NumaPolicy = SINGLE, *options: str, **about: Any) -> NodeRules:
    return NodeRules(numa_rule="kubelet", numa_policy=policy, kubelet_options=options, **about)


def zones_of(placement: Any) -> dict[int, tuple[int, int]]:
    return {share.zone: (share.cpu_mcpu // 1000, share.memory_bytes // GIB) for share in placement.zones}


# ---- the kubelet


def test_the_kubelet_takes_the_lowest_zone_that_has_everything_where_colo_takes_the_freest() -> None:
    for rules, expected in ((by_kubelet(), "0-1"), (NodeRules(numa_policy=SINGLE), "4,6")):
        bench = a_bench(rules=rules)
        bench.say(a_node("n1", a_topology(cpus=4, memory_gib=8), is_online=True, rules=rules, at_ms=1))
        placed(bench, "other", LS, 1)
        assert placed(bench, "a", LSR, 2).cpus == expected


def test_what_the_kubelet_would_refuse_as_an_affinity_error_is_not_placed() -> None:
    bench = a_bench(rules=by_kubelet())
    assert reasons(refused(bench, "a", LSR, 6)) == {Reason.ZONE_FIT_SHORT: 1}
    placed(bench, "b", LSR, 3)
    placed(bench, "c", LSR, 3)
    delivered = refused(bench, "d", LSR, 2)
    assert reasons(delivered) == {Reason.ZONE_FIT_SHORT: 1}
    assert "zone" in words(delivered)
    # Restricted asks how few zones an empty machine would need: two CPUs need one.
    bench = a_bench(rules=by_kubelet(RESTRICTED))
    placed(bench, "b", LSR, 3)
    placed(bench, "c", LSR, 3)
    assert reasons(refused(bench, "d", LSR, 2)) == {Reason.NUMA_NOT_ALIGNED: 1}
    assert placed(bench, "e", LSR, 1).node == "n1"


def test_best_effort_takes_what_is_missing_from_anywhere() -> None:
    bench = a_bench(rules=by_kubelet(BEST))
    placed(bench, "b", LSR, 3)
    placed(bench, "c", LSR, 3)
    both = placed(bench, "d", LSR, 2)
    assert sorted(zones_of(both)) == [0, 1]
    assert len(CpuSet.parse(both.cpus)) == 2


def test_work_of_the_shared_pool_is_not_aligned_by_a_kubelet_but_its_devices_are() -> None:
    machine = structs.replace(a_topology(cpus=4, memory_gib=8), devices=gpus(2, 2))
    bench = a_bench(machine, by_kubelet())
    wide = placed(bench, "wide", LS, 6)
    assert zones_of(wide).keys() == {0, 1}
    gpu = placed(bench, "gpu", LS, 1, devices=(DeviceRequest(kind="gpu", count=1),))
    assert len(gpu.devices) == 1
    assert reasons(refused(bench, "two", LS, 1, devices=(DeviceRequest(kind="gpu", count=2),))).keys() <= {
        Reason.NUMA_NOT_ALIGNED,
        Reason.DEVICE_SHORT,
    }


def test_whole_cores_are_an_option_of_the_kubelet() -> None:
    bench = a_bench(rules=by_kubelet(NumaPolicy.NONE, "full-pcpus-only"))
    assert reasons(refused(bench, "odd", LSR, 3)) == {Reason.CPUS_NOT_WHOLE_CORES: 1}
    whole = placed(bench, "even", LSR, 2, cpu_bind=CpuBind.FULL_PCPUS, cpu_bind_required=True)
    assert whole.cpus in ("0-1", "2-3", "4-5", "6-7")


def test_the_kubelet_spreads_over_zones_and_over_cores_as_it_is_told() -> None:
    for option, expected in (
        ("distribute-cpus-across-numa", {0: 5, 1: 5}),
        ("prefer-align-cpus-by-uncorecache", {0: 8, 1: 2}),
        ("distribute-cpus-across-cores", {0: 8, 1: 2}),
    ):
        bench = a_bench(a_topology(cpus=8, memory_gib=8), by_kubelet(NumaPolicy.NONE, option))
        whole = placed(bench, "a", LSR, 10)
        found = CpuSet.parse(whole.cpus)
        assert {zone: cpus for zone, (cpus, _) in zones_of(whole).items()} == expected
        counts = {zone: len([cpu for cpu in found if cpu // 8 == zone]) for zone in (0, 1)}
        assert {zone: count for zone, count in counts.items() if count} == expected


def test_the_closest_zones_are_taken_where_the_kubelet_is_told_to() -> None:
    """Four zones in two sockets, no CPU in zone 0; CPU and memory both need two zones."""
    machine = a_topology(sockets=2, zones_per_socket=2, cpus=4, memory_gib=8)
    zones = tuple(structs.replace(zone, memory_bytes=GIB * 3 // 4) for zone in machine.zones)
    for is_closest in (False, True):
        rules = by_kubelet(RESTRICTED, numa_closest=is_closest, reserved_cpus="0-3")
        pair = placed(a_bench(structs.replace(machine, zones=zones), rules), "b", LSR, 6)
        assert zones_of(pair).keys() == ({2, 3} if is_closest else {1, 2})


@pytest.mark.parametrize(
    ("about", "reason"),
    [
        ({"numa_policy": RESTRICTED}, Reason.NUMA_POLICY_CONFLICT),
        ({"numa_policy": SINGLE, "numa_exclusive": NumaExclusive.REQUIRED}, Reason.NUMA_POLICY_CONFLICT),
        ({"cpu_bind": CpuBind.SPREAD_BY_PCPUS, "cpu_bind_required": True}, Reason.CPU_BIND_CONFLICT),
        ({"cpu_bind": CpuBind.FULL_PCPUS, "cpu_bind_required": True}, Reason.CPU_BIND_CONFLICT),
    ],
)
def test_what_a_kubelet_cannot_promise_is_a_conflict(about: dict[str, Any], reason: Reason) -> None:
    bench = a_bench(rules=by_kubelet())
    assert reasons(refused(bench, "a", LSR, 2, **about)) == {reason: 1}
    assert placed(bench, "b", LSR, 2, numa_policy=SINGLE).node == "n1"


@pytest.mark.parametrize("rule", ["kubelet", "katalyst"])
def test_who_shares_cpus_cannot_ask_a_kubelet_for_zones_that_it_would_not_keep_to(rule: str) -> None:
    for policy in (SINGLE, RESTRICTED):
        bench = a_bench(rules=NodeRules(numa_rule=rule, numa_policy=policy))  # type: ignore[arg-type]
        assert reasons(refused(bench, "a", LS, 2, numa_policy=policy)) == {Reason.NUMA_POLICY_CONFLICT: 1}
        assert placed(bench, "b", LS, 2).node == "n1"
        assert placed(bench, "c", LSR, 2, numa_policy=policy).node == "n1"


def test_a_kubelet_has_no_fixed_cpus_that_others_may_use_and_no_pool_of_one_zone() -> None:
    bench = a_bench(rules=by_kubelet())
    assert reasons(refused(bench, "a", LS, 2, cpu_policy=CpuPolicy.IMMOVABLE)) == {Reason.CPU_BIND_CONFLICT: 1}
    assert reasons(refused(bench, "b", LS, 2, cpu_policy=CpuPolicy.NUMA)) == {Reason.NUMA_POLICY_CONFLICT: 1}


def test_batch_work_keeps_to_colos_rule_on_every_node() -> None:
    bench = a_bench(rules=by_kubelet())
    assert placed(bench, "a", BE, 2, numa_policy=RESTRICTED).node == "n1"


@pytest.mark.parametrize("rule", ["kubelet", "koordinator"])
def test_more_zones_than_can_be_foreseen_are_said_and_one_zone_of_many_is_found(rule: Any) -> None:
    machine = topology_of(9, sockets=1, cpus=2, memory_gib=2)
    bench = a_bench(machine, NodeRules(numa_rule=rule, numa_policy=RESTRICTED))
    delivered = refused(bench, "a", LSR, 2)
    assert reasons(delivered) == {Reason.ZONES_TOO_MANY: 1}
    assert "more zones" in words(delivered)
    bench = a_bench(machine, NodeRules(numa_rule=rule, numa_policy=SINGLE))
    if rule == "koordinator":
        assert reasons(refused(bench, "a", LSR, 2)) == {Reason.ZONES_TOO_MANY: 1}
        return
    assert [placed(bench, f"a{n}", LSR, 2).cpus for n in range(9)] == [f"{2 * n}-{2 * n + 1}" for n in range(9)]
    assert reasons(refused(bench, "b", LSR, 2)).keys() <= {Reason.CPUS_SHORT, Reason.CPU_SHORT}


# ---- Koordinator and Crane


def test_koordinator_splits_evenly_over_the_zones_it_needs() -> None:
    rules = NodeRules(numa_rule="koordinator", numa_policy=RESTRICTED)
    both = placed(a_bench(rules=rules), "a", LSR, 6)
    assert {zone: cpus for zone, (cpus, _) in zones_of(both).items()} == {0: 3, 1: 3}
    # Whole cores that are required are split by cores.
    cores = placed(a_bench(rules=rules), "a", LSR, 6, cpu_bind=CpuBind.FULL_PCPUS, cpu_bind_required=True)
    assert {zone: cpus for zone, (cpus, _) in zones_of(cores).items()} == {0: 2, 1: 4}
    assert zones_of(placed(a_bench(rules=NodeRules(numa_policy=RESTRICTED)), "a", LSR, 6)).keys() == {0, 1}


def test_koordinators_zone_is_the_fullest_or_the_freest_as_the_node_is_told() -> None:
    for allocate, zone in (("most-allocated", 0), ("least-allocated", 1)):
        rules = NodeRules(numa_rule="koordinator", numa_policy=SINGLE, numa_allocate=allocate)  # type: ignore[arg-type]
        bench = a_bench(rules=rules)
        placed(bench, "a", LSR, 1)
        assert zones_of(placed(bench, "b", LSR, 1)).keys() == {zone}


def test_cranes_agent_pours_over_the_freest_zones_or_takes_the_freest_one() -> None:
    rules = NodeRules(numa_rule="crane")
    bench = a_bench(rules=rules)
    assert zones_of(placed(bench, "a", LSR, 1)).keys() == {0}
    poured = placed(bench, "b", LSR, 5)
    assert {zone: cpus for zone, (cpus, _) in zones_of(poured).items()} == {0: 1, 1: 4}
    bench = a_bench(rules=NodeRules(numa_rule="crane", numa_policy=SINGLE))
    placed(bench, "a", LSR, 1)
    assert placed(bench, "b", LSR, 3).cpus == "4-6"
    assert reasons(refused(bench, "c", LSR, 4)) == {Reason.ZONE_FIT_SHORT: 1}
    # A job may ask for one zone itself; a fixed set that is not alone is Crane's as well.
    bench = a_bench(rules=rules)
    assert zones_of(placed(bench, "a", LS, 3, cpu_policy=CpuPolicy.IMMOVABLE, numa_policy=SINGLE)).keys() == {0}
    assert reasons(refused(bench, "b", LSR, 2, numa_policy=RESTRICTED)) == {Reason.NUMA_POLICY_CONFLICT: 1}


def cached() -> NodeTopology:
    """One zone of 12 CPUs in three caches of four."""
    machine = a_topology(zones_per_socket=1, cpus=12, memory_gib=8)
    return structs.replace(machine, cpus=tuple(structs.replace(cpu, l3=cpu.cpu // 4) for cpu in machine.cpus))


def test_katalyst_takes_the_cache_that_fits_best_in_the_kubelets_zone() -> None:
    bench = a_bench(cached(), NodeRules(numa_rule="katalyst", numa_policy=SINGLE))
    assert placed(bench, "a", LSR, 2).cpus == "0-1"
    # Four fit into a cache that is free, two into the rest of the first one.
    assert placed(bench, "b", LSR, 4).cpus == "4-7"
    assert placed(bench, "c", LSR, 2).cpus == "2-3"
    bench = a_bench(rules=NodeRules(numa_rule="katalyst", numa_policy=SINGLE))
    assert reasons(refused(bench, "d", LSR, 6)) == {Reason.ZONE_FIT_SHORT: 1}
    assert reasons(refused(bench, "e", LS, 2, cpu_policy=CpuPolicy.NUMA)) == {Reason.NUMA_POLICY_CONFLICT: 1}


def test_an_amount_is_reserved_packed_or_in_turn_from_every_zone() -> None:
    for is_spread, expected in ((False, {0: 0, 1: 4}), (True, {0: 2, 1: 2})):
        bench = a_bench(rules=NodeRules(reserved_mcpu=3_500, reserved_spread=is_spread))
        found = [placed(bench, f"a{number}", LSR, 1) for number in range(4)]
        counts = {zone: sum(zone in zones_of(each) for each in found) for zone in (0, 1)}
        assert counts == expected
        refused(bench, "b", LSR, 1)


# ---- colo's own order


def test_a_balanced_node_takes_the_zone_that_is_used_in_even_parts() -> None:
    """Zone 0 has much memory left for each CPU, zone 1 as much as the request: that one is used up evenly."""
    rules = NodeRules(numa_policy=SINGLE, numa_allocate="balanced")
    machine = a_topology(cpus=8, memory_gib=8)
    zones = (structs.replace(machine.zones[0], memory_bytes=64 * GIB), machine.zones[1])
    placed_ = placed(a_bench(structs.replace(machine, zones=zones), rules), "a", LSR, 1)
    assert zones_of(placed_).keys() == {1}
    freest = placed(a_bench(structs.replace(machine, zones=zones), NodeRules(numa_policy=SINGLE)), "a", LSR, 1)
    assert zones_of(freest).keys() == {0}


def far_apart() -> NodeTopology:
    """Four zones of one socket: 0 is near to 3, 1 to 2."""
    machine = topology_of(4, sockets=1, cpus=4, memory_gib=8)
    rows = ((10, 30, 30, 12), (30, 10, 12, 30), (30, 12, 10, 30), (12, 30, 30, 10))
    zones = tuple(structs.replace(zone, distances=row) for zone, row in zip(machine.zones, rows, strict=True))
    return structs.replace(machine, zones=zones)


def test_colo_takes_the_closest_of_equally_many_zones_where_the_node_says_so() -> None:
    bench = a_bench(far_apart(), NodeRules(numa_policy=BEST))
    assert zones_of(placed(bench, "a", LSR, 6)).keys() == {0, 1}
    bench = a_bench(far_apart(), NodeRules(numa_policy=BEST, numa_closest=True))
    assert zones_of(placed(bench, "a", LSR, 6)).keys() == {0, 3}
    assert zones_of(placed(bench, "b", LSR, 6)).keys() == {1, 2}


# ---- rules that contradict each other


@pytest.mark.parametrize(
    ("rules", "field"),
    [
        (NodeRules(kubelet_options=("full-pcpus-only",)), "rules.kubelet_options"),
        (by_kubelet(SINGLE, "fast"), "rules.kubelet_options"),
        (by_kubelet(SINGLE, "full-pcpus-only", "distribute-cpus-across-cores"), "rules.kubelet_options"),
        (by_kubelet(cpu_bind=CpuBind.FULL_PCPUS), "rules.cpu_bind"),
        (by_kubelet(numa_allocate="most-allocated"), "rules.numa_allocate"),
        (NodeRules(numa_rule="koordinator", numa_allocate="balanced"), "rules.numa_allocate"),
        (NodeRules(numa_rule="koordinator", numa_closest=True), "rules.numa_closest"),
        (NodeRules(numa_rule="crane", numa_policy=RESTRICTED), "rules.numa_policy"),
        (NodeRules(numa_rule="crane", amplification_pct=150), "rules.amplification_pct"),
    ],
)
def test_rules_that_contradict_each_other_are_refused_and_the_node_stays_what_it_was(
    rules: NodeRules, field: str
) -> None:
    bench = a_bench()
    with pytest.raises(InvalidInput, match=f"^{field}:"):
        bench.core.handle(a_node("n1", a_topology(cpus=4, memory_gib=8), rules=rules, at_ms=5), 0)
    bench.core.check()
    assert placed(bench, "a", LSR, 2).node == "n1"


def test_a_restart_knows_what_was_handed_out() -> None:
    bench = a_bench(rules=by_kubelet())
    assert placed(bench, "a", LSE, 2, cpu_bind=CpuBind.DEFAULT).cpus == "0-1"
    again = a_bench(rules=by_kubelet(), ledger=bench.ledger)
    assert placed(again, "b", QosClass.LSR, 2).cpus == "2-3"
