"""What a task may say of its place: what is read, what is refused and how."""

import msgspec
import pytest

from colo_common.model.constraints import (
    UNCONSTRAINED,
    Constraints,
    CpuBind,
    CpuExclusive,
    DeviceExclusive,
    DeviceRequest,
    DeviceScope,
    HugePages,
    JointDevices,
    NumaPolicy,
    PartitionPolicy,
    PartitionWish,
    Toleration,
)
from colo_common.model.invalid import InvalidInput
from colo_common.model.job_file import job_from_mapping
from colo_common.model.job_place import constraints_of
from colo_common.model.workload import JobSpec

_MIB = 1 << 20


def _job(place: object, qos: str = "LSR", cpu: str = "2") -> JobSpec:
    return job_from_mapping(
        {"name": "a", "qos": qos, "cpu": cpu, "memory": "1Gi", "command": ["run"], "place": place},
    )


def test_a_task_without_a_place_is_unconstrained() -> None:
    assert _job(None).tasks[0].constraints == UNCONSTRAINED


def test_every_key_of_a_place_is_read() -> None:
    place = {
        "node_labels": {"zone": "b", "disk": "ssd"},
        "tolerations": [{"key": "spot"}, {"key": "team", "value": "films", "effect": "NoSchedule"}],
        "cpu_bind": "FullPCPUs",
        "cpu_bind_required": True,
        "cpu_exclusive": "pcpu-level",
        "numa_policy": "SingleNUMANode",
        "huge_pages": {"2Mi": "1Gi"},
        "devices": {"nic": {"core_pct": 50}, "gpu": 2},
        "reservation": "night",
        "spread": True,
    }
    assert _job(place).tasks[0].constraints == Constraints(
        node_labels=(("disk", "ssd"), ("zone", "b")),
        tolerations=(Toleration(key="spot"), Toleration(key="team", value="films", effect="NoSchedule")),
        cpu_bind=CpuBind.FULL_PCPUS,
        cpu_bind_required=True,
        cpu_exclusive=CpuExclusive.PCPU_LEVEL,
        numa_policy=NumaPolicy.SINGLE_NUMA_NODE,
        huge_pages=(HugePages(page_bytes=2 * _MIB, total_bytes=1024 * _MIB),),
        devices=(DeviceRequest(kind="gpu", count=2), DeviceRequest(kind="nic", core_pct=50)),
        reservation="night",
        spread=True,
    )


def test_devices_with_conditions_are_read() -> None:
    gpu = {"count": 4, "labels": {"model": "H100", "maker": "x"}, "scope": "NUMANode", "exclusive": "pcie-level"}
    nic = {"count": 1, "exclusive": "device_level"}
    joint = {"kinds": ["gpu", "nic"], "scope": "PCIe", "required": True}
    place = constraints_of({"devices": {"gpu": gpu, "nic": nic}, "joint_devices": joint})
    assert place.devices == (
        DeviceRequest(
            kind="gpu",
            count=4,
            labels=(("maker", "x"), ("model", "H100")),
            scope=DeviceScope.NUMA_NODE,
            exclusive=DeviceExclusive.PCIE_LEVEL,
        ),
        DeviceRequest(kind="nic", count=1, exclusive=DeviceExclusive.DEVICE_LEVEL),
    )
    assert place.joint_devices == JointDevices(kinds=("gpu", "nic"), scope=DeviceScope.PCIE, required=True)
    assert msgspec.json.decode(msgspec.json.encode(place), type=Constraints) == place
    assert len({place, constraints_of({"devices": {"gpu": gpu, "nic": nic}, "joint_devices": joint})}) == 1


@pytest.mark.parametrize(
    ("value", "wish"),
    [
        ("best", PartitionWish(policy=PartitionPolicy.BEST)),
        ({}, PartitionWish()),
        (
            {"policy": "prefer", "bandwidth": "2Gi"},
            PartitionWish(policy=PartitionPolicy.PREFER, bandwidth_bytes_per_s=2 << 30),
        ),
    ],
)
def test_a_wish_for_a_group_of_gpus_is_read(value: object, wish: PartitionWish) -> None:
    place = constraints_of({"devices": {"gpu": {"count": 2, "partition": value}}})
    assert place.devices == (DeviceRequest(kind="gpu", count=2, partition=wish),)


