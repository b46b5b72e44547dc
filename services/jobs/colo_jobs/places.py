"""Lists the replicas that hold a place, for a scheduler that finds a ledger without rows."""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from colo_common.events.requests import KnownPlace, PendingReplicas, PendingReply, Refusal
from colo_common.model.invalid import InvalidInput
from colo_common.model.paging import parts_of
from colo_jobs.index import Index
from colo_jobs.job import HOLDING, Job
from colo_jobs.placement_requests import REQUESTS_PER_REPLY_MAX, bytes_of_requests, placement_request_of

__all__ = ["placed_of"]

# The name of the node and the numbers of the zones.
_PLACE_BYTES: Final = 320


def placed_of(
    index: Index, request: PendingReplicas, after: str, trace_ratio: float, now_ms: int
) -> PendingReply | Refusal:
    """One page of the replicas that hold a place, by job and number, of those after this one ("": all)."""
    job, number = after.split("/", 1)[0], -1
    try:
        found = index.find(after) if after else None
    except InvalidInput as error:
        return Refusal(code=400, field="placed_after", rule=error.rule, got=after[:80])
    if found is not None:
        number = found[1]
    elif after:
        # Its job was forgotten meanwhile: the page begins with the next one.
        job += "\0"
    request_bytes = bytes_of_requests()
    pages = parts_of(
        (_place(job, number, trace_ratio) for job, number in _held_after(index, job, number)),
        min(request.limit, REQUESTS_PER_REPLY_MAX),
        lambda place: request_bytes(place.request) + _PLACE_BYTES,
    )
    return PendingReply(placement_requests=(), total=0, at_ms=now_ms, placed=next(pages, ()))


def _held_after(index: Index, first: str, after: int) -> Iterator[tuple[Job, int]]:
    """The replicas that hold a place, of the job `first` those after the given number, and of all jobs after it."""
    names = sorted(index.jobs)
    for name in names[bisect_left(names, first) :]:
        job = index.jobs[name]
        if job.is_ended:
            continue
        for number in range(after + 1 if name == first else 0, job.size):
            if job.records[number].state in HOLDING:
                yield job, number


def _place(job: Job, number: int, trace_ratio: float) -> KnownPlace:
    record = job.records[number]
    return KnownPlace(request=placement_request_of(job, number, trace_ratio), node=record.node, zones=record.zones)
