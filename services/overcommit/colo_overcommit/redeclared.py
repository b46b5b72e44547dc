"""What a sample would say if a policy declared other host applications: whose use each group's would be."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from colo_common.events.node import NodeUsageSampled, WorkloadUsage
from colo_common.model.colocation_policy import ColocationPolicy
from colo_common.model.host_applications import HostApplication
from colo_overcommit.allocatable import batch_use

__all__ = ["Redeclared", "redeclared_of"]


class Redeclared(NamedTuple):
    """The host applications of a node under another document, by name; `paths` are those of the document in force.

    A group that is declared no longer counts as the system's use, as every group that nobody declares. The use of a group that is
    not declared yet is part of the system's, and nobody measures it by itself.
    """

    applications: Mapping[str, HostApplication]
    paths: Mapping[str, str]

    def sample(self, sample: NodeUsageSampled) -> NodeUsageSampled:
        """The sample as it would be."""
        workloads = self._kept(sample.workloads)
        mcpu, size = _left_out(sample.workloads, workloads)
        return replace(
            sample,
            workloads=workloads,
            system_cpu_used_mcpu=sample.system_cpu_used_mcpu + mcpu,
            system_memory_used_bytes=sample.system_memory_used_bytes + size,
        )

    def moved_mcpu(self, hosts: Sequence[WorkloadUsage], zones: Sequence[int]) -> Mapping[int, tuple[int, int]]:
        """Zone -> what more of its CPU would be online work's, and what more the system's, by the host applications of a sample."""
        kept = self._kept(hosts)
        (before, _), (after, _) = batch_use(list(zones), hosts), batch_use(list(zones), kept)
        part = -(-_left_out(hosts, kept)[0] // len(zones))
        return {zone: (before[zone] - after[zone] - part, part) for zone in zones}

    def unmeasured(self, sample: NodeUsageSampled) -> list[str]:
        """The applications whose use no sample knows yet."""
        measured = {one.workload for one in sample.workloads if one.host_revision is not None and self._is_kept(one)}
        return [name for name in self.applications if name not in measured]

    def _is_kept(self, one: WorkloadUsage) -> bool:
        found = self.applications.get(one.workload)
        return found is not None and self.paths.get(one.workload, found.path) == found.path

    def _kept(self, workloads: Sequence[WorkloadUsage]) -> tuple[WorkloadUsage, ...]:
        found = []
        for one in workloads:
            if one.host_revision is None:
                found.append(one)
            elif self._is_kept(one):
                app = self.applications[one.workload]
                found.append(replace(one, qos=app.qos, band=app.band))
        return tuple(found)


def redeclared_of(labels: Mapping[str, str], now: ColocationPolicy, then: ColocationPolicy) -> Redeclared | None:
    """What `then` declares on a node with these labels in place of what `now` declares; None when that is the same.

    Where `then` declares none at all the setting of the node's collector counts, which is not known here: none are declared then.
    """
    old = None if now.host_applications is None else now.host_applications.of(labels, now.match)
    new = None if then.host_applications is None else then.host_applications.of(labels, then.match)
    if old == new:
        return None
    return Redeclared({each.name: each for each in new or ()}, {each.name: each.path for each in old or ()})


def _left_out(before: Sequence[WorkloadUsage], after: Sequence[WorkloadUsage]) -> tuple[int, int]:
    """The CPU and memory of the workloads that are left out."""
    kept = {one.workload for one in after}
    without = [one for one in before if one.workload not in kept]
    return sum(one.cpu_used_mcpu for one in without), sum(one.memory_used_bytes for one in without)
