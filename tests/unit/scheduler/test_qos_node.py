"""What a node keeps for itself, and what its kubelet pinned."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colo_collector.kubelet import PinnedPod, pinned_pods, read_checkpoint
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.topology import uniform_topology
from colo_common.model.withheld import NodeReservation, divide_by_zones, reserved_cpus
from tests.support.cpu_topology import topology_from_node

MACHINE = topology_from_node(uniform_topology(sockets=2, zones_per_socket=1, cpus_per_zone=4, memory_bytes_per_zone=1))


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


@given(st.integers(0, 10**15), st.integers(-2, 8))
def test_the_parts_of_the_zones_cover_what_is_divided(amount: int, zones: int) -> None:
    part = divide_by_zones(amount, zones)
    if zones <= 0:
        assert part == 0
    else:
        assert part * zones >= amount > (part - 1) * zones or amount == part == 0


@pytest.mark.parametrize("text", ["", "x", "[]", "{", '{"entries": []}', '{"entries": {"c": "0-1"}}', "[" * 2000])
def test_a_checkpoint_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_checkpoint(text)
    assert caught.value.field == "cpu_manager_state"


@pytest.mark.parametrize("text", ["{}", "null", '{"entries": null}', '{"entries": {}}', ' {"policyName": "none"}'])
def test_a_checkpoint_without_entries_pins_nothing(text: str) -> None:
    assert read_checkpoint(text) == {}


def test_pinned_pods_are_all_with_a_list_that_can_be_read() -> None:
    entries = {"b": {"one": "0", "two": "4-5"}, "a": {"one": "1", "broken": "x"}, "empty": {"one": ""}}
    assert pinned_pods(entries) == (
        PinnedPod(uid="a", cpus=CpuSet.parse("1")),
        PinnedPod(uid="b", cpus=CpuSet.parse("0,4-5")),
    )
