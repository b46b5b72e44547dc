"""What the kernel holds for each control group of a node: the question, and the answer of the node's collector."""

from msgspec import Struct

from colo_common.model.qos import QosClass

__all__ = ["KernelGroup", "ListKernelGroups", "NodeKernelGroups"]


class ListKernelGroups(Struct, frozen=True, kw_only=True):
    """The control groups with processes of this node, also those that colo did not make. The node's collector answers."""

    node: str


class KernelGroup(Struct, frozen=True, kw_only=True):
    """One control group as the kernel's files show it now.

    `path` is below every controller's mount point. `qos` is None where nothing tells the class of a group that colo did not make;
    `replica` and `attempt` name the attempt of a group that colo made, `is_colo` is also true for its tiers, which hold the groups
    of replicas. `cpus` and `mems` are the CPUs and memory zones that the group may use (kernel lists). `weight` is cpu.weight
    (v2) or cpu.shares (v1), as `version` says; None without a CPU controller. `cpu_quota_mcpu` None: no limit. `idle`: the kernel
    runs the group only when nobody else wants the CPU.
    """

    name: str
    path: str
    version: int
    qos: QosClass | None = None
    is_colo: bool = False
    replica: str = ""
    attempt: int = 0
    cpus: str = ""
    mems: str = ""
    weight: int | None = None
    idle: bool = False
    cpu_quota_mcpu: int | None = None
    memory_limit_bytes: int | None = None
    processes: int = 0


class NodeKernelGroups(Struct, frozen=True, kw_only=True):
    """Groups by path: those with processes, and the tiers of colo. At most 2,000; `left_out` counts the others.

    `simulated`: a simulated machine answers with the values that a kernel would hold. `faults` has one sentence for each file
    that could not be read.
    """

    node: str
    at_ms: int
    groups: tuple[KernelGroup, ...]
    left_out: int = 0
    simulated: bool = False
    faults: tuple[str, ...] = ()
