"""GPUs and network cards from the files of a PCI bus, a row for each kind of machine and each absurd file."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from colo_collector.device_use import DeviceMonitor
from colo_collector.devices import (
    KINDS,
    PCI_ROOT,
    class_paths,
    device_links,
    device_paths,
    parse_device_kinds,
    read_devices,
)
from colo_collector.files import FileReader
from colo_common.model.invalid import InvalidInput
from colo_common.model.topology import Device, NodeTopology, uniform_topology
from tests.support.machine_tree import MachineSpec, MachineTree


def a_bus(**devices: dict[str, str]) -> dict[str, str | None]:
    """Texts by path; an underscore in a name is a colon or a dot of the address."""
    texts: dict[str, str | None] = {}
    for name, files in devices.items():
        _, domain, bus, device, function = name.split("_")
        for file, text in files.items():
            texts[f"{PCI_ROOT}/{domain}:{bus}:{device}.{function}/{file}"] = text
    return texts


GPU = {"class": "0x030200\n", "vendor": "0x10de\n", "numa_node": "1\n"}
NIC = {"class": "0x020000\n", "vendor": "0x15b3\n", "numa_node": "0\n"}


NVIDIA = (("vendor", "10de"),)


def test_numbers_follow_the_address_and_kinds_are_counted_apart() -> None:
    texts = a_bus(
        _0000_81_00_0=GPU, _0000_0a_00_0=GPU, _10000_01_00_0=NIC, _0000_0b_00_1=NIC, _0000_00_1f_0={"class": "0x060100"}
    )
    refused: list[str] = []
    devices = read_devices(
        texts, {f"{PCI_ROOT}/0000:81:00.0": "../../devices/pci0000:80/x/0000:81:00.0"}, (0, 1), refused
    )
    assert [(one.kind, one.device, one.zone, one.pcie, one.address) for one in devices] == [
        ("gpu", 0, 1, "", "0000:0a:00.0"),
        ("gpu", 1, 1, "pci0000:80", "0000:81:00.0"),
        ("nic", 0, 0, "", "0000:0b:00.1"),
        ("nic", 1, 0, "", "10000:01:00.0"),
    ]
    assert refused == []


@pytest.mark.parametrize(
    ("files", "device"),
    [
        (GPU, Device(kind="gpu", device=0, zone=1, labels=NVIDIA)),
        (GPU | {"device": "0x2330\n"}, Device(kind="gpu", device=0, zone=1, labels=(("product", "2330"), *NVIDIA))),
        (GPU | {"device": "odd\n"}, Device(kind="gpu", device=0, zone=1, labels=NVIDIA)),
        (GPU | {"numa_node": "-1\n"}, Device(kind="gpu", device=0, zone=0, labels=NVIDIA)),
        (
            {"class": "0x030000\n", "vendor": "0x1002\n"},
            Device(kind="gpu", device=0, zone=0, labels=(("vendor", "1002"),)),
        ),
        (
            GPU | {"mem_info_vram_total": "17163091968\n"},
            Device(kind="gpu", device=0, zone=1, memory_bytes=17163091968, labels=NVIDIA),
        ),
        ({"class": "0x020700\n"}, Device(kind="ib", device=0, zone=0)),
        (GPU | {"vendor": "0x1a03\n"}, None),
        (NIC | {"physfn/class": "0x020000\n"}, None),
        ({"class": "0x010802\n"}, Device(kind="nvme", device=0, zone=0)),
        ({"class": "0x010601\n"}, None),
        (
            {"class": "0x120000\n", "vendor": "0x19e5\n"},
            Device(kind="npu", device=0, zone=0, labels=(("vendor", "19e5"),)),
        ),
        (
            {"class": "0x030200\n", "vendor": "0xcabc\n"},
            Device(kind="mlu", device=0, zone=0, labels=(("vendor", "cabc"),)),
        ),
        (
            {"class": "0x058000\n", "vendor": "0x10ee\n"},
            Device(kind="fpga", device=0, zone=0, labels=(("vendor", "10ee"),)),
        ),
        ({"class": "0x120000\n", "vendor": "0x1ac1\n"}, None),
    ],
    ids=[
        "3D",
        "product",
        "odd product",
        "zone unknown",
        "VGA",
        "told memory",
        "InfiniBand",
        "console",
        "virtual function",
        "NVMe disk",
        "SATA controller",
        "Ascend",
        "Cambricon",
        "Xilinx",
        "accelerator of an unknown vendor",
    ],
)
def test_a_device_is_of_the_kind_of_its_class(files: dict[str, str], device: Device | None) -> None:
    refused: list[str] = []
    found = () if device is None else (replace(device, address="0000:01:00.0"),)
    assert read_devices(a_bus(_0000_01_00_0=files), {}, (0, 1), refused) == found
    assert refused == []


@pytest.mark.parametrize(
    ("change", "sentence_part"),
    [
        ({"numa_node": "2\n"}, "numa_node line 1: must be a zone of the machine, or -1 (got 2); gpu 0 is left out"),
        ({"numa_node": "one\n"}, "numa_node line 1: must be the number of a zone, or -1"),
        ({"numa_node": "9" * 40}, "numa_node line 1: must be the number of a zone, or -1"),
        ({"mem_info_vram_total": "-5\n"}, "mem_info_vram_total line 1: must be an unsigned decimal number"),
        ({"mem_info_vram_total": f"{1 << 60}\n"}, "mem_info_vram_total line 1: must be at most"),
        ({"class": "nonsense\n"}, "class line 1: must be a class such as 0x030200"),
    ],
)
def test_an_absurd_file_is_named_and_costs_its_device_only(change: dict[str, str], sentence_part: str) -> None:
    refused: list[str] = []
    devices = read_devices(a_bus(_0000_01_00_0=GPU | change, _0000_02_00_0=NIC), {}, (0, 1), refused)
    assert [one.kind for one in devices] == ["nic"]
    (sentence,) = refused
    assert sentence_part in sentence


def test_only_devices_of_a_kind_are_read_further() -> None:
    addresses = ["0000:01:00.0", "../../etc", "junk"]
    assert class_paths(addresses) == tuple(f"{PCI_ROOT}/0000:01:00.0/{name}" for name in ("class", "vendor", "device"))
    texts = a_bus(_0000_01_00_0={"class": "0x030200"}, _0000_02_00_0={"class": "0x060400"})
    assert device_links(texts) == (f"{PCI_ROOT}/0000:01:00.0",)
    assert len(device_paths(texts)) == 3


def test_an_operator_says_of_what_kind_a_vendors_devices_are() -> None:
    texts = a_bus(
        _0000_01_00_0={"class": "0x120000", "vendor": "0x1ac1", "device": "0x0043"},
        _0000_02_00_0={"class": "0x120000", "vendor": "0x1ac1", "device": "0x0044"},
        _0000_03_00_0={"class": "0x020000", "vendor": "0x15b3", "device": "0x1017"},
    )
    rules = parse_device_kinds(("1ac1:0044=none", "1ac1=npu", "15b3/02=rdma-nic"))
    assert [(one.kind, one.device) for one in read_devices(texts, {}, (0,), [], rules)] == [("npu", 0), ("rdma-nic", 0)]


def test_the_use_of_devices_is_in_one_sample_of_ten_and_counts_bytes(tmp_path: Path) -> None:
    tree = MachineTree(MachineSpec(), tmp_path)
    bus = f"{PCI_ROOT}/0000:0{{}}:00.0"
    gpu, nic, ib = (bus.format(number) for number in (1, 2, 3))
    tree.extra = {
        **{f"{gpu}/{name}": text for name, text in GPU.items()},
        **{f"{nic}/{name}": text for name, text in NIC.items()},
        f"{ib}/class": "0x020700",
        f"{gpu}/gpu_busy_percent": "37\n",
        f"{gpu}/mem_info_vram_used": "4096\n",
    }
    tree.extra[f"{gpu}/numa_node"] = "0\n"

    def count(received: int, words: int) -> None:
        tree.extra |= {
            f"{nic}/net/eth0/statistics/rx_bytes": f"{received}\n",
            f"{nic}/net/eth0/statistics/tx_bytes": "7\n",
            f"{ib}/infiniband/mlx5_0/ports/1/counters/port_rcv_data": f"{words}\n",
            f"{ib}/infiniband/mlx5_0/ports/1/counters/port_xmit_data": "nonsense\n",
        }
        tree.write()

    count(1_000, 10)
    monitor = DeviceMonitor()
    monitor.set_devices({("gpu", 0): "0000:01:00.0", ("ib", 0): "0000:03:00.0", ("nic", 0): "0000:02:00.0"})
    faults: list[str] = []
    with FileReader(str(tmp_path)) as reader:
        first = monitor.take(reader, faults)
        assert [(one.kind, one.busy_pct, one.memory_used_bytes) for one in first] == [("gpu", 37, 4096)]
        count(3_500, 35)
        assert [monitor.take(reader, faults) for _ in range(9)] == [()] * 9
        last = {one.kind: (one.received_bytes, one.sent_bytes) for one in monitor.take(reader, faults)}
    assert last == {"gpu": (None, None), "ib": (100, None), "nic": (2_500, 0)}
    assert "port_xmit_data" in faults[0]


@pytest.mark.parametrize("text", ["1ac1", "0x1ac1=npu", "1ac1=N P U", "1ac1:43=npu", "=npu"])
def test_a_rule_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_device_kinds((text,))
    assert caught.value.field == "device_kinds[0]"


words = st.one_of(st.sampled_from(["0x030200", "0x020000", "-1", "0", "1", "7", "0x10de"]), st.text(max_size=12))
names = st.sampled_from(["class", "vendor", "device", "numa_node", "mem_info_vram_total", "physfn/class"])
addresses = st.sampled_from(["0000:01:00.0", "0000:01:00.1", "0001:00:00.0", "ffff:ff:1f.7", "x"])


@given(
    st.dictionaries(st.tuples(addresses, names), words, max_size=20), st.dictionaries(addresses, st.text(max_size=30))
)
def test_whatever_the_files_hold_the_devices_are_valid(
    files: dict[tuple[str, str], str], links: dict[str, str]
) -> None:
    texts: dict[str, str | None] = {f"{PCI_ROOT}/{address}/{name}": text for (address, name), text in files.items()}
    links = {f"{PCI_ROOT}/{address}": link for address, link in links.items()}
    topology = uniform_topology(sockets=1, zones_per_socket=2, cpus_per_zone=2, memory_bytes_per_zone=1)
    found: NodeTopology = replace(topology, devices=read_devices(texts, links, (0, 1), []))
    found.validate()
    assert {device.kind for device in found.devices} <= set(KINDS)
