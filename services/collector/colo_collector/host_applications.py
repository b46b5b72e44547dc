"""The host applications of this node: those that the colocation policy declares for its labels, else those of the setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from colo_collector.discover import Workload, check_group
from colo_common.events.policy import PolicyChanged
from colo_common.model.colocation_policy import ColocationPolicy
from colo_common.model.host_applications import HostApplication, read_host_applications
from colo_common.model.invalid import InvalidInput

__all__ = ["FollowedHostApplications", "SetHostApplications", "declared_workloads", "host_applications"]


class SetHostApplications(Struct, frozen=True, kw_only=True):
    """Effect: watch these from now on. `applications` None: those of the setting. `revision` is that of the policy, 0 without."""

    applications: tuple[HostApplication, ...] | None = None
    revision: int = 0
    since_ms: int = 0


class FollowedHostApplications:
    """The newest policy. Before one arrives, and where it declares none at all, the setting counts."""

    def __init__(self) -> None:
        self._revision = 0
        self._document = ColocationPolicy()
        self._given: tuple[HostApplication, ...] | None = None

    def follow(self, event: PolicyChanged) -> None:
        """Take the document unless its revision is no higher. Raises InvalidInput for one that contradicts itself."""
        if event.revision > self._revision:
            event.policy.validate()
            self._revision, self._document = event.revision, event.policy

    def changed(self, labels: Mapping[str, str], now_ms: int) -> SetHostApplications | None:
        """The applications of a node with these labels; None when they are the same as at the last call."""
        declared = self._document.host_applications
        given = None if declared is None else declared.of(labels, self._document.match)
        if given == self._given:
            return None
        self._given = given
        if given is None:
            return SetHostApplications()
        return SetHostApplications(applications=given, revision=self._revision, since_ms=now_ms)


def host_applications(
    text: str, labels: Mapping[str, str], subtree: str, listed: Sequence[Workload], name: str = "host_applications"
) -> tuple[Workload, ...]:
    """The workloads of a setting in Koordinator's form (colo_common.model.host_applications); "" lists none.

    Raises InvalidInput, naming the entry, for other text and for a group that one of `listed` or the executor counts already.
    """
    if not text:
        return ()
    config = read_host_applications(text, name)
    # Every part is checked, also what is meant for other nodes: one document is given to all of them.
    _workloads(config.applications, subtree, listed, f"{name}.applications")
    for index, node in enumerate(config.overrides):
        _workloads(node.applications, subtree, listed, f"{name}.nodeConfigs[{index}].applications")
    return _workloads(config.of(labels), subtree, listed, name)


def declared_workloads(
    declared: SetHostApplications, subtree: str, listed: Sequence[Workload]
) -> tuple[tuple[Workload, ...], tuple[str, ...]]:
    """The workloads of a policy, and a sentence for each that is left out on this node, because its group is counted already."""
    found, faults = list(listed), []
    for each in declared.applications or ():
        one = _workload(each, declared.revision, declared.since_ms)
        try:
            check_group(one, subtree, found, "host_applications")
        except InvalidInput as error:
            faults.append(f"{one.name}: {error.rule}; the policy's host application is left out")
            continue
        found.append(one)
    return tuple(found[len(listed) :]), tuple(faults)


def _workloads(
    entries: Sequence[HostApplication], subtree: str, listed: Sequence[Workload], where: str
) -> tuple[Workload, ...]:
    found = list(listed)
    for index, entry in enumerate(entries):
        one = _workload(entry)
        check_group(one, subtree, found, f"{where}[{index}]")
        found.append(one)
    return tuple(found[len(listed) :])


def _workload(entry: HostApplication, revision: int = 0, since_ms: int = 0) -> Workload:
    return Workload(
        name=entry.name,
        path=entry.path,
        qos=entry.qos,
        band=entry.band,
        host_revision=revision,
        host_since_ms=since_ms,
    )
