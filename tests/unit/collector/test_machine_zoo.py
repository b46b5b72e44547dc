"""Machines that exist, read from top to bottom: topology, capabilities, a sample, the document for other schedulers."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from msgspec import structs

from colo_cli.main import main
from colo_collector.discover import parse_online_groups
from colo_collector.machine import Machine
from colo_collector.nrt import node_resource_topology
from colo_collector.pods import POD_ROOTS
from colo_collector.readings import SampleRead, TopologyRead
from colo_collector.reserved_cpus import packed_cpus, reservation_rules, reserved_ids
from colo_common.events.node import CacheUse
from colo_common.model.constraints import HugePages
from colo_common.model.invalid import InvalidInput
from colo_common.model.node_rules import UNRULED, NodeRules
from colo_common.model.qos import QosClass
from colo_common.model.topology import Device, NodeTopology, uniform_topology
from tests.support.machine_tree import MachineTree
from tests.support.machine_zoo import POD_UID, ZOO
from tests.support.manual_clock import ManualClock
from tests.unit.collector.test_machine import TimedReader


def read(root: Path, name: str, seconds: int = 1) -> tuple[TopologyRead, SampleRead, MachineTree]:
    """The topology of a machine of the zoo, and its sample after so many seconds in which its work runs half of the time."""
    tree = MachineTree(ZOO[name], root)
    tree.write()
    reader = TimedReader(str(root))
    machine = Machine(
        reader,
        subtree="colo",
        online=parse_online_groups(("web=/web:LSR",), "colo"),
        labels={},
        clock=ManualClock(0),
        user_hz=100,
        pod_roots=POD_ROOTS,
    )
    first = machine.observe()
    assert first.topology_read is not None
    assert first.faults == ()
    event = first.event
    for _ in range(seconds):
        tree.advance(1_000, zone_pct={0: 50})
        tree.run("web", 1_000, run_pct=40, wait_pct=10)
        tree.bandwidth_bytes += 1_000_000
        tree.write()
        reader.now_ns += 1_000_000_000
        event = machine.observe().event
    assert isinstance(event, SampleRead), event
    return first.topology_read, event, tree


@pytest.mark.parametrize("name", ZOO)
def test_every_machine_has_a_topology_a_sample_and_a_stall(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: dict[str, int] = {}
    real_open = os.open

    def recording_open(path: str, flags: int) -> int:
        opened[path] = flags
        return real_open(path, flags)

    monkeypatch.setattr(os, "open", recording_open)
    topology_read, sample, tree = read(tmp_path, name)
    # Whoever may write nothing sees the same.
    assert len(opened) > 100
    assert not [path for path, flags in opened.items() if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)]
    topology = topology_read.topology
    assert [cpu.cpu for cpu in topology.cpus] == [one.cpu for one in tree.spec.online()]
    assert len({cpu.core for cpu in topology.cpus}) <= tree.spec.cores
    assert len(topology.zones) == (tree.spec.zones if tree.spec.has_numa else 1)
    assert sample.cpu_used_mcpu == sum(zone.cpu_used_mcpu for zone in sample.zones)
    web = next(one for one in sample.workloads if one.workload == "web")
    pods = [one for one in sample.workloads if one is not web]
    assert [(one.workload, one.qos) for one in pods] == (
        [(f"pod-{POD_UID}", QosClass.LS)] if name in ("v2-systemd", "v2-cgroupfs") else []
    )
    # Web may use a CPU of one zone alone, so that its stall is that zone's.
    assert [one.stall_pct for one in sample.zones] == [20, *[None] * (len(sample.zones) - 1)]
    assert all(one.steal_mcpu == 0 for one in sample.zones)
    assert (web.cpu_used_mcpu, web.stall_pct, web.stall_gate) == (400, 20, "")
    assert sample.system_cpu_used_mcpu == sample.cpu_used_mcpu - 400
    assert (sample.missing, sample.monotonic_ms) == ((), 1_000)
    assert sample.detail is not None
    assert (sample.detail.tasks, sample.detail.disk_read_bytes, sample.detail.network_sent_bytes) == (80, 0, 0)
    assert (sample.detail.wait_us or 0) > 0


def test_amd_has_sixteen_caches_with_gaps_in_their_ids_and_absolute_bandwidth(tmp_path: Path) -> None:
    topology_read, sample, _ = read(tmp_path, "amd-16-l3")
    caches = [one for one in topology_read.topology.caches if one.level == 3]
    assert [one.cache for one in caches] == [*range(8), *range(16, 24)]
    assert (caches[0].cpus, caches[8].cpus) == ("0-1,32-33", "16-17,48-49")
    assert [cpu.die for cpu in topology_read.topology.cpus][:16:2] == list(range(8))
    found = {one.name: one.detail for one in topology_read.capabilities}
    assert found["resctrl-mb"] == "at least 1, units of 1/8 GB/s, absolute, steps of 1, 8 closids"
    assert found["virtual"].startswith("skipped")
    assert sample.detail is not None
    assert sample.detail.caches == ()


def test_caches_are_monitored_one_sample_in_ten_and_what_the_hardware_does_not_answer_is_unknown(
    tmp_path: Path,
) -> None:
    _, sample, _ = read(tmp_path, "intel-snc2", seconds=10)
    assert sample.detail is not None
    caches = sample.detail.caches
    assert [(one.group, one.domain) for one in caches] == [
        (group, domain) for group in ("", "colo-batch", "colo-online") for domain in range(4)
    ]
    assert caches[0] == CacheUse(group="", domain=0, llc_bytes=4 * 2**20, total_bytes_per_s=1_000_000)


def test_arm_names_mpam_and_keeps_the_ids_of_its_memory_controllers(tmp_path: Path) -> None:
    topology_read, _, _ = read(tmp_path, "arm-4-zones-mpam")
    found = {one.name: (one.present, one.detail) for one in topology_read.capabilities}
    assert found["resctrl-mpam"] == (True, "Arm MPAM, implementer 0x48; domain ids may have gaps")
    assert [one.cache for one in topology_read.topology.caches if one.level == 3] == [1, 3, 36, 38]
    assert (topology_read.topology.cpu_vendor, topology_read.topology.cpu_model) == ("0x48", "part 0xd01")


def test_a_virtual_machine_says_that_stolen_time_means_something(tmp_path: Path) -> None:
    topology_read, _, _ = read(tmp_path, "vm-2-cpus")
    assert next(one.present for one in topology_read.capabilities if one.name == "virtual")


# ------------------------------------------------------------ what is kept back


MACHINE = uniform_topology(sockets=2, zones_per_socket=2, cpus_per_zone=8, memory_bytes_per_zone=2**30)


@pytest.mark.parametrize(
    ("count", "cpus"),
    [(0, ""), (1, "0"), (5, "0-4"), (8, "0-7"), (9, "0-8"), (17, "0-16"), (16, "0-15"), (32, "0-31"), (99, "0-31")],
)
def test_a_quantity_is_resolved_as_the_kubelet_takes_cpus(count: int, cpus: str) -> None:
    assert packed_cpus(MACHINE.cpus, count).format() == cpus


def test_the_kubelet_takes_whole_cores_and_the_smallest_zone_first() -> None:
    split = tuple(structs.replace(cpu, core=cpu.cpu % 16, zone=0, socket=0) for cpu in MACHINE.cpus)
    assert packed_cpus(split, 3).format() == "0-1,16"
    uneven = tuple(cpu for cpu in MACHINE.cpus if cpu.cpu not in (10, 11))
    assert packed_cpus(uneven, 6).format() == "8-9,12-15"


def test_a_reservation_is_a_quantity_or_a_list_as_the_annotation_of_koordinator() -> None:
    by_amount = reservation_rules('{"resources":{"cpu":"4500m","memory":"1Gi"}}', UNRULED)
    assert (by_amount.reserved_mcpu, by_amount.reserved_memory_bytes) == (4_500, 2**30)
    assert reserved_ids(MACHINE, by_amount).format() == "0-4"
    by_list = reservation_rules(
        '{"resources":{"cpu":"9"},"reservedCPUs":"0,9","applyPolicy":"ReservedCPUsOnly"}', UNRULED
    )
    assert (by_list.reserved_cpus, by_list.reserved_mcpu, by_list.reserved_cpus_only) == ("0,9", 0, True)
    assert reservation_rules("", by_list) == by_list


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("{", UNRULED),
        ('{"reservedCpus":"0"}', UNRULED),
        ('{"reservedCPUs":"0-"}', UNRULED),
        ('{"resources":{"cpu":"many"}}', UNRULED),
        ('{"reservedCPUs":"0"}', NodeRules(reserved_mcpu=5)),
    ],
)
def test_a_reservation_of_another_form_is_refused_with_its_name(text: str, rules: NodeRules) -> None:
    with pytest.raises(InvalidInput) as caught:
        reservation_rules(text, rules)
    assert caught.value.field.startswith("reservation")


def test_the_document_for_other_schedulers_has_zones_costs_and_what_is_allocatable() -> None:
    zones = [
        structs.replace(zone, huge_pages=(HugePages(page_bytes=2**21, total_bytes=2**28),)) for zone in MACHINE.zones
    ]
    devices = (Device(kind="gpu", device=0, zone=1), Device(kind="gpu", device=1, zone=1, is_healthy=False))
    machine = structs.replace(MACHINE, zones=tuple(zones), devices=devices, attributes=(("rack", "r1"),))
    # Crane's case: CPUs 0 and 9 are reserved, so that zones 0 and 1 have seven each.
    rules = reservation_rules('{"reservedCPUs":"0,9"}', NodeRules())
    found = node_resource_topology("n1", machine, rules, "static")
    assert (found["apiVersion"], found["metadata"]["name"]) == ("topology.node.k8s.io/v1alpha2", "n1")
    assert found["attributes"] == [
        {"name": "kubelet.io/cpu-manager-policy", "value": "static"},
        {"name": "rack", "value": "r1"},
    ]
    first, second = found["zones"][:2]
    assert (first["name"], first["type"], first["costs"][1]) == ("node-0", "Node", {"name": "node-1", "value": 12})
    amounts = {one["name"]: (one["capacity"], one["allocatable"]) for one in second["resources"]}
    assert amounts == {
        "cpu": ("8", "7"),
        "memory": (str(2**30 - 2**28), str(2**30 - 2**28)),
        "hugepages-2Mi": (str(2**28), str(2**28)),
        "colo.io/gpu": ("2", "1"),
    }
    assert json.loads(found["metadata"]["annotations"]["node.koordinator.sh/reservation"]) == {"reservedCPUs": "0,9"}
    topology: NodeTopology = machine
    topology.validate()


# ------------------------------------------------------------ as a person sees it


def test_the_command_shows_the_tree_and_a_live_sample(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    MachineTree(ZOO["amd-16-l3"], tmp_path).write()
    words = ["node", "show", "--local", "--root", str(tmp_path), "--node", "n1", "--online-groups", "web=/web:LSR"]
    assert main([*words, "-o", "nrt"]) == 0
    assert "apiVersion: topology.node.k8s.io/v1alpha2" in capsys.readouterr().out
    assert main(words) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("n1: AMD EPYC 9554, 2 sockets, 32 cores, 64 CPUs, 8Gi")
    assert "    die 0, L3 0, 32Mi: 2 cores: 0+32 1+33" in shown
    assert any(line.startswith("web ") for line in shown)
    assert "ZONE  CPU USED  OF  MEM USED   OF  STOLEN  ONLINE STALL" in shown


def test_the_command_without_local_says_where_nodes_of_the_cluster_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["node", "show"]) == 2
    assert "colo get node NAME" in capsys.readouterr().err
