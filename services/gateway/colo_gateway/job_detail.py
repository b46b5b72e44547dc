"""One job as the jobs service shows it, with the replica that is asked for, and the scheduler's decisions about it."""

from typing import Final

from msgspec import Struct, structs

from colo_common.events import requests as rq
from colo_gateway.ask import Asker

__all__ = ["ask_decisions", "ask_job"]

# A job has at most 10,000 replicas.
_PAGES_MOST: Final = 100


async def ask_job(asker: Asker, job: str, replica: str = "") -> Struct:
    """The job with the first page of its replicas, and with this replica behind them where it is on another page; or a Refusal."""
    detail = await asker.ask(rq.GetJob(job=job))
    if not replica or not isinstance(detail, rq.JobDetail) or any(each.replica == replica for each in detail.replicas):
        return detail
    only = await asker.ask(rq.GetJob(job=job, replica=replica))
    if not isinstance(only, rq.JobDetail):
        return only
    # A jobs service of an earlier version shows its first page.
    found = tuple(each for each in only.replicas if each.replica == replica)
    return structs.replace(detail, replicas=(*detail.replicas, *found))


async def ask_decisions(asker: Asker, job: str, replica: str) -> tuple[dict[str, rq.DecisionRecord], str]:
    """The newest decisions by replica, of all pages, and why some are missing; "" when none is."""
    decisions: dict[str, rq.DecisionRecord] = {}
    cursor = ""
    for _ in range(_PAGES_MOST):
        explained = await asker.ask(rq.ExplainPlacement(job=job, replica=replica, cursor=cursor))
        if not isinstance(explained, rq.PlacementsExplained):
            is_unknown = isinstance(explained, rq.Refusal) and explained.code == 404
            return decisions, "" if is_unknown else str(explained)
        decisions.update((decision.replica, decision) for decision in explained.decisions)
        cursor = explained.next
        if not cursor:
            break
    return decisions, ""
