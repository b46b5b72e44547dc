"""Makes the placement requests of waiting replicas, for events and for the pages of a reply."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from msgspec import structs

from colo_common.events.effects import Publish
from colo_common.events.job import MidPlacementsRequested, PlacementRequest, PlacementsRequested
from colo_common.events.requests import PendingReplicas, PendingReply
from colo_common.events.trace import placement_trace
from colo_common.model.paging import json_bytes, parts_of
from colo_common.model.qos import PriorityBand
from colo_jobs.job import Job

__all__ = [
    "REQUESTS_PER_MESSAGE",
    "REQUESTS_PER_REPLY_MAX",
    "Snapshot",
    "bytes_of_requests",
    "placement_request_of",
    "placement_requests_of",
    "publish_requests",
]

REQUESTS_PER_MESSAGE: Final = 100
REQUESTS_PER_REPLY_MAX: Final = 1_000
# Number, attempt, moment and trace of one replica of a task, beyond those of another one.
_DIFFERENCE_BYTES: Final = 128
_AVOID_BYTES: Final = 280
_replace: Final = structs.replace


def placement_request_of(job: Job, index: int, trace_ratio: float) -> PlacementRequest:
    """The placement request of the replica's present attempt."""
    replica = job.replica(index)
    task = job.task_spec(index)
    name = job.name(index)
    queued_at_ms = replica.queued_at_ms or job.record.submitted_at_ms
    return PlacementRequest(
        replica=name,
        job=job.id,
        queue=job.spec.queue,
        attempt=replica.attempt,
        request=task.request,
        run=task.run,
        qos=job.spec.qos,
        band=job.spec.band,
        priority=job.spec.priority,
        queued_at_ms=queued_at_ms,
        avoid=replica.avoid,
        traceparent=placement_trace(name, replica.attempt, trace_ratio),
        constraints=task.constraints,
        labels=tuple(sorted(job.spec.labels.items())) if job.spec.labels else (),
        job_name=job.spec.name,
        tenant=job.spec.tenant,
    )


def placement_requests_of(waiting: Iterable[tuple[Job, int]], trace_ratio: float) -> list[PlacementRequest]:
    """The placement requests of these replicas, equal to `placement_request_of` for each.

    The replicas of a job with one task differ in few fields, so the others are copied from the request before.
    """
    placement_requests: list[PlacementRequest] = []
    like: PlacementRequest | None = None
    of: Job | None = None
    prefix = ""
    submitted_at_ms = 0
    for job, index in waiting:
        if like is None or of is not job or not prefix:
            of, prefix, submitted_at_ms = job, job.prefix, job.record.submitted_at_ms
            like = placement_request_of(job, index, trace_ratio)
            placement_requests.append(like)
            continue
        replica = job.records[index]
        name, attempt = f"{prefix}{index}", replica.attempt
        queued_at_ms = replica.queued_at_ms or submitted_at_ms
        if queued_at_ms != like.queued_at_ms:
            like = _replace(like, queued_at_ms=queued_at_ms)
        trace = placement_trace(name, attempt, trace_ratio)
        placement_requests.append(_replace(like, replica=name, attempt=attempt, avoid=replica.avoid, traceparent=trace))
    return placement_requests


def publish_requests(placement_requests: Iterable[PlacementRequest], now_ms: int) -> Iterator[Publish]:
    """The messages with these placement requests, in order; those of the mid tier last, in messages of their own.

    A message's id is a hash of its attempts.
    """
    mid: list[PlacementRequest] = []
    others: list[PlacementRequest] = []
    for each in placement_requests:
        (mid if each.band is PriorityBand.MID else others).append(each)
    for kind, of_kind in ((PlacementsRequested, others), (MidPlacementsRequested, mid)):
        for batch in parts_of(of_kind, REQUESTS_PER_MESSAGE, bytes_of_requests()):
            # The same text as `attempt_key`.
            keys = ",".join([f"{placement_request.replica}#{placement_request.attempt}" for placement_request in batch])
            digest = hashlib.sha256(keys.encode()).hexdigest()[:32]
            yield Publish(fact=kind(at_ms=now_ms, placement_requests=batch), id=f"jobs:wanted:{digest}")


def bytes_of_requests() -> Callable[[PlacementRequest], int]:
    """Tells how long a placement request is as JSON, and a little more: only the first one of a task is written for it.

    What the others differ in is short, but for the nodes that they avoid.
    """
    sizes: dict[int, int] = {}

    def size_bytes(request: PlacementRequest) -> int:
        run = id(request.run)
        found = sizes.get(run)
        if found is None:
            found = sizes[run] = json_bytes(_replace(request, avoid=())) + _DIFFERENCE_BYTES
        return found + _AVOID_BYTES * len(request.avoid) if request.avoid else found

    return size_bytes


class Snapshot:
    """The order of the waiting replicas for one reader of pages.

    The first page (offset 0) fixes the order. Later pages leave out replicas that got a place meanwhile, and skip no other replica.
    Only the order of the newest reader is kept.
    """

    def __init__(self) -> None:
        self._keys: tuple[tuple[Job, int], ...] = ()

    def page(
        self, request: PendingReplicas, waiting: Sequence[tuple[Job, int]], trace_ratio: float, now_ms: int
    ) -> PendingReply:
        """At most `limit` placement requests from `offset`, fewer when they are long; an empty page is the end.

        The next offset is this one plus the length of the page; a request that is on two pages is equal on both. `waiting` is
        used for offset 0 only.
        """
        if request.offset == 0:
            listed = [key for key in waiting if request.has_mid_tier or key[0].spec.band is not PriorityBand.MID]
            self._keys = tuple(sorted(listed, key=_order))
        most = min(request.limit, REQUESTS_PER_REPLY_MAX)
        waiting_still = (
            placement_request_of(job, index, trace_ratio)
            for job, index in self._keys[request.offset :]
            if job.replica(index).state == "Pending"
        )
        placement_requests = next(parts_of(waiting_still, most, bytes_of_requests()), ())
        total = len(self._keys) if placement_requests else min(request.offset, len(self._keys))
        return PendingReply(placement_requests=placement_requests, total=total, at_ms=now_ms)


def _order(key: tuple[Job, int]) -> tuple[int, int, str, int]:
    """The sort key: higher priority first, then the longest wait, then job and number."""
    job, index = key
    return (-job.spec.priority, job.waits_since_ms(index), job.id, index)
