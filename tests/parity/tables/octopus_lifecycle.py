"""Whole lives of jobs: facts about replicas in, states of job, tasks and replicas and what was published in between out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from colo_common.events.enforcement import ReplicaEnded, ReplicaStarted
from colo_common.model.invalid import InvalidInput
from colo_common.model.lifecycle import REPLICA
from colo_common.model.reasons import EndCause
from colo_common.model.workload import JobSpec, ResourceRequest, RunSpec, TaskSpec
from colo_jobs import replicas
from colo_jobs.completion import cancel, settle
from colo_jobs.job import Job
from colo_jobs.policies import LifecyclePolicy
from colo_jobs.requeue import RetryPolicy
from colo_jobs.transaction import Counters, JobTransaction, Move
from tests.parity.peers.task_policies import with_default
from tests.parity.table import JsonObject, Result, Table, UnknownSentence, difference, raised

_NODE = "n1"
_EXIT_BY_STOP = 143


class _Life:
    """One job that lives through the events of a case."""

    def __init__(self, case: JsonObject) -> None:
        tasks = tuple(_task(task) for task in case["tasks"])
        policies = [
            LifecyclePolicy(event=policy["event"], action=policy["action"], task=policy.get("task", ""))
            for policy in case.get("policies", ())
        ]
        fresh = Job.new("job", JobSpec(name="job", tasks=tasks), 0)
        main = frozenset(index for index, task in enumerate(case["tasks"]) if task.get("main"))
        self.job = Job(fresh.spec, fresh.record, fresh.pages, policies=with_default(policies), main_tasks=main)
        self.events: list[list[str]] = []
        self.hooks: list[list[object]] = []
        self._now_ms = 0
        txn = self._transaction()
        txn.fire_job("admit")
        self._take(txn)

    def do(self, event: JsonObject) -> None:
        txn = self._transaction()
        if event["do"] == "terminate":
            cancel(txn)
        else:
            self._do_to_replica(txn, self._index(event["replica"]), event)
        settle(txn)
        self._take(txn)

    def _do_to_replica(self, txn: JobTransaction, index: int, event: JsonObject) -> None:
        replica = self.job.replica(index)
        match event["do"]:
            case "run":
                replicas.on_placed(txn, index, replica.attempt, _NODE, ())
                replicas.on_started(txn, index, _started(self.job.name(index), replica.attempt))
            case "exit":
                replicas.on_ended(txn, index, self._ended(index, EndCause.EXITED, event["code"]))
            case "gone" if replica.state == "Stopping" or replica.state in REPLICA.terminal:
                replicas.on_ended(txn, index, self._ended(index, EndCause.STOPPED, _EXIT_BY_STOP))
            case "gone":
                txn.fire_replica(index, "gone")
            case "retry_due":
                replicas.on_due(txn, index)
            case "node_lost":
                replicas.on_node_lost(txn, index)
            case "node_back":
                replicas.on_node_back(txn, index)
            case unknown:
                raise UnknownSentence(str(unknown))

    def result(self) -> dict[str, object]:
        names = [task.name for task in self.job.spec.tasks]
        return {
            "job": self.job.record.state,
            "tasks": {name: task.state for name, task in zip(names, self.job.record.tasks, strict=True)},
            "replicas": {self._name(index): replica.state for index, replica in self.job.replicas()},
            "events": self.events,
            "hooks": self.hooks,
        }

    def _transaction(self) -> JobTransaction:
        self._now_ms += 1
        return JobTransaction(self.job, self._now_ms, Counters(), RetryPolicy())

    def _take(self, txn: JobTransaction) -> None:
        self.events += [list(words) for words in txn.task_events]
        for move in txn.moves:
            if move.state != move.previous:
                self.hooks.append([len(self.hooks) + 1, move.machine, self._moved(move), move.previous, move.state])

    def _moved(self, move: Move) -> str:
        if move.machine == "job":
            return "job"
        return self.job.spec.tasks[move.index].name if move.machine == "task" else self._name(move.index)

    def _name(self, index: int) -> str:
        _, task, member = self.job.name(index).split("/")
        return f"{task}-{member}"

    def _index(self, name: str) -> int:
        task, _, member = name.rpartition("-")
        for prefix, members in self.job.tasks():
            if prefix == f"{self.job.id}/{task}/" and int(member) < len(members):
                return members[int(member)]
        raise InvalidInput("replica", "must be one of the case's", name)

    def _ended(self, index: int, cause: EndCause, code: int) -> ReplicaEnded:
        attempt = self.job.replica(index).attempt
        return ReplicaEnded(
            node=_NODE, replica=self.job.name(index), job="job", attempt=attempt, cause=cause, exit_code=code
        )


def _started(replica: str, attempt: int) -> ReplicaStarted:
    return ReplicaStarted(node=_NODE, replica=replica, job="job", attempt=attempt)


def _task(task: JsonObject) -> TaskSpec:
    # Here a task without `max_failed` waits for its last replica; a specification without it does not.
    return TaskSpec(
        name=task["name"],
        replicas=task["replicas"],
        request=ResourceRequest(cpu_mcpu=1, memory_bytes=1),
        run=RunSpec(),
        max_retry=task.get("max_retry", 0),
        min_succeeded=task.get("min_succeeded"),
        max_failed=task.get("max_failed") or task["replicas"],
    )


def _is_case(case: Any) -> bool:
    given = case.get("input") if isinstance(case, Mapping) else None
    return isinstance(given, Mapping) and "tasks" in given and "events" in given


def _overlap(document: JsonObject) -> int:
    cases = document.get("cases")
    return int(isinstance(cases, list) and any(_is_case(case) for case in cases))


def _run(document: JsonObject) -> Iterator[Result]:
    for case in document.get("cases", ()):
        name = str(case.get("name")) if isinstance(case, Mapping) else f"not a case: {case!r}"
        if not _is_case(case) or not isinstance(case.get("expected"), Mapping):
            yield Result(name, "the case needs tasks, events and an expected result")
            continue
        try:
            life = _Life(case["input"])
            for event in case["input"]["events"]:
                life.do(event)
        except UnknownSentence as unknown:
            yield Result(name, f"unknown event {unknown}")
        except Exception as error:  # a case that our code cannot live through is a failed case; the next one still runs
            yield Result(name, raised(error))
        else:
            found = life.result()
            yield Result(name, difference(case["expected"], {key: found.get(key) for key in case["expected"]}))


TABLE = Table("octopus_lifecycle", _overlap, _run)
