"""Whether a batch replica may have the CPUs by number that it was given: on nodes that are virtual machines for batch work."""

from collections.abc import Sequence

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import Placement
from colo_common.model.reasons import Reason
from colo_executor.desired import MachineFacts, exclusive_batch_cpus, given_batch_cpus
from colo_executor.online import CpusRefused

__all__ = ["check_given"]


def check_given(placement: Placement, pool: MachineFacts, others: Sequence[Placement]) -> None:
    """Raise CpusRefused when CPUs by number are not in the pool of batch work, are another replica's, or would leave one without.

    `pool` is the machine with the CPUs of batch work alone.
    """
    try:
        cpus = CpuSet.parse(placement.cpus, "cpus")
    except InvalidInput as error:
        raise CpusRefused(Reason.CPUS_SHORT, str(error)) from error
    if cpus - pool.cpus:
        raise CpusRefused(Reason.CPUS_SHORT, f"cpus: {cpus - pool.cpus} are not open to batch work on this node")
    for other in others:
        if taken := cpus & exclusive_batch_cpus(other):
            raise CpusRefused(Reason.CPUS_SHORT, f"cpus: {taken} are held by {other.replica}")
    own = exclusive_batch_cpus(placement)
    if not own:
        return
    alone = own
    for other in others:
        alone = alone | exclusive_batch_cpus(other)
    for other in others:
        mine = exclusive_batch_cpus(other)
        left = (mine or given_batch_cpus(other) or pool.cpus) - (alone - mine)
        if not left:
            raise CpusRefused(Reason.CPUS_SHORT, f"cpus: no CPU is left for {other.replica}")
