"""One list of withheld CPUs: of the collector, the scheduler, the promise and the pools of the executor."""

from __future__ import annotations

from pathlib import Path

import pytest

from colo_collector.files import FileReader
from colo_collector.machine import Machine
from colo_collector.rules import fitting_rules
from colo_common.model.cpuset import CpuSet
from colo_common.model.node_rules import NodeRules
from colo_common.model.topology import uniform_topology
from colo_executor.kept_cpus import KeptCpus, kept_of
from colo_executor.online import pools_of
from colo_executor.process.machine import cpu_index
from colo_executor.settings import ExecutorSettings
from colo_overcommit.reserved import reserved_by_zone
from colo_scheduler.cluster.inventory import NodeInventory, reserved_shares
from tests.support.builders import a_node
from tests.support.machine_tree import MachineSpec, MachineTree
from tests.support.manual_clock import ManualClock

GIB = 1 << 30
TOPOLOGY = uniform_topology(
    sockets=1, zones_per_socket=2, cpus_per_zone=8, memory_bytes_per_zone=GIB, threads_per_core=2
)


@pytest.fixture
def sys_root(tmp_path: Path) -> Path:
    """The same machine as its kernel shows it."""
    root = tmp_path / "devices/system"
    files = {"cpu/online": f"0-{len(TOPOLOGY.cpus) - 1}"}
    for cpu in TOPOLOGY.cpus:
        files[f"cpu/cpu{cpu.cpu}/topology/core_id"] = str(cpu.core)
        files[f"cpu/cpu{cpu.cpu}/topology/physical_package_id"] = str(cpu.socket)
    files |= {f"node/node{zone.zone}/cpulist": zone.cpus for zone in TOPOLOGY.zones}
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text + "\n")
    return tmp_path


@pytest.mark.parametrize(
    ("rules", "count"),
    [
        (NodeRules(reserved_mcpu=5_000), 5),
        (NodeRules(reserved_mcpu=5_000, reserved_spread=True), 5),
        (NodeRules(reserved_mcpu=8_000, system_cpus="9"), 9),
        (NodeRules(reserved_cpus="1,3", reserved_mcpu=5_000, kubelet_reserved_cpus="12-13"), 4),
        (NodeRules(reserved_mcpu=99_000), 0),
    ],
    ids=["packed", "spread", "a zone", "a list", "more than there is"],
)
def test_all_four_withhold_the_same_cpus(rules: NodeRules, count: int, sys_root: Path) -> None:
    assumed: list[str] = []
    published = fitting_rules(rules, TOPOLOGY, assumed)
    withheld = CpuSet(NodeInventory(TOPOLOGY, published).withheld)
    assert len(withheld) == count
    assert CpuSet(NodeInventory(TOPOLOGY, rules).withheld) == withheld, "also of a collector that publishes an amount"
    index = cpu_index(str(sys_root))
    assert ExecutorSettings(rules=rules).withheld_cpus(index) == withheld
    machine = CpuSet(index.all_mask)
    assert (
        pools_of(machine, (), KeptCpus(withheld=ExecutorSettings(rules=rules).withheld_cpus(index))).be
        == machine - withheld
    )
    kept = reserved_by_zone(TOPOLOGY, published)
    assert sum(zone.cpu_mcpu for zone in kept.values()) == count * 1_000
    assert {share.zone: share.cpu_mcpu for share in reserved_shares(TOPOLOGY, published) if share.cpu_mcpu} == {
        zone: part.cpu_mcpu for zone, part in kept.items() if part.cpu_mcpu
    }
    assert bool(assumed) == (count == 0)


def test_cpus_that_the_kernel_isolates_are_withheld_by_all(tmp_path: Path) -> None:
    MachineTree(MachineSpec(sockets=2, cores_per_zone=4, isolated="2-3,7"), tmp_path).write()
    rules = NodeRules(system_cpus="3", reserved_cpus="0")
    with FileReader(str(tmp_path)) as reader:
        machine = Machine(reader, subtree="colo", online=(), labels={}, rules=rules, clock=ManualClock(1_000_000))
        read = machine.observe().topology_read
    assert read is not None
    assert read.rules.system_cpus == "2-3,7"
    withheld = CpuSet.parse("0,2-3,7")
    assert CpuSet(NodeInventory(read.topology, read.rules).withheld) == withheld
    kept = kept_of(a_node(topology=read.topology, rules=read.rules))
    assert pools_of(CpuSet.parse("0-7"), (), kept).be == CpuSet.parse("0-7") - withheld
    assert {zone: part.cpu_mcpu for zone, part in reserved_by_zone(read.topology, read.rules).items()} == {
        0: 3_000,
        1: 1_000,
    }


def test_cpus_that_a_kubelet_pinned_are_lsr_from_its_file_to_the_promise_and_the_pools(tmp_path: Path) -> None:
    """Of eight CPUs the operator keeps 0 and the kubelet's static policy pinned 2-3 to a Guaranteed pod."""
    state = tmp_path / "var/lib/kubelet/cpu_manager_state"
    state.parent.mkdir(parents=True)
    entries = '{"policyName":"static","defaultCpuSet":"0-1,4-7","entries":{"uid-1":{"app":"2-3"}},"checksum":2}'
    state.write_text(entries)
    MachineTree(MachineSpec(sockets=2, cores_per_zone=4), tmp_path).write()
    rules = NodeRules(kubelet_reserved_cpus="0")
    clock = ManualClock(1_000_000)
    with FileReader(str(tmp_path)) as reader:
        path = f"/{state.relative_to(tmp_path)}"
        read = (
            Machine(reader, subtree="colo", online=(), labels={}, rules=rules, kubelet_state=path, clock=clock)
            .observe()
            .topology_read
        )
    assert read is not None
    report = a_node(topology=read.topology, rules=read.rules)
    # The promise keeps back what the operator keeps: the pod's CPUs count with their use, as online work.
    kept = reserved_by_zone(read.topology, read.rules)
    assert {zone: part.cpu_mcpu for zone, part in kept.items()} == {0: 1_000, 1: 0}
    whole = CpuSet.parse("0-7")
    pools = pools_of(whole, (), kept_of(report))
    assert (pools.ls, pools.be) == (CpuSet.parse("1,4-7"), CpuSet.parse("1-7"))
    # No placed work gets them either, neither CPUs of its own nor a share.
    assert CpuSet(NodeInventory(read.topology, read.rules).withheld) == CpuSet.parse("0,2-3")
