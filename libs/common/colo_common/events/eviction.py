"""Facts and orders about evictions: said by the evictor."""

from msgspec import Struct

from colo_common.events.fact import Fact
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.units import Ms, NodeName, Number, ReplicaName, Signed

__all__ = ["EvictReplica", "EvictionFinished", "EvictionRequested", "VictimRank"]


class EvictReplica(Fact, frozen=True, kw_only=True):
    """Order to one node: this attempt must leave; SIGTERM, then SIGKILL after `grace_ms`."""

    node: NodeName
    generation: Number
    eviction: str
    replica: ReplicaName
    attempt: Number
    grace_ms: Ms
    reason: Reason


class VictimRank(Struct, frozen=True, kw_only=True):
    """One candidate in the order in which candidates were ranked; the first is the victim."""

    replica: ReplicaName
    attempt: Number
    priority: Signed
    used: Signed
    unit: str


class EvictionRequested(Fact, frozen=True, kw_only=True):
    """Which replica must leave which node and why: the signal's value, threshold and how long it held, and the ranking.

    The value is at or above the threshold; for `cpu-satisfaction`, the share of its request that batch work gets, it is below.
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
    """The victim is gone (or ended by itself first). `took_ms` counts from the request."""

    eviction: str
    node: NodeName
    replica: ReplicaName
    attempt: Number
    cause: EndCause
    took_ms: Ms
