"""Valid values by default; a test overrides what it is about."""

from collections.abc import Sequence
from typing import Any

from colo_common.events.eviction import EvictionRequested
from colo_common.events.node import (
    BusinessMetric,
    Capability,
    NodeTopologyReported,
    NodeUsageSampled,
    SloViolations,
    WorkloadUsage,
    ZoneUsage,
)
from colo_common.events.placement import PlacementsDecided
from colo_common.events.status import ServiceStatus
from colo_common.model.constraints import Taint
from colo_common.model.node_rules import UNRULED, NodeRules
from colo_common.model.placement import Placement, ZoneShare
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import Reason
from colo_common.model.topology import NodeTopology, uniform_topology
from colo_common.model.workload import RunSpec

GIB = 1 << 30


def a_topology(*, sockets: int = 1, zones_per_socket: int = 2, cpus: int = 16, memory_gib: int = 64) -> NodeTopology:
    """`cpus` and `memory_gib` are per zone."""
    return uniform_topology(
        sockets=sockets, zones_per_socket=zones_per_socket, cpus_per_zone=cpus, memory_bytes_per_zone=memory_gib * GIB
    )


def a_node(
    name: str = "n1",
    topology: NodeTopology | None = None,
    *,
    simulated: bool = False,
    is_online: bool = False,
    labels: dict[str, str] | None = None,
    taints: tuple[Taint, ...] = (),
    rules: NodeRules = UNRULED,
    at_ms: int = 0,
) -> NodeTopologyReported:
    """A node that says what it is. `is_online`: it runs online work."""
    return NodeTopologyReported(
        node=name,
        topology=topology or a_topology(),
        producer="collector",
        boot_id="b1",
        simulated=simulated,
        capabilities=(Capability(name="online", present=True),) if is_online else (),
        labels=labels or {},
        taints=taints,
        rules=rules,
        at_ms=at_ms,
    )


def a_batch_workload(
    replica: str = "job/main/0", *, attempt: int = 1, mcpu: int = 1000, gib: int = 1, zones: tuple[int, ...] = (0,)
) -> WorkloadUsage:
    """A batch replica as a sample shows it."""
    return WorkloadUsage(
        workload=replica,
        qos=QosClass.BE,
        band=PriorityBand.BATCH,
        cpu_used_mcpu=mcpu,
        memory_used_bytes=gib * GIB,
        zones=zones,
        replica=replica,
        attempt=attempt,
    )


def an_online_workload(
    name: str = "web",
    *,
    stall_pct: int | None = None,
    is_throttled: bool = False,
    business: BusinessMetric | None = None,
) -> WorkloadUsage:
    """Online work that colo did not place, as a sample shows it."""
    return WorkloadUsage(
        workload=name,
        qos=QosClass.LS,
        band=PriorityBand.PROD,
        cpu_used_mcpu=1_000,
        memory_used_bytes=0,
        stall_pct=stall_pct,
        stall_gate="self-throttled" if is_throttled else "",
        business=business,
    )


def a_latency(above: int, samples: int, *, breaks_slo: bool = True) -> BusinessMetric:
    """A latency of which so many of so many values broke their SLO of 100 ms in five minutes, and the newest does or does not."""
    return BusinessMetric(
        metric="p99_ms",
        value_milli=150_000 if breaks_slo else 60_000,
        age_ms=1_000,
        slo_milli=100_000,
        violations=(SloViolations(window_ms=300_000, samples=samples, above=above),),
        breaks_slo=breaks_slo,
    )


def a_sample(
    node: str = "n1",
    *,
    seq: int = 1,
    zones: Sequence[tuple[int, int]] = ((4000, 8), (4000, 8)),
    workloads: tuple[WorkloadUsage, ...] = (),
    boot_id: str = "b1",
    at_ms: int = 0,
) -> NodeUsageSampled:
    """`zones` are pairs of used mcpu and used GiB, all workloads together."""
    return NodeUsageSampled(
        node=node,
        at_ms=at_ms,
        boot_id=boot_id,
        sample_seq=seq,
        interval_ms=1000,
        cpu_used_mcpu=sum(mcpu for mcpu, _ in zones),
        memory_used_bytes=sum(gib for _, gib in zones) * GIB,
        zones=tuple(
            ZoneUsage(zone=i, cpu_used_mcpu=mcpu, memory_used_bytes=gib * GIB) for i, (mcpu, gib) in enumerate(zones)
        ),
        workloads=workloads,
    )


def a_placement(
    replica: str = "job/main/0",
    *,
    node: str = "n1",
    attempt: int = 1,
    mcpu: int = 1000,
    gib: int = 1,
    zone: int = 0,
    priority: int = 0,
) -> Placement:
    """A placement in one zone."""
    return Placement(
        replica=replica,
        job=replica.split("/", maxsplit=1)[0],
        attempt=attempt,
        node=node,
        zones=(ZoneShare(zone=zone, cpu_mcpu=mcpu, memory_bytes=gib * GIB),),
        cpu_mcpu=mcpu,
        memory_bytes=gib * GIB,
        qos=QosClass.BE,
        band=PriorityBand.BATCH,
        run=RunSpec(work_mcpu_ms=1_000_000),
        priority=priority,
    )


def decided(*placements: Placement) -> PlacementsDecided:
    """The scheduler's message about these placements."""
    return PlacementsDecided(placements=placements)


def an_eviction(replica: str = "job/main/0", *, node: str = "n1", **changed: Any) -> EvictionRequested:
    """The first attempt of a replica must leave, because memory was at 93 % for three seconds. `changed`: other fields."""
    fields: dict[str, Any] = {
        "eviction": "ev-1",
        "node": node,
        "replica": replica,
        "job": replica.split("/", maxsplit=1)[0],
        "attempt": 1,
        "reason": Reason.MEMORY_WATERMARK,
        "value_pct": 93,
        "threshold_pct": 92,
        "held_ms": 3_000,
        "sample_seq": 1,
    }
    return EvictionRequested(**(fields | changed))


def a_status(service: str = "jobs", **changed: Any) -> ServiceStatus:
    """An instance that is well and idle. `changed`: other fields."""
    fields: dict[str, Any] = {
        "service": service,
        "boot_id": "b1",
        "host": "h",
        "pid": 7,
        "version": "1",
        "started_at_ms": 1,
        "now_ms": 2,
        "problems": {},
        "inbox_items": 0,
        "outgoing_messages": 0,
        "handled": 0,
        "dead_letters": 0,
        "refusals": 0,
    }
    return ServiceStatus(**(fields | changed))
