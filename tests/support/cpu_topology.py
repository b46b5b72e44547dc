"""The scheduler's index of a machine's CPUs, made from what the collector says of a node."""

from colo_common.model.cpu_topology import CpuRow, CpuTopology
from colo_common.model.topology import NodeTopology


def topology_from_node(topology: NodeTopology) -> CpuTopology:
    """Index the CPUs of a node. Raises InvalidInput for whatever `NodeTopology.validate` or `CpuTopology.from_rows` refuses."""
    topology.validate()
    return CpuTopology.from_rows(CpuRow(row.cpu, row.core, row.zone, row.socket, row.l3) for row in topology.cpus)
