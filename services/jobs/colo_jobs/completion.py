"""Completes tasks and jobs. Settling goes upwards: after replicas have moved, it moves their tasks, then the job."""

from typing import Final

from colo_common.model.reasons import Reason
from colo_jobs.job import Job
from colo_jobs.policies import TaskEvent, action_for
from colo_jobs.stopping import stop_replicas
from colo_jobs.transaction import JobTransaction

__all__ = ["TASK_ENDS", "cancel", "result_of", "settle"]

_WAITING_FOR_END: Final = frozenset({"Completing", "Failing", "Terminating"})
TASK_ENDS: Final = frozenset({"Succeeded", "Failed", "Stopped"})


def result_of(
    replicas: int, succeeded: int, failed: int, live: int, min_succeeded: int | None, max_failed: int | None
) -> str:
    """The result of a task, "succeeded" or "failed", or "" while it is open. The first rule that holds decides.

    The rules: `min_succeeded` replicas succeeded (unset: no rule); `max_failed` failed for good (unset: 1); no replica is `live`
    (may still run), which is a success exactly when all succeeded.
    """
    if min_succeeded is not None and succeeded >= min_succeeded:
        return "succeeded"
    if failed >= (1 if max_failed is None else max_failed):
        return "failed"
    if live == 0:
        return "succeeded" if succeeded == replicas else "failed"
    return ""


def _live(job: Job, task: int) -> int:
    """The number of replicas of a task that may still run."""
    counts = job.counts[task]
    return job.spec.tasks[task].replicas - counts["Succeeded"] - counts["Failed"] - counts["Stopped"]


def settle(txn: JobTransaction) -> None:
    """Move the tasks of the replicas that moved, in order, and then the job."""
    job = txn.job
    tasks = job.record.tasks
    if len(tasks) > 1:
        for task in sorted({job.task_of(index) for index in txn.before}):
            _settle_task(txn, task)
    else:
        if txn.before:
            _settle_task(txn, 0)
        # The shortcut for most events: the job and its only task are running and stay so.
        if job.record.state == "Running" and tasks[0].state not in TASK_ENDS:
            return
    _settle_job(txn)


def cancel(txn: JobTransaction) -> None:
    """Terminate the job for the user: its waiting replicas are stopped at once, its running ones get stop orders."""
    if txn.fire_job("terminate_job"):
        _stop_tasks(txn, Reason.CANCELLED)
        _settle_job(txn)


def _settle_task(txn: JobTransaction, task: int) -> None:
    job = txn.job
    record = job.record.tasks[task]
    counts = job.counts[task]
    if record.state == "Waiting" and counts["Running"]:
        txn.fire_task(task, "replica_running")
    if record.state in ("Waiting", "Running"):
        succeeded, failed, stopped = counts["Succeeded"], counts["Failed"], counts["Stopped"]
        result = ""
        # No rule holds before a replica has ended.
        if succeeded or failed or stopped:
            spec = job.spec.tasks[task]
            live = spec.replicas - succeeded - failed - stopped
            result = result_of(spec.replicas, succeeded, failed, live, spec.min_succeeded, spec.max_failed)
        if result and txn.fire_task(task, "rule_met"):
            record.result = result
            stop_replicas(txn, task, Reason.TASK_DONE)
        elif record.state == "Running" and not counts["Running"]:
            txn.fire_task(task, "none_running")
    if record.state == "Cleaning":
        _finish_task(txn, task)


def _finish_task(txn: JobTransaction, task: int) -> None:
    job = txn.job
    record = job.record.tasks[task]
    if record.state != "Cleaning" or _live(job, task):
        return
    guards = {"succeeded": record.result == "succeeded", "failed": record.result == "failed"}
    if not txn.fire_task(task, "all_final", guards):
        return
    events: dict[str, tuple[TaskEvent, ...]] = {
        "Succeeded": ("TaskSucceeded", "TaskCompleted"),
        "Failed": ("TaskFailed", "TaskCompleted"),
    }
    raised = events.get(record.state, ())
    if record.state == "Succeeded" and task in job.main_tasks:
        raised = (*raised, "MainTaskEvent")
    for event in raised:
        name = job.spec.tasks[task].name
        txn.note_task_event(event, name)
        # Policies apply to a running job only, not to one that waits or is ending.
        if job.record.state == "Running":
            _apply_policy(txn, event, name)


def _apply_policy(txn: JobTransaction, event: TaskEvent, task: str) -> None:
    action = action_for(txn.job.policies, event, task)
    if action is None:
        return
    txn.note_action(action)
    if action != "no_action" and txn.fire_job(action):
        _stop_tasks(txn, Reason.CANCELLED if action == "terminate_job" else Reason.TASK_DONE)


def _settle_job(txn: JobTransaction) -> None:
    job = txn.job
    record = job.record
    if record.state == "Inqueue" and sum([counts["Pending"] + counts["Stopped"] for counts in job.counts]) < job.size:
        txn.fire_job("gang_bound")
    for task in record.tasks:
        if task.state not in TASK_ENDS:
            return
    if job.record.state == "Running":
        txn.fire_job("tasks_done", {"ok": all(task.state == "Succeeded" for task in job.record.tasks)})
    elif job.record.state in _WAITING_FOR_END:
        txn.fire_job("all_gone")


def _stop_tasks(txn: JobTransaction, reason: Reason) -> None:
    for task, record in enumerate(txn.job.record.tasks):
        if record.state in ("Waiting", "Running") and txn.fire_task(task, "stop"):
            record.result = "stopped"
            stop_replicas(txn, task, reason)
            _finish_task(txn, task)
