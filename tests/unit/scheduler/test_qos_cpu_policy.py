"""Exclusive, immovable, numa and none: which CPUs a fixed set gets, and what it leaves to the others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.topology import uniform_topology
from colo_scheduler.cpus.cpu_policy import (
    FixedCpuPolicy,
    PolicyHold,
    choose_fixed,
)
from colo_scheduler.cpus.pools import union
from colo_scheduler.cpus.topology import CpuTopology

MACHINE = CpuTopology.from_node(
    uniform_topology(sockets=1, zones_per_socket=2, cpus_per_zone=8, memory_bytes_per_zone=1)
)
NUMA_0 = PolicyHold(owner="numa", policy=FixedCpuPolicy.NUMA, zones=(0,))
NOBODY = PolicyHold(owner="none", policy=FixedCpuPolicy.NONE)


def cpus(text: str) -> CpuSet:
    return CpuSet.parse(text)


def cpu_sets(holds: list[PolicyHold], reserved: CpuSet | None = None) -> dict[str, CpuSet]:
    """The CPUs of every workload, as the table of the module says: what the exclusive ones leave, less the reserved."""
    everything = CpuSet(MACHINE.all_mask)
    left = everything - union(hold.cpus for hold in holds if hold.policy is FixedCpuPolicy.EXCLUSIVE)
    kept = reserved or CpuSet()
    return {
        hold.owner: hold.cpus
        if hold.policy.is_fixed
        else (left - kept) & union(MACHINE.cpus_of_zone(zone) for zone in hold.zones)
        if hold.policy is FixedCpuPolicy.NUMA
        else left - (kept if hold.keeps_off_reserved else CpuSet())
        for hold in holds
    }


def test_exclusive_work_narrows_the_others_and_gives_back_when_it_leaves() -> None:
    shared = [NUMA_0, NOBODY]
    assert cpu_sets(shared, reserved=cpus("0")) == {"numa": cpus("1-7"), "none": cpus("0-15")}
    taken = choose_fixed(MACHINE, shared, {0: 2}, FixedCpuPolicy.EXCLUSIVE, reserved=cpus("0"))
    # Not 1: the other thread of its core is the node's own, while 2 and 4 have a core each to themselves.
    assert taken == cpus("2,4")
    exclusive = PolicyHold(owner="alone", policy=FixedCpuPolicy.EXCLUSIVE, cpus=taken)
    assert cpu_sets([*shared, exclusive], reserved=cpus("0")) == {
        "numa": cpus("1,3,5-7"),
        "none": cpus("0-1,3,5-15"),
        "alone": cpus("2,4"),
    }


def test_immovable_work_shares_its_cpus_but_no_other_fixed_work_gets_them() -> None:
    fixed = PolicyHold(owner="fixed", policy=FixedCpuPolicy.IMMOVABLE, cpus=cpus("0,2,4,6"))
    assert cpu_sets([NUMA_0, fixed]) == {"numa": cpus("0-7"), "fixed": cpus("0,2,4,6")}
    assert choose_fixed(MACHINE, [fixed], {0: 4}, FixedCpuPolicy.EXCLUSIVE) == cpus("1,3,5,7")
    assert choose_fixed(MACHINE, [fixed], {0: 4}, FixedCpuPolicy.IMMOVABLE) == cpus("1,3,5,7")
    assert choose_fixed(MACHINE, [fixed], {0: 5}, FixedCpuPolicy.IMMOVABLE) is None


def test_each_zone_gives_what_is_asked_of_it() -> None:
    assert choose_fixed(MACHINE, [], {0: 2, 1: 3}, FixedCpuPolicy.EXCLUSIVE) == cpus("0,2,8,10,12")
    assert choose_fixed(MACHINE, [], {0: 9}, FixedCpuPolicy.EXCLUSIVE) is None
    assert choose_fixed(MACHINE, [], {}, FixedCpuPolicy.EXCLUSIVE) == CpuSet()


def test_work_that_shares_is_never_left_without_a_cpu() -> None:
    assert choose_fixed(MACHINE, [NUMA_0], {0: 8}, FixedCpuPolicy.EXCLUSIVE) is None
    assert choose_fixed(MACHINE, [NUMA_0], {0: 8}, FixedCpuPolicy.IMMOVABLE) == cpus("0-7")
    assert choose_fixed(MACHINE, [NUMA_0], {1: 8}, FixedCpuPolicy.EXCLUSIVE) == cpus("8-15")


def test_reserved_cpus_may_be_kept_from_work_that_is_bound_to_nothing() -> None:
    polite = PolicyHold(owner="polite", policy=FixedCpuPolicy.NONE, keeps_off_reserved=True)
    assert cpu_sets([polite, NOBODY], reserved=cpus("0-1")) == {"polite": cpus("2-15"), "none": cpus("0-15")}


def test_a_choice_that_cannot_be_meant_is_refused() -> None:
    with pytest.raises(InvalidInput, match="exclusive or immovable"):
        choose_fixed(MACHINE, [], {0: 1}, FixedCpuPolicy.NUMA)
    with pytest.raises(InvalidInput, match="zone of this machine"):
        choose_fixed(MACHINE, [], {7: 1}, FixedCpuPolicy.EXCLUSIVE)
    with pytest.raises(InvalidInput, match="at least 0"):
        choose_fixed(MACHINE, [], {0: -1}, FixedCpuPolicy.EXCLUSIVE)


arrivals = st.lists(
    st.tuples(st.sampled_from(list(FixedCpuPolicy)), st.dictionaries(st.integers(0, 1), st.integers(0, 6), min_size=1)),
    max_size=8,
)


@given(arrivals, st.sets(st.integers(0, 15), max_size=4))
def test_whoever_comes_exclusive_cpus_stay_in_one_set(
    work: list[tuple[FixedCpuPolicy, dict[int, int]]], kept: set[int]
) -> None:
    reserved = CpuSet.from_iterable(kept)
    holds: list[PolicyHold] = []
    for number, (policy, wanted) in enumerate(work):
        chosen: CpuSet | None = CpuSet()
        if policy.is_fixed:
            chosen = choose_fixed(MACHINE, holds, wanted, policy, reserved=reserved)
            assert chosen == choose_fixed(MACHINE, holds[::-1], wanted, policy, reserved=reserved)
            if chosen is None:
                continue
            assert not chosen & reserved
            assert {zone: len(chosen & MACHINE.cpus_of_zone(zone)) for zone in wanted} == wanted
        holds.append(PolicyHold(owner=str(number), policy=policy, zones=tuple(wanted), cpus=chosen))
    sets = cpu_sets(holds, reserved=reserved)
    fixed = [hold.cpus for hold in holds if hold.policy.is_fixed]
    assert len(union(fixed)) == sum(len(each) for each in fixed)
    for hold in holds:
        others = union(sets[other.owner] for other in holds if other is not hold)
        if hold.policy is FixedCpuPolicy.EXCLUSIVE:
            assert not sets[hold.owner] & others
        if hold.policy is FixedCpuPolicy.NUMA:
            assert sets[hold.owner] <= union(MACHINE.cpus_of_zone(zone) for zone in hold.zones)
