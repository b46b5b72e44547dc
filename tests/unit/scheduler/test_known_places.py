"""Places that were rebuilt from what the jobs service knows: their amounts are right, and what it does not know is kept free."""

from typing import Any

import pytest

from colo_common.events.placement import NodeRelease, PlacementsDecided, PlacementsReleased
from colo_common.events.requests import KnownPlace
from colo_common.model.constraints import UNCONSTRAINED, Constraints, CpuPolicy, DeviceRequest, HugePages
from colo_common.model.placement import UNKNOWN_CPUS
from colo_common.model.qos import PriorityBand, QosClass
from colo_scheduler.cluster.holding import holding_of
from colo_scheduler.commit.known_places import placement_of_known
from colo_scheduler.ledger.rebuild import FactsOfHolds
from tests.support.builders import GIB
from tests.support.scheduler_story import a_placement_request

PROD: dict[str, Any] = {"band": PriorityBand.PROD}


def a_known(zones: tuple[int, ...] = (0,), replica: str = "j/t/0", attempt: int = 1, **changes: Any) -> KnownPlace:
    return KnownPlace(
        request=a_placement_request(replica, attempt=attempt, **changes),
        node="n1",
        zones=zones,
    )


@pytest.mark.parametrize("zones", [(), (0,), (1,), (0, 1), (0, 2, 3)])
def test_the_shares_sum_to_the_request_in_the_zones_that_are_known(zones: tuple[int, ...]) -> None:
    place = placement_of_known(a_known(zones, mcpu=1001, memory_bytes=GIB + 1))
    assert tuple(share.zone for share in place.zones) == (zones or (0,))
    assert sum(share.cpu_mcpu for share in place.zones) == place.cpu_mcpu == 1001
    assert sum(share.memory_bytes for share in place.zones) == place.memory_bytes == GIB + 1
    assert max(share.cpu_mcpu for share in place.zones) - min(share.cpu_mcpu for share in place.zones) <= 1


@pytest.mark.parametrize(
    ("changes", "has_own"),
    [
        ({}, False),
        ({"qos": QosClass.LS, **PROD}, False),
        ({"qos": QosClass.LS, "constraints": Constraints(cpu_policy=CpuPolicy.NUMA), **PROD}, False),
        ({"qos": QosClass.LSR, **PROD}, True),
        ({"qos": QosClass.LSE, **PROD}, True),
        ({"qos": QosClass.LS, "constraints": Constraints(cpu_policy=CpuPolicy.IMMOVABLE), **PROD}, True),
        ({"constraints": Constraints(devices=(DeviceRequest(kind="gpu", count=1),))}, True),
        ({"constraints": Constraints(huge_pages=(HugePages(page_bytes=2 << 20, total_bytes=4 << 20),))}, True),
        ({"constraints": UNCONSTRAINED}, False),
    ],
)
def test_what_has_more_than_amounts_says_that_the_rest_is_not_known(changes: dict[str, Any], has_own: bool) -> None:
    place = placement_of_known(a_known(**changes))
    assert (place.cpus == UNKNOWN_CPUS) == has_own
    holding = holding_of(place)
    assert (holding is not None) == has_own
    assert holding is None or "known to its node alone" in holding.problem


def test_what_facts_say_goes_before_what_jobs_knows() -> None:
    facts = FactsOfHolds()
    decided = placement_of_known(a_known(replica="j/t/0", mcpu=700))
    facts.take(PlacementsDecided(placements=(decided,)))
    facts.take(PlacementsReleased(nodes=(NodeRelease(node="n1", attempts=(("j/t/1", 2),)),)))
    known = [
        placement_of_known(a_known(replica=replica, attempt=attempt))
        for replica, attempt in (("j/t/0", 1), ("j/t/1", 2), ("j/t/1", 3), ("j/t/2", 1))
    ]
    assert facts.take_known(known) == 2
    (row,) = facts.lost()
    assert [(hold.attempt, hold.placement.cpu_mcpu) for hold in row.holds] == [
        (("j/t/0", 1), 700),
        (("j/t/1", 3), 1000),
        (("j/t/2", 1), 1000),
    ]
