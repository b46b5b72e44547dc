"""Facts and orders about evictions. The evictor publishes them."""

from typing import Literal

from msgspec import Struct

from colo_common.events.fact import Fact
from colo_common.model.qos import PriorityBand
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.units import Bytes, Mcpu, Ms, NodeName, Number, ReplicaName, Signed

__all__ = ["EvictReplica", "EvictionFinished", "EvictionRequested", "NodeDrained", "VictimRank"]


class EvictReplica(Fact, frozen=True, kw_only=True):
    """Order to one node: end this attempt with SIGTERM, then SIGKILL after `grace_ms`. `generation`: as of StopReplicas."""

    node: NodeName
    generation: Number = 0
    eviction: str
    replica: ReplicaName
    attempt: Number
    grace_ms: Ms
    reason: Reason


class VictimRank(Struct, frozen=True, kw_only=True):
    """One row of a ranking of eviction candidates; the first row is the victim.

    Compared are the band (free leaves before batch), then the priority (the lower leaves), then the use (the larger leaves), then
    the name; `behind` is the first of these by which a row comes behind the victim, "" in the victim's own row. `placed_ms` is the
    time since the place was decided: what the replica can lose at most; None when its placement is not known.
    """

    replica: ReplicaName
    attempt: Number
    priority: Signed
    used: Signed
    unit: str
    band: PriorityBand | None = None
    placed_ms: Ms | None = None
    behind: Literal["", "band", "priority", "use", "name"] = ""


class EvictionRequested(Fact, frozen=True, kw_only=True):
    """A replica must leave its node because a signal crossed its threshold for the hold time. `ranking` orders all candidates.

    `value_pct` is at or above `threshold_pct`; for `cpu-satisfaction`, the share of its request that batch work gets, it is below.
    `held_ms` is how long the signal has held, of the `hold_ms` that it must hold. `credited_*` is what victims on their way out
    were credited with in the value. `online_replicas` run on the node and are never candidates. `evictions_in_window` counts this
    one and all others of the cluster in the last minute, of `evictions_allowed`. For `cool_ms` the node has no other eviction.
    `asked_by` is the service, or the person, that wants the replica to leave. For `online-stalled`, `stall_group` is the online
    workload that stalled most in the sample and `stall_pct` its stall, as WorkloadUsage has it; for `online-slo-broken`,
    `slo_workload` is the one that broke its SLO most often and `violation_pct` how often. Fields that are 0 or "" were not told by
    an older publisher.
    """

    eviction: str
    node: NodeName
    replica: ReplicaName
    job: str
    attempt: Number
    reason: Reason
    value_pct: Number
    threshold_pct: Number
    held_ms: Ms
    sample_seq: Number
    ranking: tuple[VictimRank, ...] = ()
    hold_ms: Ms = 0
    cool_ms: Ms = 0
    grace_ms: Ms = 0
    credited_mcpu: Mcpu = 0
    credited_bytes: Bytes = 0
    candidates: Number = 0
    online_replicas: Number = 0
    evictions_in_window: Number = 0
    evictions_allowed: Number = 0
    asked_by: str = ""
    stall_group: str = ""
    stall_pct: Number = 0
    slo_workload: str = ""
    violation_pct: Number = 0


class NodeDrained(Fact, frozen=True, kw_only=True):
    """Nothing is left on the node of what the drain asked to leave. `took_ms` counts from the drain's beginning.

    `batch_only`: online work was not asked to leave. `asked_by` is the person, or the node's label that admits no batch work.
    """

    node: NodeName
    reason: Reason
    asked_by: str = ""
    batch_only: bool = False
    took_ms: Ms = 0


class EvictionFinished(Fact, frozen=True, kw_only=True):
    """The victim has ended, by the order or by itself. `took_ms` counts from the request."""

    eviction: str
    node: NodeName
    replica: ReplicaName
    attempt: Number
    cause: EndCause
    took_ms: Ms
