"""The waiting placement requests by request class: which class is next, how long a class waits, and what wakes it.

Order: priority, higher first; then `queued_at_ms`, older first; then the replica's id. Equal requests are taken together, at most a
quantum in one turn, so that one search of the nodes serves many. A class that no node takes is parked as a whole: it
returns after its backoff, or as soon as a node has grown enough that it might fit.
"""

import heapq
from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct

from colo_common.events.job import PlacementRequest
from colo_common.model.invalid import InvariantBroken
from colo_common.model.placement import Attempt
from colo_scheduler.requests.request_class import RequestClass, class_of

__all__ = ["BackoffPolicy", "Parked", "RequestQueue"]

_Place = tuple[int, str, int]
_DOUBLINGS_MAX: Final = 20
# Requests checked in one piece, and places gathered in one piece of a large class. A class of more than _LARGE places is large.
_LOOKED_AT: Final = 150
_LOOKED_AT_QUICKLY: Final = 1_500
_LARGE: Final = 150


class BackoffPolicy(Struct, frozen=True, kw_only=True):
    """Waiting time after the n-th rejection in a row: `first_ms` doubled n-1 times, at most `most_ms`."""

    first_ms: int = 1_000
    most_ms: int = 60_000

    def after(self, rejections: int) -> int:
        """Milliseconds to wait; `rejections` is at least 1."""
        doublings = min(rejections - 1, _DOUBLINGS_MAX)
        return int(min(self.most_ms, self.first_ms << doublings))


class Parked(Struct, frozen=True, kw_only=True):
    """Why and until when a class waits. `retry_at_ms` None: only new capacity or a withdrawal ends the wait."""

    retry_at_ms: int | None
    capacity_changes: int
    is_unresolvable: bool


class _Class:
    def __init__(self, request: RequestClass) -> None:
        self.request = request
        self.heap: list[_Place] = []
        self.live = 0
        self.parked: Parked | None = None
        self.rejections = 0


