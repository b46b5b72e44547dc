"""What a node keeps for itself, and what its kubelet pinned."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colo_collector.kubelet import PinnedPod, RunningPod, pinned_pods, read_checkpoint, topology_policy
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.qos import QosClass
from colo_common.model.topology import uniform_topology
from colo_scheduler.cpus.node_reservation import (
    NodeReservation,
    divide_by_zones,
    reserved_cpus,
    system_cpus,
    zones_less_reserved,
)
from colo_scheduler.cpus.topology import CpuTopology

MACHINE = CpuTopology.from_node(
    uniform_topology(sockets=2, zones_per_socket=1, cpus_per_zone=4, memory_bytes_per_zone=1)
)


@pytest.mark.parametrize(
    ("cpus", "cpu_mcpu", "wanted"),
    [
        ("", 0, ""),
        ("", -500, ""),
        ("", 1, "0"),
        ("", 1001, "0-1"),
        ("", 4000, "0-3"),
        ("", 5000, "0-4"),
        ("", 9000, ""),
        ("3,1", 9000, "1,3"),
        ("-1", 2000, ""),
        ("zero", 2000, ""),
    ],
)
def test_a_list_wins_over_an_amount_which_is_rounded_up(cpus: str, cpu_mcpu: int, wanted: str) -> None:
    assert reserved_cpus(MACHINE, NodeReservation(cpus=cpus, cpu_mcpu=cpu_mcpu)).format() == wanted


def test_system_cpus_are_exclusive_unless_said_otherwise() -> None:
    assert system_cpus("0-3", None) == system_cpus("0-3", True) == CpuSet.parse("0-3")
    assert system_cpus("0-3", False) == system_cpus("0b", True) == system_cpus("", None) == CpuSet()


@given(st.integers(0, 10**15), st.integers(-2, 8))
def test_the_parts_of_the_zones_cover_what_is_divided(amount: int, zones: int) -> None:
    part = divide_by_zones(amount, zones)
    if zones <= 0:
        assert part == 0
    else:
        assert part * zones >= amount > (part - 1) * zones or amount == part == 0


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
    assert pinned_pods(read_checkpoint(text), pods) == (
        PinnedPod(uid="a", cpus=CpuSet.parse("1")),
        PinnedPod(uid="b", cpus=CpuSet.parse("0,4-5")),
    )


@pytest.mark.parametrize("text", ["", "x", "[]", "{", '{"entries": []}', '{"entries": {"c": "0-1"}}', "[" * 2000])
def test_a_checkpoint_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_checkpoint(text)
    assert caught.value.field == "cpu_manager_state"


@pytest.mark.parametrize("text", ["{}", "null", '{"entries": null}', '{"entries": {}}', ' {"policyName": "none"}'])
def test_a_checkpoint_without_entries_pins_nothing(text: str) -> None:
    assert read_checkpoint(text) == {}


def test_topology_policies_have_names_by_scope() -> None:
    assert topology_policy("single-numa-node", "pod") == "SingleNUMANodePodLevel"
    assert topology_policy("best-effort", "container") == "BestEffortContainerLevel"
    for policy, scope in (("none", "pod"), ("", ""), ("restricted", ""), ("strict", "pod")):
        assert topology_policy(policy, scope) == "None"
