"""Crane's topology-aware filter and score (crane-scheduler noderesourcetopology): zones for pods with whole guaranteed CPUs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from colo_common.model.resource_list import CPU, ResourceList

__all__ = [
    "NO_TOPOLOGY",
    "ZONES_SHORT",
    "AwareNode",
    "AwarePod",
    "AwareVerdict",
    "AwareZone",
    "PodContainer",
    "filter_aware",
]

NO_TOPOLOGY: Final = "node(s) failed to get NRT"
ZONES_SHORT: Final = "node(s) had insufficient resource of NUMA node"
_MAX_SCORE: Final = 100


class AwareZone(NamedTuple):
    """A zone by name and what may be allocated of it."""

    name: str
    allocatable: ResourceList


class AwareNode(NamedTuple):
    """A node: whether colo's side sets its CPU sets at all (`is_static`), whether it asks for one zone a pod, and its zones
    in order.

    `holders`: what each pod on the node holds, by zone name: its recorded result, else the assumed one.
    """

    is_static: bool
    is_one_zone: bool
    zones: tuple[AwareZone, ...]
    holders: tuple[Mapping[str, ResourceList], ...] = ()


class PodContainer(NamedTuple):
    """Requests and limits of a container."""

    requests: ResourceList
    limits: ResourceList

    @property
    def is_target(self) -> bool:
        """Whether it has guaranteed whole CPUs: request equals limit, a multiple of 1000 mcpu above 0."""
        cpu = self.requests.get(CPU, 0)
        return cpu > 0 and cpu == self.limits.get(CPU, 0) and cpu % 1000 == 0


class AwarePod(NamedTuple):
    """A pod. `is_aware` None leaves the choice to the node."""

    containers: tuple[PodContainer, ...]
    is_aware: bool | None = None


class AwareVerdict(NamedTuple):
    """`reason` is empty when the pod passes. `result`: amounts by zone, ascending by name; None when the pod is left alone.

    `unassigned` is what no zone could take: only without awareness, where the filter passes a pod that does not fit.
    """

    reason: str = ""
    result: tuple[tuple[str, dict[str, int]], ...] | None = None
    unassigned: ResourceList | None = None

    @property
    def score(self) -> int:
        """100 divided by the zones used, rounded down; 0 when there is no result."""
        return _MAX_SCORE // len(self.result) if self.result else 0


class _Free(NamedTuple):
    zone: AwareZone
    held: dict[str, int]

    def free(self, name: str) -> int:
        return self.zone.allocatable.get(name, 0) - self.held[name]

    def free_of_whole_cpus(self, name: str) -> int:
        """Free with the allocatable CPU rounded down to whole CPUs, at least 0."""
        allocatable = self.zone.allocatable.get(name, 0)
        return max(0, (allocatable // 1000 * 1000 if name == CPU else allocatable) - self.held[name])


def filter_aware(pod: AwarePod, node: AwareNode | None, aware_resources: Iterable[str] = (CPU,)) -> AwareVerdict:
    """Decide one node. Only `aware_resources` of containers with whole guaranteed CPUs count.

    An aware pod gets the zone with most free CPU of those that hold it all, a pod that is not is poured into the zones by
    free CPU descending; ties go to the zone listed first.
    """
    names = sorted(set(aware_resources))
    targets = [each for each in pod.containers if each.is_target] if CPU in names else []
    if not targets:
        return AwareVerdict()
    if node is None:
        return AwareVerdict(NO_TOPOLOGY)
    if not node.is_static:
        return AwareVerdict()
    request = {name: sum(each.requests.get(name, 0) for each in targets) for name in names}
    request = {name: amount for name, amount in request.items() if amount}
    zones = [_Free(zone, {name: _held(node, zone.name, name) for name in {*names, CPU}}) for zone in node.zones]
    zones.sort(key=lambda each: -each.free(CPU))
    if node.is_one_zone if pod.is_aware is None else pod.is_aware:
        return _one_zone(request, zones)
    return _pour(request, zones)


def _held(node: AwareNode, zone: str, name: str) -> int:
    return sum(holder.get(zone, {}).get(name, 0) for holder in node.holders)


def _one_zone(request: dict[str, int], zones: Sequence[_Free]) -> AwareVerdict:
    for each in zones:
        if all(each.free(name) >= amount for name, amount in request.items()):
            return AwareVerdict(result=((each.zone.name, request),))
    return AwareVerdict(ZONES_SHORT)


def _pour(request: dict[str, int], zones: Sequence[_Free]) -> AwareVerdict:
    rest = dict(request)
    result = []
    for each in zones:
        amounts = {}
        for name, amount in sorted(rest.items()):
            taken = min(amount, each.free_of_whole_cpus(name))
            if taken:
                amounts[name] = taken
                rest[name] = amount - taken
        if amounts:
            result.append((each.zone.name, amounts))
    left = {name: amount for name, amount in rest.items() if amount}
    return AwareVerdict(result=tuple(sorted(result, key=lambda each: each[0])), unassigned=left)
