"""All jobs in memory with indexes over their replicas: waiting replicas, replicas by node, replicas by id, timers."""

from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Final

from colo_common.model.audit import Audit
from colo_common.model.invalid import InvalidInput, InvariantBroken
from colo_common.model.lifecycle import REPLICA
from colo_jobs.admission import Queue, QueueLimits
from colo_jobs.job import HOLDING, WAITING, Job
from colo_jobs.timers import JobTimers
from colo_jobs.transaction import JobTransaction

__all__ = ["Index", "Key"]

# About 4 ms.
_CHECKED_AT_ONCE: Final = 5_000
_PIECE: Final = 1_000
_OVER: Final = REPLICA.terminal
_REPLICA_RULE: Final = 'must be "job/task/index"'
_NOWHERE: Final = (None, 0, 0)
_JOB: Final = 8
_WAITING_OF: Final = itemgetter(*sorted(WAITING))
_HOLDING_OF: Final = itemgetter(*sorted(HOLDING))

#: A job's id and a replica's number in it.
Key = tuple[str, int]


class Index:
    """All jobs and the indexes over them. `attach`, `detach` and `update` keep both consistent; `check` compares them."""

    def __init__(self, limits: Mapping[str, QueueLimits]) -> None:
        self.jobs: dict[str, Job] = {}
        #: Stored jobs whose rows cannot be read, and why: damaged, or written by a newer version.
        self.unreadable: dict[str, str] = {}
        self.queues = {name: Queue(name=name, limits=limit) for name, limit in sorted(limits.items())}
        self.waiting: dict[Key, None] = {}
        self.on_node: dict[str, dict[Key, None]] = {}
        # By "job/task/": the job, the number of the task's first replica, and how many it has.
        self._tasks: dict[str, tuple[Job, int, int]] = {}
        self.timers = JobTimers(self._due_of)
        self._replicas = 0
        self._audit = Audit(self._pieces, _CHECKED_AT_ONCE)

    def attach(self, job: Job) -> None:
        """Add a job that is not in the index."""
        self.jobs[job.id] = job
        self._replicas += job.size
        for prefix, members in job.tasks():
            self._tasks[prefix] = (job, members.start, len(members))
        queue = self.queue(job)
        queue.jobs += not job.is_ended
        if job.version == 0:
            # A new job: all its replicas wait, and no timer runs.
            queue.waiting += job.size
            id_ = job.id
            for index in range(job.size):
                self.waiting[id_, index] = None
            return
        for index, replica in job.replicas():
            self._enter(job.id, index, replica.state, replica.node, queue)
            if replica.due_ms:
                self.timers.change(job.id, index, 0, replica.due_ms)

    def detach(self, job: Job) -> None:
        """Remove a job and its replicas from all indexes."""
        queue = self.queue(job)
        queue.jobs -= not job.is_ended
        for index, replica in job.replicas():
            self._leave(job.id, index, replica.state, replica.node, queue)
            self.timers.change(job.id, index, replica.due_ms, 0)
        for prefix, _ in job.tasks():
            del self._tasks[prefix]
        del self.jobs[job.id]
        self._replicas -= job.size

    def update(self, txn: JobTransaction) -> None:
        """Apply the changes of a transaction's present event to the indexes."""
        job = txn.job
        queue = self.queues.get(job.spec.queue) or self.queue(job)
        if txn.has_ended:
            queue.jobs -= 1
        records = job.records
        for index, (state, node, due_ms) in txn.before.items():
            replica = records[index]
            now, place = replica.state, replica.node
            # A replica that keeps its place stays where it is in the indexes.
            if node != place or (state != now and (state not in HOLDING or now not in HOLDING)):
                self._leave(job.id, index, state, node, queue)
                if now not in _OVER:
                    self._enter(job.id, index, now, place, queue)
            if due_ms != replica.due_ms:
                self.timers.change(job.id, index, due_ms, replica.due_ms)

    def queue(self, job: Job) -> Queue:
        """The job's queue. A queue that is no longer in the settings gets the default limits."""
        name = job.spec.queue
        if name not in self.queues:
            self.queues[name] = Queue(name=name, limits=QueueLimits())
        return self.queues[name]

    def find(self, replica: str) -> tuple[Job, int] | None:
        """The job and the number of a replica, or None for an unknown one. Raises InvalidInput unless it is "job/task/index"."""
        begins = replica.rfind("/") + 1
        known = self._tasks.get(replica[:begins])
        if known is not None:
            job, first, size = known
            try:
                member = int(replica[begins:])
            except ValueError as error:
                raise InvalidInput("replica", _REPLICA_RULE, replica) from error
            return (job, first + member) if 0 <= member < size else None
        try:
            _, _, last = replica.split("/")
            int(last)
        except ValueError as error:
            raise InvalidInput("replica", _REPLICA_RULE, replica) from error
        return None

    def is_unreadable(self, replica: str) -> bool:
        """Whether the replica is of a job that is stored and cannot be read: nobody here knows what should become of it."""
        return bool(self.unreadable) and replica.split("/", 1)[0] in self.unreadable

    def pending(self) -> Iterator[tuple[Job, int]]:
        """Every replica that needs a place now, in the order in which they began to wait."""
        return ((self.jobs[job], index) for job, index in self.waiting)

    def held_on(self, node: str) -> list[Key]:
        """The replicas that hold a place on a node, in order of job and number."""
        return sorted(self.on_node.get(node, ()))

    def sort_waiting(self) -> None:
        """Sort the waiting replicas by the time at which they began to wait. Needed after jobs were read from rows."""
        self.waiting = dict.fromkeys(
            sorted(self.waiting, key=lambda key: (self.jobs[key[0]].waits_since_ms(key[1]), *key))
        )

    def check(self) -> None:
        """Raise InvariantBroken when an index disagrees with the jobs.

        With more than 5,000 replicas (a job counts as eight) one call checks a part of the jobs, all in turn, because it delays the
        next event.
        """
        size = self._replicas + _JOB * len(self.jobs)
        if size <= _CHECKED_AT_ONCE:
            self._check_indexes()
        else:
            self._audit.check(size)

    def _pieces(self) -> Iterator[int]:
        """The checks of `_check_indexes`, some jobs at a time."""
        self._check_sums()
        yield _PIECE + len(self.jobs) // 2
        for id_ in list(self.jobs):
            job = self.jobs.get(id_)
            if job is None:
                continue
            job.check()
            yield _JOB + job.size // 2
            for start in range(0, job.size, _PIECE):
                # The job may have been deleted or reloaded since the last piece.
                if self.jobs.get(id_) is not job:
                    break
                for index in range(start, min(start + _PIECE, job.size)):
                    self._check_replica(job, index)
                yield min(_PIECE, job.size - start)

    def _check_replica(self, job: Job, index: int) -> None:
        replica, key = job.replica(index), (job.id, index)
        if (replica.state == "Pending") != (key in self.waiting):
            raise InvariantBroken("the waiting replicas are not those that are Pending", replica=job.name(index))
        if (replica.state in HOLDING) != (key in self.on_node.get(replica.node, ())):
            raise InvariantBroken("the replicas of the nodes are not those that hold a place", replica=job.name(index))

    def _check_sums(self) -> None:
        """Check the sizes of the indexes. With `_check_replica` for all replicas, no index has an entry too many."""
        waiting = 0
        counts: dict[str, list[int]] = {name: [0, 0, 0] for name in self.queues}
        for job in self.jobs.values():
            # An ended job has no live replicas; Job.check checks that.
            if not job.is_ended:
                count = counts[job.spec.queue]
                count[2] += 1
                for states in job.counts:
                    waiting += states["Pending"]
                    count[0] += sum(_WAITING_OF(states))
                    count[1] += sum(_HOLDING_OF(states))
        for name, queue in self.queues.items():
            if [queue.waiting, queue.running, queue.jobs] != counts[name]:
                raise InvariantBroken("a queue's counts are not those of its jobs", queue=name, expected=counts[name])
        if waiting != len(self.waiting):
            raise InvariantBroken("the waiting replicas are not those that are Pending", waiting=len(self.waiting))
        held = sum(map(len, self.on_node.values()))
        if held != sum(count[1] for count in counts.values()):
            raise InvariantBroken("the replicas of the nodes are not those that hold a place", held=held)
        self._check_tasks()

    def _check_tasks(self) -> None:
        """Check that the index by "job/task/" has the tasks of exactly these jobs."""
        tasks = {prefix: job for job in self.jobs.values() for prefix, _ in job.tasks()}
        if len(tasks) != len(self._tasks) or any(
            self._tasks.get(prefix, _NOWHERE)[0] is not job for prefix, job in tasks.items()
        ):
            raise InvariantBroken("the tasks that replicas are found by are not those of the jobs")

    def _check_indexes(self) -> None:
        waiting: set[Key] = set()
        held: dict[str, set[Key]] = {}
        counts: dict[str, list[int]] = {name: [0, 0, 0] for name in self.queues}
        for job in self.jobs.values():
            job.check()
            count = counts[job.spec.queue]
            count[2] += not job.is_ended
            for index, replica in job.replicas():
                count[0] += replica.state in WAITING
                count[1] += replica.state in HOLDING
                if replica.state == "Pending":
                    waiting.add((job.id, index))
                if replica.state in HOLDING:
                    held.setdefault(replica.node, set()).add((job.id, index))
        self._check_tasks()
        if waiting != set(self.waiting):
            raise InvariantBroken("the waiting replicas are not those that are Pending")
        if held != {node: set(keys) for node, keys in self.on_node.items()}:
            raise InvariantBroken("the replicas of the nodes are not those that hold a place")
        for name, queue in self.queues.items():
            if [queue.waiting, queue.running, queue.jobs] != counts[name]:
                raise InvariantBroken("a queue's counts are not those of its jobs", queue=name, expected=counts[name])

    def _enter(self, job: str, index: int, state: str, node: str, queue: Queue) -> None:
        if state in WAITING:
            queue.waiting += 1
            if state == "Pending":
                self.waiting[job, index] = None
        elif state in HOLDING:
            queue.running += 1
            keys = self.on_node.get(node)
            if keys is None:
                self.on_node[node] = {(job, index): None}
            else:
                keys[job, index] = None

    def _leave(self, job: str, index: int, state: str, node: str, queue: Queue) -> None:
        if state in WAITING:
            queue.waiting -= 1
            if state == "Pending":
                del self.waiting[job, index]
        elif state in HOLDING:
            queue.running -= 1
            keys = self.on_node[node]
            del keys[job, index]
            if not keys:
                del self.on_node[node]

    def _due_of(self, job: str, index: int) -> int:
        known = self.jobs.get(job)
        return known.replica(index).due_ms if known is not None and index < known.size else 0
