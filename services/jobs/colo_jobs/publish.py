"""Makes the effects of a job transaction: the changed rows and the messages about the changes."""

import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from colo_common.events.effects import Effect, Publish, Record, Write
from colo_common.events.job import (
    JobStateChanged,
    ReplicaChange,
    ReplicasChanged,
    ReplicaStop,
    ReplicasWithdrawn,
    StopReplicas,
)
from colo_common.model.placement import attempt_key
from colo_common.model.reasons import Reason
from colo_jobs.job import Job
from colo_jobs.records import JOB_KIND, PAGE_KIND, PAGE_REPLICAS, SPEC_KIND, encode, page_id
from colo_jobs.transaction import JobTransaction, Move, Stop

__all__ = ["Result", "deletion", "put_back", "result_of"]

# Bounds of one message.
_ATTEMPTS_A_MESSAGE = 500
_CHANGES_A_MESSAGE = 100
_STOPS_A_MESSAGE = 200


class Result(NamedTuple):
    """What a txn leads to: at most one Record of the rows that changed, then the messages about them."""

    record: list[Record]
    messages: list[Publish]

    @property
    def effects(self) -> list[Effect]:
        """Both in their order."""
        return [*self.record, *self.messages]


def result_of(txn: JobTransaction) -> Result:
    """The rows and the messages of the txn. Takes the rows' new versions into the job, so a reply made after this names them."""
    record = [_record(txn)] if txn.is_changed else []
    messages: list[Publish] = []
    if txn.moves:
        messages.extend(_changes(txn))
    if txn.withdrawn:
        messages.extend(_withdrawals(txn))
    if txn.stops:
        messages.extend(_stops(txn))
    return Result(record, messages)


def deletion(job: Job) -> Record:
    """The Record that deletes all rows of a job."""
    writes = [Write(kind=JOB_KIND, id=job.id, value=None, expect=job.version)]
    writes.append(Write(kind=SPEC_KIND, id=job.id, value=None, expect=1))
    for page, version in enumerate(job.page_versions):
        writes.append(Write(kind=PAGE_KIND, id=page_id(job.id, page), value=None, expect=version))
    return Record(writes=tuple(writes))


def put_back(job: Job) -> Record:
    """The Record that puts the rows of a stored job back where the store has older ones or none."""
    writes = [
        Write(kind=SPEC_KIND, id=job.id, value=encode(job.spec), expect=1, puts_back=True),
        Write(kind=JOB_KIND, id=job.id, value=encode(job.record), expect=job.version, puts_back=True),
    ]
    for page, version in enumerate(job.page_versions):
        value = encode(job.pages[page])
        writes.append(Write(kind=PAGE_KIND, id=page_id(job.id, page), value=value, expect=version, puts_back=True))
    return Record(writes=tuple(writes))


def _record(txn: JobTransaction) -> Record:
    job = txn.job
    writes = []
    is_new = job.version == 0
    if is_new:
        writes.append(Write(kind=SPEC_KIND, id=job.id, value=txn.spec_value or encode(job.spec), expect=0))
    if is_new or txn.is_job_dirty:
        writes.append(Write(kind=JOB_KIND, id=job.id, value=encode(job.record), expect=job.version))
        job.version += 1
    for page in range(len(job.pages)) if is_new else sorted(txn.dirty_pages):
        expect = job.page_versions[page]
        writes.append(Write(kind=PAGE_KIND, id=page_id(job.id, page), value=encode(job.pages[page]), expect=expect))
        job.page_versions[page] = expect + 1
    return Record(writes=tuple(writes))


def _job_changed(txn: JobTransaction, move: Move) -> Publish:
    job = txn.job
    fact = JobStateChanged(
        at_ms=txn.now_ms,
        job=job.id,
        queue=job.spec.queue,
        state=move.state,
        previous=move.previous,
        transition=move.transition,
        version=job.version,
    )
    return Publish(fact=fact, id=f"jobs:job:{job.id}:{move.transition}:{job.version}")


