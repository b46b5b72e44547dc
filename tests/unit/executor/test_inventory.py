"""Whether a node can give a placement its devices and huge pages: the same words on real and simulated nodes."""

import pytest
from msgspec.structs import replace

from colo_common.events.enforcement import PlacementRefused
from colo_common.model.constraints import HugePages
from colo_common.model.placement import DeviceShare, Placement, ZoneHugePages
from colo_common.model.reasons import Reason
from colo_common.model.topology import Device, NodeTopology
from colo_executor.attempt import refusal_of
from colo_executor.inventory import MachineInventory, ShareRefused, check_shares, inventory_of
from colo_executor.local import LaunchFailed, RememberEnd, ReplicaLaunched
from colo_executor.simulated import SimulatedRuntime
from colo_sim.demand import OnlineDemand
from colo_sim.machine import SimMachine
from colo_sim.machine_spec import MachineSpec
from tests.support.builders import GIB, a_placement, a_topology

MIB = 1 << 20


def gpu(number: int = 0, core_pct: int = 100, memory_bytes: int = 0) -> DeviceShare:
    return DeviceShare(kind="gpu", device=number, zone=0, core_pct=core_pct, memory_bytes=memory_bytes)


def pages(total_bytes: int, page_bytes: int = 2 * MIB, zone: int = 0) -> ZoneHugePages:
    return ZoneHugePages(zone=zone, page_bytes=page_bytes, total_bytes=total_bytes)


def with_devices(*shares: DeviceShare, replica: str = "job/main/0") -> Placement:
    return replace(a_placement(replica), devices=shares)


def with_pages(*shares: ZoneHugePages, replica: str = "job/main/0") -> Placement:
    return replace(a_placement(replica), huge_pages=shares)


def a_machine() -> NodeTopology:
    """Two zones; zone 0 has 16 MiB of 2 MiB pages and a GPU of 80 GiB, zone 1 a NIC of which no memory is known."""
    topology = a_topology()
    first, second = topology.zones
    first = replace(first, huge_pages=(HugePages(page_bytes=2 * MIB, total_bytes=16 * MIB),))
    devices = (
        Device(kind="gpu", device=0, zone=0, memory_bytes=80 * GIB),
        Device(kind="nic", device=0, zone=1),
    )
    return replace(topology, zones=(first, second), devices=devices)


OTHER = "other/main/0"
RULES = [
    (with_devices(gpu()), (), None, ""),
    (with_devices(gpu(core_pct=60)), (with_devices(gpu(core_pct=40), replica=OTHER),), None, ""),
    (
        with_devices(gpu(core_pct=61)),
        (with_devices(gpu(core_pct=40), replica=OTHER),),
        Reason.DEVICE_SHORT,
        "devices: gpu 0 has 60 % left, 61 % are asked for; the rest is held by other/main/0",
    ),
    (with_devices(gpu(3)), (), Reason.DEVICE_SHORT, "devices: this node has no gpu 3"),
    (
        with_devices(DeviceShare(kind="fpga", device=0, zone=0)),
        (),
        Reason.DEVICE_UNKNOWN,
        "devices: this node has no fpga 0",
    ),
    (
        with_devices(gpu(core_pct=10, memory_bytes=41 * GIB)),
        (with_devices(gpu(core_pct=10, memory_bytes=40 * GIB), replica=OTHER),),
        Reason.DEVICE_SHORT,
        f"devices: gpu 0 has {40 * GIB} bytes of memory left, {41 * GIB} are asked for",
    ),
    (with_pages(pages(16 * MIB)), (), None, ""),
    (
        with_pages(pages(6 * MIB)),
        (with_pages(pages(12 * MIB), replica=OTHER),),
        Reason.HUGE_PAGES_SHORT,
        f"huge_pages: zone 0 has {4 * MIB} bytes left in pages of {2 * MIB}, {6 * MIB} are asked for",
    ),
    (
        with_pages(pages(2 * MIB, zone=1)),
        (),
        Reason.HUGE_PAGES_SHORT,
        f"huge_pages: zone 1 has 0 bytes left in pages of {2 * MIB}, {2 * MIB} are asked for",
    ),
]


