"""Replicas that want a place, as the scheduler hears of them."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
from msgspec import Struct, structs

from colo_common.events.effects import Publish
from colo_common.events.job import PlacementRequest, PlacementsRequested
from colo_common.events.requests import PendingReplicas, PendingReply
from colo_common.events.trace import placement_trace
from colo_jobs.job import Job

__all__ = ["WANTS_A_MESSAGE", "Snapshot", "WallTime", "publish_wants", "placement_request_of", "wants_of"]

WANTS_A_MESSAGE: Final = 100
PENDING_A_REPLY_MAX: Final = 1_000
_MESSAGE_BYTES: Final = 512 << 10
_REQUEST_HEAD_BYTES: Final = 600
_AVOID_BYTES: Final = 280
_replace: Final = structs.replace


class WallTime(Struct, frozen=True, kw_only=True):
    """How the service's clock follows the wall: `origin_ms` is the same on both, from there it runs `speed` times as fast."""

    speed: float = 1.0
    origin_ms: int = 0

    def wall_us(self, at_ms: int) -> int:
        """Unix microseconds of the wall clock at a time of the service's clock, rounded down."""
        if self.speed == 1.0:
            return at_ms * 1_000
        return self.origin_ms * 1_000 + int((at_ms - self.origin_ms) * 1_000 / self.speed)


def placement_request_of(job: Job, index: int, wall: WallTime, trace_ratio: float) -> PlacementRequest:
    """Everything that a decision about the replica's present attempt needs."""
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
        queued_at_us=wall.wall_us(queued_at_ms),
        avoid=replica.avoid,
        traceparent=placement_trace(name, replica.attempt, trace_ratio),
        constraints=task.constraints,
        labels=tuple(sorted(job.spec.labels.items())) if job.spec.labels else (),
        job_name=job.spec.name,
    )


def wants_of(waiting: Iterable[tuple[Job, int]], wall: WallTime, trace_ratio: float) -> list[PlacementRequest]:
    """`placement_request_of` each of these: the replicas of a job with one task differ in little, and only that is made anew."""
    placement_requests: list[PlacementRequest] = []
    like: PlacementRequest | None = None
    of: Job | None = None
    prefix = ""
    submitted_at_ms = 0
    for job, index in waiting:
        if like is None or of is not job or not prefix:
            of, prefix, submitted_at_ms = job, job.prefix, job.record.submitted_at_ms
            like = placement_request_of(job, index, wall, trace_ratio)
            placement_requests.append(like)
            continue
        replica = job.records[index]
        name, attempt = f"{prefix}{index}", replica.attempt
        queued_at_ms = replica.queued_at_ms or submitted_at_ms
        if queued_at_ms != like.queued_at_ms:
            like = _replace(like, queued_at_ms=queued_at_ms, queued_at_us=wall.wall_us(queued_at_ms))
        trace = placement_trace(name, attempt, trace_ratio)
        placement_requests.append(_replace(like, replica=name, attempt=attempt, avoid=replica.avoid, traceparent=trace))
    return placement_requests


def publish_wants(placement_requests: Iterable[PlacementRequest], now_ms: int) -> Iterator[Publish]:
    """The messages for these wants, in order; a message's id follows from the attempts in it."""
    for batch in _batches(placement_requests):
        # As `attempt_key` names each of them.
        keys = ",".join([f"{placement_request.replica}#{placement_request.attempt}" for placement_request in batch])
        digest = hashlib.sha256(keys.encode()).hexdigest()[:32]
        yield Publish(fact=PlacementsRequested(at_ms=now_ms, placement_requests=batch), id=f"jobs:wanted:{digest}")


def _batches(placement_requests: Iterable[PlacementRequest]) -> Iterator[tuple[PlacementRequest, ...]]:
    """At most 100 wants and about half a mebibyte together: commands and environments may be long."""
    batch: list[PlacementRequest] = []
    size_bytes = 0
    sizes: dict[int, int] = {}
    for placement_request in placement_requests:
        request_bytes = (
            _request_bytes(placement_request, sizes)
            if placement_request.avoid or id(placement_request.run) not in sizes
            else sizes[id(placement_request.run)]
        )
        if batch and (len(batch) == WANTS_A_MESSAGE or size_bytes + request_bytes > _MESSAGE_BYTES):
            yield tuple(batch)
            batch, size_bytes = [], 0
        batch.append(placement_request)
        size_bytes += request_bytes
    if batch:
        yield tuple(batch)


def _request_bytes(placement_request: PlacementRequest, sizes: dict[int, int]) -> int:
    """About how long a want is as JSON. `sizes` remembers what the replicas of one task have in common."""
    run = id(placement_request.run)
    size_bytes = sizes.get(run)
    if size_bytes is None:
        size_bytes = sizes[run] = len(msgspec.json.encode(placement_request.run)) + _REQUEST_HEAD_BYTES
    return size_bytes + _AVOID_BYTES * len(placement_request.avoid) if placement_request.avoid else size_bytes


class Snapshot:
    """The order of waiting replicas as one reader pages through it.

    The first page fixes the order; later pages leave out what found a place meanwhile, so nothing is skipped. A reader that
    asks for offset 0 begins anew. Only the newest reader's order is kept.
    """

    def __init__(self) -> None:
        self._keys: tuple[tuple[Job, int], ...] = ()

    def page(
        self, asked: PendingReplicas, waiting: Sequence[tuple[Job, int]], wall: WallTime, trace_ratio: float
    ) -> PendingReply:
        """At most `limit` wants from `offset`, fewer where they are long; an empty page is the end.

        The next offset is this one plus the wants of the page: what is read twice is read alike. `waiting` is needed for
        offset 0 only.
        """
        if asked.offset == 0:
            self._keys = tuple(sorted(waiting, key=_order))
        most = min(asked.limit, PENDING_A_REPLY_MAX)
        placement_requests: list[PlacementRequest] = []
        size_bytes = 0
        sizes: dict[int, int] = {}
        for job, index in self._keys[asked.offset :]:
            if len(placement_requests) == most or size_bytes > _MESSAGE_BYTES:
                break
            if job.replica(index).state == "Pending":
                placement_requests.append(placement_request_of(job, index, wall, trace_ratio))
                size_bytes += _request_bytes(placement_requests[-1], sizes)
        total = len(self._keys) if placement_requests else min(asked.offset, len(self._keys))
        return PendingReply(placement_requests=tuple(placement_requests), total=total)


def _order(key: tuple[Job, int]) -> tuple[int, int, str, int]:
    """Higher priority first, then who waits longest; ties go by job and number."""
    job, index = key
    return (-job.spec.priority, job.waits_since_ms(index), job.id, index)
