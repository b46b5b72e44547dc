"""When a task is done, and what that does to its job. Settling goes upwards: replicas have moved, then tasks, then the job."""

from typing import Final

from colo_common.model.reasons import Reason
from colo_jobs.job import Job
from colo_jobs.policies import TaskEvent, action_for
from colo_jobs.stopping import stop_replicas
from colo_jobs.transaction import JobTransaction

__all__ = ["cancel", "result_of", "settle"]

_WAITING_FOR_END: Final = frozenset({"Completing", "Failing", "Terminating"})
_TASK_ENDS: Final = frozenset({"Succeeded", "Failed", "Stopped"})


def result_of(
    replicas: int, succeeded: int, failed: int, live: int, min_succeeded: int | None, max_failed: int | None
) -> str:
    """The result of a task, "succeeded" or "failed", or "" while it is open. The first rule that holds decides.

    `live` replicas may still run. Enough succeeded; too many failed for good (unset: one is too many); none is left, which is a
    success exactly when all succeeded.
    """
    if min_succeeded is not None and succeeded >= min_succeeded:
        return "succeeded"
    if failed >= (1 if max_failed is None else max_failed):
        return "failed"
    if live == 0:
        return "succeeded" if succeeded == replicas else "failed"
    return ""


def _live(job: Job, task: int) -> int:
    """How many replicas of a task may still run."""
    counts = job.counts[task]
    return job.spec.tasks[task].replicas - counts["Succeeded"] - counts["Failed"] - counts["Stopped"]


def settle(turn: JobTransaction) -> None:
    """Draw the conclusions from the replicas that moved: first for their tasks, in order, then for the job."""
    job = turn.job
    tasks = job.record.tasks
    if len(tasks) > 1:
        for task in sorted({job.task_of(index) for index in turn.before}):
            _settle_task(turn, task)
    else:
        if turn.before:
            _settle_task(turn, 0)
        # Most events of a job are in the midst of its run.
        if job.record.state == "Running" and tasks[0].state not in _TASK_ENDS:
            return
    _settle_job(turn)


def cancel(turn: JobTransaction) -> None:
    """The user ends the job: what waits is stopped now, what runs is being stopped."""
    if turn.fire_job("terminate_job"):
        _stop_tasks(turn, Reason.CANCELLED)
        _settle_job(turn)


def _settle_task(turn: JobTransaction, task: int) -> None:
    job = turn.job
    record = job.record.tasks[task]
    counts = job.counts[task]
    if record.state == "Waiting" and counts["Running"]:
        turn.fire_task(task, "replica_running")
    if record.state in ("Waiting", "Running"):
        succeeded, failed, stopped = counts["Succeeded"], counts["Failed"], counts["Stopped"]
        result = ""
        # No rule holds before a replica has ended.
        if succeeded or failed or stopped:
            spec = job.spec.tasks[task]
            live = spec.replicas - succeeded - failed - stopped
            result = result_of(spec.replicas, succeeded, failed, live, spec.min_succeeded, spec.max_failed)
        if result and turn.fire_task(task, "rule_met"):
            record.result = result
            stop_replicas(turn, task, Reason.TASK_DONE)
        elif record.state == "Running" and not counts["Running"]:
            turn.fire_task(task, "none_running")
    if record.state == "Cleaning":
        _finish_task(turn, task)


def _finish_task(turn: JobTransaction, task: int) -> None:
    job = turn.job
    record = job.record.tasks[task]
    if record.state != "Cleaning" or _live(job, task):
        return
    guards = {"succeeded": record.result == "succeeded", "failed": record.result == "failed"}
    if not turn.fire_task(task, "all_final", guards):
        return
    events: dict[str, tuple[TaskEvent, ...]] = {
        "Succeeded": ("TaskSucceeded", "TaskCompleted"),
        "Failed": ("TaskFailed", "TaskCompleted"),
    }
    said = events.get(record.state, ())
    if record.state == "Succeeded" and task in job.main_tasks:
        said = (*said, "MainTaskEvent")
    for event in said:
        name = job.spec.tasks[task].name
        turn.say(event, name)
        # A job that does not run yet, or is ending already, hears no policy.
        if job.record.state == "Running":
            _obey(turn, event, name)


def _obey(turn: JobTransaction, event: TaskEvent, task: str) -> None:
    action = action_for(turn.job.policies, event, task)
    if action is None:
        return
    turn.act(action)
    if action != "no_action" and turn.fire_job(action):
        _stop_tasks(turn, Reason.CANCELLED if action == "terminate_job" else Reason.TASK_DONE)


def _settle_job(turn: JobTransaction) -> None:
    job = turn.job
    record = job.record
    if record.state == "Inqueue" and sum([counts["Pending"] + counts["Stopped"] for counts in job.counts]) < job.size:
        turn.fire_job("gang_bound")
    for task in record.tasks:
        if task.state not in _TASK_ENDS:
            return
    if job.record.state == "Running":
        turn.fire_job("tasks_done", {"ok": all(task.state == "Succeeded" for task in job.record.tasks)})
    elif job.record.state in _WAITING_FOR_END:
        turn.fire_job("all_gone")


def _stop_tasks(turn: JobTransaction, reason: Reason) -> None:
    for task, record in enumerate(turn.job.record.tasks):
        if record.state in ("Waiting", "Running") and turn.fire_task(task, "stop"):
            record.result = "stopped"
            stop_replicas(turn, task, reason)
            _finish_task(turn, task)
