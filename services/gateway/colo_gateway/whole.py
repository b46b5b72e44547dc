"""Puts the answers of all partitions of the jobs together, where several instances serve a part of the jobs each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from msgspec import Struct, structs

from colo_common.events.fleet import ListNodeReplicas, ListTenants, NodeReplicas, TenantList, TenantSummary
from colo_common.events.requests import JobList, JobSummary, ListJobs, ListQueues, QueueList, QueueSummary, Refusal
from colo_common.events.waiting import ExplainWait, JobWait
from colo_common.model.invalid import InvalidInput
from colo_common.model.paging import limit_of, page_by_name
from colo_common.model.partition import partition_of

__all__ = ["Ask", "whole"]

#: Asks one partition: the reply, or a Refusal.
Ask = Callable[[Struct], Awaitable[Struct]]
_PAGES_MOST: Final = 100
Summary = TypeVar("Summary", bound=Struct)


async def whole(ask: Ask, question: Struct, first: Struct) -> Struct:
    """The answer of all partitions to a question of which one has answered `first`; that one's where the jobs are not divided.

    A Refusal when one refuses, but for 404: what one partition lacks another may have.
    """
    partitions: int = getattr(first, "partitions", 1)
    if partitions == 1:
        return first
    match question:
        case ListJobs():
            return await _jobs(ask, question, first, partitions)
        case ListQueues():
            return await _queues(ask, question, partitions)
        case ListTenants():
            return await _tenants(ask, question, partitions)
        case ListNodeReplicas():
            return await _of_node(ask, question, partitions)
        case ExplainWait():
            return await _wait(ask, question, first, partitions)
        case _:
            return first


async def _each(ask: Ask, question: Any, first: Struct, partitions: int) -> Sequence[Struct] | Refusal:
    """The answers of all partitions, without those that lack what is asked for."""
    others = [await ask(structs.replace(question, partition=partition)) for partition in range(1, partitions)]
    return _found([first, *others])


def _found(answers: Iterable[Struct]) -> Sequence[Struct] | Refusal:
    found: list[Struct] = []
    lacking: Refusal | None = None
    for answer in answers:
        if not isinstance(answer, Refusal):
            found.append(answer)
        elif answer.code != 404:
            return answer
        else:
            lacking = lacking or answer
    return found if found or lacking is None else lacking


async def _jobs(ask: Ask, question: ListJobs, first: Struct, partitions: int) -> Struct:
    """The newest of all. Beyond the last job of a partition that has more of them nothing can be shown yet."""
    found = await _each(ask, question, first, partitions)
    if isinstance(found, Refusal):
        return found
    lists = [each for each in found if isinstance(each, JobList)]
    shown_from = max((_age_key(each.jobs[-1]) for each in lists if each.next and each.jobs), default=(-1, ""))
    jobs = sorted((job for each in lists for job in each.jobs), key=_age_key, reverse=True)
    page = tuple(job for job in jobs if _age_key(job) >= shown_from)[: question.limit]
    has_more = len(page) < len(jobs) or any(each.next for each in lists)
    following = f"{page[-1].submitted_at_ms}:{page[-1].job}" if page and has_more else ""
    return JobList(jobs=page, total=sum(each.total for each in lists), next=following, partitions=partitions)


def _age_key(job: JobSummary) -> tuple[int, str]:
    return job.submitted_at_ms, job.job


async def _queues(ask: Ask, question: ListQueues, partitions: int) -> Struct:
    pages = await _all_pages(ask, ListQueues(), partitions)
    if isinstance(pages, Refusal):
        return pages
    queues = [queue for page in pages if isinstance(page, QueueList) for queue in page.queues]
    names = sorted({queue.queue for queue in queues})
    merged = [_queue([queue for queue in queues if queue.queue == name]) for name in names]
    try:
        page, following = page_by_name(merged, lambda queue: queue.queue, question.cursor, limit_of(question.limit))
    except InvalidInput as error:
        return Refusal(code=400, field=error.field, rule=error.rule, got=error.value)
    return QueueList(queues=page, total=len(names), next=following, partitions=partitions)


def _queue(parts: Sequence[QueueSummary]) -> QueueSummary:
    """A queue by its parts: counts add up, its limit is that of each, and who waited longest is the oldest of all."""
    summed = _summed(parts, ("queue", "capacity", "oldest_wait_ms"))
    return structs.replace(
        summed,
        capacity=max(part.capacity for part in parts),
        oldest_wait_ms=max(part.oldest_wait_ms for part in parts),
    )


async def _tenants(ask: Ask, question: ListTenants, partitions: int) -> Struct:
    pages = await _all_pages(ask, ListTenants(), partitions)
    if isinstance(pages, Refusal):
        return pages
    by_name: dict[str, list[TenantSummary]] = {}
    for page in pages:
        for tenant in page.tenants if isinstance(page, TenantList) else ():
            by_name.setdefault(tenant.tenant, []).append(tenant)
    merged = [
        structs.replace(
            _summed(parts, ("tenant", "queues")),
            queues=tuple(sorted({queue for part in parts for queue in part.queues})),
        )
        for parts in by_name.values()
    ]
    merged.sort(key=lambda tenant: (-tenant.held_cpu_mcpu, tenant.tenant))
    try:
        shown, following = page_by_name(merged, lambda tenant: tenant.tenant, question.cursor, limit_of(question.limit))
    except InvalidInput as error:
        return Refusal(code=400, field=error.field, rule=error.rule, got=error.value)
    return TenantList(tenants=shown, total=len(merged), next=following, partitions=partitions)


def _summed(parts: Sequence[Summary], kept: Sequence[str]) -> Summary:
    """The first part with the sums of all for every field but those `kept`."""
    first = parts[0]
    sums = {name: sum(getattr(part, name) for part in parts) for name in first.__struct_fields__ if name not in kept}
    return structs.replace(first, **sums)


async def _all_pages(ask: Ask, question: Any, partitions: int) -> Sequence[Struct] | Refusal:
    """All pages of all partitions: they are sorted by sums, or a name has a part in each."""

    pages: list[Struct] = []
    for partition in range(partitions):
        cursor = ""
        for _ in range(_PAGES_MOST):
            page = await ask(structs.replace(question, partition=partition, cursor=cursor))
            pages.append(page)
            cursor = getattr(page, "next", "")
            if not cursor:
                break
    return _found(pages)


async def _of_node(ask: Ask, question: ListNodeReplicas, partitions: int) -> Struct:
    """A page of all by name. An instance of an earlier version begins anew at each cursor: a replica counts once."""
    found = await _all_pages(ask, ListNodeReplicas(node=question.node), partitions)
    if isinstance(found, Refusal):
        return found
    pages = [each for each in found if isinstance(each, NodeReplicas)]
    replicas = {one.replica: one for page in pages for one in page.replicas}
    names = [replicas[name] for name in sorted(replicas)]
    try:
        shown, following = page_by_name(names, lambda one: one.replica, question.cursor, limit_of(question.limit))
    except InvalidInput as error:
        return Refusal(code=400, field=error.field, rule=error.rule, got=error.value)
    return NodeReplicas(
        replicas=shown,
        # The last page of each partition says how many it has.
        total=max(len(names), sum(page.total for page in pages if not page.next)),
        now_ms=max((page.now_ms for page in pages), default=0),
        partitions=partitions,
        next=following,
    )


async def _wait(ask: Ask, question: ExplainWait, first: Struct, partitions: int) -> Struct:
    """The wait with the replicas of all partitions that come before it."""
    if not isinstance(first, JobWait) or first.turn is None:
        return first
    own = partition_of(question.job, partitions)
    others = [
        await ask(structs.replace(question, partition=partition, turn=first.turn, queue=first.queue))
        for partition in range(partitions)
        if partition != own
    ]
    found = _found(others)
    if isinstance(found, Refusal):
        return found
    parts = [each for each in found if isinstance(each, JobWait)]
    return structs.replace(
        first,
        ahead=first.ahead + sum(part.ahead for part in parts),
        ahead_in_queue=first.ahead_in_queue + sum(part.ahead_in_queue for part in parts),
    )
