"""Devices: never more than there is, always a choice when one exists, the same choice every time, everything back in the end."""

from __future__ import annotations

from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st

from colo_common.model.constraints import DeviceRequest
from colo_common.model.placement import DeviceShare
from colo_common.model.topology import Device
from colo_scheduler.device.choose import DeviceChoice, DeviceLocality, NoDevices, choose_devices
from colo_scheduler.device.hints import BEST_SCORE, device_hints
from colo_scheduler.device.inventory import WHOLE_PCT, DeviceInventory
from colo_scheduler.device.need import need_of
from colo_scheduler.device.partition import GpuPartitions, Partition, choose_partition, partitions_of_model
from colo_scheduler.device.scope import Scope

MEMORY = 64


@st.composite
def machines(draw: st.DrawFn) -> tuple[Device, ...]:
    """Up to six GPUs and four NICs, somewhere on two zones of two switches each."""
    gpus = draw(st.integers(0, 6))
    nics = draw(st.integers(0, 4))
    devices = []
    for kind, count in (("gpu", gpus), ("nic", nics)):
        for number in range(count):
            switch = draw(st.integers(0, 3))
            devices.append(
                Device(
                    kind=kind,
                    device=number,
                    zone=switch // 2,
                    pcie=f"p{switch}",
                    memory_bytes=MEMORY if kind == "gpu" else 0,
                    is_healthy=draw(st.integers(0, 5)) > 0,
                )
            )
    return tuple(devices)


def requests_of(kind: str, has_memory: bool) -> st.SearchStrategy[DeviceRequest]:
    return st.builds(
        DeviceRequest,
        kind=st.just(kind),
        count=st.integers(0, 4),
        core_pct=st.sampled_from([0, 1, 30, 50, 100]),
        memory_pct=st.sampled_from([0, 25, 50, 100]) if has_memory else st.just(0),
    )


REQUESTS = st.tuples(st.none() | requests_of("gpu", True), st.none() | requests_of("nic", False)).map(
    lambda found: [request for request in found if request is not None]
)
LOCALITIES = st.builds(
    DeviceLocality,
    scope=st.sampled_from([Scope.NODE, Scope.NODE, Scope.ZONE, Scope.PCIE]),
    joint=st.sampled_from([(), ("gpu", "nic"), ("nic", "gpu")]),
    same_pcie=st.booleans(),
    packs=st.booleans(),
)
ZONES = st.sampled_from([(), (0,), (1,), (0, 1)])


def check_not_over(inventory: DeviceInventory, devices: tuple[Device, ...], attempts: list[tuple[str, int]]) -> None:
    inventory.check()
    for device in devices:
        shares = [
            share
            for attempt in attempts
            for share in inventory.held_by(attempt)
            if (share.kind, share.device) == (device.kind, device.device)
        ]
        assert sum(share.core_pct for share in shares) <= WHOLE_PCT
        assert sum(share.memory_bytes for share in shares) <= device.memory_bytes


@given(machines(), st.lists(st.tuples(REQUESTS, LOCALITIES, ZONES, st.booleans()), max_size=10))
def test_no_device_is_ever_given_out_beyond_what_it_has_and_all_comes_back(
    devices: tuple[Device, ...], asked: list[tuple[list[DeviceRequest], DeviceLocality, tuple[int, ...], bool]]
) -> None:
    inventory = DeviceInventory(devices)
    untouched = {kind: inventory.rooms(kind) for kind in inventory.kinds}
    attempts: list[tuple[str, int]] = []
    for index, (requests, locality, zones, leaves) in enumerate(asked):
        found = choose_devices(inventory, requests, zones, locality=locality)
        again = choose_devices(DeviceInventory(tuple(reversed(devices))), requests, zones, locality=locality)
        if not attempts:
            assert found == again
        if isinstance(found, DeviceChoice):
            attempts.append((f"web/task/{index}", 1))
            inventory.hold(attempts[-1], found.shares)
        check_not_over(inventory, devices, attempts)
        if leaves and attempts:
            inventory.release(attempts.pop(0))
    for attempt in attempts:
        inventory.release(attempt)
    assert {kind: inventory.rooms(kind) for kind in inventory.kinds} == untouched
    inventory.check()


@given(machines(), st.lists(requests_of("gpu", True), max_size=3), requests_of("gpu", True), ZONES, st.booleans())
def test_whatever_some_choice_could_give_is_given(
    devices: tuple[Device, ...],
    before: list[DeviceRequest],
    request: DeviceRequest,
    zones: tuple[int, ...],
    only: bool,
) -> None:
    inventory = held(devices, before)
    need = need_of(request)
    possible = [
        room.number
        for room in inventory.rooms("gpu")
        if need.share_of(room) is not None and (not only or not zones or room.device.zone in zones)
    ]
    found = choose_devices(inventory, [request], zones, only_in_zones=only)
    if len(possible) >= need.count:
        assert isinstance(found, DeviceChoice)
        assert {share.device for share in found.shares} <= set(possible)
        assert len(found.shares) == need.count
    else:
        assert isinstance(found, NoDevices)


def held(devices: tuple[Device, ...], before: list[DeviceRequest]) -> DeviceInventory:
    inventory = DeviceInventory(devices)
    for index, earlier in enumerate(before):
        taken = choose_devices(inventory, [earlier])
        if isinstance(taken, DeviceChoice):
            inventory.hold((f"other/task/{index}", 1), taken.shares)
    return inventory


