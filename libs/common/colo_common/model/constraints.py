"""Where a replica may run beside having room: node labels, taints, CPUs of its own, NUMA alignment, huge pages, devices."""

from enum import StrEnum
from typing import Final, Literal

from msgspec import Struct

from colo_common.model.node_selector import Requirement
from colo_common.model.units import Bytes, Number, ShareBytes

__all__ = [
    "UNCONSTRAINED",
    "Constraints",
    "CpuBind",
    "CpuExclusive",
    "CpuPolicy",
    "DeviceExclusive",
    "DeviceRequest",
    "DeviceScope",
    "HugePages",
    "JointDevices",
    "NumaExclusive",
    "NumaPolicy",
    "PartitionPolicy",
    "PartitionWish",
    "Taint",
    "Toleration",
]


class CpuBind(StrEnum):
    """How CPUs of one's own are picked. DEFAULT leaves it to the scheduler's policy."""

    DEFAULT = "default"
    FULL_PCPUS = "full-pcpus"
    """Whole physical cores."""
    SPREAD_BY_PCPUS = "spread-by-pcpus"
    """One CPU of each physical core, as long as there are cores."""


class CpuExclusive(StrEnum):
    """Whom a replica with CPUs of its own had rather keep away: others of the same wish, from its physical cores or NUMA zones.

    A wish about the CPUs of the node that was chosen: where none are apart it takes others.
    """

    NONE = "none"
    PCPU_LEVEL = "pcpu-level"
    NUMA_NODE_LEVEL = "numa-node-level"


class CpuPolicy(StrEnum):
    """Which CPUs a replica runs on. DEFAULT follows from the QoS class: LSE and LSR exclusive, all others none."""

    DEFAULT = "default"
    NONE = "none"
    """The shared pool."""
    NUMA = "numa"
    """The shared pool of one NUMA zone."""
    EXCLUSIVE = "exclusive"
    """CPUs of its own."""
    IMMOVABLE = "immovable"
    """Fixed CPUs that others may use as well."""


class NumaPolicy(StrEnum):
    """How the resources of one replica must be aligned; the words are the kubelet's."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"


class NumaExclusive(StrEnum):
    """Whether one-zone replicas and zone-crossing replicas keep apart. DEFAULT: required where the replica has a NUMA policy."""

    DEFAULT = "default"
    PREFERRED = "preferred"
    REQUIRED = "required"


class Taint(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node keeps work away that does not tolerate this. Only "PreferNoSchedule" is a wish."""

    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class Toleration(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tolerates taints of this key ("" all keys), value (None any) and effect ("" all effects)."""

    key: str = ""
    value: str | None = None
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""


class HugePages(Struct, frozen=True, kw_only=True):
    """An amount of huge pages of one size; `total_bytes` is a multiple of `page_bytes`."""

    page_bytes: Number
    total_bytes: ShareBytes


class DeviceScope(StrEnum):
    """How close devices must lie to each other, from wide to close."""

    NODE = "node"
    NUMA_NODE = "numa-node"
    PCIE = "pcie"
    """On one PCIe root."""


class DeviceExclusive(StrEnum):
    """Whom a replica keeps away from its devices of a kind."""

    NONE = "none"
    DEVICE_LEVEL = "device-level"
    """Everybody from the devices: they are held whole, whatever share is asked for."""
    PCIE_LEVEL = "pcie-level"
    """Everybody from the devices, and from all others of the kind on the same PCIe roots."""


class PartitionPolicy(StrEnum):
    """Whether GPUs have to be one of the groups that the node's table of GPU groups lists."""

    PREFER = "prefer"
    """Such a group if one is unused, else any GPUs."""
    HONOR = "honor"
    """Such a group or none."""
    BEST = "best"
    """One of the groups that the table puts first among those of the size, or none."""


class PartitionWish(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """GPUs that are a group of the node's table, linked by a ring of at least `bandwidth_bytes_per_s` (0: of any)."""

    policy: PartitionPolicy = PartitionPolicy.HONOR
    bandwidth_bytes_per_s: Bytes = 0


class DeviceRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Devices of one kind ("gpu", "nic"): `count` whole ones, or a share of each of `count` (0 means 1).

    `core_pct` is 1..100 of each device's cores, `memory_bytes` or `memory_pct` (1..100) of each device's memory; all 0: whole ones.
    `labels` are pairs that each device must have, sorted. `scope`: no further apart than this. `partition` is for whole GPUs.
    """

    kind: str
    count: Number = 0
    core_pct: Number = 0
    memory_bytes: ShareBytes = 0
    memory_pct: Number = 0
    labels: tuple[tuple[str, str], ...] = ()
    scope: DeviceScope = DeviceScope.NODE
    exclusive: DeviceExclusive = DeviceExclusive.NONE
    partition: PartitionWish | None = None


class JointDevices(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Kinds of devices that belong together: in the same zones (`scope` NUMA_NODE) or on the same PCIe roots (PCIE).

    The first kind decides how many these are, and of every other one there is at least one device in each. `required`: so or
    not at all; else as long as it can be had.
    """

    kinds: tuple[str, ...]
    scope: DeviceScope = DeviceScope.PCIE
    required: bool = False


class Constraints(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything beside CPU and memory that a place has to have. All values are hashable: equal constraints are decided as one.

    `node_labels` are pairs that the node must have, sorted; `node_requirements` what else must hold of its labels, all of it.
    `cpu_bind_required`: no other picking of CPUs will do.
    `huge_pages` sorted by page size, `devices` by kind; the kinds of `joint_devices` are among them.
    `reservation`: only a place that this reservation holds.
    `spread`: rather on nodes that run fewer replicas of the same job.
    """

    node_labels: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    cpu_policy: CpuPolicy = CpuPolicy.DEFAULT
    cpu_bind: CpuBind = CpuBind.DEFAULT
    cpu_bind_required: bool = False
    cpu_exclusive: CpuExclusive = CpuExclusive.NONE
    numa_policy: NumaPolicy = NumaPolicy.NONE
    numa_exclusive: NumaExclusive = NumaExclusive.DEFAULT
    huge_pages: tuple[HugePages, ...] = ()
    devices: tuple[DeviceRequest, ...] = ()
    joint_devices: JointDevices | None = None
    reservation: str = ""
    spread: bool = False
    node_requirements: tuple[Requirement, ...] = ()


UNCONSTRAINED: Final = Constraints()
"""Any place with room will do."""
