"""Seeded worlds in which online work is placed beside batch work: own CPUs are nobody else's, whatever goes wrong."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from colo_common.model.invalid import InvariantBroken
from colo_common.model.placement import Placement, ZoneShare
from colo_common.model.qos import PriorityBand, QosClass
from colo_sim.machine_spec import GIB, MachineSpec
from colo_sim.online_rules import check_online
from colo_sim.world import WorldSettings
from tests.sim.test_world import NO_FAULTS, live
from tests.support.builders import a_placement
from tests.support.profiles import seeds

pytestmark = pytest.mark.sim

TOPOLOGY = MachineSpec(sockets=1, zones_per_socket=2, cpus_per_zone=4, memory_bytes_per_zone=8 * GIB).topology()


def a_world(seed: int) -> WorldSettings:
    """Small enough that online work fights for CPUs of its own: 24 jobs of one or two replicas on 24 CPUs."""
    return WorldSettings(seed=seed, nodes=3, online_jobs=24)


@pytest.mark.parametrize("seed", seeds((2, 12), nightly=(1, 2, 5, 12)))
def test_whatever_goes_wrong_own_cpus_are_given_out_once_and_every_job_ends_well(seed: int) -> None:
    _, outcome = live(a_world(seed))
    assert outcome.judged["online_launches"] > 20
    assert outcome.judged["online_held"] > 100
    assert outcome.judged["launches"] > outcome.judged["online_launches"] + 20, "batch work ran beside it"


def test_without_faults_no_executor_refuses_what_the_scheduler_placed() -> None:
    world, outcome = live(replace(a_world(7), faults=NO_FAULTS, spikes=0))
    assert outcome.judged.get("PlacementRefused", 0) == 0
    assert outcome.judged["online_launches"] > 20
    assert world.scheduler_cores["scheduler"].counts["conflicts_unexpected"] == 0


def test_the_same_seed_is_the_same_history() -> None:
    assert live(a_world(3))[1] == live(a_world(3))[1]


def online(index: int, qos: QosClass, cpus: str, mcpu: int, zone: int = 0) -> Placement:
    made = a_placement(f"web/main/{index}", mcpu=mcpu, zone=zone)
    return replace(made, qos=qos, band=PriorityBand.PROD, cpus=cpus)


def both_zones(placement: Placement, mcpu: int) -> Placement:
    shares = tuple(ZoneShare(zone=zone, cpu_mcpu=mcpu, memory_bytes=GIB) for zone in (0, 1))
    return replace(placement, zones=shares, cpu_mcpu=2 * mcpu, memory_bytes=2 * GIB)


def test_rules_that_are_kept_are_counted() -> None:
    kept = (
        online(0, QosClass.LSE, "0-1", 2_000),
        online(1, QosClass.LSR, "4-7", 4_000, zone=1),
        online(2, QosClass.LS, "", 1_500),
        a_placement("batch/main/0", mcpu=64_000),
    )
    assert check_online("n1", TOPOLOGY, kept) == 3


@pytest.mark.parametrize(
    ("placements", "says"),
    [
        ((online(0, QosClass.LSE, "0-1", 2_000), online(1, QosClass.LSR, "1-2", 2_000)), "held twice"),
        ((online(0, QosClass.LSE, "", 1_000),), "zones' shares"),
        ((online(0, QosClass.LSR, "4", 1_000),), "zones' shares"),
        ((online(0, QosClass.LSR, "0-1", 1_000),), "zones' shares"),
        ((online(0, QosClass.LSR, "0,9", 1_000),), "as many as were asked"),
        ((both_zones(online(0, QosClass.LSE, "0-7", 8_000), 4_000),), "leaves no CPU"),
        ((online(0, QosClass.LS, "", 3_000), online(1, QosClass.LSR, "0-1", 2_000)), "than the zone has"),
        (
            (replace(online(0, QosClass.LS, "", 10), zones=(ZoneShare(zone=1, cpu_mcpu=10, memory_bytes=9 * GIB),)),),
            "has",
        ),
    ],
)
def test_every_break_is_condemned(placements: tuple[Placement, ...], says: str) -> None:
    with pytest.raises(InvariantBroken, match=says):
        check_online("n1", TOPOLOGY, placements)
