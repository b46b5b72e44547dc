"""Moves a job whose row the store has lost, or has an older one of, to the end that was published of it."""

from collections.abc import Mapping
from typing import Final

from colo_common.events.job import ReplicaChange
from colo_common.model.lifecycle import REPLICA
from colo_common.model.reasons import Reason
from colo_jobs.completion import TASK_ENDS, result_of
from colo_jobs.transaction import JobTransaction

__all__ = ["end_as_published"]

_STOPPED: Final = "Stopped"


def end_as_published(txn: JobTransaction, state: str, at_ms: int, moved: Mapping[str, ReplicaChange]) -> None:
    """End the job in this state. `moved`: the newest published move of its replicas, by name.

    A replica that neither its row nor a move knows to have ended was stopped at the latest with its job.
    """
    job = txn.job
    for index, record in job.replicas():
        if record.state in REPLICA.terminal:
            continue
        change = moved.get(job.name(index))
        txn.touch(index)
        record.due_ms, record.missing = 0, False
        if change is None or change.attempt < record.attempt or change.state not in REPLICA.terminal:
            job.move(index, _STOPPED)
        else:
            job.move(index, change.state)
            record.attempt, record.node, record.exit_code = change.attempt, change.node or record.node, change.exit_code
        if record.state == _STOPPED:
            why = Reason.CANCELLED if state == "Terminated" else Reason.TASK_DONE
            record.reason = why.value
        else:
            failed = change.reason or change.cause if change is not None and record.state == "Failed" else None
            record.reason = failed.value if failed is not None else ""
    for task, one in enumerate(job.record.tasks):
        if one.state in TASK_ENDS:
            continue
        counts, spec = job.counts[task], job.spec.tasks[task]
        result = result_of(
            spec.replicas, counts["Succeeded"], counts["Failed"], counts["Stopped"], spec.min_succeeded, spec.max_failed
        )
        one.result = result or "stopped"
        one.state = one.result.capitalize()
    job.record.state, job.record.ended_at_ms = state, at_ms
    txn.is_job_dirty = True
    txn.add_story_line(f"job {state}: the store had lost it, and the stream of facts knew it")
