"""The documented example: a machine of 16 CPUs runs one workload each of LSE, LSR, LS and BE, two CPUs asked for by each.

What the documentation shows: LSE runs on 0-1 alone, LSR on 2-3, LS on 4-15 (what LSE and LSR leave), and BE, narrowed by
suppression at that moment, on 2 and 4-12, all of them outside of LSE's.
"""

from __future__ import annotations

import pytest

from colo_common.model.cpu_topology import CpuRow, CpuTopology
from colo_common.model.cpuset import CpuSet
from colo_common.model.qos import PriorityBand
from colo_common.model.topology import uniform_topology
from colo_scheduler.cpus.accumulate import Wish, take_cpus
from colo_scheduler.cpus.binding import BindPolicy
from colo_scheduler.cpus.exclusive import HeldCpus, sum_holders
from colo_scheduler.cpus.qos_binding import AskedPolicy, ResourceSpec, bind
from tests.parity.peers.container_cpuset import CpusetRule, GivenCpus, ZonePool, cpus_of_workload
from tests.parity.peers.cpu_pools import CpuHold, Pools, check_holds, compute_pools, union
from tests.parity.peers.effective_qos import effective_of_pod
from tests.parity.peers.pod import PRIORITY_CLASS_LABEL, QOS_LABEL, Amounts, Container, Pod
from tests.parity.peers.pod_admission import refusals
from tests.support.cpu_topology import topology_from_node

SPREAD = ResourceSpec(preferred=AskedPolicy.SPREAD_BY_PCPUS)
TWO_CPUS = Container(requests=Amounts(cpu_mcpu=2000), limits=Amounts(cpu_mcpu=2000))
TWO_BATCH_CPUS = Container(requests=Amounts(batch_cpu_mcpu=2000), limits=Amounts(batch_cpu_mcpu=2000))


def pod(qos: str, priority: int, container: Container) -> Pod:
    return Pod(labels={QOS_LABEL: qos}, priority=priority, containers=(container,))


PODS = {
    "nginx-lse": pod("LSE", 9000, TWO_CPUS),
    "nginx-lsr": pod("LSR", 9000, TWO_CPUS),
    "nginx-ls": pod("LS", 9000, TWO_CPUS),
    "nginx-be": pod("BE", 5000, TWO_BATCH_CPUS),
}


def threaded() -> CpuTopology:
    """8 cores; CPU i and i + 8 are threads of one core, as Linux numbers them."""
    return CpuTopology.from_rows(CpuRow(cpu=cpu, core=cpu % 8, zone=0, socket=0) for cpu in range(16))


def unthreaded() -> CpuTopology:
    """16 cores of one thread, as a virtual machine often shows them."""
    return topology_from_node(
        uniform_topology(
            sockets=1, zones_per_socket=1, cpus_per_zone=16, memory_bytes_per_zone=1 << 34, threads_per_core=1
        )
    )


def place(topology: CpuTopology) -> tuple[list[CpuHold], Pools]:
    """Give every pod that needs them CPUs of its own, one pod after the other."""
    holds: list[CpuHold] = []
    for name, each in PODS.items():
        assert refusals(each) == ()
        found = effective_of_pod(each)
        assert found.qos is not None
        binding = bind(SPREAD, qos=found.qos, band=found.band, cpu_mcpu=each.request.cpu_mcpu)
        assert (binding is not None) == found.qos.has_own_cpus
        if binding is None:
            continue
        assert (binding.policy, binding.cpus) == (BindPolicy.SPREAD_BY_PCPUS, 2)
        free = CpuSet(topology.all_mask) - union(hold.cpus for hold in holds)
        wish = Wish(bind=binding.policy, exclusive=binding.exclusive)
        held = sum_holders(HeldCpus(cpus=hold.cpus) for hold in holds)
        taken = take_cpus(topology, free.mask, binding.cpus, wish, held)
        assert isinstance(taken, int)
        holds.append(CpuHold(owner=name, cpus=CpuSet(taken), qos=found.qos))
    check_holds(topology, holds)
    return holds, compute_pools(topology, holds)


@pytest.mark.parametrize("topology", [threaded(), unthreaded()], ids=["two threads a core", "one thread a core"])
def test_every_class_gets_the_documented_cpus(topology: CpuTopology) -> None:
    holds, pools = place(topology)
    rule = CpusetRule(
        ls_pools=tuple(ZonePool(zone=pool.zone, cpus=pool.cpus.format()) for pool in pools.ls),
        be_pools=tuple(ZonePool(zone=pool.zone, cpus=pool.cpus.format()) for pool in pools.be),
    )
    given = {hold.owner: GivenCpus(cpus=hold.cpus.format()) for hold in holds}
    # Kubernetes sees no memory request in the first three and neither CPU nor memory in the fourth.
    written = {
        name: cpus_of_workload(
            rule,
            given.get(name, GivenCpus()),
            effective_of_pod(each).qos,
            "BestEffort" if "be" in name else "Burstable",
        )
        for name, each in PODS.items()
    }
    assert written == {"nginx-lse": "0-1", "nginx-lsr": "2-3", "nginx-ls": "4-15", "nginx-be": ""}


def test_be_may_run_everywhere_but_on_the_cpus_of_lse() -> None:
    _, pools = place(threaded())
    assert pools.be_cpus == CpuSet.parse("2-15")
    documented = CpuSet.parse("2,4-12")
    assert documented <= pools.be_cpus
    assert pools.ls_cpus == CpuSet.parse("4-15")
    assert [hold.cpus.format() for hold in pools.exclusive] == ["0-1"]
    assert [hold.cpus.format() for hold in pools.reserved] == ["2-3"]


def test_the_pods_are_what_the_documentation_says_they_are() -> None:
    assert {name: effective_of_pod(each).band for name, each in PODS.items()} == {
        "nginx-lse": PriorityBand.PROD,
        "nginx-lsr": PriorityBand.PROD,
        "nginx-ls": PriorityBand.PROD,
        "nginx-be": PriorityBand.BATCH,
    }
    by_label = Pod(labels={QOS_LABEL: "BE", PRIORITY_CLASS_LABEL: "koord-batch"}, containers=(TWO_BATCH_CPUS,))
    assert refusals(by_label) == ()
