"""Where a replica may run beside having room: node labels, taints, CPUs of its own, NUMA alignment, huge pages, devices."""

from enum import StrEnum
from typing import Final, Literal

from msgspec import Struct

from colo_common.model.units import Number, ShareBytes

__all__ = [
    "UNCONSTRAINED",
    "Constraints",
    "CpuBind",
    "CpuExclusive",
    "CpuPolicy",
    "DeviceRequest",
    "HugePages",
    "NumaExclusive",
    "NumaPolicy",
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
    """Whom a replica with CPUs of its own keeps away: others of the same wish, from its physical cores or its NUMA zones."""

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


class DeviceRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Devices of one kind ("gpu", "nic"): `count` whole ones, or a share of each of `count` (0 means 1).

    `core_pct` is 1..100 of each device's cores, `memory_bytes` or `memory_pct` (1..100) of each device's memory; all 0: whole ones.
    """

    kind: str
    count: Number = 0
    core_pct: Number = 0
    memory_bytes: ShareBytes = 0
    memory_pct: Number = 0


class Constraints(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything beside CPU and memory that a place has to have. All values are hashable: equal constraints are decided as one.

    `node_labels` are pairs that the node must have, sorted. `cpu_bind_required`: no other picking of CPUs will do.
    `huge_pages` sorted by page size, `devices` by kind. `reservation`: only a place that this reservation holds.
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
    reservation: str = ""
    spread: bool = False


UNCONSTRAINED: Final = Constraints()
"""Any place with room will do."""
