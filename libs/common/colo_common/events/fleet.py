"""Questions about the fleet and one node of it, and what work holds there; the overcommit and the jobs service answer them."""

from typing import Final

from msgspec import Struct

from colo_common.events.external import ExternalCapacity
from colo_common.events.node import Capability, ClassUsage, WorkloadUsage
from colo_common.events.requests import NodeSummary
from colo_common.model.constraints import Taint
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.units import Number

__all__ = [
    "DEFAULT_TENANT",
    "NODE_SORTS",
    "FleetTotals",
    "GetFleet",
    "GetNode",
    "ListNodeReplicas",
    "ListTenants",
    "NodeDetail",
    "NodeReplicas",
    "OverdrawnNode",
    "PlacedReplica",
    "TenantList",
    "TenantSummary",
    "ZoneDetail",
]

DEFAULT_TENANT: Final = "default"
#: The orders of a list of nodes: "name" ascends, every other one begins with the node that has most.
NODE_SORTS: Final = ("name", "cpu", "memory", "batch", "promised", "held", "free", "headroom", "age")


class GetFleet(Struct, frozen=True, kw_only=True):
    """Ask for the sums over all nodes."""


class OverdrawnNode(Struct, frozen=True, kw_only=True):
    """A node where batch work holds more than could be promised now, and by how much (0: not of this resource)."""

    node: str
    cpu_mcpu: int
    memory_bytes: int


class FleetTotals(Struct, frozen=True, kw_only=True):
    """Sums over all nodes that have reported their topology; `nodes` counts them by freshness.

    `batch_*` is the published allocatable and `held_*` what placements of batch work hold of it. A promise is broken where batch
    work holds more than could be promised by the newest sample (a negative headroom): `overdrawn` names at most 20 such nodes, the
    one with most CPU first, and `overdrawn_*` are the sums over all of them. `late` names at most 20 stale or lost nodes.

    `mid_*` is what the mid tier gets on `mid_nodes` nodes, and `mid_held_*` what placements hold of it.
    """

    nodes: dict[str, int]
    cpu_capacity_mcpu: int
    cpu_used_mcpu: int
    memory_capacity_bytes: int
    memory_used_bytes: int
    batch_cpu_mcpu: int
    batch_memory_bytes: int
    held_cpu_mcpu: int
    held_memory_bytes: int
    overdrawn_nodes: int = 0
    overdrawn_cpu_mcpu: int = 0
    overdrawn_memory_bytes: int = 0
    overdrawn: tuple[OverdrawnNode, ...] = ()
    late: tuple[str, ...] = ()
    mid_nodes: int = 0
    mid_cpu_mcpu: int = 0
    mid_memory_bytes: int = 0
    mid_held_cpu_mcpu: int = 0
    mid_held_memory_bytes: int = 0


class GetNode(Struct, frozen=True, kw_only=True):
    """One node by its exact name. The reply is NodeDetail, or a Refusal (404) that names the nearest known node."""

    node: str


class ZoneDetail(Struct, frozen=True, kw_only=True):
    """A NUMA zone of a node. `cpus` is a kernel CPU list; usage is that of the newest sample, the promise the published one.

    `steal_mcpu` and `stall_pct` are as ZoneUsage has them.
    """

    zone: int
    cpus: str
    cpu_capacity_mcpu: int
    memory_capacity_bytes: int
    cpu_used_mcpu: int = 0
    memory_used_bytes: int = 0
    batch_cpu_mcpu: int = 0
    batch_memory_bytes: int = 0
    headroom_cpu_mcpu: int = 0
    headroom_memory_bytes: int = 0
    held_cpu_mcpu: int = 0
    held_memory_bytes: int = 0
    steal_mcpu: int | None = None
    stall_pct: int | None = None


class NodeDetail(Struct, frozen=True, kw_only=True):
    """A node with its zones, labels, taints and capabilities, and the workloads of its newest sample, the largest first.

    A workload has its `detail` in one sample of several; here it is the last one that was told, so old as `detail_ages_ms` says by
    the workload's name. `classes` are those of the sample. `external` is what systems outside say that it has for batch work.
    """

    summary: NodeSummary
    zones: tuple[ZoneDetail, ...]
    taints: tuple[Taint, ...] = ()
    capabilities: tuple[Capability, ...] = ()
    workloads: tuple[WorkloadUsage, ...] = ()
    published_at_ms: int | None = None
    now_ms: int = 0
    classes: tuple[ClassUsage, ...] = ()
    detail_ages_ms: dict[str, int] = {}
    external: tuple[ExternalCapacity, ...] = ()


class ListNodeReplicas(Struct, frozen=True, kw_only=True):
    """The replicas that hold a place on this node, of one `partition` of the jobs, at most `limit` (0: as many as a page may have).

    `cursor` is the `next` of the page before ("": the first page); a value that is no cursor is refused (400). An unknown node has
    no replicas and is no error. A jobs service of an earlier version knows no pages: it tells the first 1,000 and no `next`.
    """

    node: str
    partition: Number = 0
    limit: int = 0
    cursor: str = ""


class PlacedReplica(Struct, frozen=True, kw_only=True):
    """A replica that holds a place on a node. `since_ms` is the time since which the attempt runs, 0 before it has started."""

    replica: str
    attempt: int
    state: str
    queue: str
    tenant: str
    qos: QosClass
    band: PriorityBand
    cpu_mcpu: int
    memory_bytes: int
    zones: tuple[int, ...] = ()
    since_ms: int = 0


class NodeReplicas(Struct, frozen=True, kw_only=True):
    """Replicas by job and number; `total` counts all on the node, `next` is the cursor of the next page, "" at the end.

    They are those of one partition of `partitions`.
    """

    replicas: tuple[PlacedReplica, ...]
    total: int
    now_ms: int = 0
    partitions: Number = 1
    next: str = ""


class ListTenants(Struct, frozen=True, kw_only=True):
    """Ask for the tenants that have a job which has not ended, at most `limit` (0: as many as a page may have).

    `cursor` is the `next` of the page before ("": the first page). A value that is no cursor is refused (400). The sums are those
    of the jobs of one `partition`.
    """

    limit: int = 0
    cursor: str = ""
    partition: Number = 0


class TenantSummary(Struct, frozen=True, kw_only=True):
    """What the jobs of a tenant hold and wait for now. Jobs without a tenant belong to "default".

    `held_*` is what placed replicas of the bands batch and free have requested: the part of the batch allocatable that the tenant
    has. `online_*` is the same of band prod and `mid_*` of band mid, which take nothing from that allocatable. `waiting_*` is
    requested by waiting replicas.
    """

    tenant: str
    jobs: int
    waiting: int
    running: int
    held_cpu_mcpu: int
    held_memory_bytes: int
    waiting_cpu_mcpu: int = 0
    waiting_memory_bytes: int = 0
    online_cpu_mcpu: int = 0
    online_memory_bytes: int = 0
    mid_cpu_mcpu: int = 0
    mid_memory_bytes: int = 0
    queues: tuple[str, ...] = ()


class TenantList(Struct, frozen=True, kw_only=True):
    """Tenants, the one that holds most CPU first; `total` counts all, `next` is the cursor of the next page, "" at the end.

    The sums are those of one partition of `partitions`.
    """

    tenants: tuple[TenantSummary, ...]
    total: int
    next: str = ""
    partitions: Number = 1
