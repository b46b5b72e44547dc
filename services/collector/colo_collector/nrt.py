"""Renders a node's topology as a NodeResourceTopology document (topology.node.k8s.io/v1alpha2), which schedulers of others read.

Zones are `node-<id>` of type Node, as the topology-aware schedulers and Koordinator name them.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Final

from colo_collector.reserved_cpus import reserved_ids
from colo_common.model.cpuset import CpuSet
from colo_common.model.node_rules import NodeRules
from colo_common.model.quantity import ceil_div
from colo_common.model.topology import NodeTopology, Zone

__all__ = ["node_resource_topology"]

_MIB: Final = 1 << 20
_GIB: Final = 1 << 30
_NEAREST: Final = 10


def node_resource_topology(
    node: str, topology: NodeTopology, rules: NodeRules, kubelet_policy: str = ""
) -> dict[str, Any]:
    """The document as plain values, ready for JSON or YAML; quantities are strings as Kubernetes writes them.

    allocatable = capacity - the CPUs and memory that the node's operator keeps back, in each zone: CPUs by their ids, memory in
    even parts, rounded up. `available` is the same, because what is placed is the scheduler's to know. `kubelet_policy` is the
    policy of the kubelet's checkpoint file, "" without one; another agent must not act where it is static.
    """
    kept = reserved_ids(topology, rules)
    withheld = kept | CpuSet.parse(rules.kubelet_reserved_cpus) | CpuSet.parse(rules.system_cpus)
    memory_part = ceil_div(rules.reserved_memory_bytes, len(topology.zones))
    attributes = {
        "colo.io/cpu-vendor": topology.cpu_vendor,
        "colo.io/cpu-model": topology.cpu_model,
        "colo.io/offline-cpus": topology.offline,
        "colo.io/isolated-cpus": topology.isolated,
        "colo.io/nohz-full-cpus": topology.nohz_full,
        "kubelet.io/cpu-manager-policy": kubelet_policy,
        **dict(topology.attributes),
    }
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": node, "annotations": _annotations(topology, rules, kept)},
        "attributes": [{"name": name, "value": value} for name, value in sorted(attributes.items()) if value],
        "zones": [_zone(zone, topology, withheld, memory_part) for zone in topology.zones],
    }


def _annotations(topology: NodeTopology, rules: NodeRules, kept: CpuSet) -> dict[str, str]:
    detail = [
        {"id": cpu.cpu, "core": cpu.socket << 16 | cpu.core, "socket": cpu.socket, "node": cpu.zone}
        for cpu in topology.cpus
    ]
    found = {"node.koordinator.sh/cpu-topology": json.dumps({"detail": detail}, separators=(",", ":"))}
    if kept:
        found["node.koordinator.sh/reservation"] = json.dumps({"reservedCPUs": kept.format()})
    if rules.kubelet_pinned_cpus:
        found["colo.io/kubelet-pinned-cpus"] = rules.kubelet_pinned_cpus
    return found


def _zone(zone: Zone, topology: NodeTopology, withheld: CpuSet, memory_part: int) -> dict[str, Any]:
    cpus = CpuSet.parse(zone.cpus)
    huge_bytes = sum(pages.total_bytes for pages in zone.huge_pages)
    memory_bytes = max(zone.memory_bytes - huge_bytes, 0)
    resources = [
        _resource("cpu", len(cpus), len(cpus - withheld)),
        _resource("memory", memory_bytes, max(memory_bytes - memory_part, 0)),
    ]
    for pages in zone.huge_pages:
        resources.append(_resource(f"hugepages-{_size(pages.page_bytes)}", pages.total_bytes, pages.total_bytes))
    kinds = Counter(device.kind for device in topology.devices if device.zone == zone.zone)
    healthy = Counter(device.kind for device in topology.devices if device.zone == zone.zone and device.is_healthy)
    resources += [_resource(f"colo.io/{kind}", kinds[kind], healthy[kind]) for kind in sorted(kinds)]
    costs = zone.distances or tuple(_NEAREST for _ in topology.zones)
    return {
        "name": f"node-{zone.zone}",
        "type": "Node",
        "parent": f"socket-{zone.socket}",
        "costs": [
            {"name": f"node-{other.zone}", "value": cost} for other, cost in zip(topology.zones, costs, strict=True)
        ],
        "attributes": [{"name": "colo.io/cpus", "value": zone.cpus}],
        "resources": resources,
    }


def _resource(name: str, capacity: int, allocatable: int) -> dict[str, str]:
    return {
        "name": name,
        "capacity": str(capacity),
        "allocatable": str(allocatable),
        "available": str(allocatable),
    }


def _size(size_bytes: int) -> str:
    if size_bytes % _GIB == 0:
        return f"{size_bytes // _GIB}Gi"
    return f"{size_bytes // _MIB}Mi" if size_bytes % _MIB == 0 else f"{size_bytes // 1024}Ki"
