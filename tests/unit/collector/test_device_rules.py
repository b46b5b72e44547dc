"""Labels and groups of devices as an operator writes them, and what becomes of them on a machine that has others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from colo_collector.device_rules import DeviceLabel, parse_device_labels, parse_gpu_partitions, with_declared
from colo_collector.settings import CollectorSettings
from colo_common.model.invalid import InvalidInput
from colo_common.model.topology import Device, DevicePartition, uniform_topology

MACHINE = structs.replace(
    uniform_topology(sockets=1, zones_per_socket=1, cpus_per_zone=2, memory_bytes_per_zone=1 << 30),
    devices=(
        *(Device(kind="gpu", device=n, zone=0, labels=(("vendor", "10de"),)) for n in range(4)),
        Device(kind="nic", device=0, zone=0),
    ),
)


def test_labels_and_groups_are_read() -> None:
    assert parse_device_labels(["gpu:model=H100", "gpu/0-1+3:rack.io/side=left"]) == (
        DeviceLabel(kind="gpu", numbers=None, name="model", value="H100"),
        DeviceLabel(kind="gpu", numbers=(0, 1, 3), name="rack.io/side", value="left"),
    )
    assert parse_gpu_partitions(["0-3", "0+2:score=2:bandwidth=2Gi"]) == (
        DevicePartition(devices=(0, 1, 2, 3)),
        DevicePartition(devices=(0, 2), score=2, bandwidth_bytes_per_s=2 << 30),
    )


@pytest.mark.parametrize(
    "text",
    ["", "gpu", "gpu:model", "gpu:=x", "GPU:model=x", "gpu/:model=x", "gpu/a:model=x", "gpu/3-1:model=x", "gpu:m=a b"],
)
def test_a_label_of_another_form_is_refused_by_its_place(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_device_labels(["gpu:model=H100", text])
    assert refused.value.field.startswith("device_labels[1]")


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", "gpu_partitions[1]"),
        ("a", "gpu_partitions[1]"),
        ("0-3", "gpu_partitions[1]"),
        ("4:score=", "gpu_partitions[1].score"),
        ("4:score=-1", "gpu_partitions[1].score"),
        ("4:score=1:score=2", "gpu_partitions[1]"),
        ("4:bandwidth=fast", "gpu_partitions[1].bandwidth"),
        ("4:bandwidth=4096Pi", "gpu_partitions[1].bandwidth"),
        ("4:ring=1", "gpu_partitions[1]"),
        ("9999", "gpu_partitions[1]"),
    ],
)
def test_a_group_of_another_form_is_refused_by_its_place(text: str, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_gpu_partitions(["0-3", text])
    assert refused.value.field == field


def test_what_the_bus_tells_and_what_is_too_much_is_refused() -> None:
    with pytest.raises(InvalidInput, match="read from the PCI bus"):
        parse_device_labels(["gpu:vendor=10de"])
    with pytest.raises(InvalidInput, match="at most 14 names"):
        parse_device_labels([f"gpu:a{n}=x" for n in range(15)])
    with pytest.raises(InvalidInput, match="at most 256"):
        parse_device_labels(["gpu:a=x"] * 257)


def test_a_machine_carries_what_is_declared_and_what_it_lacks_is_named() -> None:
    labels = parse_device_labels(["gpu:model=A100", "gpu/2-5:model=H100", "fpga:model=x"])
    groups = parse_gpu_partitions(["0-1", "2-3", "4-5"])
    assumed: list[str] = []
    declared = with_declared(MACHINE, labels, groups, assumed)
    assert [dict(device.labels).get("model") for device in declared.devices] == ["A100", "A100", "H100", "H100", None]
    assert declared.devices[0].labels == (("model", "A100"), ("vendor", "10de"))
    assert declared.gpu_partitions == groups[:2]
    assert assumed == [
        "device_labels names gpu-4 gpu-5, which the machine lacks; it is left out",
        "device_labels names fpga, which the machine lacks; it is left out",
        "gpu_partitions names the GPUs 4-5, which the machine lacks in part; it is left out",
    ]
    declared.validate()


def test_settings_check_both() -> None:
    CollectorSettings(node="n1", device_labels=("gpu:model=H100",), gpu_partitions=("0-3",)).validate()
    with pytest.raises(InvalidInput):
        CollectorSettings(node="n1", device_labels=("gpu",)).validate()
    with pytest.raises(InvalidInput):
        CollectorSettings(node="n1", gpu_partitions=("x",)).validate()


@given(st.text(max_size=30))
def test_whatever_is_written_is_read_or_refused(text: str) -> None:
    for read in (parse_device_labels, parse_gpu_partitions):
        try:
            found = read([text])
        except InvalidInput:
            continue
        assert len(found) == 1
