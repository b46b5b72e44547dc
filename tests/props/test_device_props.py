"""Devices: never more than there is, always a choice when one exists, the same choice every time, everything back in the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from colo_common.model.constraints import DeviceExclusive, DeviceRequest, DeviceScope, JointDevices
from colo_common.model.placement import DeviceShare
from colo_common.model.topology import Device, DevicePartition
from colo_scheduler.devices.choose import DeviceChoice, DeviceLocality, NoDevices, choose_devices
from colo_scheduler.devices.hints import BEST_SCORE, device_hints
from colo_scheduler.devices.inventory import WHOLE_PCT, DeviceInventory
from colo_scheduler.devices.layout import DeviceLayout, GpuPartitions, choose_partition, partitions_of_model
from colo_scheduler.devices.need import DeviceNeed, need_of
from colo_scheduler.devices.never import DeviceAsk, never_holds

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
        scope=st.sampled_from([DeviceScope.NODE, DeviceScope.NODE, DeviceScope.NUMA_NODE, DeviceScope.PCIE]),
        exclusive=st.sampled_from([DeviceExclusive.NONE] * 3 + list(DeviceExclusive)),
    ).filter(is_allowed)


def is_allowed(request: DeviceRequest) -> bool:
    """Shares of several GPUs cannot be kept close to each other."""
    need = need_of(request)
    return request.scope is DeviceScope.NODE or need.count == 1 or not need.is_shared or request.kind != "gpu"


REQUESTS = st.tuples(st.none() | requests_of("gpu", True), st.none() | requests_of("nic", False)).map(
    lambda found: [request for request in found if request is not None]
)
LOCALITIES = st.builds(
    DeviceLocality,
    joint=st.none()
    | st.builds(
        JointDevices,
        kinds=st.sampled_from([("gpu", "nic"), ("nic", "gpu")]),
        scope=st.sampled_from([DeviceScope.NUMA_NODE, DeviceScope.PCIE]),
        required=st.booleans(),
    ),
    is_joint_sought=st.booleans(),
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
    untouched = {kind: inventory.free_devices(kind) for kind in inventory.kinds}
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
    assert {kind: inventory.free_devices(kind) for kind in inventory.kinds} == untouched
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
    possible = {
        tuple(device.device for device in chosen)
        for chosen in sets_of(inventory, need, need.count)
        if not only or not zones or all(device.zone in zones for device in chosen)
    }
    found = choose_devices(inventory, [request], zones, only_in_zones=only)
    if possible:
        assert isinstance(found, DeviceChoice)
        assert tuple(share.device for share in found.shares) in possible
    else:
        assert isinstance(found, NoDevices)


def sets_of(inventory: DeviceInventory, need: DeviceNeed, count: int) -> list[tuple[Device, ...]]:
    """All sets of so many devices that have enough and lie no further apart than is wished."""
    fitting = [room.device for room in inventory.free_devices(need.kind) if need.share_of(room) is not None]

    def widths(chosen: tuple[Device, ...]) -> tuple[int, int, int]:
        return (0, len({device.zone for device in chosen}), len({(device.zone, device.pcie) for device in chosen}))

    return [chosen for chosen in combinations(fitting, count) if widths(chosen)[need.scope - 1] <= 1]


def places(devices: Iterable[Device], scope: DeviceScope) -> frozenset[str]:
    return frozenset(device.pcie if scope is DeviceScope.PCIE else str(device.zone) for device in devices)


JOINT = st.builds(
    JointDevices,
    kinds=st.sampled_from([("gpu", "nic"), ("nic", "gpu")]),
    scope=st.sampled_from([DeviceScope.NUMA_NODE, DeviceScope.PCIE]),
    required=st.booleans(),
)


def fewest_places(inventory: DeviceInventory, requests: Sequence[DeviceRequest], joint: JointDevices) -> int | None:
    """By trying everything: in how few places devices of all kinds can be beside each other; None when they cannot."""
    first, *others = (need_of(next(r for r in requests if r.kind == kind)) for kind in joint.kinds)
    best: int | None = None
    for here in {places(chosen, joint.scope) for chosen in sets_of(inventory, first, first.count)}:
        follows = all(
            any(places(chosen, joint.scope) == here for chosen in sets_of(inventory, need, max(need.count, len(here))))
            for need in others
        )
        if follows and (best is None or len(here) < best):
            best = len(here)
    return best


@given(
    machines(),
    st.lists(requests_of("gpu", True), max_size=2),
    requests_of("gpu", True),
    requests_of("nic", False),
    JOINT,
)
def test_devices_that_belong_together_are_found_in_the_fewest_places_whenever_there_are_any(
    devices: tuple[Device, ...],
    before: list[DeviceRequest],
    gpu: DeviceRequest,
    nic: DeviceRequest,
    joint: JointDevices,
) -> None:
    inventory = held(devices, before)
    locality = DeviceLocality(joint=joint, is_joint_sought=True)
    found = choose_devices(inventory, [gpu, nic], locality=locality)
    kinds = {device.kind for device in devices}
    fewest = fewest_places(inventory, [gpu, nic], joint) if kinds == {"gpu", "nic"} else None
    if fewest is None:
        if joint.required:
            assert isinstance(found, NoDevices)
            assert found.have < found.need or found.unit == "condition"
        return
    assert isinstance(found, DeviceChoice)
    known = {(device.kind, device.device): device for device in devices}
    by_kind = {
        kind: [known[share.kind, share.device] for share in found.shares if share.kind == kind] for kind in joint.kinds
    }
    first, second = (places(by_kind[kind], joint.scope) for kind in joint.kinds)
    assert first == second
    assert len(first) == fewest
    counts = {"gpu": max(1, gpu.count), "nic": max(1, nic.count)}
    assert len(by_kind[joint.kinds[0]]) == counts[joint.kinds[0]]
    assert len(by_kind[joint.kinds[1]]) == max(counts[joint.kinds[1]], fewest)
    # The shares can be held, and nobody who stays away from others has company on its roots.
    inventory.hold(("joint/t/0", 1), found.shares)
    check_alone(inventory, devices, [("joint/t/0", 1), *((f"other/task/{index}", 1) for index in range(len(before)))])


def check_alone(inventory: DeviceInventory, devices: Sequence[Device], attempts: Sequence[tuple[str, int]]) -> None:
    pcie = {(device.kind, device.device): device.pcie for device in devices}
    for attempt in attempts:
        for share in inventory.held_by(attempt):
            if share.exclusive is DeviceExclusive.NONE:
                continue
            for other in attempts:
                for sibling in inventory.held_by(other) if other != attempt else ():
                    same = (sibling.kind, sibling.device) == (share.kind, share.device)
                    root = (
                        sibling.kind == share.kind
                        and pcie[sibling.kind, sibling.device] == pcie[share.kind, share.device]
                    )
                    assert not same
                    assert not root or share.exclusive is not DeviceExclusive.PCIE_LEVEL


@given(machines(), st.lists(REQUESTS, max_size=3), REQUESTS, LOCALITIES)
def test_what_a_machine_could_never_hold_it_does_not_hold_and_an_empty_one_holds_the_rest(
    devices: tuple[Device, ...],
    before: list[list[DeviceRequest]],
    requests: list[DeviceRequest],
    locality: DeviceLocality,
) -> None:
    layout = DeviceLayout(tuple(replace(device, is_healthy=True) for device in devices), (), False, (0, 1))
    ask = DeviceAsk(tuple(requests), locality.joint if len(requests) == 2 else None)
    never = never_holds(layout, ask)
    locality = DeviceLocality(joint=ask.joint, is_joint_sought=True)
    inventory = DeviceInventory(devices)
    for index, earlier in enumerate(before):
        taken = choose_devices(inventory, earlier)
        if isinstance(taken, DeviceChoice):
            inventory.hold((f"other/task/{index}", 1), taken.shares)
    found = choose_devices(inventory, requests, locality=locality)
    empty = choose_devices(DeviceInventory(layout.devices), requests, locality=locality)
    if never is not None:
        assert isinstance(found, NoDevices)
        assert isinstance(empty, NoDevices)
    elif not ask.is_plain:
        assert isinstance(empty, DeviceChoice)


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
    rooms = [room for room in inventory.free_devices("gpu") if not room.is_used]

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


def on_switch(kind: str, numbers: Iterable[int], switch: int) -> tuple[Device, ...]:
    """Healthy devices on one switch, beside those of `machines`."""
    memory = MEMORY if kind == "gpu" else 0
    return tuple(Device(kind=kind, device=n, zone=switch // 2, pcie=f"p{switch}", memory_bytes=memory) for n in numbers)


@given(machines(), st.integers(0, 3), st.integers(1, 3), st.sampled_from([0, 30, 100]), JOINT, st.booleans())
def test_joint_devices_that_must_share_switches_are_found_where_one_switch_has_them_all(
    devices: tuple[Device, ...], switch: int, count: int, nic_pct: int, joint: JointDevices, packs: bool
) -> None:
    every = (*devices, *on_switch("gpu", range(10, 10 + count), switch), *on_switch("nic", (10,), switch))
    requests = [DeviceRequest(kind="gpu", count=count), DeviceRequest(kind="nic", count=1, core_pct=nic_pct)]
    locality = DeviceLocality(joint=replace(joint, required=True), is_joint_sought=True, packs=packs)
    found = choose_devices(DeviceInventory(every), requests, locality=locality)
    assert isinstance(found, DeviceChoice)
    known = {(device.kind, device.device): device for device in every}
    gpus, nics = (
        places((known[share.kind, share.device] for share in found.shares if share.kind == kind), joint.scope)
        for kind in ("gpu", "nic")
    )
    assert gpus == nics
    assert len(gpus) == 1
    assert sum(share.kind == "gpu" for share in found.shares) == count


def check_inside(found: DeviceChoice, shares: Sequence[DeviceShare]) -> None:
    room = {share.device: share for share in shares}
    assert found.shares
    for share in found.shares:
        assert share.core_pct <= room[share.device].core_pct
        assert share.memory_bytes <= room[share.device].memory_bytes


@given(machines(), st.lists(REQUESTS, max_size=3), REQUESTS, LOCALITIES)
def test_hints_are_all_the_zones_that_can_give_the_devices_and_no_others(
    devices: tuple[Device, ...],
    before: list[list[DeviceRequest]],
    requests: list[DeviceRequest],
    locality: DeviceLocality,
) -> None:
    # Each switch in a zone of its own.
    apart = [replace(device, zone=int(device.pcie[1:])) for device in devices]
    inventory = DeviceInventory(apart)
    for index, earlier in enumerate(before):
        taken = choose_devices(inventory, earlier)
        if isinstance(taken, DeviceChoice):
            inventory.hold((f"other/task/{index}", 1), taken.shares)
    hints = device_hints(inventory, requests, range(4), locality=locality)
    delivered = () if isinstance(hints, NoDevices) else tuple(hint.zones for hint in hints)
    expected = [
        zones
        for size in range(1, 5)
        for zones in combinations(range(4), size)
        if isinstance(choose_devices(inventory, requests, zones, only_in_zones=True, locality=locality), DeviceChoice)
    ]
    if (0, 1, 2, 3) in expected:
        assert list(delivered) == expected
    else:
        assert delivered == ()


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
    group = choose_partition(inventory.free_devices("gpu"), count, table, None)
    unused = [part for part in table[count] if used.isdisjoint(part.devices)]
    assert (group is not None) == bool(unused)
    if group is None:
        return
    assert group in unused

    def worth(part: DevicePartition) -> int:
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
