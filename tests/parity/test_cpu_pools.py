"""Exclusive CPUs and shared pools: the rules of the classes, whatever is held."""

from __future__ import annotations

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from colo_common.model.cpu_topology import CpuRow, CpuTopology
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.qos import QosClass
from colo_common.model.topology import uniform_topology
from tests.parity.peers.cpu_pools import CpuHold, SharedPool, check_holds, compute_pools, union, without
from tests.support.cpu_topology import topology_from_node

MACHINE = topology_from_node(uniform_topology(sockets=2, zones_per_socket=2, cpus_per_zone=4, memory_bytes_per_zone=1))
ALL = CpuSet(MACHINE.all_mask)

cpu_sets = st.sets(st.integers(0, 19), max_size=6).map(CpuSet.from_iterable)
holds = st.lists(
    st.builds(
        CpuHold,
        owner=st.sampled_from("abcdef"),
        cpus=cpu_sets,
        qos=st.sampled_from([*QosClass.__members__.values(), None]),
    ),
    max_size=6,
)


def hold(owner: str, text: str, qos: QosClass | None = QosClass.LSR) -> CpuHold:
    return CpuHold(owner=owner, cpus=CpuSet.parse(text), qos=qos)


@given(holds, cpu_sets, cpu_sets, cpu_sets, st.randoms(use_true_random=False))
def test_pools_keep_the_promises_of_every_class(
    held: list[CpuHold], kubelet: CpuSet, reserved: CpuSet, system: CpuSet, random: object
) -> None:
    pools = compute_pools(MACHINE, held, kubelet=kubelet, reserved=reserved, system=system)
    exclusive = union(each.cpus for each in held if each.qos is QosClass.LSE)
    own = union(each.cpus for each in held)
    withheld = kubelet | reserved | system
    assert pools.ls_cpus == ALL - own - withheld
    assert pools.be_cpus == ALL - exclusive - withheld
    assert pools.ls_cpus <= pools.be_cpus
    assert union(each.cpus for each in pools.exclusive) == exclusive
    for shared in (pools.ls, pools.be):
        assert len(union(pool.cpus for pool in shared)) == sum(len(pool.cpus) for pool in shared)
        assert [(pool.socket, pool.zone) for pool in shared] == sorted((pool.socket, pool.zone) for pool in shared)
        for pool in shared:
            assert pool.cpus <= MACHINE.cpus_of_zone(pool.zone)
    shuffled = list(held)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert compute_pools(MACHINE, shuffled, kubelet=kubelet, reserved=reserved, system=system) == pools


@given(holds)
def test_holds_that_pass_the_check_are_disjoint_and_on_the_machine(held: list[CpuHold]) -> None:
    try:
        check_holds(MACHINE, held, withheld=CpuSet.parse("0"))
    except InvalidInput:
        event("refused")
        return
    event("passed")
    assert sum(len(each.cpus) for each in held) == len(union(each.cpus for each in held))
    assert union(each.cpus for each in held) <= ALL - CpuSet.parse("0")
    assert all(each.cpus and each.qos not in (QosClass.LS, QosClass.BE) for each in held)


@pytest.mark.parametrize(
    ("held", "field", "rule"),
    [
        ([hold("a", "0-1"), hold("b", "1-2")], "holds[b].cpus", "must not be CPUs that a holds"),
        ([hold("a", "16")], "holds[a].cpus", "must be CPUs of this machine"),
        ([hold("a", "")], "holds[a].cpus", "must hold at least one CPU"),
        ([hold("a", "15")], "holds[a].cpus", "must not be CPUs that the node withholds"),
        ([hold("a", "3", QosClass.BE)], "holds[a].qos", "must be a class that holds CPUs of its own"),
    ],
)
def test_a_hold_that_breaks_a_rule_is_named(held: list[CpuHold], field: str, rule: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_holds(MACHINE, held, withheld=CpuSet.parse("15"))
    assert (caught.value.field, caught.value.rule) == (field, rule)


def test_a_zone_held_completely_has_no_pool_and_one_reserved_completely_an_empty_one() -> None:
    pools = compute_pools(MACHINE, [hold("a", "0-3")], reserved=CpuSet.parse("4-7"))
    assert [(pool.zone, pool.cpus.format()) for pool in pools.ls] == [(1, ""), (2, "8-11"), (3, "12-15")]
    assert [(pool.zone, pool.cpus.format()) for pool in pools.be] == [(0, "0-3"), (1, ""), (2, "8-11"), (3, "12-15")]


def test_a_zone_that_spans_sockets_has_one_pool_under_the_socket_of_its_lowest_cpu() -> None:
    machine = CpuTopology.from_rows(CpuRow(cpu=cpu, core=cpu, zone=0, socket=1 - cpu // 2) for cpu in range(4))
    assert compute_pools(machine, []).ls == (SharedPool(socket=1, zone=0, cpus=CpuSet.parse("0-3")),)
    assert compute_pools(machine, [hold("a", "0-1")]).ls == (SharedPool(socket=0, zone=0, cpus=CpuSet.parse("2-3")),)


def test_pools_without_some_cpus_keep_their_places() -> None:
    pools = (
        SharedPool(socket=0, zone=0, cpus=CpuSet.parse("0-1")),
        SharedPool(socket=0, zone=1, cpus=CpuSet.parse("2")),
    )
    assert [pool.cpus.format() for pool in without(pools, CpuSet.parse("1-2"))] == ["0", ""]