@given(machines(), st.lists(requests_of("gpu", True), max_size=3), st.integers(1, 4))
def test_whole_gpus_are_as_close_as_an_exhaustive_search_finds_them(
    devices: tuple[Device, ...], before: list[DeviceRequest], count: int
) -> None:
    inventory = held(devices, before)
    rooms = [room for room in inventory.rooms("gpu") if not room.is_used]

    def width(numbers: tuple[int, ...]) -> int:
        chosen = [room.device for room in rooms if room.number in numbers]
        if len({(device.zone, device.pcie) for device in chosen}) == 1:
            return 1
        return 2 if len({device.zone for device in chosen}) == 1 else 3

    best = min((width(numbers) for numbers in combinations([room.number for room in rooms], count)), default=None)
    found = choose_devices(inventory, [DeviceRequest(kind="gpu", count=count)])
    if best is None:
        assert isinstance(found, NoDevices)
    else:
        assert isinstance(found, DeviceChoice)
        assert width(tuple(share.device for share in found.shares)) == best


@given(machines(), REQUESTS, LOCALITIES)
def test_joint_devices_that_must_share_switches_do(
    devices: tuple[Device, ...], requests: list[DeviceRequest], locality: DeviceLocality
) -> None:
    found = choose_devices(DeviceInventory(devices), requests, locality=locality)
    if isinstance(found, DeviceChoice) and locality.same_pcie and locality.joint and len(requests) == 2:
        pcie = {(device.kind, device.device): device.pcie for device in devices}
        switches = {
            kind: {pcie[share.kind, share.device] for share in found.shares if share.kind == kind}
            for kind in ("gpu", "nic")
        }
        assert switches["gpu"] == switches["nic"]


@given(machines(), requests_of("gpu", True), st.data())
def test_an_owner_that_must_stay_inside_gets_nothing_but_what_is_held_for_it(
    devices: tuple[Device, ...], request: DeviceRequest, data: st.DataObject
) -> None:
    inventory = DeviceInventory(devices)
    shares = tuple(
        DeviceShare(
            kind="gpu",
            device=room.number,
            zone=room.device.zone,
            core_pct=data.draw(st.sampled_from([10, 50, 100])),
            memory_bytes=data.draw(st.sampled_from([0, MEMORY // 2, MEMORY])),
        )
        for room in inventory.rooms("gpu")
        if data.draw(st.booleans())
    )
    inventory.hold(("reservation:r1/hold/0", 1), shares)
    found = choose_devices(inventory, [request], reusable=shares, only_reusable=True)
    if isinstance(found, DeviceChoice):
        room = {share.device: share for share in shares}
        for share in found.shares:
            assert share.core_pct <= room[share.device].core_pct
            assert share.memory_bytes <= room[share.device].memory_bytes
    beyond = choose_devices(inventory, [request], reusable=shares)
    if isinstance(found, DeviceChoice):
        assert isinstance(beyond, DeviceChoice)


@given(machines(), REQUESTS, LOCALITIES)
def test_every_hint_can_be_kept_and_the_best_devices_lie_in_some(
    devices: tuple[Device, ...], requests: list[DeviceRequest], locality: DeviceLocality
) -> None:
    inventory = DeviceInventory(devices)
    hints = device_hints(inventory, requests, (0, 1), locality=locality)
    free = choose_devices(inventory, requests, (0, 1), only_in_zones=True, locality=locality)
    if isinstance(hints, NoDevices):
        assert hints == free
        return
    assert hints
    assert any(hint.is_preferred for hint in hints)
    assert {hint.score for hint in hints} <= {0, BEST_SCORE}
    assert any(hint.score == BEST_SCORE for hint in hints)
    for hint in hints:
        assert hint.is_preferred == (len(hint.zones) == len(hints[0].zones))
        found = choose_devices(inventory, requests, hint.zones, only_in_zones=True, locality=locality)
        assert isinstance(found, DeviceChoice)
        assert {share.zone for share in found.shares} <= set(hint.zones)


@given(st.sets(st.integers(0, 7)), st.sampled_from([1, 2, 4, 8]))
def test_a_group_of_linked_gpus_is_found_whenever_one_is_unused(used: set[int], count: int) -> None:
    inventory = DeviceInventory([Device(kind="gpu", device=n, zone=n // 4) for n in range(8)])
    for number in sorted(used):
        share = DeviceShare(kind="gpu", device=number, zone=number // 4)
        inventory.hold((f"other/task/{number}", 1), [share])
    table = partitions_of_model("H100")
    assert table is not None
    group = choose_partition(inventory.rooms("gpu"), count, table, None)
    unused = [part for part in table[count] if used.isdisjoint(part.devices)]
    assert (group is not None) == bool(unused)
    if group is None:
        return
    assert group in unused

    def worth(part: Partition) -> int:
        taken = used.union(part.devices)
        weights = {2: 1, 4: 100, 8: 10_000}
        return sum(
            weight
            for size, weight in weights.items()
            for other in table[size]
            if size >= count and taken.isdisjoint(other.devices)
        )

    assert worth(group) == max(worth(part) for part in unused)
    honored = GpuPartitions(by_size=table, is_honored=True)
    found = choose_devices(inventory, [DeviceRequest(kind="gpu", count=count)], partitions=honored)
    assert isinstance(found, DeviceChoice)
    assert tuple(share.device for share in found.shares) == group.devices


def test_percentages_of_memory_round_down_and_never_sum_to_more_than_there_is() -> None:
    for parts, memory in product((2, 3, 7), (1, 5, 63)):
        inventory = DeviceInventory([Device(kind="gpu", device=0, zone=0, memory_bytes=memory)])
        request = DeviceRequest(kind="gpu", core_pct=WHOLE_PCT // parts, memory_pct=WHOLE_PCT // parts)
        for index in range(parts):
            found = choose_devices(inventory, [request])
            assert isinstance(found, DeviceChoice)
            inventory.hold((f"web/task/{index}", 1), found.shares)
        assert isinstance(choose_devices(inventory, [DeviceRequest(kind="gpu", core_pct=50)]), NoDevices)
