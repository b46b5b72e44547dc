"""Facts and orders about evictions. The evictor publishes them."""

from msgspec import Struct

from colo_common.events.fact import Fact
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.units import Ms, NodeName, Number, ReplicaName, Signed

__all__ = ["EvictReplica", "EvictionFinished", "EvictionRequested", "VictimRank"]


class EvictReplica(Fact, frozen=True, kw_only=True):
    """Order to one node: end this attempt with SIGTERM, then SIGKILL after `grace_ms`."""

    node: NodeName
    generation: Number
    eviction: str
    replica: ReplicaName
    attempt: Number
    grace_ms: Ms
    reason: Reason


class VictimRank(Struct, frozen=True, kw_only=True):
    """One row of a ranking of eviction candidates; the first row is the victim."""

    replica: ReplicaName
    attempt: Number
    priority: Signed
    used: Signed
    unit: str


class EvictionRequested(Fact, frozen=True, kw_only=True):
    """A replica must leave its node because a signal crossed its threshold for the hold time. `ranking` orders all candidates.

    `value_pct` is at or above `threshold_pct`; for `cpu-satisfaction`, the share of its request that batch work gets, it is below.
    `held_ms` is how long the signal has held.
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


class EvictionFinished(Fact, frozen=True, kw_only=True):
    """The victim has ended, by the order or by itself. `took_ms` counts from the request."""

    eviction: str
    node: NodeName
    replica: ReplicaName
    attempt: Number
    cause: EndCause
    took_ms: Ms
