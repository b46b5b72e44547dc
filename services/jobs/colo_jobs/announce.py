"""What a turn changed, as rows to write and messages to send."""

from collections.abc import Iterator

from colo_common.events.effects import Effect, Publish, Record, Write
from colo_common.events.job import JobStateChanged, ReplicaStateChanged, ReplicaStop, ReplicasWithdrawn, StopReplicas
from colo_common.model.placement import attempt_key
from colo_common.model.reasons import Reason
from colo_jobs.job import Job
from colo_jobs.records import JOB_KIND, PAGE_KIND, PAGE_REPLICAS, SPEC_KIND, encode, page_id
from colo_jobs.turn import Move, Stop, Turn

__all__ = ["deletion", "effects_of"]

# Bounds of one message.
_ATTEMPTS_A_MESSAGE = 500
_STOPS_A_MESSAGE = 200


def effects_of(turn: Turn) -> list[Effect]:
    """The rows that changed, in one Record, then what is said about it. Takes the rows' new versions into the job."""
    effects: list[Effect] = []
    if turn.is_changed:
        effects.append(_record(turn))
    for move in turn.moves:
        if move.machine == "job":
            effects.append(_job_changed(turn, move))
        elif move.machine == "replica":
            effects.append(_replica_changed(turn, move))
    effects.extend(_withdrawals(turn))
    effects.extend(_stops(turn))
    return effects


def deletion(job: Job) -> Record:
    """All rows of a job, to be removed."""
    writes = [Write(kind=JOB_KIND, id=job.id, value=None, expect=job.version)]
    writes.append(Write(kind=SPEC_KIND, id=job.id, value=None, expect=1))
    for page, version in enumerate(job.page_versions):
        writes.append(Write(kind=PAGE_KIND, id=page_id(job.id, page), value=None, expect=version))
    return Record(writes=tuple(writes))


def _record(turn: Turn) -> Record:
    job = turn.job
    writes = []
    is_new = job.version == 0
    if is_new:
        writes.append(Write(kind=SPEC_KIND, id=job.id, value=encode(job.spec), expect=0))
    if is_new or turn.is_job_dirty:
        writes.append(Write(kind=JOB_KIND, id=job.id, value=encode(job.record), expect=job.version))
        job.version += 1
    for page in range(len(job.pages)) if is_new else sorted(turn.dirty_pages):
        expect = job.page_versions[page]
        writes.append(Write(kind=PAGE_KIND, id=page_id(job.id, page), value=encode(job.pages[page]), expect=expect))
        job.page_versions[page] = expect + 1
    return Record(writes=tuple(writes))


def _job_changed(turn: Turn, move: Move) -> Publish:
    job = turn.job
    fact = JobStateChanged(
        at_ms=turn.now_ms,
        job=job.id,
        queue=job.spec.queue,
        state=move.state,
        previous=move.previous,
        transition=move.transition,
        version=job.version,
    )
    return Publish(fact=fact, id=f"jobs:job:{job.id}:{move.transition}:{job.version}")


def _replica_changed(turn: Turn, move: Move) -> Publish:
    job = turn.job
    replica = job.name(move.index)
    fact = ReplicaStateChanged(
        at_ms=turn.now_ms,
        replica=replica,
        job=job.id,
        attempt=move.attempt,
        state=move.state,
        previous=move.previous,
        transition=move.transition,
        node=move.node,
        cause=move.cause,
        exit_code=move.exit_code,
        reason=move.reason,
    )
    # A replica may go to and fro between two states, so the row's version is part of the id.
    version = job.page_versions[move.index // PAGE_REPLICAS]
    key = attempt_key(replica, move.attempt)
    return Publish(fact=fact, id=f"jobs:replica:{key}:{move.transition}:{move.previous}:{version}")


def _withdrawals(turn: Turn) -> Iterator[Publish]:
    by_reason: dict[Reason, list[tuple[str, int]]] = {}
    for index, attempt, reason in turn.withdrawn:
        by_reason.setdefault(reason, []).append((turn.job.name(index), attempt))
    for reason, attempts in by_reason.items():
        for begin in range(0, len(attempts), _ATTEMPTS_A_MESSAGE):
            batch = tuple(attempts[begin : begin + _ATTEMPTS_A_MESSAGE])
            first, last = (attempt_key(*attempt) for attempt in (batch[0], batch[-1]))
            yield Publish(
                fact=ReplicasWithdrawn(at_ms=turn.now_ms, attempts=batch, reason=reason),
                id=f"jobs:withdrawn:{first}:{last}:{len(batch)}:{reason.value}",
            )


def _stops(turn: Turn) -> Iterator[Publish]:
    by_node: dict[str, list[Stop]] = {}
    for stop in turn.stops:
        by_node.setdefault(stop.node, []).append(stop)
    for node, stops in by_node.items():
        for begin in range(0, len(stops), _STOPS_A_MESSAGE):
            yield _stop_order(turn, node, stops[begin : begin + _STOPS_A_MESSAGE])


def _stop_order(turn: Turn, node: str, stops: list[Stop]) -> Publish:
    job = turn.job
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
        # The service's clock never goes back, so a later order has no lower generation, also after a restart.
        fact=StopReplicas(at_ms=turn.now_ms, node=node, generation=turn.now_ms, stops=orders),
        id=f"jobs:stop:{node}:{first}:{last}:{len(orders)}:{stops[0].trigger}",
    )
