"""Which CPU list a workload's cpuset gets: its own CPUs, a shared pool, or none of our business.

After Koordinator's hook (koordinator-sh/koordinator:pkg/koordlet/runtimehooks/hooks/cpuset/{cpuset,rule}.go). Work is told apart
by what its labels say; a workload whose labels say nothing is what Kubernetes makes of it.

For comparing with what others write: an executor writes the CPUs that placements name.
"""

from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from colo_common.model.invalid import InvalidInput
from colo_common.model.qos import QosClass

__all__ = ["CpusetRule", "GivenCpus", "ZoneCpus", "ZonePool", "cpus_of_host_application", "cpus_of_workload"]

CLEARED: Final = ""
"""The workload's own cpuset is emptied: it may use what its parent may, which suppression narrows."""


class ZonePool(Struct, frozen=True, kw_only=True):
    """The shared CPUs of one zone, as a kernel CPU list."""

    zone: int
    cpus: str


class ZoneCpus(Struct, frozen=True, kw_only=True):
    """How much CPU of a zone the scheduler gave: ordinary or batch."""

    zone: int
    cpu_mcpu: int = 0
    batch_cpu_mcpu: int = 0


class GivenCpus(Struct, frozen=True, kw_only=True):
    """What the scheduler decided: CPUs by number (a kernel CPU list), or zones to stay in."""

    cpus: str = ""
    zones: tuple[ZoneCpus, ...] = ()

    @property
    def is_in_zones(self) -> bool:
        """Whether CPU was given zone by zone. Memory or devices may be given so without CPU."""
        return any(zone.cpu_mcpu or zone.batch_cpu_mcpu > 0 for zone in self.zones)


class CpusetRule(Struct, frozen=True, kw_only=True):
    """The state of the node. `system_cpus`: where SYSTEM work belongs, "" for nowhere special.

    `is_kubelet_static`: the kubelet pins Guaranteed pods itself. `has_be_zones`: BE work is kept to its zones here and not by
    suppression alone.
    """

    ls_pools: tuple[ZonePool, ...] = ()
    be_pools: tuple[ZonePool, ...] = ()
    system_cpus: str = ""
    is_kubelet_static: bool = False
    has_be_zones: bool = False


def cpus_of_workload(
    rule: CpusetRule | None,
    given: GivenCpus,
    qos: QosClass | None,
    kubernetes_qos: Literal["Guaranteed", "Burstable", "BestEffort"],
) -> str | None:
    """The list to write, "" to clear the workload's cpuset, None to leave it alone. The first that applies:

    its own CPUs; nothing while the node's rule is not known; the shared CPUs of its zones (LS pools, for BE the BE pools and only
    with `has_be_zones`), in the order given; the system CPUs for SYSTEM; all LS pools for LS; cleared for BestEffort; left alone
    where the kubelet pins; all LS pools. Lists are joined by commas and not merged.
    """
    if given.cpus:
        return given.cpus
    if rule is None:
        return None
    if given.is_in_zones and (qos is not QosClass.BE or rule.has_be_zones):
        pools = rule.be_pools if qos is QosClass.BE else rule.ls_pools
        return _joined([pool for zone in given.zones for pool in pools if pool.zone == zone.zone])
    if qos is QosClass.SYSTEM and rule.system_cpus:
        return rule.system_cpus
    if qos is QosClass.LS:
        return _joined(rule.ls_pools)
    if kubernetes_qos == "BestEffort":
        return CLEARED
    return None if rule.is_kubelet_static else _joined(rule.ls_pools)


def cpus_of_host_application(rule: CpusetRule, qos: QosClass | None, field: str = "qos") -> str:
    """The list for an application outside the container runtime: all LS pools. Raises InvalidInput for every class but LS."""
    if qos is not QosClass.LS:
        raise InvalidInput(field, "must be LS for a host application", "" if qos is None else qos.value)
    return _joined(rule.ls_pools)


def _joined(pools: Sequence[ZonePool]) -> str:
    return ",".join(pool.cpus for pool in pools)
