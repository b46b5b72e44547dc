"""Whatever is asked for in whatever order, a node never gives out more of its devices and huge pages than it has."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from colo_common.model.placement import DeviceShare, Placement, ZoneHugePages
from colo_executor.attempt import refusal_of
from colo_executor.inventory import MachineInventory, ShareRefused, check_shares
from tests.support.builders import a_placement
from tests.support.profiles import examples

PAGE = 2 << 20
MEMORY = {("gpu", 0): 100, ("gpu", 1): 0, ("nic", 0): 50}
PAGES = {(0, PAGE): 4 * PAGE, (1, PAGE): PAGE}

devices = st.builds(
    DeviceShare,
    kind=st.sampled_from(["gpu", "nic", "fpga"]),
    device=st.integers(0, 2),
    zone=st.just(0),
    core_pct=st.integers(0, 101),
    memory_bytes=st.integers(0, 120),
)
pages = st.builds(
    ZoneHugePages, zone=st.integers(0, 2), page_bytes=st.just(PAGE), total_bytes=st.integers(0, 5).map(PAGE.__mul__)
)
asked = st.tuples(st.lists(devices, max_size=3), st.lists(pages, max_size=2))
steps = st.lists(st.one_of(asked, st.integers(0, 20)), max_size=30)


def fits(placement: Placement, held: list[Placement], *, knows_devices: bool) -> bool:
    """By counting everything that would be held, the long way."""
    core, memory, huge = Counter[tuple[str, int]](), Counter[tuple[str, int]](), Counter[tuple[int, int]]()
    for one in (*held, placement):
        for share in one.devices:
            core[share.kind, share.device] += share.core_pct
            memory[share.kind, share.device] += share.memory_bytes
        for each in one.huge_pages:
            huge[each.zone, each.page_bytes] += each.total_bytes
    mine = [(share.kind, share.device) for share in placement.devices]
    if any(core[key] > 100 for key in mine):
        return False
    if knows_devices and any(key not in MEMORY or memory[key] > MEMORY[key] > 0 for key in mine):
        return False
    return all(
        huge[each.zone, each.page_bytes] <= PAGES.get((each.zone, each.page_bytes), 0) for each in placement.huge_pages
    )


def gives(placement: Placement, held: list[Placement], inventory_index: MachineInventory) -> bool:
    """Whether the node would start it."""
    try:
        check_shares(placement, held, inventory_index)
    except ShareRefused:
        return False
    return True


@examples(2)
@given(steps, st.booleans())
def test_nothing_is_given_twice_and_nothing_is_refused_that_is_there(
    found: list[tuple[list[DeviceShare], list[ZoneHugePages]] | int], knows_devices: bool
) -> None:
    inventory_index = MachineInventory(huge_pages=PAGES, devices=MEMORY if knows_devices else None)
    held: list[Placement] = []
    for number, step in enumerate(found):
        if isinstance(step, int):
            # Somebody leaves.
            del held[step : step + 1]
            continue
        shares, huge = step
        placement = replace(a_placement(f"job/main/{number}"), devices=tuple(shares), huge_pages=tuple(huge))
        if refusal_of(placement, "n1"):
            continue
        is_given = gives(placement, held, inventory_index)
        assert is_given is fits(placement, held, knows_devices=knows_devices)
        if is_given:
            held.append(placement)
