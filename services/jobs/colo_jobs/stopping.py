"""Stops the replicas of a task: waiting ones at once, others by orders to their nodes."""

from typing import Final

from colo_common.model.lifecycle import REPLICA
from colo_common.model.reasons import Reason
from colo_jobs.transaction import JobTransaction

__all__ = ["stop_replicas"]

_MAY_BE_PLACED: Final = frozenset({"Pending", "Assigned"})
_MAY_RUN: Final = frozenset({"Assigned", "Starting", "Running", "Unknown"})


def stop_replicas(txn: JobTransaction, task: int, reason: Reason) -> None:
    """Stop the live replicas of a task, in order. A replica on a lost node keeps its timer and counts as exited when it is due."""
    job = txn.job
    for index in job.members(task):
        replica = job.replica(index)
        previous = replica.state
        if previous == "Stopping" or previous in REPLICA.terminal:
            continue
        if not txn.fire_replica(index, "stop", reason=reason):
            continue
        replica.reason = reason.value
        if previous == "Backoff":
            replica.due_ms = 0
        if previous in _MAY_BE_PLACED:
            txn.withdraw(index, replica.attempt, reason)
        if previous in _MAY_RUN:
            txn.stop(index, replica.node, replica.attempt, reason)
