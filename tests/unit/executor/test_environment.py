"""The environment variables of a replica."""

import json

import pytest
from msgspec.structs import replace

from colo_common.model.placement import DeviceShare, ZoneHugePages, ZoneShare
from colo_common.model.qos import PriorityBand, QosClass
from colo_executor.environment import environment_of
from tests.support.builders import GIB, a_placement

MIB = 1 << 20


def gpu(number: int, *, core_pct: int = 100, memory_bytes: int = 0) -> DeviceShare:
    return DeviceShare(kind="gpu", device=number, zone=0, core_pct=core_pct, memory_bytes=memory_bytes)


def test_an_attempt_gets_its_identity_and_place():
    placement = replace(
        a_placement("train/worker/12", node="n7", attempt=3, mcpu=4_000, gib=2),
        zones=tuple(ZoneShare(zone=zone, cpu_mcpu=1_000, memory_bytes=GIB) for zone in (3, 0, 1, 2)),
        qos=QosClass.LSR,
        band=PriorityBand.PROD,
        cpus="4-7",
    )
    variables = environment_of(placement)
    assert {name: value for name, value in variables.items() if name.startswith("COLO_") and "GPU" not in name} == {
        "COLO_JOB": "train",
        "COLO_TASK": "worker",
        "COLO_INDEX": "12",
        "COLO_REPLICA": "train/worker/12",
        "COLO_ATTEMPT": "3",
        "COLO_NODE": "n7",
        "COLO_QOS": "LSR",
        "COLO_CPU_MCPU": "4000",
        "COLO_MEMORY_BYTES": str(2 * GIB),
        "COLO_CPUS": "4-7",
        "COLO_ZONES": "0-3",
        "COLO_DEVICES": "[]",
        "COLO_HUGE_PAGES": "[]",
    }


def test_work_without_a_gpu_gets_the_variables_of_none():
    nic = DeviceShare(kind="nic", device=0, zone=0)
    for placement in (a_placement(), replace(a_placement(), devices=(nic,))):
        variables = environment_of(placement)
        assert variables["NVIDIA_VISIBLE_DEVICES"] == "void"
        assert variables["CUDA_VISIBLE_DEVICES"] == "-1"
        assert variables["COLO_GPU_CORE_PCT"] == variables["COLO_GPU_MEMORY_BYTES"] == ""


@pytest.mark.parametrize(
    ("shares", "numbers", "core_pct", "memory_bytes"),
    [
        ((gpu(10, memory_bytes=80 * GIB), gpu(2, memory_bytes=40 * GIB)), "2,10", "100,100", f"{40 * GIB},{80 * GIB}"),
        ((gpu(0, core_pct=50, memory_bytes=8 * GIB),), "0", "50", str(8 * GIB)),
        ((gpu(1, core_pct=0),), "1", "0", "0"),
    ],
    ids=["two whole ones in the order of numbers", "a share", "memory of which nothing is known"],
)
def test_gpus_are_listed_under_the_names_that_their_runtimes_read(shares, numbers, core_pct, memory_bytes):
    variables = environment_of(replace(a_placement(), devices=shares))
    assert variables["NVIDIA_VISIBLE_DEVICES"] == variables["CUDA_VISIBLE_DEVICES"] == numbers
    assert variables["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert (variables["COLO_GPU_CORE_PCT"], variables["COLO_GPU_MEMORY_BYTES"]) == (core_pct, memory_bytes)


def test_devices_and_huge_pages_are_listed_with_every_field_and_in_order():
    placement = replace(
        a_placement(),
        devices=(DeviceShare(kind="nic", device=1, zone=1, core_pct=25), gpu(3), gpu(0, core_pct=50, memory_bytes=5)),
        huge_pages=(
            ZoneHugePages(zone=1, page_bytes=2 * MIB, total_bytes=4 * MIB),
            ZoneHugePages(zone=0, page_bytes=GIB, total_bytes=GIB),
        ),
    )
    variables = environment_of(placement)
    assert json.loads(variables["COLO_DEVICES"]) == [
        {"kind": "gpu", "device": 0, "zone": 0, "core_pct": 50, "memory_bytes": 5},
        {"kind": "gpu", "device": 3, "zone": 0, "core_pct": 100, "memory_bytes": 0},
        {"kind": "nic", "device": 1, "zone": 1, "core_pct": 25, "memory_bytes": 0},
    ]
    assert json.loads(variables["COLO_HUGE_PAGES"]) == [
        {"zone": 0, "page_bytes": GIB, "total_bytes": GIB},
        {"zone": 1, "page_bytes": 2 * MIB, "total_bytes": 4 * MIB},
    ]