@pytest.mark.parametrize(("placement", "held", "reason", "refusal"), RULES)
def test_shares_are_given_as_long_as_there_are_any(placement, held, reason, refusal):
    if reason is None:
        check_shares(placement, held, inventory_of(a_machine()))
        return
    with pytest.raises(ShareRefused) as refused:
        check_shares(placement, held, inventory_of(a_machine()))
    assert (refused.value.reason, str(refused.value)) == (reason, refusal)


def test_a_node_that_does_not_know_its_devices_still_gives_none_of_them_twice():
    inventory = MachineInventory()
    check_shares(with_devices(gpu(7)), (), inventory)
    with pytest.raises(ShareRefused, match="gpu 7 has 0 % left"):
        check_shares(with_devices(gpu(7, core_pct=1)), (with_devices(gpu(7), replica=OTHER),), inventory)


@pytest.mark.parametrize(
    ("placement", "refusal"),
    [
        (with_devices(gpu(), gpu()), "devices: gpu 0 must have a kind and appear once"),
        (with_devices(DeviceShare(kind="", device=0, zone=0)), "devices:  0 must have a kind and appear once"),
        (with_devices(gpu(core_pct=101)), "devices: core_pct of gpu 0 must be from 0 to 100 (got 101)"),
        (
            with_pages(pages(2 * MIB), pages(4 * MIB)),
            f"huge_pages: zone 0 must appear once for pages of {2 * MIB} bytes",
        ),
        (with_pages(pages(3 * MIB)), "huge_pages: total_bytes must be a multiple of page_bytes, and at least one page"),
        (with_pages(pages(0)), "huge_pages: total_bytes must be a multiple of page_bytes, and at least one page"),
        (with_pages(pages(2, page_bytes=0)), "huge_pages: total_bytes must be a multiple of page_bytes"),
    ],
)
def test_shares_without_a_meaning_are_refused_by_field_and_rule(placement, refusal):
    assert refusal_of(placement, "n1").startswith(refusal)


def a_runtime(topology: NodeTopology | None) -> SimulatedRuntime:
    machine = SimMachine(MachineSpec(), node="n1", seed=1, demand=lambda _: OnlineDemand(0, 0))
    return SimulatedRuntime(machine, capacity_mcpu=64_000, topology=topology)


async def launch(runtime: SimulatedRuntime, placement: Placement) -> ReplicaLaunched | LaunchFailed:
    return await runtime.launch(replace(placement, run=a_placement().run), 1)


@pytest.mark.parametrize(
    ("placement", "held", "reason", "refusal"), [rule for rule in RULES if rule[2] is not None], ids=lambda _: ""
)
async def test_a_simulated_node_refuses_in_the_same_words(placement, held, reason, refusal):
    runtime = a_runtime(a_machine())
    for other in held:
        assert isinstance(await launch(runtime, other), ReplicaLaunched)
    answer = await launch(runtime, placement)
    assert isinstance(answer, LaunchFailed)
    assert (answer.reason, answer.detail) == (reason, refusal)
    assert placement.replica not in {found.replica for found in runtime._machine.counters().replicas}


async def test_a_simulated_node_without_devices_gives_none_and_what_ended_is_free_again():
    bare = await launch(a_runtime(None), with_devices(gpu()))
    assert isinstance(bare, LaunchFailed)
    assert bare.reason is Reason.DEVICE_UNKNOWN
    runtime = a_runtime(a_machine())
    assert isinstance(await launch(runtime, with_devices(gpu(), replica=OTHER)), ReplicaLaunched)
    assert isinstance(await launch(runtime, with_devices(gpu())), LaunchFailed)
    over = PlacementRefused(node="n1", replica=OTHER, job="other", attempt=1, reason=Reason.START_FAILED)
    await runtime.remember(RememberEnd(fact=over))
    assert isinstance(await launch(runtime, with_devices(gpu())), ReplicaLaunched)
