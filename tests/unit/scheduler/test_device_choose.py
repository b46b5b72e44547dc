"""Which devices a request gets, and why it gets none."""

from __future__ import annotations

from typing import Any

import pytest

from colo_common.model.constraints import (
    DeviceExclusive,
    DeviceRequest,
    DeviceScope,
    JointDevices,
    PartitionPolicy,
    PartitionWish,
)
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import DeviceShare
from colo_common.model.reasons import Reason
from colo_common.model.topology import Device, DevicePartition
from colo_scheduler.devices.choose import DeviceChoice, DeviceLocality, NoDevices, choose_devices
from colo_scheduler.devices.hints import BEST_SCORE, DeviceHint, device_hints
from colo_scheduler.devices.inventory import DeviceInventory
from colo_scheduler.devices.layout import (
    DeviceLayout,
    GpuPartitions,
    choose_partition,
    partitions_of,
    partitions_of_model,
)
from colo_scheduler.devices.need import device_score, need_of, node_score
from colo_scheduler.devices.never import DeviceAsk, never_holds

GIB = 1 << 30
MEMORY = 16 * GIB
GPUS = tuple(Device(kind="gpu", device=n, zone=n // 4, pcie=f"p{n // 2}", memory_bytes=MEMORY) for n in range(8))
NICS = tuple(Device(kind="nic", device=n, zone=n // 2, pcie=f"p{n}") for n in range(4))


def an_inventory(*devices: Device) -> DeviceInventory:
    return DeviceInventory(devices or (*GPUS, *NICS))


def a_share(device: int, core_pct: int = 100, memory_bytes: int = MEMORY, kind: str = "gpu") -> DeviceShare:
    return DeviceShare(kind=kind, device=device, zone=device // 4, core_pct=core_pct, memory_bytes=memory_bytes)


def used(inventory: DeviceInventory, *shares: DeviceShare) -> DeviceInventory:
    for index, share in enumerate(shares):
        inventory.hold((f"other/task/{index}", 1), [share])
    return inventory


def numbers(found: DeviceChoice | NoDevices, kind: str = "gpu") -> list[int]:
    assert isinstance(found, DeviceChoice), found
    return [share.device for share in found.shares if share.kind == kind]


def whole(count: int, kind: str = "gpu", **about: Any) -> DeviceRequest:
    return DeviceRequest(kind=kind, count=count, **about)


def test_whole_gpus_lie_as_close_to_each_other_as_they_can() -> None:
    assert numbers(choose_devices(an_inventory(), [whole(2)])) == [0, 1]
    inventory = used(an_inventory(), a_share(0), a_share(2))
    assert numbers(choose_devices(inventory, [whole(2)])) == [4, 5]
    assert numbers(choose_devices(inventory, [whole(3)])) == [4, 5, 6]
    assert numbers(choose_devices(inventory, [whole(5)])) == [1, 3, 4, 5, 6]


def test_a_whole_gpu_is_one_that_nobody_shares() -> None:
    inventory = used(an_inventory(), a_share(0, 10, GIB))
    found = choose_devices(inventory, [whole(1)])
    assert found == DeviceChoice(shares=(a_share(1),))


def test_the_zones_of_the_cpus_come_first() -> None:
    assert numbers(choose_devices(an_inventory(), [whole(1)], [1])) == [4]
    full = used(an_inventory(), *(a_share(n) for n in range(4, 8)))
    assert numbers(choose_devices(full, [whole(1)], [1])) == [0]
    refused = choose_devices(full, [whole(1)], [1], only_in_zones=True)
    assert refused == NoDevices(
        reason=Reason.DEVICE_SHORT, kind="gpu", detail="1 wanted, 0 fit", need=1, have=0, unit="gpu"
    )


def test_a_share_is_given_in_cores_and_memory() -> None:
    found = choose_devices(an_inventory(), [DeviceRequest(kind="gpu", core_pct=30, memory_pct=33)])
    assert found == DeviceChoice(shares=(a_share(0, 30, MEMORY * 33 // 100),))
    found = choose_devices(an_inventory(), [DeviceRequest(kind="gpu", memory_bytes=3 * GIB)])
    assert found == DeviceChoice(shares=(a_share(0, 0, 3 * GIB),))


def test_a_share_goes_where_scopes_are_used_already_and_there_to_the_freest_gpu_or_the_fullest() -> None:
    request = DeviceRequest(kind="gpu", core_pct=10, memory_pct=10)
    inventory = used(an_inventory(), a_share(4, 50, MEMORY // 2))
    assert numbers(choose_devices(inventory, [request])) == [5]
    assert numbers(choose_devices(inventory, [request], locality=DeviceLocality(packs=True))) == [4]


def test_shares_of_several_gpus_go_to_different_ones() -> None:
    found = choose_devices(an_inventory(), [DeviceRequest(kind="gpu", count=3, core_pct=50, memory_pct=50)])
    assert numbers(found) == [0, 1, 2]
    close = DeviceRequest(kind="gpu", count=2, core_pct=50, scope=DeviceScope.PCIE)
    refused = choose_devices(an_inventory(), [close])
    assert isinstance(refused, NoDevices)


def test_a_required_scope_is_kept() -> None:
    inventory = used(an_inventory(), a_share(0), a_share(2), a_share(4), a_share(6))
    assert numbers(choose_devices(inventory, [whole(2)])) == [1, 3]
    assert choose_devices(inventory, [whole(3, scope=DeviceScope.NUMA_NODE)]) == NoDevices(
        reason=Reason.DEVICE_SHORT,
        kind="gpu",
        detail="3 wanted in one NUMA node, 2 fit",
        need=3,
        have=2,
        unit="gpu in one NUMA node",
    )
    assert isinstance(choose_devices(inventory, [whole(2, scope=DeviceScope.PCIE)]), NoDevices)
    nics = used(an_inventory(), DeviceShare(kind="nic", device=1, zone=0))
    assert numbers(choose_devices(nics, [whole(2, "nic", scope=DeviceScope.NUMA_NODE)]), "nic") == [2, 3]


def test_gpus_whose_switch_is_unknown_are_not_taken_for_close() -> None:
    unknown = an_inventory(*(Device(kind="gpu", device=n, zone=0) for n in range(2)))
    assert numbers(choose_devices(unknown, [whole(2)])) == [0, 1]
    assert isinstance(choose_devices(unknown, [whole(2, scope=DeviceScope.PCIE)]), NoDevices)


def test_nics_hang_on_the_switches_of_the_gpus() -> None:
    nic = DeviceRequest(kind="nic", core_pct=1)
    joint = DeviceLocality(joint=JointDevices(kinds=("gpu", "nic"), required=True))
    found = choose_devices(used(an_inventory(), a_share(0)), [nic, whole(2)], locality=joint)
    assert (numbers(found), numbers(found, "nic")) == ([2, 3], [1])
    taken = used(an_inventory(), a_share(0), DeviceShare(kind="nic", device=1, zone=0))
    refused = choose_devices(taken, [nic, whole(2)], locality=joint)
    assert refused == NoDevices(reason=Reason.DEVICE_SHORT, kind="nic", detail="must be where the gpu is")


def test_groups_of_linked_gpus_are_honored_or_only_preferred() -> None:
    table = partitions_of_model("H100")
    inventory = used(an_inventory(), *(a_share(n) for n in (0, 2, 4)))
    honored = GpuPartitions(by_size=table, is_honored=True)
    assert numbers(choose_devices(inventory, [whole(2)], partitions=honored)) == [6, 7]
    assert isinstance(choose_devices(inventory, [whole(3)], partitions=honored), NoDevices)
    preferred = GpuPartitions(by_size=table)
    assert len(numbers(choose_devices(inventory, [whole(3)], partitions=preferred))) == 3
    best = whole(3, partition=PartitionWish(policy=PartitionPolicy.BEST))
    assert isinstance(choose_devices(inventory, [best], partitions=preferred), NoDevices)
    rather = whole(3, partition=PartitionWish(policy=PartitionPolicy.PREFER))
    assert len(numbers(choose_devices(inventory, [rather], partitions=preferred))) == 3
    assert partitions_of_model("A10") is None


def test_groups_are_chosen_in_ascending_score_and_weighed_by_the_first_class_of_larger_ones() -> None:
    table = {
        1: (
            DevicePartition(devices=(0,), score=2),
            DevicePartition(devices=(2,), score=2),
            DevicePartition(devices=(6,), score=3),
        ),
        2: (DevicePartition(devices=(0, 1), score=1), DevicePartition(devices=(2, 3), score=9)),
    }
    rooms = an_inventory().free_devices("gpu")
    assert choose_partition(rooms, 1, table, None) == table[1][1]
    busy = used(an_inventory(), a_share(0), a_share(2)).free_devices("gpu")
    assert choose_partition(busy, 1, table, None) == table[1][2]
    assert choose_partition(busy, 1, table, PartitionWish(policy=PartitionPolicy.BEST)) is None
    fast = {2: (DevicePartition(devices=(0, 1), bandwidth_bytes_per_s=200), DevicePartition(devices=(2, 3)))}
    assert choose_partition(rooms, 2, fast, PartitionWish(bandwidth_bytes_per_s=200)) == fast[2][0]
    assert choose_partition(rooms, 2, fast, PartitionWish(bandwidth_bytes_per_s=201)) is None


def test_all_cores_or_all_memory_is_not_a_share_of_a_gpu() -> None:
    assert not need_of(DeviceRequest(kind="gpu", core_pct=100)).is_shared
    assert not need_of(DeviceRequest(kind="gpu", memory_pct=100)).is_shared
    assert need_of(DeviceRequest(kind="gpu", core_pct=100, memory_pct=99)).is_shared
    assert need_of(DeviceRequest(kind="gpu", memory_bytes=1)).is_shared
    assert need_of(whole(1)).is_whole


def test_an_unknown_device_is_named() -> None:
    refused = choose_devices(an_inventory(*GPUS), [whole(1, "tpu")])
    assert isinstance(refused, NoDevices)
    assert refused.reason is Reason.DEVICE_UNKNOWN
    assert refused.detail == "the node has no device 'tpu'; it has gpu"


def test_a_device_that_is_not_healthy_gives_nothing() -> None:
    sick = Device(kind="gpu", device=0, zone=0, is_healthy=False)
    assert isinstance(choose_devices(an_inventory(sick), [whole(1)]), NoDevices)


def test_memory_that_is_not_known_is_not_shared() -> None:
    inventory = an_inventory(Device(kind="gpu", device=0, zone=0))
    assert isinstance(choose_devices(inventory, [DeviceRequest(kind="gpu", memory_pct=50)]), NoDevices)
    assert numbers(choose_devices(inventory, [whole(1)])) == [0]
    assert numbers(choose_devices(inventory, [DeviceRequest(kind="gpu", core_pct=50)])) == [0]


def test_requests_that_contradict_themselves_are_refused_by_field() -> None:
    for request, field in (
        (DeviceRequest(kind=""), "devices[0].kind"),
        (DeviceRequest(kind="gpu", count=-1), "devices[0].count"),
        (DeviceRequest(kind="gpu", core_pct=101), "devices[0].core_pct"),
        (DeviceRequest(kind="gpu", memory_pct=-1), "devices[0].memory_pct"),
        (DeviceRequest(kind="gpu", memory_bytes=-1), "devices[0].memory_bytes"),
        (DeviceRequest(kind="gpu", memory_bytes=1, memory_pct=1), "devices[0].memory_bytes"),
    ):
        with pytest.raises(InvalidInput) as caught:
            choose_devices(an_inventory(), [request])
        assert caught.value.field == field
    with pytest.raises(InvalidInput, match=r"devices\[1\]\.kind: must appear once"):
        choose_devices(an_inventory(), [whole(1), whole(2)])


def test_hints_name_every_set_of_zones_that_has_the_devices() -> None:
    inventory = used(an_inventory(), a_share(0))
    assert device_hints(inventory, [whole(3)], [1, 0]) == (
        DeviceHint(zones=(0,), is_preferred=True, score=BEST_SCORE),
        DeviceHint(zones=(1,), is_preferred=True, score=0),
        DeviceHint(zones=(0, 1), is_preferred=False, score=BEST_SCORE),
    )
    assert device_hints(inventory, [whole(5)], [0, 1]) == (
        DeviceHint(zones=(0, 1), is_preferred=True, score=BEST_SCORE),
    )
    assert isinstance(device_hints(inventory, [whole(8)], [0, 1]), NoDevices)


def test_scores_follow_what_would_be_left() -> None:
    inventory = used(an_inventory(), a_share(0, 50, MEMORY // 2))
    half = DeviceRequest(kind="gpu", core_pct=50, memory_pct=50)
    rooms = inventory.free_devices("gpu")
    assert [device_score(need_of(half), room, packs=False) for room in rooms[:2]] == [0, 50]
    assert [device_score(need_of(half), room, packs=True) for room in rooms[:2]] == [100, 50]
    assert node_score(inventory, [half], packs=False) == 87
    assert node_score(inventory, [half, DeviceRequest(kind="nic", core_pct=100)], packs=True) == (12 + 25) // 2
    assert node_score(inventory, [], packs=False) == 0
    assert node_score(an_inventory(*NICS), [half], packs=False) == 0


def test_devices_have_the_labels_that_are_asked_for() -> None:
    labelled = [
        Device(kind="gpu", device=n, zone=0, labels=(("model", "A100" if n < 2 else "H100"),)) for n in range(4)
    ]
    inventory = an_inventory(*labelled)
    h100 = whole(2, labels=(("model", "H100"),))
    assert numbers(choose_devices(inventory, [h100])) == [2, 3]
    used(inventory, DeviceShare(kind="gpu", device=3, zone=0))
    assert isinstance(choose_devices(inventory, [h100]), NoDevices)
    refused = choose_devices(inventory, [whole(1, labels=(("model", "H200"),))])
    assert isinstance(refused, NoDevices)
    assert (refused.reason, refused.detail) == (Reason.DEVICE_UNKNOWN, "the node has no device 'gpu' with model=H200")


def test_devices_of_ones_own_are_whole_and_their_roots_are_kept_too_where_that_is_asked_for() -> None:
    inventory = used(an_inventory(), a_share(0, 10, 0))
    alone = whole(1, exclusive=DeviceExclusive.PCIE_LEVEL)
    found = choose_devices(inventory, [alone])
    # GPU 1 hangs beside one that is used.
    assert numbers(found) == [2]
    assert isinstance(found, DeviceChoice)
    assert [(share.core_pct, share.exclusive) for share in found.shares] == [(100, DeviceExclusive.PCIE_LEVEL)]
    inventory.hold(("alone/t/0", 1), found.shares)
    rooms = {room.number: room for room in inventory.free_devices("gpu")}
    assert (rooms[3].core_pct, rooms[3].memory_bytes) == (0, 0)
    assert numbers(choose_devices(inventory, [whole(5)])) == [1, 4, 5, 6, 7]
    assert isinstance(choose_devices(inventory, [whole(6)]), NoDevices)
    inventory.release(("alone/t/0", 1))
    assert numbers(choose_devices(inventory, [whole(7)])) == [1, 2, 3, 4, 5, 6, 7]
    inventory.check()


def test_the_groups_of_a_node_are_its_operators_or_those_of_its_model() -> None:
    table = (DevicePartition(devices=(0, 1)), DevicePartition(devices=(2,)))
    own = partitions_of(GPUS, table, is_honored=True)
    assert own == GpuPartitions(by_size={2: (table[0],), 1: (table[1],)}, is_honored=True)
    h100 = [Device(kind="gpu", device=n, zone=0, labels=(("model", "H100"),)) for n in range(8)]
    assert partitions_of(h100, ()).by_size == partitions_of_model("H100")
    assert partitions_of(h100[:7], ()).by_size is None
    # Without a table there is nothing to honor.
    assert partitions_of(GPUS, (), is_honored=True) == GpuPartitions()


def test_on_a_machine_of_many_roots_only_sets_that_have_enough_are_looked_at() -> None:
    roots = range(16)
    gpus = [Device(kind="gpu", device=n, zone=n // 8, pcie=f"p{n:02}", memory_bytes=MEMORY) for n in roots]
    nics = [Device(kind="nic", device=n, zone=n // 8, pcie=f"p{n:02}") for n in roots]
    asked = (whole(8), whole(1, "nic"))
    locality = DeviceLocality(joint=JointDevices(kinds=("gpu", "nic"), required=True), is_joint_sought=True)
    found = choose_devices(an_inventory(*gpus, *nics), asked, locality=locality)
    assert numbers(found) == numbers(found, "nic") == list(range(8))
    layout = DeviceLayout(devices=(*gpus, *nics), zones=(0, 1))
    assert never_holds(layout, DeviceAsk(requests=asked, joint=locality.joint)) is None
