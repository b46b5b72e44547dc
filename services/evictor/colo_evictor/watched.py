"""The evictor's state of one node, and the part of it that is stored."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

from colo_common.events.node import NodeUsageSampled, WorkloadUsage
from colo_common.events.undecoded import Undecoded
from colo_common.model.placement import attempt_key
from colo_common.model.qos import PriorityBand
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.restriction import Restrictions
from colo_common.model.topology import NodeTopology
from colo_evictor.placed import Placed
from colo_evictor.policy import EvictorPolicy
from colo_evictor.signals import Signal

__all__ = ["BATCH_BANDS", "TerminatingReplica", "EvictorRow", "WatchedNode"]

_ENDS_KEPT: Final = 100
BATCH_BANDS: Final = (PriorityBand.FREE, PriorityBand.BATCH, PriorityBand.MID)
"""The bands of work that runs on what online work leaves, in the order in which it has to leave."""


class TerminatingReplica(Struct, frozen=True, kw_only=True):
    """A victim between its eviction order and its end. Its usage at the order is credited to the node until then."""

    eviction: str
    replica: str
    attempt: int
    cpu_mcpu: int
    memory_bytes: int
    requested_at_ms: int
    due_ms: int


class EvictorRow(Struct, frozen=True, kw_only=True):
    """The stored row of a node: its terminating victims, the end of its cool-down, and when evictions were ordered (Unix ms).

    `evicted_ms` are the evictions of 60 s before the newest one: together the rows of all nodes are the cluster's budget.
    """

    #: Stored as "leaving".
    terminating: tuple[TerminatingReplica, ...] = field(default=(), name="leaving")
    cool_until_ms: int = 0
    evicted_ms: tuple[int, ...] = ()


class WatchedNode(Struct, kw_only=True):
    """The state of one node; only the core changes it. `placed` and `terminating` are keyed by attempt; `version` is the row's.

    `seen`: the replicas of the newest sample, by attempt. `withdrawn_ms`: since when it takes no batch work any more, None while it
    does; `withdrawn_by` names what withdrew it. `drained_ms`: the beginning of the drain whose end was published. `ends`: how
    attempts ended while another instance acted for the node. `unread`: the newest sample that came meanwhile, at `unread_ms`, which
    nobody looked into yet. `policy` is what the colocation policy makes of its labels, None before its topology.
    """

    topology: NodeTopology | None = None
    placed: Placed = field(default_factory=Placed)
    terminating: dict[str, TerminatingReplica] = field(default_factory=dict)
    signals: dict[Reason, Signal] = field(default_factory=dict)
    cool_until_ms: int = 0
    evicted_ms: tuple[int, ...] = ()
    version: int = 0
    sample_seq: int = 0
    boot_id: str = ""
    seen: dict[str, WorkloadUsage] = field(default_factory=dict)
    withdrawn_ms: int | None = None
    withdrawn_by: str = ""
    drained_ms: int | None = None
    ends: dict[str, EndCause] = field(default_factory=dict)
    unread: Undecoded | NodeUsageSampled | None = None
    unread_ms: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    policy: EvictorPolicy | None = None

    def note_end(self, key: str, cause: EndCause) -> None:
        """Remember how an attempt ended, of the last 100, for when the node's victims come here."""
        self.ends[key] = cause
        if len(self.ends) > _ENDS_KEPT:
            del self.ends[next(iter(self.ends))]

    def batch_cpu(self, sample: NodeUsageSampled, restrictions: Restrictions) -> tuple[int, int]:
        """CPU (mcpu) that the replicas of BATCH_BANDS in the sample request and use together.

        A replica counts with both or with neither: one that terminates, is not in the sample yet, or has no known placement is
        left out, and so is one that operators suspended: it gets no CPU because it shall get none. Online work counts with neither,
        because its requests say nothing of what batch work gets.
        """
        requested_mcpu = used_mcpu = 0
        if restrictions.suspension_of(sample.node) is not None:
            return 0, 0
        for workload in sample.workloads:
            if workload.band not in BATCH_BANDS or not workload.replica:
                continue
            key = attempt_key(workload.replica, workload.attempt)
            placement = self.placed.get(key)
            is_paused = (
                placement is not None and restrictions.suspended_with(placement.job, placement.queue) is not None
            )
            if placement is not None and key not in self.terminating and not is_paused:
                requested_mcpu += placement.cpu_mcpu
                used_mcpu += workload.cpu_used_mcpu
        return requested_mcpu, used_mcpu

    def row(self) -> EvictorRow:
        """The row to store for the present state."""
        return EvictorRow(
            terminating=tuple(self.terminating[key] for key in sorted(self.terminating)),
            cool_until_ms=self.cool_until_ms,
            evicted_ms=self.evicted_ms,
        )
