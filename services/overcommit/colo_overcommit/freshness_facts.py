"""What is said of the freshness of nodes: of one when it changes, and of late ones once more where the bus has lost that."""

from collections.abc import Callable, Mapping

from colo_common.events.effects import Publish
from colo_common.events.node import FreshnessChanged
from colo_common.model.freshness import Freshness
from colo_overcommit.known_node import KnownNode

__all__ = ["freshness_fact", "late_again"]


def freshness_fact(node: str, known: KnownNode, previous: Freshness, age_ms: int, now_ms: int) -> FreshnessChanged:
    """The freshness of the node now."""
    seq = known.sample.sample_seq if known.sample else 0
    return FreshnessChanged(
        at_ms=now_ms, node=node, freshness=known.freshness, previous=previous, sample_seq=seq, age_ms=age_ms
    )


def late_again(nodes: Mapping[str, KnownNode], age_ms: Callable[[KnownNode, int], int], now_ms: int) -> list[Publish]:
    """Of the late ones among these nodes that they are: fresh ones are known by their numbers, and nobody else says it of these."""
    return [
        Publish(fact=freshness_fact(node, known, known.freshness, age_ms(known, now_ms), now_ms))
        for node, known in nodes.items()
        if known.freshness in (Freshness.STALE, Freshness.LOST)
    ]
