"""What happened in the last ten minutes, as counts: evictions, dead letters, refused placements, advisories of the bus."""

from collections import Counter
from typing import Final

from msgspec import Struct, field

from colo_common.events.eviction import EvictionRequested
from colo_common.events.fact import Fact
from colo_common.events.placement import PlacementRejected
from colo_common.events.service import DeadLettered
from colo_common.ports import Advisory

__all__ = ["WINDOW_MS", "Recent", "RecentCounts"]

WINDOW_MS: Final = 600_000
_BUCKET_MS: Final = 10_000
_BUCKETS_MOST: Final = WINDOW_MS // _BUCKET_MS + 1
#: Names counted apart in one bucket; further ones are counted under "other".
_NAMES_MOST: Final = 1_000
_OTHER: Final = "other"


class RecentCounts(Struct, frozen=True, kw_only=True):
    """Counts of the last `window_ms`, which is shorter than ten minutes while the gateway has not heard for so long.

    Evictions are counted by reason and by node, dead letters by the service that could not handle the message. `rejections` are
    decisions of the scheduler that no node fits a replica now. `advisories` are what the bus said by itself about its streams and
    consumers, by what it said and of what.
    """

    window_ms: int
    evictions: int
    evictions_by_reason: dict[str, int]
    evictions_by_node: dict[str, int]
    dead_letters: dict[str, int]
    rejections: int
    advisories: dict[str, int] = field(default_factory=dict)


class _Bucket:
    __slots__ = ("advisories", "begins_ms", "dead", "nodes", "reasons", "rejections")

    def __init__(self, begins_ms: int) -> None:
        self.begins_ms = begins_ms
        self.reasons: Counter[str] = Counter()
        self.nodes: Counter[str] = Counter()
        self.dead: Counter[str] = Counter()
        self.advisories: Counter[str] = Counter()
        self.rejections = 0


class Recent:
    """Sixty buckets of ten seconds of the service's clock; a fact is counted when it arrived (see GatewayCore)."""

    def __init__(self) -> None:
        self._buckets: dict[int, _Bucket] = {}
        self._since_ms: int | None = None

    def begins(self, at_ms: int) -> None:
        """From then on the counted facts are known."""
        self._since_ms = at_ms

    def add(self, fact: Fact, at_ms: int) -> None:
        """Count the fact, if it is of a counted type, at that time."""
        if self._since_ms is None:
            self._since_ms = at_ms
        match fact:
            case EvictionRequested():
                bucket = self._bucket(at_ms)
                _count(bucket.reasons, fact.reason.value)
                _count(bucket.nodes, fact.node)
            case DeadLettered():
                _count(self._bucket(at_ms).dead, fact.service)
            case PlacementRejected():
                self._bucket(at_ms).rejections += 1
            case _:
                return

    def advised(self, advisory: Advisory, now_ms: int) -> None:
        """Count what the bus said by itself."""
        about = f"{advisory.consumer} of {advisory.stream}" if advisory.consumer else advisory.stream
        _count(self._bucket(now_ms).advisories, f"{advisory.kind} {about}".strip())

    def counts(self, now_ms: int) -> RecentCounts:
        """The counts of the last ten minutes."""
        reasons: Counter[str] = Counter()
        nodes: Counter[str] = Counter()
        dead: Counter[str] = Counter()
        advisories: Counter[str] = Counter()
        rejections = 0
        for bucket in self._buckets.values():
            if bucket.begins_ms + _BUCKET_MS > now_ms - WINDOW_MS:
                reasons.update(bucket.reasons)
                nodes.update(bucket.nodes)
                dead.update(bucket.dead)
                advisories.update(bucket.advisories)
                rejections += bucket.rejections
        since_ms = now_ms if self._since_ms is None else self._since_ms
        return RecentCounts(
            window_ms=max(min(now_ms - since_ms, WINDOW_MS), 0),
            evictions=reasons.total(),
            evictions_by_reason=_ordered(reasons),
            evictions_by_node=_ordered(nodes),
            dead_letters=_ordered(dead),
            rejections=rejections,
            advisories=_ordered(advisories),
        )

    def _bucket(self, at_ms: int) -> _Bucket:
        begins_ms = at_ms // _BUCKET_MS * _BUCKET_MS
        if begins_ms not in self._buckets:
            self._buckets[begins_ms] = _Bucket(begins_ms)
            if len(self._buckets) > _BUCKETS_MOST:
                del self._buckets[min(self._buckets)]
        return self._buckets.get(begins_ms) or _Bucket(begins_ms)


def _count(counter: Counter[str], name: str) -> None:
    counter[name if name in counter or len(counter) < _NAMES_MOST else _OTHER] += 1


def _ordered(counter: Counter[str]) -> dict[str, int]:
    return dict(sorted(counter.items(), key=lambda item: (-item[1], item[0])))