def _changes(txn: JobTransaction) -> Iterator[Publish]:
    """The messages about all moves in order. Consecutive moves of replicas share a message; a move of the job ends it."""
    group: list[Move] = []
    number = 0
    for move in txn.moves:
        machine = move.machine
        if machine == "replica" and len(group) < _CHANGES_A_MESSAGE:
            group.append(move)
            continue
        if group and (machine == "job" or len(group) >= _CHANGES_A_MESSAGE):
            yield _replicas_changed(txn, group, number)
            group = []
            number += 1
        if machine == "job":
            yield _job_changed(txn, move)
        elif machine == "replica":
            group.append(move)
    if group:
        yield _replicas_changed(txn, group, number)


def _replicas_changed(txn: JobTransaction, moves: list[Move], number: int) -> Publish:
    job = txn.job
    prefix = job.prefix
    changes = [
        ReplicaChange(
            replica=f"{prefix}{move.index}" if prefix else job.name(move.index),
            attempt=move.attempt,
            state=move.state,
            previous=move.previous,
            transition=move.transition,
            node=move.node,
            cause=move.cause,
            exit_code=move.exit_code,
            reason=move.reason,
        )
        for move in moves
    ]
    # The page of the first move is written in the same step, so its version is new; `number` counts the messages of the step. A
    # store that lost its last second gives a version twice: the same moves are told once, and others are not taken for them.
    page = moves[0].index // PAGE_REPLICAS
    return Publish(
        fact=ReplicasChanged(at_ms=txn.now_ms, job=job.id, changes=tuple(changes)),
        id=f"jobs:replicas:{page_id(job.id, page)}:{job.page_versions[page]}:{number}:{_digest(moves):08x}",
    )


def _withdrawals(txn: JobTransaction) -> Iterator[Publish]:
    by_reason: dict[Reason, list[tuple[str, int]]] = {}
    for index, attempt, reason in txn.withdrawn:
        by_reason.setdefault(reason, []).append((txn.job.name(index), attempt))
    for reason, attempts in by_reason.items():
        for begin in range(0, len(attempts), _ATTEMPTS_A_MESSAGE):
            batch = tuple(attempts[begin : begin + _ATTEMPTS_A_MESSAGE])
            first, last = (attempt_key(*attempt) for attempt in (batch[0], batch[-1]))
            yield Publish(
                fact=ReplicasWithdrawn(at_ms=txn.now_ms, attempts=batch, reason=reason),
                id=f"jobs:withdrawn:{first}:{last}:{len(batch)}:{reason.value}",
            )


def _stops(txn: JobTransaction) -> Iterator[Publish]:
    by_node: dict[str, list[Stop]] = {}
    for stop in txn.stops:
        by_node.setdefault(stop.node, []).append(stop)
    for node, stops in by_node.items():
        for begin in range(0, len(stops), _STOPS_A_MESSAGE):
            yield _stop_order(txn, node, stops[begin : begin + _STOPS_A_MESSAGE])


def _stop_order(txn: JobTransaction, node: str, stops: list[Stop]) -> Publish:
    job = txn.job
    orders = tuple(
        ReplicaStop(
            replica=job.name(stop.index),
            attempt=stop.attempt,
            grace_ms=job.task_spec(stop.index).run.grace_ms,
            reason=stop.reason,
        )
        for stop in stops
    )
    first, last = (attempt_key(order.replica, order.attempt) for order in (orders[0], orders[-1]))
    return Publish(
        fact=StopReplicas(at_ms=txn.now_ms, node=node, stops=orders),
        id=f"jobs:stop:{node}:{first}:{last}:{len(orders)}:{stops[0].trigger}",
    )


def _digest(moves: Sequence[Move]) -> int:
    moved = [f"{m.index}#{m.attempt}:{m.transition}:{m.node}:{m.cause}:{m.exit_code}" for m in moves]
    return zlib.crc32(" ".join(moved).encode())
