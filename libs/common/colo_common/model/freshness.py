"""How old the newest usage sample of a node is, as a state with rules."""

from enum import StrEnum
from typing import Final

from msgspec import Struct

__all__ = ["FORGET_NODE_MS", "Freshness", "FreshnessPolicy", "freshness_of"]

FORGET_NODE_MS: Final = 86_400_000
"""Every service forgets a node that has been lost for this long and holds nothing."""


class Freshness(StrEnum):
    """unknown: no sample yet; warming: too few samples; fresh: may grow; stale: a sample is late, batch work may only shrink;
    lost: no sample for so long that the node's replicas are requeued.
    """

    UNKNOWN = "unknown"
    WARMING = "warming"
    FRESH = "fresh"
    STALE = "stale"
    LOST = "lost"

    @property
    def may_grow(self) -> bool:
        """Whether the node may get more batch work."""
        return self is Freshness.FRESH


class FreshnessPolicy(Struct, frozen=True, kw_only=True):
    """After `stale_after_ms` without a sample a node is stale, after `lost_after_ms` lost; the first `warm_samples` only warm."""

    stale_after_ms: int = 10_000
    lost_after_ms: int = 60_000
    warm_samples: int = 2


def freshness_of(age_ms: int | None, samples: int, policy: FreshnessPolicy) -> Freshness:
    """The state of a node whose newest sample is `age_ms` old (None: no sample yet), after `samples` since it (re)appeared."""
    if age_ms is None:
        return Freshness.UNKNOWN
    if age_ms >= policy.lost_after_ms:
        return Freshness.LOST
    if age_ms >= policy.stale_after_ms:
        return Freshness.STALE
    return Freshness.WARMING if samples < policy.warm_samples else Freshness.FRESH
