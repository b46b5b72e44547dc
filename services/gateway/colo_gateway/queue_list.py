"""All queues, page by page, for commands and pages that must know each of them."""

from typing import Final

from msgspec import Struct

from colo_common.events.requests import ListQueues, QueueList, QueueSummary
from colo_gateway.ask import Asker

__all__ = ["all_queues"]

_PAGES_MOST: Final = 100


async def all_queues(asker: Asker) -> QueueList | Struct:
    """Every queue by name, or the Refusal of a page."""
    found: list[QueueSummary] = []
    cursor = ""
    for _ in range(_PAGES_MOST):
        page = await asker.ask(ListQueues(cursor=cursor))
        if not isinstance(page, QueueList):
            return page
        found += page.queues
        cursor = page.next
        if not cursor:
            break
    return QueueList(queues=tuple(found), total=len(found))
