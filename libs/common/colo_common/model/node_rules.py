"""What an operator rules for one node: what is kept back, how CPUs are bound, how resources align."""

from typing import Final, Literal

from msgspec import Struct

from colo_common.model.constraints import CpuBind, NumaPolicy
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.topology import NodeTopology
from colo_common.model.units import Bytes, Mcpu, Number

__all__ = ["UNRULED", "NodeRules"]

_AMPLIFICATION_MOST_PCT: Final = 1_000


class NodeRules(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rules of one node. CPU lists are the kernel's ("0-3,8").

    `reserved_cpus` wins over `reserved_mcpu` (rounded up to whole CPUs); `kubelet_reserved_cpus` and `system_cpus` (exclusive to
    SYSTEM work) are kept back as well. `reserved_cpus_only`: the listed CPUs are withheld, the amounts are not reduced.
    `cpu_bind` other than default binds every replica there. `numa_allocate` says which zone is taken first.
    `amplification_pct`: 100 and more; capacity counts so many times, CPUs of one's own cost as much more.
    `batch_replicas_most` None: no limit. `is_colocated` False: no batch work at all.
    """

    reserved_cpus: str = ""
    reserved_mcpu: Mcpu = 0
    reserved_memory_bytes: Bytes = 0
    reserved_cpus_only: bool = False
    kubelet_reserved_cpus: str = ""
    system_cpus: str = ""
    cpu_bind: CpuBind = CpuBind.DEFAULT
    numa_policy: NumaPolicy = NumaPolicy.NONE
    numa_allocate: Literal["least-allocated", "most-allocated"] = "least-allocated"
    amplification_pct: Number = 100
    batch_replicas_most: Number | None = None
    is_colocated: bool = True

    def validate(self, topology: NodeTopology) -> None:
        """Raise InvalidInput for a list that names CPUs which the node lacks, or an amplification below 100 or above 1,000."""
        online = {cpu.cpu for cpu in topology.cpus}
        for name in ("reserved_cpus", "kubelet_reserved_cpus", "system_cpus"):
            unknown = [cpu for cpu in CpuSet.parse(getattr(self, name)) if cpu not in online]
            if unknown:
                raise InvalidInput(f"rules.{name}", "names CPUs that the node lacks", unknown[:10])
        if not 100 <= self.amplification_pct <= _AMPLIFICATION_MOST_PCT:
            rule = f"must be from 100 to {_AMPLIFICATION_MOST_PCT}"
            raise InvalidInput("rules.amplification_pct", rule, self.amplification_pct)


UNRULED: Final = NodeRules()
"""No rule of an operator."""
