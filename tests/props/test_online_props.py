"""Pools and holds of one node, whatever comes and goes: disjoint, complete, and the same as the scheduler's."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from colo_common.model.cpuset import CpuSet
from colo_common.model.placement import ZoneShare
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.topology import uniform_topology
from colo_executor.desired import MachineFacts
from colo_executor.kept_cpus import KeptCpus
from colo_executor.knob_table import Knob
from colo_executor.online import CpuHold, CpusRefused, given_cpus, online_sets, pools_of
from tests.parity.peers.cpu_pools import CpuHold as SchedulerHold
from tests.parity.peers.cpu_pools import compute_pools
from tests.support.builders import a_placement
from tests.support.cpu_topology import topology_from_node

COUNT = 16
ALL = CpuSet((1 << COUNT) - 1)
MACHINE = MachineFacts(
    cpus=ALL,
    mems=CpuSet.parse("0-1"),
    zones={0: CpuSet.parse("0-7"), 1: CpuSet.parse("8-15")},
    has=frozenset(Knob),
)
TOPOLOGY = uniform_topology(sockets=1, zones_per_socket=2, cpus_per_zone=8, memory_bytes_per_zone=1 << 30)

masks = st.integers(0, (1 << COUNT) - 1).map(CpuSet)
few = st.sets(st.integers(0, COUNT - 1), max_size=4).map(CpuSet.from_iterable)
classes = st.sampled_from([QosClass.LSE, QosClass.LSR, QosClass.LS])


@given(st.lists(st.tuples(classes, few), max_size=8), few)
def test_the_pools_are_those_of_the_scheduler(given_holds, withheld: CpuSet) -> None:
    holds = [CpuHold(owner=f"o{i}", qos=qos, cpus=cpus, cpu_mcpu=1) for i, (qos, cpus) in enumerate(given_holds)]
    ours = pools_of(ALL, holds, KeptCpus(withheld=withheld))
    theirs = compute_pools(
        topology_from_node(TOPOLOGY),
        [SchedulerHold(owner=hold.owner, qos=hold.qos, cpus=hold.cpus) for hold in holds if hold.qos.has_own_cpus],
        reserved=withheld,
    )
    assert (ours.ls, ours.be) == (theirs.ls_cpus, theirs.be_cpus)


zones = st.sampled_from([(0,), (1,), (0, 1)])


@given(st.lists(st.tuples(classes, st.one_of(few, masks), zones, st.booleans()), max_size=12), few, few)
def test_whatever_is_accepted_nobody_loses_the_last_cpu_and_own_cpus_stay_own(asks, withheld, pinned) -> None:
    holds: list[CpuHold] = []
    kept = KeptCpus(withheld=withheld, pinned=pinned)
    for index, (qos, cpus, near, leaves) in enumerate(asks):
        if leaves and holds:
            holds.pop(0)
        shares = tuple(ZoneShare(zone=zone, cpu_mcpu=500, memory_bytes=1 << 29) for zone in near)
        placement = replace(a_placement(), qos=qos, band=PriorityBand.PROD, cpus=cpus.format(), zones=shares)
        try:
            hold = given_cpus(placement, f"o{index}", MACHINE, tuple(holds), kept)
        except CpusRefused:
            continue
        holds.append(hold)
        pools = pools_of(ALL, holds, kept)
        assert pools.be
        assert not pools.ls & pinned
        assert pools.be >= (pinned - withheld) - CpuSet.from_iterable(
            cpu for hold in holds if hold.qos is QosClass.LSE for cpu in hold.cpus
        )
        assert pools.ls <= pools.be
        own = [hold for hold in holds if hold.qos.has_own_cpus]
        assert sum(len(hold.cpus) for hold in own) == len(
            CpuSet.from_iterable(cpu for hold in own for cpu in hold.cpus)
        )
        for hold in holds:
            cpus, mems = online_sets(hold, MACHINE, pools)
            assert cpus, "a replica has no CPU"
            assert mems, "a replica has no memory"
            assert not cpus & withheld
            if hold.qos is QosClass.LSE:
                assert not cpus & pools.be
            if not hold.qos.has_own_cpus:
                assert cpus <= pools.ls
                assert mems == hold.zones, "memory is of the zones that were chosen"
                room = CpuSet.from_iterable(cpu for zone in hold.zones for cpu in MACHINE.zones[zone]) & pools.ls
                if room and not hold.cpus:
                    assert cpus == room, "all of the pool of its zones and nothing else"
