"""What Koordinator's agent takes out of a node, and which of the kubelet's pods it counts."""

from __future__ import annotations

import json

from colo_collector.kubelet import PinnedPod, pinned_pods, read_checkpoint
from colo_common.model.cpuset import CpuSet
from colo_common.model.qos import QosClass
from tests.parity.peers.kubelet_pods import RunningPod, topology_policy, unmanaged
from tests.parity.peers.node_reservation import system_cpus, zones_less_reserved


def test_system_cpus_are_exclusive_unless_said_otherwise() -> None:
    assert system_cpus("0-3", None) == system_cpus("0-3", True) == CpuSet.parse("0-3")
    assert system_cpus("0-3", False) == system_cpus("0b", True) == system_cpus("", None) == CpuSet()


def test_zones_lose_their_part_and_never_fall_below_0() -> None:
    zones = {"node-0": {"cpu": 4000, "memory": 10}, "node-1": {"cpu": 1000}}
    assert zones_less_reserved(zones, {"cpu": 3001, "memory": 4, "gpu": 1}, 2) == {
        "node-0": {"cpu": 2499, "memory": 8},
        "node-1": {"cpu": 0},
    }
    assert zones_less_reserved(zones, {"cpu": 3001}, 0) == zones


def test_pinned_pods_are_those_that_nobody_else_manages() -> None:
    entries = {
        "b": {"one": "0", "two": "4-5"},
        "a": {"one": "1", "broken": "x"},
        "ls": {"one": "2"},
        "be": {"one": "3"},
        "given": {"one": "6"},
        "empty": {"one": ""},
    }
    pods = [
        RunningPod(uid="a"),
        RunningPod(uid="ls", qos=QosClass.LS),
        RunningPod(uid="be", qos=QosClass.BE),
        RunningPod(uid="given", cpus=CpuSet.parse("6")),
        RunningPod(uid="empty"),
    ]
    text = json.dumps({"policyName": "static", "defaultCpuSet": "7", "entries": entries, "checksum": 1})
    assert pinned_pods(unmanaged(read_checkpoint(text), pods)) == (
        PinnedPod(uid="a", cpus=CpuSet.parse("1")),
        PinnedPod(uid="b", cpus=CpuSet.parse("0,4-5")),
    )


def test_topology_policies_have_names_by_scope() -> None:
    assert topology_policy("single-numa-node", "pod") == "SingleNUMANodePodLevel"
    assert topology_policy("best-effort", "container") == "BestEffortContainerLevel"
    for policy, scope in (("none", "pod"), ("", ""), ("restricted", ""), ("strict", "pod")):
        assert topology_policy(policy, scope) == "None"
