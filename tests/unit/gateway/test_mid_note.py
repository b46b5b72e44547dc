"""What `fits` says of work of the band mid, which has a tier of its own."""

from __future__ import annotations

import pytest

from colo_common.events.fleet import FleetTotals
from colo_gateway.fits import mid_note

GIB = 1 << 30


def fleet(nodes: int, mcpu: int, gib: int) -> FleetTotals:
    amounts = dict.fromkeys(FleetTotals.__struct_fields__[1:9], 0)
    return FleetTotals(nodes={}, **amounts, mid_nodes=nodes, mid_cpu_mcpu=mcpu, mid_memory_bytes=gib * GIB)


@pytest.mark.parametrize(
    ("totals", "says"),
    [
        (None, "what that has is not known: overcommit does not answer"),
        (fleet(0, 0, 0), "that is off (mid_mode of the colocation policy), so it waits"),
        (fleet(2, 5_500, 3), "that has 5500m of CPU and 3Gi of memory on 2 nodes"),
    ],
)
def test_mid_work_is_placed_in_its_tier_whose_amounts_are_named(totals: FleetTotals | None, says: str) -> None:
    note = mid_note(totals)
    assert note.startswith("band: mid is placed in the mid tier; ")
    assert says in note
