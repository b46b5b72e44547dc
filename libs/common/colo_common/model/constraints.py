"""The placement constraints of a replica: node labels, taints, CPUs of its own, NUMA alignment, huge pages, devices."""

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
    """How the CPUs of a replica with CPUs of its own are picked. DEFAULT leaves it to the scheduler's policy."""

    DEFAULT = "default"
    FULL_PCPUS = "full-pcpus"
    """Whole physical cores."""
    SPREAD_BY_PCPUS = "spread-by-pcpus"
    """One CPU of each physical core, as long as there are cores."""


class CpuExclusive(StrEnum):
    """A preference to share no physical core, or no NUMA zone, with other replicas that have the same preference.

    It orders the CPUs of the chosen node: where no separate CPUs are free, the replica takes shared ones.
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
    """A node admits only work that tolerates its taints. "PreferNoSchedule" is a preference, the other effects are rules."""

    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class Toleration(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A replica tolerates taints with this key ("": every key), value (None: any value) and effect ("": every effect)."""

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
    """Which devices of a kind no other replica may use."""

    NONE = "none"
    DEVICE_LEVEL = "device-level"
    """The replica's own devices: it holds them whole, whatever share it asked for."""
    PCIE_LEVEL = "pcie-level"
    """The replica's own devices, and all others of the kind on the same PCIe roots."""


class PartitionPolicy(StrEnum):
    """Whether GPUs have to be one of the groups that the node's table of GPU groups lists."""

    PREFER = "prefer"
    """A group of the table if one is unused, else any GPUs."""
    HONOR = "honor"
    """A group of the table; without a free one the node does not fit."""
    BEST = "best"
    """A group that has the lowest score among the table's groups of its size; without a free one the node does not fit."""


class PartitionWish(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request for GPUs that form a group of the node's table, with a ring of at least `bandwidth_bytes_per_s` (0: any)."""

    policy: PartitionPolicy = PartitionPolicy.HONOR
    bandwidth_bytes_per_s: Bytes = 0


class DeviceRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Devices of one kind ("gpu", "nic"): `count` whole devices, or a share of each of `count` devices (0 means 1).

    `core_pct` is 1..100 of each device's cores, `memory_bytes` or `memory_pct` (1..100) of each device's memory; all 0: whole
    devices. Each device has all the pairs of `labels` (sorted). `scope` bounds the distance between the devices. `partition` is for
    whole GPUs.
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
    """Kinds of devices that must lie together: in the same zones (`scope` NUMA_NODE) or on the same PCIe roots (PCIE).

    The devices of the first kind fix the zones or roots; every other kind has at least one device in each of them. `required`: a
    node that cannot do this does not fit; otherwise it is a preference.
    """

    kinds: tuple[str, ...]
    scope: DeviceScope = DeviceScope.PCIE
    required: bool = False


class Constraints(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The conditions of a place beside CPU and memory. All values are hashable, so equal constraints form one scheduling class.

    `node_labels` are pairs that the node must have, sorted; every one of `node_requirements` must hold for its labels.
    `cpu_bind_required`: a node that cannot bind CPUs by `cpu_bind` does not fit.
    `huge_pages` are sorted by page size, `devices` by kind; the kinds of `joint_devices` are kinds of `devices`.
    `reservation`: the replica takes a place only out of this reservation.
    `spread`: nodes that run fewer replicas of the same job are preferred.
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
"""No constraint: every node with enough CPU and memory fits."""
