"""What devices have left, and the resource names that ask for them."""

from __future__ import annotations

import pytest

from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import DeviceShare
from colo_common.model.topology import Device
from colo_scheduler.devices.inventory import DeviceInventory

GIB = 1 << 30
A, B = ("web/task/0", 1), ("web/task/1", 1)


def an_inventory() -> DeviceInventory:
    return DeviceInventory([Device(kind="gpu", device=n, zone=0, memory_bytes=16 * GIB) for n in range(2)])


def a_share(device: int = 0, core_pct: int = 60, memory_gib: int = 4) -> DeviceShare:
    return DeviceShare(kind="gpu", device=device, zone=0, core_pct=core_pct, memory_bytes=memory_gib * GIB)


def test_what_is_held_is_no_longer_free_and_comes_back() -> None:
    inventory = an_inventory()
    before = inventory.free_devices("gpu")
    inventory.hold(A, [a_share()])
    assert (inventory.free_devices("gpu")[0].core_pct, inventory.free_devices("gpu")[0].memory_bytes) == (40, 12 * GIB)
    assert inventory.held_by(A) == (a_share(),)
    inventory.check()
    assert inventory.release(A) == (a_share(),)
    assert inventory.free_devices("gpu") == before
    assert inventory.release(A) == ()
    inventory.check()


def test_the_same_attempt_again_replaces_what_it_held() -> None:
    inventory = an_inventory()
    inventory.hold(A, [a_share()])
    inventory.hold(A, [a_share(core_pct=90)])
    assert inventory.free_devices("gpu")[0].core_pct == 10
    inventory.hold(A, [])
    assert not inventory.free_devices("gpu")[0].is_used
    inventory.check()


@pytest.mark.parametrize(
    ("shares", "field", "rule"),
    [
        ([a_share(device=9)], "devices[gpu-9]", "must be a device of the node"),
        ([a_share(core_pct=1), a_share(core_pct=1)], "devices[gpu-0]", "must appear once"),
        ([a_share(core_pct=101)], "devices[gpu-0]", "must be a share from 0 to 100 %"),
        ([a_share(core_pct=41)], "devices[gpu-0].core_pct", "must be at most 40"),
        ([a_share(core_pct=1, memory_gib=13)], "devices[gpu-0].memory_bytes", f"must be at most {12 * GIB}"),
    ],
)
def test_more_than_there_is_is_refused_by_name_and_changes_nothing(
    shares: list[DeviceShare], field: str, rule: str
) -> None:
    inventory = an_inventory()
    inventory.hold(A, [a_share()])
    inventory.hold(B, [a_share(device=1)])
    before = inventory.free_devices("gpu")
    with pytest.raises(InvalidInput) as caught:
        inventory.hold(B, shares)
    assert caught.value.field == field
    assert caught.value.rule.startswith(rule)
    assert inventory.free_devices("gpu") == before
    assert inventory.held_by(B) == (a_share(device=1),)
    inventory.check()


def test_the_ledger_is_believed_and_disagreement_is_told() -> None:
    inventory = an_inventory()
    assert inventory.load(A, [a_share()]) == ()
    reported = inventory.load(B, [a_share(core_pct=90)])
    assert len(reported) == 1
    assert reported[0].startswith("devices[gpu-0].core_pct: must be at most 40")
    assert inventory.free_devices("gpu")[0].core_pct == 0
    assert inventory.load(("web/task/2", 1), [a_share(device=7)])[0].startswith("devices[gpu-7]")
    inventory.check()
    for attempt in (A, B, ("web/task/2", 1)):
        inventory.release(attempt)
    assert inventory.free_devices("gpu") == an_inventory().free_devices("gpu")
    inventory.check()


def test_a_device_appears_once() -> None:
    with pytest.raises(InvalidInput, match=r"devices\[gpu-0\]: must appear once"):
        DeviceInventory([Device(kind="gpu", device=0, zone=0)] * 2)


GPU = "koordinator.sh/gpu"
