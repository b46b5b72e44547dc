"""The operator's rules for one node: CPUs and memory kept back, how CPUs are bound, how resources align."""

from typing import Final, Literal

from msgspec import Struct

from colo_common.model.constraints import CpuBind, NumaPolicy
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.topology import NodeTopology
from colo_common.model.units import Bytes, Mcpu, Number

__all__ = ["KUBELET_OPTIONS", "UNRULED", "NodeRules"]

_AMPLIFICATION_MOST_PCT: Final = 1_000
_NORMALIZATION_MOST_PCT: Final = 500
KUBELET_OPTIONS: Final = (
    "align-by-socket",
    "distribute-cpus-across-cores",
    "distribute-cpus-across-numa",
    "full-pcpus-only",
    "prefer-align-cpus-by-uncorecache",
)
"""The options of a kubelet's static CPU manager policy, sorted."""
_ACROSS_CORES: Final = "distribute-cpus-across-cores"
_NOT_ACROSS_CORES: Final = ("distribute-cpus-across-numa", "full-pcpus-only")
_NUMBERS_CPUS: Final = ("kubelet", "crane", "katalyst")
_CRANE_POLICIES: Final = (NumaPolicy.NONE, NumaPolicy.SINGLE_NUMA_NODE)


class NodeRules(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rules of one node. CPU lists are the kernel's ("0-3,8").

    `reserved_cpus` wins over `reserved_mcpu` (rounded up to whole CPUs, packed, or with `reserved_spread` in turn from every zone,
    whole cores first); `kubelet_reserved_cpus` and `system_cpus` (exclusive to SYSTEM work) are kept back as well.
    `kubelet_pinned_cpus` is the part of `kubelet_reserved_cpus` that the kubelet pinned to pods and that comes back when the pods
    end; the collector measures it, no operator sets it.
    `reserved_cpus_only`: the listed CPUs are withheld, the amounts are not reduced.
    `cpu_bind` other than default binds every replica there. `numa_allocate` chooses the first zone: the freest, the fullest, or the
    one whose CPU and memory are used in even parts.
    `numa_rule` names the agent that hands out zones and CPUs to online work on the node; the scheduler follows its rules.
    `numa_closest`: of equally many zones the closest to each other. `kubelet_options` are those of its static policy.
    `amplification_pct` (100 or more) multiplies CPU capacity; a CPU of one's own costs the same multiple.
    `cpu_normalization_pct` (100 to 500) is what a hundred of its CPUs do, in CPUs of a reference machine: what batch work is
    promised of CPU is multiplied by it. `batch_replicas_most` None: no limit. `is_colocated` False: no batch work at all.
    `colocation_mode`: "container" where online and batch work share a kernel, "vm" where the node is a virtual machine of batch
    work beside those of online work. Only there BE work may have CPUs by number: in one kernel online work would starve them.
    `enforcement`: "observe" on a node where the executor decides and says what it would do, and writes nothing. No work is placed.
    `device_allocate` chooses the first of equally near devices. `gpu_partition_policy` "honor": whole GPUs are given out only in
    groups of the node's table; "prefer": in groups as long as there are unused ones.
    """

    reserved_cpus: str = ""
    reserved_mcpu: Mcpu = 0
    reserved_spread: bool = False
    reserved_memory_bytes: Bytes = 0
    reserved_cpus_only: bool = False
    kubelet_reserved_cpus: str = ""
    kubelet_pinned_cpus: str = ""
    system_cpus: str = ""
    cpu_bind: CpuBind = CpuBind.DEFAULT
    numa_policy: NumaPolicy = NumaPolicy.NONE
    numa_allocate: Literal["least-allocated", "most-allocated", "balanced"] = "least-allocated"
    numa_rule: Literal["colo", "kubelet", "koordinator", "crane", "katalyst"] = "colo"
    numa_closest: bool = False
    kubelet_options: tuple[str, ...] = ()
    amplification_pct: Number = 100
    cpu_normalization_pct: Number = 100
    device_allocate: Literal["least-allocated", "most-allocated"] = "least-allocated"
    gpu_partition_policy: Literal["prefer", "honor"] = "prefer"
    batch_replicas_most: Number | None = None
    is_colocated: bool = True
    colocation_mode: Literal["container", "vm"] = "container"
    enforcement: Literal["full", "observe"] = "full"

    @property
    def only_observes(self) -> bool:
        """Whether nothing is written on the node, so that no work may be placed there."""
        return self.enforcement == "observe"

    def validate(self, topology: NodeTopology) -> None:
        """Raise InvalidInput when a list names CPUs that the node lacks, when the amplification is below 100 or above 1,000, and
        when rules contradict each other.
        """
        online = {cpu.cpu for cpu in topology.cpus}
        for name in ("reserved_cpus", "kubelet_reserved_cpus", "kubelet_pinned_cpus", "system_cpus"):
            unknown = [cpu for cpu in CpuSet.parse(getattr(self, name)) if cpu not in online]
            if unknown:
                raise InvalidInput(f"rules.{name}", "names CPUs that the node lacks", unknown[:10])
        if not 100 <= self.amplification_pct <= _AMPLIFICATION_MOST_PCT:
            rule = f"must be from 100 to {_AMPLIFICATION_MOST_PCT}"
            raise InvalidInput("rules.amplification_pct", rule, self.amplification_pct)
        if not 100 <= self.cpu_normalization_pct <= _NORMALIZATION_MOST_PCT:
            rule = f"must be from 100 to {_NORMALIZATION_MOST_PCT}"
            raise InvalidInput("rules.cpu_normalization_pct", rule, self.cpu_normalization_pct)
        self._check_numa()

    def _check_numa(self) -> None:
        for option in self.kubelet_options:
            if option not in KUBELET_OPTIONS:
                raise InvalidInput("rules.kubelet_options", f"must be among {' '.join(KUBELET_OPTIONS)}", option)
        if _ACROSS_CORES in self.kubelet_options and set(self.kubelet_options) & set(_NOT_ACROSS_CORES):
            rule = f"{_ACROSS_CORES} excludes {' and '.join(_NOT_ACROSS_CORES)}"
            raise InvalidInput("rules.kubelet_options", rule, " ".join(self.kubelet_options))
        if self.kubelet_options and self.numa_rule != "kubelet":
            raise InvalidInput("rules.kubelet_options", "needs numa_rule kubelet", " ".join(self.kubelet_options))
        if self.numa_rule in _NUMBERS_CPUS and self.cpu_bind is not CpuBind.DEFAULT:
            rule = f"must be default where numa_rule is {self.numa_rule}: that agent binds CPUs by its own options"
            raise InvalidInput("rules.cpu_bind", rule, self.cpu_bind.value)
        if self.numa_rule == "crane" and self.numa_policy not in _CRANE_POLICIES:
            rule = "must be none or single-numa-node where numa_rule is crane"
            raise InvalidInput("rules.numa_policy", rule, self.numa_policy.value)
        if self.numa_rule == "crane" and self.amplification_pct != 100:
            rule = "must be 100 where numa_rule is crane: that counts CPUs as they are"
            raise InvalidInput("rules.amplification_pct", rule, self.amplification_pct)
        if self.numa_closest and self.numa_rule not in ("colo", "kubelet"):
            rule = f"has no meaning where numa_rule is {self.numa_rule}"
            raise InvalidInput("rules.numa_closest", rule, self.numa_closest)
        if self.numa_allocate != "least-allocated" and self.numa_rule in _NUMBERS_CPUS:
            rule = f"must be least-allocated where numa_rule is {self.numa_rule}: that has an order of its own"
            raise InvalidInput("rules.numa_allocate", rule, self.numa_allocate)
        if self.numa_allocate == "balanced" and self.numa_rule != "colo":
            raise InvalidInput("rules.numa_allocate", "balanced needs numa_rule colo", self.numa_allocate)


UNRULED: Final = NodeRules()
"""The rules of a node without an operator's rule."""
