"""What Koordinator's agent takes out of a node's CPUs and zones beside reserved CPUs: CPUs of SYSTEM pods, the kubelet's part.

(koordinator-sh/koordinator:pkg/koordlet/statesinformer/impl/states_noderesourcetopology.go)
"""

from __future__ import annotations

from collections.abc import Mapping

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.withheld import divide_by_zones


def system_cpus(cpus: str, is_exclusive: bool | None) -> CpuSet:
    """The CPUs that SYSTEM work keeps from everybody else: its list (annotation `node.koordinator.sh/system-qos-resource`), unless
    it says that it shares them; saying nothing (None) means exclusive. A list that cannot be read keeps nothing.
    """
    return CpuSet() if is_exclusive is False else _read(cpus)


def zones_less_reserved(
    allocatable_milli: Mapping[str, Mapping[str, int]], reserved_milli: Mapping[str, int], zone_count: int
) -> dict[str, dict[str, int]]:
    """Each zone's allocatable less its part of what the kubelet reserves, at least 0: zone -> resource -> thousandths of a unit.

    A resource that a zone does not report is not added to it; without a zone count nothing changes. The parts are rounded up: a
    promise rounds down.
    """
    return {
        zone: {
            name: max(0, amount - divide_by_zones(reserved_milli.get(name, 0), zone_count))
            for name, amount in resources.items()
        }
        for zone, resources in allocatable_milli.items()
    }


def _read(cpus: str) -> CpuSet:
    try:
        return CpuSet.parse(cpus)
    except InvalidInput:
        return CpuSet()
