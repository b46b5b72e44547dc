"""Whatever order facts come in, however often: the jobs core keeps its promises, and every job can still end."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from colo_common.events.fact import Fact
from colo_common.events.job import (
    JobStateChanged,
    PlacementsRequested,
    ReplicasChanged,
    ReplicasWithdrawn,
    StopReplicas,
)
from colo_common.model.freshness import Freshness
from colo_common.model.lifecycle import JOB, REPLICA
from colo_common.model.reasons import EndCause, Reason
from colo_jobs.completion import result_of
from colo_jobs.job import HOLDING
from colo_jobs.requeue import RetryPolicy, avoiding, failure_wait_ms, free_wait_ms
from colo_jobs.timers import JobTimers
from tests.support.jobs_world import JobsWorld, a_spec, a_task

NODES = ("n1", "n2", "n3")
JOBS = ("a", "b")

_ACTIONS = st.sampled_from(
    ["submit", "cancel", "place", "place", "start", "start", "end", "end", "refuse", "lost", "back", "recover",
     "deliver", "deliver", "deliver", "deliver", "again", "time", "restart"]
)  # fmt: skip
_STEP = st.tuples(_ACTIONS, st.integers(0, 10_000), st.integers(0, 10_000))


class Fleet:
    """A scheduler and nodes that do what they are told, over streams that lose the order and repeat themselves."""

    def __init__(self) -> None:
        self.world = JobsWorld()
        self.on_the_way: list[Struct] = []
        self.delivered: list[Struct] = []
        self.wanted: dict[tuple[str, int], int] = {}
        self.places: dict[tuple[str, int], str] = {}
        self.begun: set[tuple[str, int]] = set()
        self.over: set[tuple[str, int]] = set()
        self.states: dict[str, str] = {}
        self.attempts: dict[str, int] = {}
        self.restarts = 0
        self._received = 0

    def step(self, action: str, one: int, two: int) -> None:
        match action:
            case "submit":
                spec = a_spec(a_task("main", 1 + one % 4, max_retry=two % 3), a_task("side", 1, max_failed=1))
                self.world.submit(spec, JOBS[one % len(JOBS)])
            case "cancel":
                self.world.cancel(JOBS[one % len(JOBS)])
            case "place":
                self._place(one, two)
            case "start" | "end" | "refuse":
                self._report(action, one, two)
            case "lost" | "back":
                state = Freshness.LOST if action == "lost" else Freshness.WARMING
                self.on_the_way.append(self.world.freshness(NODES[one % 3], state))
            case "recover":
                node = NODES[one % 3]
                running = [key for key in self.begun - self.over if self.places[key] == node]
                self.on_the_way.append(self.world.recovered(node, *sorted(running)))
            case "deliver" if self.on_the_way:
                self._deliver(self.on_the_way.pop(one % len(self.on_the_way)))
            case "again" if self.delivered:
                self._deliver(self.delivered[one % len(self.delivered)])
            case "time":
                self.world.at(self.world.now_ms + (1, 1_000, 61_000, 600_000)[one % 4])
            case "restart":
                self.restarts += 1
                before = self.memory()
                self.world.restart()
                assert self.memory() == before
            case _:
                pass
        self.observe()

    def memory(self) -> dict[str, Any]:
        """All that is stored, as the core has it in memory."""
        jobs = self.world.core.index.jobs
        return {
            name: (job.version, job.page_versions, job.record.state, [record for _, record in job.replicas()])
            for name, job in sorted(jobs.items())
        }

    def observe(self) -> None:
        """Compare what was published since the last look with what was published before."""
        news = self.world.published[self._received :]
        self._received = len(self.world.published)
        for publish in news:
            self._observe_one(publish.fact, publish.id)

    def _observe_one(self, fact: Fact, id_: str) -> None:
        match fact:
            case PlacementsRequested(placement_requests=placement_requests):
                assert len(placement_requests) <= 100
                for placement_request in placement_requests:
                    key = (placement_request.replica, placement_request.attempt)
                    self.wanted[key] = self.wanted.get(key, 0) + 1
                    assert self.wanted[key] <= 1 + self.restarts
            case ReplicasChanged(changes=changes):
                assert 1 <= len(changes) <= 100
                for change in changes:
                    assert self.states.get(change.replica, "Pending") == change.previous
                    assert change.previous not in REPLICA.terminal
                    assert change.attempt >= self.attempts.get(change.replica, 1)
                    self.states[change.replica] = change.state
                    self.attempts[change.replica] = change.attempt
            case JobStateChanged():
                assert self.states.get(fact.job, "Pending") == fact.previous
                assert fact.previous not in JOB.terminal
                self.states[fact.job] = fact.state
            case StopReplicas(stops=stops):
                for stop in stops:
                    replica = self.world.replica(stop.replica)
                    assert stop.attempt < replica.attempt or replica.state not in ("Assigned", "Starting", "Running")
            case ReplicasWithdrawn(attempts=attempts):
                for name, attempt in attempts:
                    replica = self.world.replica(name)
                    assert attempt < replica.attempt or replica.state in REPLICA.terminal or replica.state == "Backoff"
            case _:
                assert id_

    def _place(self, one: int, two: int) -> None:
        free = sorted(key for key in self.wanted if key not in self.places)
        if free:
            replica, attempt = free[one % len(free)]
            node = NODES[two % 3]
            self.places[replica, attempt] = node
            self.on_the_way.append(self.world.placed(replica, node, attempt))

    def _report(self, action: str, one: int, two: int) -> None:
        # A node refuses only what it has not started.
        live = sorted(
            key for key in self.places if key not in self.over | (self.begun if action == "refuse" else set())
        )
        if not live:
            return
        replica, attempt = live[one % len(live)]
        node = self.places[replica, attempt]
        if action == "start":
            self.begun.add((replica, attempt))
            self.on_the_way.append(self.world.started(replica, node, attempt))
            return
        self.over.add((replica, attempt))
        if action == "refuse":
            reason = (Reason.CGROUP_REFUSED, Reason.START_FAILED, Reason.RUNTIME_ABSENT)[two % 3]
            self.on_the_way.append(self.world.refused(replica, node, attempt, reason))
            return
        cause = (EndCause.EXITED, EndCause.EXITED, EndCause.EVICTED, EndCause.STOPPED, EndCause.OOM, EndCause.LOST)[
            two % 6
        ]
        code = two // 6 % 2 if cause is EndCause.EXITED else 137
        self.on_the_way.append(self.world.ended(replica, node, attempt, cause, code))

    def _deliver(self, fact: Struct) -> None:
        self.world.feed(fact)
        self.delivered.append(fact)

    def finish(self) -> None:
        """Faults stop: everything arrives, what is wanted is placed and succeeds, what is stopped ends."""
        for node in NODES:
            self.world.now_ms += 1
            self.on_the_way.append(self.world.freshness(node, Freshness.WARMING))
        while self.on_the_way:
            self._deliver(self.on_the_way.pop(0))
        for _ in range(40):
            for job in list(self.world.core.index.jobs.values()):
                for index, replica in list(job.replicas()):
                    name = job.name(index)
                    if replica.state == "Pending":
                        self.world.run(name, "n1", replica.attempt)
                    if replica.state in HOLDING:
                        self.world.feed(self.world.started(name, replica.node, replica.attempt))
                        cause = EndCause.STOPPED if replica.state == "Stopping" else EndCause.EXITED
                        self.world.feed(self.world.ended(name, replica.node, replica.attempt, cause, 0))
            self.world.at(self.world.now_ms + 61_000)
            self.observe()


@given(st.lists(_STEP, max_size=60))
def test_every_order_of_facts_keeps_the_promises_and_every_job_can_end(steps: list[tuple[str, int, int]]) -> None:
    fleet = Fleet()
    for job in JOBS:
        fleet.world.submit(a_spec(a_task(replicas=2, max_retry=1)), job)
    for action, one, two in steps:
        fleet.step(action, one, two)
    fleet.finish()
    for job in fleet.world.core.index.jobs.values():
        assert job.is_ended
    # The fleet never misbehaves, so no table ever had to refuse anything.
    assert fleet.world.core.counters.illegal == {}
    # Nothing is due but that they are forgotten.
    due_ms = fleet.world.core.deadline_ms()
    assert due_ms is not None
    assert due_ms > fleet.world.now_ms + fleet.world.policy.retention.ended_ms // 2
    queue = fleet.world.core.index.queues["default"]
    assert (queue.waiting, queue.running, queue.jobs) == (0, 0, 0)


@given(st.lists(st.tuples(_ACTIONS, st.integers(0, 50), st.integers(0, 50)), max_size=25))
def test_the_same_story_gives_the_same_messages(steps: list[tuple[str, int, int]]) -> None:
    published = []
    for _ in range(2):
        fleet = Fleet()
        fleet.world.submit(a_spec(a_task(replicas=3)), "a")
        for action, one, two in steps:
            fleet.step(action, one, two)
        published.append(fleet.world.published)
    assert published[0] == published[1]


@given(
    st.integers(1, 20),
    st.integers(0, 20),
    st.integers(0, 20),
    st.none() | st.integers(1, 20),
    st.none() | st.integers(1, 20),
)
def test_a_task_with_no_replica_left_always_has_a_result(
    replicas: int, succeeded: int, failed: int, min_succeeded: int | None, max_failed: int | None
) -> None:
    min_succeeded = None if min_succeeded is None else min(min_succeeded, replicas)
    succeeded = min(succeeded, replicas)
    failed = min(failed, replicas - succeeded)
    live = replicas - succeeded - failed
    result = result_of(replicas, succeeded, failed, live, min_succeeded, max_failed)
    assert (result != "") or live > 0
    if succeeded == replicas:
        assert result == "succeeded"
    if result == "succeeded":
        assert succeeded >= (min_succeeded if min_succeeded is not None else replicas)


@given(st.integers(1, 10**6), st.integers(0, 10**7), st.integers(1, 10**4))
def test_waits_grow_up_to_their_cap(backoff_ms: int, more_ms: int, failures: int) -> None:
    policy = RetryPolicy(backoff_ms=backoff_ms, backoff_max_ms=backoff_ms + more_ms)
    wait_ms = failure_wait_ms(policy, failures)
    assert backoff_ms <= wait_ms <= policy.backoff_max_ms
    assert failure_wait_ms(policy, failures + 1) >= wait_ms
    assert free_wait_ms(policy, failures + 1) == wait_ms


@given(st.lists(st.tuples(st.sampled_from([f"n{i}" for i in range(40)]), st.integers(1, 1_000)), max_size=60))
def test_the_list_of_avoided_nodes_is_bounded_and_holds_the_newest(nodes: list[tuple[str, int]]) -> None:
    avoid: tuple[tuple[str, int], ...] = ()
    for now_ms, (node, wait_ms) in enumerate(nodes):
        avoid = avoiding(avoid, node, now_ms + wait_ms, now_ms)
        assert node in dict(avoid)
        assert len(avoid) <= 16
        assert all(until_ms > now_ms for _, until_ms in avoid)
        assert list(avoid) == sorted(avoid)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 50)), max_size=200))
def test_timers_give_what_is_due_in_order_as_a_plain_list_would(changes: list[tuple[int, int]]) -> None:
    armed: dict[int, int] = {}
    timers = JobTimers(lambda _job, index: armed.get(index, 0))
    for index, due_ms in changes:
        before_ms = armed.get(index, 0)
        armed[index] = due_ms
        timers.change("j", index, before_ms, due_ms)
        live = sorted((due, number) for number, due in armed.items() if due)
        assert timers.next_ms() == (live[0][0] if live else None)
    placement_request = [
        number for due, number in sorted((due, number) for number, due in armed.items() if 0 < due <= 25)
    ]
    assert [index for _, index in timers.due(25)] == placement_request
