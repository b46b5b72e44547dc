"""The groups of others that replicas are attached to, as this node's executor says: their use is that of the replicas."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from colo_collector.discover import Workload, check_group
from colo_common.events.enforcement import AttachedGroup, AttachedGroupsChanged
from colo_common.model.host_applications import check_group_path
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import attempt_key
from colo_common.model.qos import PriorityBand

__all__ = ["FollowedAttachedGroups", "SetAttachedGroups", "attached_workloads", "named_by_others"]


class SetAttachedGroups(Struct, frozen=True, kw_only=True):
    """Effect: measure these as replicas from now on."""

    groups: tuple[AttachedGroup, ...] = ()


class FollowedAttachedGroups:
    """The newest word of the node's executor."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._groups: tuple[AttachedGroup, ...] = ()

    def changed(self, event: AttachedGroupsChanged) -> SetAttachedGroups | None:
        """The groups, when they are others than before; None for another node's."""
        if event.node != self._node or event.groups == self._groups:
            return None
        self._groups = event.groups
        return SetAttachedGroups(groups=event.groups)


def attached_workloads(groups: Iterable[AttachedGroup], subtree: str) -> tuple[tuple[Workload, ...], tuple[str, ...]]:
    """The workloads, and a sentence for each that is left out, because its group can be none or counts already."""
    found: list[Workload] = []
    faults = []
    for each in groups:
        name = attempt_key(each.replica, each.attempt)
        one = Workload(
            name=name,
            path=f"/{each.group}",
            qos=each.qos,
            band=PriorityBand.PROD,
            replica=each.replica,
            attempt=each.attempt,
        )
        try:
            check_group_path(one.path, "group")
            check_group(one, subtree, found, "group")
        except InvalidInput as error:
            faults.append(f"{name}: {error.rule}; its attached group is left out")
            continue
        found.append(one)
    return tuple(found), tuple(faults)


def named_by_others(attached: Iterable[Workload], others: Iterable[Workload]) -> tuple[Workload, ...]:
    """The attached workloads with the names that a kubelet and the operator have for the same groups."""
    by_path = {other.path: other for other in others}
    return tuple(
        one if (other := by_path.get(one.path)) is None else replace(one, pod=other.pod, listed=other.name)
        for one in attached
    )
