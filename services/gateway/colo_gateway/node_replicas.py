"""The replicas of a node, page by page, for whoever must know each of them."""

from typing import Final, Protocol

from msgspec import Struct

from colo_common.events.fleet import ListNodeReplicas, NodeReplicas, PlacedReplica

__all__ = ["REPLICAS_MOST", "Asks", "all_on_node"]

#: The most replicas of a node that are read.
REPLICAS_MOST: Final = 10_000
_PAGES_MOST: Final = 100


class Asks(Protocol):
    """Whoever sends requests: the reply, or a Refusal."""

    async def ask(self, body: Struct) -> Struct:
        """Send one request."""
        ...


async def all_on_node(asker: Asks, node: str) -> NodeReplicas | Struct:
    """The replicas that hold a place on the node, each once, at most 10,000; or the Refusal of a page.

    There are more where `total` is above their number: beyond the limit, or because a jobs service of an earlier version tells
    only the first 1,000.
    """
    found: dict[str, PlacedReplica] = {}
    total = now_ms = 0
    cursor = ""
    for _ in range(_PAGES_MOST):
        page = await asker.ask(ListNodeReplicas(node=node, cursor=cursor))
        if not isinstance(page, NodeReplicas):
            return page
        found |= {one.replica: one for one in page.replicas}
        total, now_ms, cursor = page.total, page.now_ms, page.next
        if not cursor or len(found) >= REPLICAS_MOST:
            break
    read = tuple(found.values())[:REPLICAS_MOST]
    return NodeReplicas(replicas=read, total=max(total, len(read)), now_ms=now_ms, next=cursor)