def test_constraints_survive_a_message_and_defaults_cost_it_nothing() -> None:
    spec = _job({"devices": {"gpu": 1}})
    assert msgspec.json.decode(msgspec.json.encode(spec), type=JobSpec) == spec
    assert msgspec.json.encode(UNCONSTRAINED) == b"{}"


@pytest.mark.parametrize(
    ("place", "qos", "cpu", "field", "rule"),
    [
        (None, "LSE", "1500m", "cpu", "must be whole CPUs"),
        (None, "LSR", "500m", "cpu", "must be whole CPUs"),
        ({"numa": "x"}, "BE", "1", "place.numa", "is not a key here; did you mean `numa_policy`?"),
        ({"numa_policy": "sometimes"}, "BE", "1", "place.numa_policy", "must be one of none best-effort restricted"),
        ({"numa_exclusive": "required"}, "BE", "1", "place.numa_exclusive", "needs a `numa_policy`"),
        ({"cpu_bind": "full-pcpus", "cpu_bind_required": True}, "LS", "1", "place.cpu_bind", "binds no CPUs"),
        ({"cpu_bind_required": True}, "LSR", "1", "place.cpu_bind_required", "needs a `cpu_bind`"),
        ({"cpu_policy": "exclusive"}, "LS", "1", "place.cpu_policy", "need the class LSE, LSR or BE"),
        ({"cpu_policy": "none"}, "LSE", "1", "place.cpu_policy", "holds CPUs of its own"),
        ({"cpu_policy": "immovable"}, "BE", "1500m", "place.cpu_policy", "needs a request of whole CPUs"),
        ({"cpu_policy": "immovable"}, "LS", "1500m", "place.cpu_policy", "needs a request of whole CPUs"),
        ({"spread": "yes"}, "BE", "1", "place.spread", "must be true or false"),
        ({"devices": {"gpu": 0}}, "BE", "1", "place.devices.gpu.count", "must be at least 1"),
        ({"devices": {"gpu": -1}}, "BE", "1", "place.devices.gpu", "must be a whole number"),
        ({"devices": {"gpu": 1.5}}, "BE", "1", "place.devices.gpu", "must be a whole number"),
        ({"devices": {"gpu": {"core_pct": 101}}}, "BE", "1", "place.devices.gpu.core_pct", "must be from 1 to 100"),
        ({"devices": {"g u": 1}}, "BE", "1", "place.devices.g u", "a kind is letters"),
        (
            {"devices": {"gpu": {"memory": "1Gi", "memory_pct": 5}}}, "BE", "1",
            "place.devices.gpu.memory_pct", "must not stand beside",
        ),
        ({"devices": {"gpu": {"count": 1, "scope": "rack"}}}, "BE", "1", "place.devices.gpu.scope", "must be one of node"),
        (
            {"devices": {"gpu": {"count": 2, "core_pct": 50, "scope": "pcie"}}}, "BE", "1",
            "place.devices.gpu.scope", "shares of several GPUs",
        ),
        (
            {"devices": {"nic": {"core_pct": 50, "exclusive": "device-level"}}}, "BE", "1",
            "place.devices.nic.exclusive", "whole ones",
        ),
        ({"devices": {"gpu": {"count": 1, "labels": ["H100"]}}}, "BE", "1", "place.devices.gpu.labels", "must be a mapping"),
        ({"devices": {"gpu": {"count": 1, "labels": {"": "x"}}}}, "BE", "1", "place.devices.gpu.labels", "at most 253"),
        (
            {"devices": {"nic": {"count": 2, "partition": "honor"}}}, "BE", "1",
            "place.devices.nic.partition", "only the kind 'gpu' has groups",
        ),
        (
            {"devices": {"gpu": {"core_pct": 50, "partition": {}}}}, "BE", "1",
            "place.devices.gpu.partition", "not of shares",
        ),
        (
            {"devices": {"gpu": {"count": 2, "scope": "pcie", "partition": "prefer"}}}, "BE", "1",
            "place.devices.gpu.scope", "must not stand beside `partition`",
        ),
        (
            {"devices": {"gpu": {"count": 2, "partition": "never"}}}, "BE", "1",
            "place.devices.gpu.partition.policy", "must be one of prefer honor best",
        ),
        (
            {"devices": {"gpu": {"count": 2, "partition": {"bandwidth": "fast"}}}}, "BE", "1",
            "place.devices.gpu.partition.bandwidth", "",
        ),
        (
            {"devices": {"gpu": {"count": 2, "partition": {"bandwidth": "2048Pi"}}}}, "BE", "1",
            "place.devices.gpu.partition.bandwidth", "must be at most",
        ),
        ({"devices": {"gpu": {"memory": "65Ti"}}}, "BE", "1", "place.devices.gpu.memory", "must be at most"),
        (
            {"devices": {"gpu": {"count": 2, "partition": {"ring": 1}}}}, "BE", "1",
            "place.devices.gpu.partition.ring", "is not a key here",
        ),
        (
            {"devices": {"gpu": 1, "nic": 1}, "joint_devices": {"kinds": ["gpu"]}}, "BE", "1",
            "place.joint_devices.kinds", "must be at least two kinds",
        ),
        (
            {"devices": {"gpu": 1, "nic": 1}, "joint_devices": {"kinds": ["gpu", "gpu"]}}, "BE", "1",
            "place.joint_devices.kinds", "a kind may come once",
        ),
        (
            {"devices": {"gpu": 1}, "joint_devices": {"kinds": ["gpu", "nic"]}}, "BE", "1",
            "place.joint_devices.kinds", "must be among `devices`, which has gpu",
        ),
        ({"joint_devices": {"kinds": ["gpu", "nic"]}}, "BE", "1", "place.joint_devices.kinds", "which has none"),
        ({"joint_devices": {}}, "BE", "1", "place.joint_devices.kinds", "must be a list of kinds"),
        (
            {"devices": {"gpu": 1, "nic": 1}, "joint_devices": {"kinds": ["gpu", "nic"], "scope": "node"}}, "BE", "1",
            "place.joint_devices.scope", "must be numa-node or pcie",
        ),
        (
            {"devices": {"gpu": 1, "nic": 1}, "joint_devices": {"kinds": ["gpu", "nic"], "required": 1}}, "BE", "1",
            "place.joint_devices.required", "must be true or false",
        ),
        ({"huge_pages": {"3Mi": "6Mi"}}, "BE", "1", "place.huge_pages", "must be a power of two"),
        ({"huge_pages": {"2Mi": "2Mi", "2048Ki": "4Mi"}}, "BE", "1", "place.huge_pages.2048Ki", "asked for already"),
        ({"huge_pages": {"2Mi": "3Mi"}}, "BE", "1", "place.huge_pages.2Mi", "must be whole pages"),
        ({"tolerations": {"key": "a"}}, "BE", "1", "place.tolerations", "must be a list"),
        ({"tolerations": [{"effect": "Never"}]}, "BE", "1", "place.tolerations[0].effect", "must be one of"),
        ({"tolerations": [{"value": "a"}]}, "BE", "1", "place.tolerations[0].key", "a value needs a key"),
        ({"node_labels": {"": "x"}}, "BE", "1", "place.node_labels", "at most 253 characters"),
        ([], "BE", "1", "place", "must be a mapping"),
    ],
)  # fmt: skip
def test_what_breaks_a_rule_is_refused_by_its_path(place: object, qos: str, cpu: str, field: str, rule: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        _job(place, qos, cpu)
    assert refused.value.field == field
    assert rule in refused.value.rule


def test_a_task_among_others_is_named_by_its_path() -> None:
    task = {"name": "t", "cpu": "1", "memory": "1Gi", "command": ["run"], "place": {"devices": {"gpu": 0}}}
    with pytest.raises(InvalidInput) as refused:
        job_from_mapping({"name": "a", "tasks": [task]})
    assert refused.value.field == "tasks[0].place.devices.gpu.count"
