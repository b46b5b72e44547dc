"""The executor's cores under any sequence of events: invariants hold, deadlines move on, every attempt is told an end once."""

from hypothesis import given
from hypothesis import strategies as st

from colo_common.events.effects import Publish, Wake
from colo_common.events.enforcement import PlacementRefused, ReplicaEnded
from colo_common.events.eviction import EvictReplica
from colo_common.events.job import ReplicaStop, StopReplicas
from colo_common.events.placement import ApplyPlacements
from colo_common.model.reasons import Reason
from colo_executor.core import ExecutorPolicy
from colo_executor.local import (
    CeilingRefused,
    CeilingWritten,
    FastReading,
    LaunchFailed,
    LaunchReplica,
    RenewLease,
    ReplicaExited,
    ReplicaLaunched,
    SetCeiling,
    SignalReplica,
)
from colo_executor.reflex import Reflex
from colo_executor.reflex_policy import ReflexPolicy
from tests.support.builders import a_placement
from tests.support.executor_node import NodeExecutor

REPLICAS = ("job/a/0", "job/a/1", "job/b/0")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["apply", "stop", "evict", "launch", "fail", "exit", "wait", "read"]),
        st.sampled_from(REPLICAS),
        st.integers(1, 3),
        st.integers(0, 12_000),
    ),
    max_size=60,
)


class _World:
    """The executor with a runtime that does what it is told, when the steps let it."""

    def __init__(self) -> None:
        self.node = NodeExecutor("n1", capacity_mcpu=8_000, now_ms=0, policy=ExecutorPolicy(replicas_most=2))
        self.now_ms = 0
        self.launching: list[tuple[str, int]] = []
        self.running: set[tuple[str, int]] = set()
        self.killed: set[tuple[str, int]] = set()
        self.delivered: dict[tuple[str, int], object] = {}

    def feed(self, event) -> None:
        for effect in self.node.handle(event, self.now_ms):
            match effect:
                case LaunchReplica():
                    name = (effect.placement.replica, effect.placement.attempt)
                    assert name not in self.delivered, "launched after its end was told"
                    assert all(replica != name[0] for replica, _ in (*self.launching, *self.running)), (
                        "two attempts at once"
                    )
                    self.launching.append(name)
                case SignalReplica(signal="kill"):
                    self.killed.add((effect.replica, effect.attempt))
                case SetCeiling():
                    self.feed(CeilingWritten(ceiling_mcpu=effect.ceiling_mcpu))
                case Publish(fact=ReplicaEnded() | PlacementRefused() as fact):
                    name = (fact.replica, fact.attempt)
                    assert name not in self.running, "told as over while it runs"
                    first = self.delivered.setdefault(name, (type(fact), fact.at_ms))
                    assert first == (type(fact), fact.at_ms), "told two different ends"
        self.node.check()

    def wake(self) -> None:
        due_ms = self.node.deadline_ms()
        if due_ms is not None and due_ms <= self.now_ms:
            self.feed(Wake())
            later_ms = self.node.deadline_ms()
            assert later_ms is None or later_ms > self.now_ms

    def step(self, what: str, replica: str, attempt: int, number: int) -> None:
        match what:
            case "apply":
                placement = a_placement(replica, attempt=attempt)
                self.feed(ApplyPlacements(at_ms=self.now_ms, node="n1", generation=1, placements=(placement,)))
            case "stop":
                stop = ReplicaStop(replica=replica, attempt=attempt, grace_ms=number, reason=Reason.CANCELLED)
                self.feed(StopReplicas(at_ms=self.now_ms, node="n1", generation=1, stops=(stop,)))
            case "evict":
                self.feed(
                    EvictReplica(
                        node="n1",
                        generation=1,
                        eviction="e1",
                        replica=replica,
                        attempt=attempt,
                        grace_ms=number,
                        reason=Reason.CPU_WATERMARK,
                    )
                )
            case "launch" if self.launching:
                name = self.launching.pop(0)
                self.running.add(name)
                self.feed(ReplicaLaunched(replica=name[0], attempt=name[1], pid=1))
            case "fail" if self.launching:
                name = self.launching.pop(0)
                self.feed(LaunchFailed(replica=name[0], attempt=name[1], reason=Reason.START_FAILED))
            case "exit" if self.running:
                name = sorted(self.running)[number % len(self.running)]
                self.running.discard(name)
                self.feed(ReplicaExited(replica=name[0], attempt=name[1], exit_code=0))
            case "wait":
                self.now_ms += number
            case "read":
                self.feed(FastReading(at_ms=self.now_ms, capacity_mcpu=8_000, online_used_mcpu=number))
        self.wake()


@given(STEPS)
def test_no_two_attempts_of_a_replica_run_and_each_is_told_one_end(steps):
    world = _World()
    for step in steps:
        world.step(*step)
    # What runs is what the core believes to run, and no more than the node may hold.
    active = {(replica, one.placement.attempt) for replica, one in world.node.executor.active.items()}
    assert active == world.running | set(world.launching)
    assert len(active) <= 2


@given(STEPS, st.integers(0, 12_000))
def test_whatever_was_stopped_is_killed_once_its_grace_is_over(steps, grace_ms):
    world = _World()
    # Whatever the steps leave, somebody runs in the end, and everybody who does is stopped.
    for step in (*steps, ("apply", "job/c/0", 1, 0)):
        world.step(*step)
    while world.launching:
        world.step("launch", "", 0, 0)
    running = set(world.running)
    assert running
    for replica, attempt in sorted(running):
        world.step("stop", replica, attempt, grace_ms)
    world.now_ms += 700_000
    world.wake()
    assert running <= world.killed


REFLEX_STEPS = st.lists(
    st.tuples(st.sampled_from(["read", "lease", "refuse", "accept", "wait"]), st.integers(0, 40_000)), max_size=80
)


@given(REFLEX_STEPS)
def test_the_reflex_keeps_its_bounds_and_its_deadline_moves_on(steps):
    reflex = Reflex(ReflexPolicy(), capacity_mcpu=8_000, now_ms=0)
    now_ms, accepts = 0, True
    for what, number in steps:
        effects = []
        match what:
            case "read":
                effects = reflex.handle(
                    FastReading(at_ms=now_ms, capacity_mcpu=8_000, online_used_mcpu=number // 4), now_ms
                )
            case "lease":
                effects = reflex.handle(RenewLease(lease_ms=number), now_ms)
            case "wait":
                now_ms += number
            case _:
                accepts = what == "accept"
        due_ms = reflex.deadline_ms()
        if due_ms is not None and due_ms <= now_ms:
            effects = [*effects, *reflex.handle(Wake(), now_ms)]
        for effect in effects:
            if isinstance(effect, SetCeiling):
                assert 200 <= effect.ceiling_mcpu <= 8_000 * 80 // 100
                answer = CeilingWritten if accepts else CeilingRefused
                extra = {} if accepts else {"detail": "EINVAL"}
                reflex.handle(answer(ceiling_mcpu=effect.ceiling_mcpu, **extra), now_ms)
        later_ms = reflex.deadline_ms()
        assert later_ms is None or later_ms > now_ms
        reflex.check()