class RequestQueue:
    """Placement requests keyed by replica and attempt, at most `limit`; only the newest attempt of a replica waits."""

    def __init__(self, limit: int, backoff: BackoffPolicy) -> None:
        self._limit = limit
        self._backoff = backoff
        self._placement_requests: dict[str, PlacementRequest] = {}
        # The class of each request, by replica, so that it is computed once.
        self._class_of: dict[str, _Class] = {}
        self._classes: dict[RequestClass, _Class] = {}
        self._ready: list[tuple[int, _Place, int, RequestClass]] = []
        self._timers: list[tuple[int, int, RequestClass]] = []
        # Classes have no order of their own: entries of equal rank stay in the order in which they came.
        self._ticket = 0
        self._delayed: list[tuple[int, str, int]] = []
        self._delayed_requests: dict[Attempt, PlacementRequest] = {}
        self._delayed_until: dict[Attempt, int] = {}

    def __len__(self) -> int:
        return len(self._placement_requests) + len(self._delayed_requests)

    def __contains__(self, attempt: object) -> bool:
        if not isinstance(attempt, tuple) or len(attempt) != 2:
            return False
        placement_request = self._placement_requests.get(attempt[0])
        return attempt in self._delayed_requests or (
            placement_request is not None and placement_request.attempt == attempt[1]
        )

    def add(self, placement_request: PlacementRequest) -> bool:
        """Queue a request; False when the queue is full. An attempt not newer than the waiting attempt changes nothing."""
        kept = self._placement_requests.get(placement_request.replica)
        if kept is not None:
            if kept.attempt >= placement_request.attempt:
                return True
            self.remove((kept.replica, kept.attempt))
        delayed = self._delayed_requests
        if delayed and (placement_request.replica, placement_request.attempt) in delayed:
            return True
        if len(self._placement_requests) + len(delayed) >= self._limit:
            return False
        self._insert(placement_request)
        return True

    def parked_class(self, placement_request: PlacementRequest) -> RequestClass | None:
        """The class of the request when that class is parked because no node takes it; else None."""
        is_waiting = self._placement_requests.get(placement_request.replica) is placement_request
        waiting = (
            self._class_of[placement_request.replica] if is_waiting else self._classes.get(class_of(placement_request))
        )
        return None if waiting is None or waiting.parked is None else waiting.request

    def delay(self, placement_request: PlacementRequest, until_ms: int) -> None:
        """Take back a request that lost its place at commit too often: it is not decided before `until_ms`."""
        self._delayed_requests[(placement_request.replica, placement_request.attempt)] = placement_request
        self._delayed_until[(placement_request.replica, placement_request.attempt)] = until_ms
        heapq.heappush(self._delayed, (until_ms, placement_request.replica, placement_request.attempt))

    def put_back(self, placement_requests: list[PlacementRequest]) -> None:
        """Put back requests that `take` returned; the limit does not apply to them, and a newer waiting attempt stays."""
        for placement_request in placement_requests:
            kept = self._placement_requests.get(placement_request.replica)
            if kept is not None and kept.attempt < placement_request.attempt:
                self.remove((kept.replica, kept.attempt))
                kept = None
            if kept is None:
                self._insert(placement_request)

    def find(self, replica: str) -> PlacementRequest | None:
        """The waiting request of the replica, or None."""
        return self._placement_requests.get(replica)

    def remove(self, attempt: Attempt) -> PlacementRequest | None:
        """Remove and return the request of the attempt; None when it did not wait."""
        delayed: PlacementRequest | None = None
        if self._delayed_requests:
            delayed = self._delayed_requests.pop(attempt, None)
            self._delayed_until.pop(attempt, None)
        placement_request = self._placement_requests.get(attempt[0])
        if placement_request is None or placement_request.attempt != attempt[1]:
            return delayed
        waiting = self._class_of[placement_request.replica]
        is_head = self._head(waiting) == _place_of(placement_request)
        del self._placement_requests[placement_request.replica], self._class_of[placement_request.replica]
        waiting.live -= 1
        if waiting.live == 0:
            del self._classes[waiting.request]
        elif is_head:
            # `_ready` lists a class by its head only, so the new head is added.
            self._publish(waiting)
        return placement_request

    def remove_where(self, is_deleted: Callable[[PlacementRequest], bool]) -> None:
        """Remove every request, also a delayed request, for which `is_deleted` holds."""
        found = [
            placement_request
            for placement_request in (*self._placement_requests.values(), *self._delayed_requests.values())
            if is_deleted(placement_request)
        ]
        for placement_request in found:
            self.remove((placement_request.replica, placement_request.attempt))

    def next_class(self) -> RequestClass | None:
        """The class whose head is first in order among the classes that are not parked; None without one."""
        while self._ready:
            _, place, _, request = self._ready[0]
            waiting = self._classes.get(request)
            if waiting is not None and waiting.parked is None and self._head(waiting) == place:
                return request
            heapq.heappop(self._ready)
        return None

    def take(self, request: RequestClass, count: int) -> list[PlacementRequest]:
        """Take at most `count` requests out of the class, in order.

        Call `put_back` and `park`, or `placed`, afterwards.
        """
        waiting = self._classes[request]
        placement_requests, class_at, heap = self._placement_requests, self._class_of, waiting.heap
        taken: list[PlacementRequest] = []
        while heap and len(taken) < count:
            queued_at_ms, replica, attempt = heapq.heappop(heap)
            placement_request = placement_requests.get(replica)
            if (
                placement_request is not None
                and placement_request.attempt == attempt
                and placement_request.queued_at_ms == queued_at_ms
            ):
                taken.append(placement_request)
                del placement_requests[replica], class_at[replica]
        waiting.live -= len(taken)
        self._publish(waiting)
        return taken

    def placed(self, request: RequestClass) -> None:
        """All requests that `take` returned found a place: the class's backoff starts again, and an empty class is forgotten."""
        waiting = self._classes[request]
        waiting.rejections = 0
        if waiting.live == 0:
            del self._classes[request]

    def park(
        self,
        request: RequestClass,
        now_ms: int,
        *,
        capacity_changes: int,
        is_unresolvable: bool,
        sooner_ms: int | None = None,
    ) -> Parked:
        """Let a class wait that no node took. `sooner_ms` is a moment from which a filter will answer differently."""
        waiting = self._classes[request]
        waiting.rejections += 1
        retry_at_ms = None
        if not is_unresolvable:
            retry_at_ms = now_ms + self._backoff.after(waiting.rejections)
            if sooner_ms is not None and now_ms < sooner_ms < retry_at_ms:
                retry_at_ms = sooner_ms
            self._ticket += 1
            heapq.heappush(self._timers, (retry_at_ms, self._ticket, request))
        waiting.parked = Parked(
            retry_at_ms=retry_at_ms, capacity_changes=capacity_changes, is_unresolvable=is_unresolvable
        )
        return waiting.parked

    def wake_due(self, now_ms: int) -> None:
        """Wake the parked classes and delayed requests whose wait is over."""
        while self._timers and self._timers[0][0] <= now_ms:
            at_ms, _, request = heapq.heappop(self._timers)
            waiting = self._classes.get(request)
            if waiting is not None and waiting.parked is not None and waiting.parked.retry_at_ms == at_ms:
                self._unpark(waiting)
        while self._delayed and self._delayed[0][0] <= now_ms:
            until_ms, replica, attempt = heapq.heappop(self._delayed)
            if self._delayed_until.get((replica, attempt)) == until_ms:
                del self._delayed_until[(replica, attempt)]
                self.put_back([self._delayed_requests.pop((replica, attempt))])

    def wake_where(self, might_fit: Callable[[RequestClass, Parked], bool]) -> None:
        """Wake the parked classes for which the answer may have changed."""
        for waiting in self._classes.values():
            if waiting.parked is not None and might_fit(waiting.request, waiting.parked):
                self._unpark(waiting)

    def deadline_ms(self) -> int | None:
        """When `wake_due` will have something to do."""
        if not self._timers and not self._delayed:
            return None
        while self._timers:
            at_ms, _, request = self._timers[0]
            waiting = self._classes.get(request)
            if waiting is not None and waiting.parked is not None and waiting.parked.retry_at_ms == at_ms:
                break
            heapq.heappop(self._timers)
        while self._delayed and self._delayed_until.get(self._delayed[0][1:]) != self._delayed[0][0]:
            heapq.heappop(self._delayed)
        snapshots = [timers[0][0] for timers in (self._timers, self._delayed) if timers]
        return min(snapshots, default=None)

    def waiting(self, request: RequestClass, limit: int) -> list[PlacementRequest]:
        """At most `limit` requests of a class, one for each job: the oldest of the job."""
        found: dict[str, PlacementRequest] = {}
        for _, replica, attempt in sorted(self._classes[request].heap) if request in self._classes else ():
            placement_request = self._placement_requests.get(replica)
            if (
                placement_request is not None
                and placement_request.attempt == attempt
                and placement_request.job not in found
            ):
                found[placement_request.job] = placement_request
                if len(found) >= limit:
                    break
        return list(found.values())

    def check(self) -> None:
        """Check all `pieces`; raises InvariantBroken."""
        for _ in self.pieces():
            pass

    def pieces(self) -> Iterator[int]:
        """Raise InvariantBroken unless the classes hold exactly the requests; yields the cost of each piece, in requests."""
        if len(self._placement_requests) != len(self._class_of):
            raise InvariantBroken(
                "classes and wants differ",
                classes=len(self._class_of),
                placement_requests=len(self._placement_requests),
            )
        placement_requests = list(self._placement_requests.values())
        for start in range(0, len(placement_requests), _LOOKED_AT):
            yield _LOOKED_AT
            for placement_request in placement_requests[start : start + _LOOKED_AT]:
                if self._placement_requests.get(placement_request.replica) is placement_request:
                    self._check_request(placement_request)
        looked_at = 1
        for waiting in list(self._classes.values()):
            # A class whose requests were placed or withdrawn since the start is forgotten.
            if self._classes.get(waiting.request) is not waiting:
                continue
            if waiting.live < 1:
                raise InvariantBroken("an empty class is kept", request=waiting.request)
            if len(waiting.heap) > _LARGE:
                yield from self._large_pieces(waiting)
            elif self._members(waiting) != waiting.live:
                raise InvariantBroken("a class counts others than wait in it", request=waiting.request)
            looked_at += 1 + len(waiting.heap) // 4
            if looked_at >= _LOOKED_AT:
                yield looked_at
                looked_at = 0
        yield 1 + looked_at

    def _check_request(self, placement_request: PlacementRequest) -> None:
        waiting = self._class_of.get(placement_request.replica)
        if (
            waiting is None
            or self._classes.get(waiting.request) is not waiting
            or class_of(placement_request) != waiting.request
        ):
            raise InvariantBroken(
                "a want is in no class", replica=placement_request.replica, attempt=placement_request.attempt
            )
        # `_large_pieces` checks a large heap once for all its requests.
        if len(waiting.heap) <= _LARGE and _place_of(placement_request) not in waiting.heap:
            raise InvariantBroken(
                "a want has no place", replica=placement_request.replica, attempt=placement_request.attempt
            )

    def _members(self, waiting: _Class) -> int:
        """How many requests have a place in the class; the heap may hold a place twice, or the place of a removed request."""
        found: set[str] = set()
        for queued_at_ms, replica, attempt in waiting.heap:
            placement_request = self._placement_requests.get(replica)
            if placement_request is not None and (placement_request.attempt, placement_request.queued_at_ms) == (
                attempt,
                queued_at_ms,
            ):
                found.add(replica)
        return len(found)

    def _large_pieces(self, waiting: _Class) -> Iterator[int]:
        """Check a large class piece by piece, on copies made at one moment: requests and places never change."""
        heap, live = waiting.heap[:], waiting.live
        # Both have the same keys in the same order: a request enters and leaves both together.
        placement_requests, classes = list(self._placement_requests.values()), list(self._class_of.values())
        places: set[_Place] = set()
        for start in range(0, len(heap), _LOOKED_AT_QUICKLY):
            yield _LOOKED_AT_QUICKLY // 20
            places.update(heap[start : start + _LOOKED_AT_QUICKLY])
        members = 0
        for start in range(0, len(placement_requests), _LOOKED_AT_QUICKLY):
            end = start + _LOOKED_AT_QUICKLY
            own = [
                placement_request
                for placement_request, kept in zip(placement_requests[start:end], classes[start:end], strict=True)
                if kept is waiting
            ]
            members += len(own)
            for placement_request in own:
                if _place_of(placement_request) not in places:
                    raise InvariantBroken(
                        "a want has no place", replica=placement_request.replica, attempt=placement_request.attempt
                    )
            yield _LOOKED_AT_QUICKLY // 50 + len(own) // 4
        if members != live:
            raise InvariantBroken("a class counts others than wait in it", request=waiting.request)

    def _insert(self, placement_request: PlacementRequest) -> None:
        waiting = self._class_for(placement_request)
        self._placement_requests[placement_request.replica] = placement_request
        self._class_of[placement_request.replica] = waiting
        place = (placement_request.queued_at_ms, placement_request.replica, placement_request.attempt)
        heapq.heappush(waiting.heap, place)
        waiting.live += 1
        # A new request wakes its parked class, which costs one search, so that it gets an answer of its own.
        if waiting.parked is not None or waiting.heap[0] is place or self._head(waiting) == place:
            waiting.parked = None
            self._publish(waiting)

    def _class_for(self, placement_request: PlacementRequest) -> _Class:
        """The class of a request; a class that is not known yet begins empty."""
        request = class_of(placement_request)
        found = self._classes.get(request)
        if found is None:
            found = self._classes[request] = _Class(request)
        return found

    def _unpark(self, waiting: _Class) -> None:
        waiting.parked = None
        self._publish(waiting)

    def _publish(self, waiting: _Class) -> None:
        place = self._head(waiting)
        if place is not None and waiting.parked is None:
            self._ticket += 1
            heapq.heappush(self._ready, (-waiting.request.priority, place, self._ticket, waiting.request))

    def _head(self, waiting: _Class) -> _Place | None:
        while waiting.heap:
            place = waiting.heap[0]
            placement_request = self._placement_requests.get(place[1])
            if (
                placement_request is not None
                and placement_request.attempt == place[2]
                and placement_request.queued_at_ms == place[0]
            ):
                return place
            heapq.heappop(waiting.heap)
        return None


def _place_of(placement_request: PlacementRequest) -> _Place:
    return (placement_request.queued_at_ms, placement_request.replica, placement_request.attempt)
