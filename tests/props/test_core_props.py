"""Whatever decodes, every core either takes it or refuses it with InvalidInput and stays as it was; it never breaks."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from typing import Any, Final

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Struct

from colo_collector.core import CollectorCore
from colo_collector.policy import CollectorPolicy
from colo_collector.readings import SampleRead, TopologyRead, Unreadable
from colo_collector.shell import collector_hears
from colo_common.events.effects import RequestReceived, Wake
from colo_common.events.fact import Fact
from colo_common.events.registry import REQUESTS
from colo_common.events.requests import SubmitJob
from colo_common.events.wire import decode
from colo_common.model.invalid import InvalidInput
from colo_common.model.reasons import Reason
from colo_common.runtime.batch import outgoing_batches_from_effects
from colo_common.runtime.core import Core, Subscription
from colo_common.runtime.stamp import Stamp
from colo_evictor.core import EvictorCore
from colo_evictor.policy import EvictorPolicy
from colo_evictor.shell import HEARS as EVICTOR_HEARS
from colo_executor.core import ExecutorPolicy
from colo_executor.local import LaunchFailed, LaunchReplica, ReplicaExited, ReplicaLaunched, SignalReplica
from colo_executor.subscriptions import executor_hears
from colo_gateway.core import GatewayCore
from colo_gateway.shell import hears as gateway_hears
from colo_jobs.core import JobsCore
from colo_jobs.effects import JobReloaded, ReloadJob
from colo_jobs.policy import JobsPolicy
from colo_jobs.shell import HEARS as JOBS_HEARS
from colo_overcommit.core import OvercommitCore
from colo_overcommit.fleet_guard import FleetGuard
from colo_overcommit.policy import OvercommitPolicy
from colo_overcommit.shell import HEARS_RISK as OVERCOMMIT_HEARS
from colo_scheduler.commit.jobs_asked import AskPending
from colo_scheduler.ledger.port import LedgerLoaded
from colo_scheduler.placement.scoring import Scorings
from colo_scheduler.shell import HEARS as SCHEDULER_HEARS
from tests.support.executor_node import NodeExecutor
from tests.support.hostile import hostile_fact, hostile_struct
from tests.support.jobs_world import a_spec, a_task
from tests.support.scheduler_story import Bench

ROUNDS_MAX: Final = 50

Perform = Callable[[Struct, int], Sequence[Struct]]
steps = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 2**32), st.sampled_from([0, 1, 500, 5_000, 60_000, 10_000_000])),
    min_size=1,
    max_size=12,
)


def nothing(_effect: Struct, _seed: int) -> Sequence[Struct]:
    return ()


class StoppedClock:
    """Always the same moment."""

    def now_ms(self) -> int:
        return 1_700_000_000_000

    def wall_us(self) -> int:
        return 1_700_000_000_000_000

    def real_s(self, span_ms: int) -> float:
        return max(0.0, span_ms / 1_000)


class _Pickler(pickle.Pickler):
    """Writes a core's parts; where one of them knows the core itself, a name stands for it."""

    def __init__(self, file: io.BytesIO, core: Core) -> None:
        super().__init__(file)
        self._core = core

    def persistent_id(self, obj: object) -> str | None:
        return "core" if obj is self._core else None

    def reducer_override(self, obj: Any) -> Any:
        """The guard of the fleet without its note of the time, which it takes before the event is looked at.

        The weighed scorers are functions that follow from the policy alone.
        """
        if isinstance(obj, Scorings):
            return str, ("scorings",)
        if isinstance(obj, FleetGuard):
            noted = ("_seen_ms", "suspended_ms")
            return dict, ({name: value for name, value in vars(obj).items() if name not in noted},)
        return NotImplemented


class Shell:
    """Drives a core as the generic shell does, and holds it to the contract at every step."""

    def __init__(self, core: Core, perform: Perform = nothing) -> None:
        self.core = core
        self.now_ms = 1_700_000_000_000
        self.handled = 0
        self._perform = perform
        self._stamp = Stamp("test", "b1", StoppedClock())
        self._seed = 0

    def tell(self, event: Struct, seed: int = 0, *, is_ours: bool = False) -> None:
        """Handle the event, what comes of it, and the Wake when it is due; what comes of that may make another one due at once."""
        self._seed = seed
        self._settle([event], is_ours=is_ours)
        for _ in range(ROUNDS_MAX):
            if not self._is_due():
                break
            answers = self._handle(Wake(), is_ours=True)
            assert not self._is_due(), "the deadline after Wake is not later"
            self._settle(answers, is_ours=True)
        assert not self._is_due(), "woken for ever in one moment"
        self.core.check()

    def _is_due(self) -> bool:
        deadline_ms = self.core.deadline_ms()
        return deadline_ms is not None and deadline_ms <= self.now_ms

    def _settle(self, events: Sequence[Struct], *, is_ours: bool) -> None:
        for _ in range(ROUNDS_MAX):
            if not events:
                return
            events = [answer for event in events for answer in self._handle(event, is_ours=is_ours)]
            is_ours = True
        raise AssertionError("effects for ever")

    def _handle(self, event: Struct, *, is_ours: bool) -> list[Struct]:
        before, numbers = self._digest(), self._numbers()
        self.handled += 1
        try:
            outgoing_batches = outgoing_batches_from_effects(self.core.handle(event, self.now_ms), self._stamp)
        except InvalidInput:
            assert not is_ours, "what a core does itself must not be refused"
            assert self._digest() == before
            # Before it looks at the event a core may note what time it is, and nothing else.
            assert {value for _, value in self._numbers() - numbers} <= {self.now_ms}
            return []
        for message in (message for outgoing_batch in outgoing_batches for message in outgoing_batch.messages):
            # Whoever hears it can read it, and no header carries a line of its own.
            decode(message.subject, message.data)
            for name, value in message.headers.items():
                assert value.isprintable(), (name, value)
                assert len(value) < 2_000, name
            assert message.msg_id.isprintable()
        return [
            answer
            for outgoing_batch in outgoing_batches
            for effect in outgoing_batch.own
            for answer in self._perform(effect, self._seed)
        ]

    def _digest(self) -> bytes:
        """All that the core consists of, but for its own plain numbers."""
        kept = io.BytesIO()
        _Pickler(kept, self.core).dump(
            {name: value for name, value in vars(self.core).items() if type(value) is not int}
        )
        return kept.getvalue()

    def _numbers(self) -> set[tuple[str, int]]:
        return {(name, value) for name, value in vars(self.core).items() if type(value) is int}


def facts_of(subscriptions: Sequence[Subscription]) -> list[type[Fact]]:
    return [subscription.type for subscription in subscriptions]


def play(shell: Shell, kinds: Sequence[type[Struct]], script: list[tuple[int, int, int]]) -> None:
    """Tell what the script says; every third message comes twice. The core has been asked about each."""
    before, delivered = shell.handled, 0
    for number, seed, step_ms in script:
        shell.now_ms += step_ms
        kind = kinds[number % len(kinds)]
        event: Struct | None = hostile_fact(kind, seed) if issubclass(kind, Fact) else hostile_struct(kind, seed)
        if event is not None:
            for _ in range(1 + (seed % 3 == 0)):
                shell.tell(event, seed)
                delivered += 1
    assert shell.handled - before >= delivered


def asked_of(owner: str) -> list[type[Struct]]:
    return [request_spec.body for request_spec in REQUESTS if request_spec.owner == owner]


def play_asked(shell: Shell, owner: str, script: list[tuple[int, int, int]]) -> None:
    """Ask hostile questions; each answer can be written."""
    bodies = asked_of(owner)
    for number, seed, _ in script:
        body = hostile_struct(bodies[number % len(bodies)], seed)
        if body is not None:
            shell.tell(RequestReceived(request="r", body=body, traceparent="00-\r\nX: y"), seed)


@given(steps)
def test_overcommit_takes_or_refuses(script: list[tuple[int, int, int]]) -> None:
    shell = Shell(OvercommitCore(OvercommitPolicy()))
    play(shell, facts_of(OVERCOMMIT_HEARS), script)
    play_asked(shell, "overcommit", script)


@given(steps)
def test_the_evictor_takes_or_refuses(script: list[tuple[int, int, int]]) -> None:
    shell = Shell(EvictorCore(EvictorPolicy(memory_hold_ms=0, cpu_hold_ms=0)))
    play(shell, facts_of(EVICTOR_HEARS), script)


@given(steps)
def test_jobs_takes_or_refuses(script: list[tuple[int, int, int]]) -> None:
    def perform(effect: Struct, _seed: int) -> Sequence[Struct]:
        return [JobReloaded(job=effect.job)] if isinstance(effect, ReloadJob) else []

    shell = Shell(JobsCore(JobsPolicy()), perform)
    for job in ("a", "b"):
        spec = a_spec(a_task("main", 2, max_retry=1))
        shell.tell(RequestReceived(request="r", body=SubmitJob(job=job, spec=spec)))
    play(shell, facts_of(JOBS_HEARS), script)
    play_asked(shell, "jobs", script)


# The Wake of the second step asks for changed ledger rows; their answer comes in the same moment, with a search for victims left.
@example([(0, 18, 0), (4, 2_208_556_630, 60_000)])
@given(steps)
def test_the_scheduler_takes_or_refuses(script: list[tuple[int, int, int]]) -> None:
    bench = Bench(is_loaded=False)

    def perform(effect: Struct, _seed: int) -> Sequence[Struct]:
        if isinstance(effect, AskPending):
            return []
        answer = bench.perform(effect)
        return [] if answer is None else [answer]

    shell = Shell(bench.core, perform)
    shell.tell(LedgerLoaded(), is_ours=True)
    play(shell, facts_of(SCHEDULER_HEARS), script)
    play_asked(shell, "scheduler", script)


@given(steps)
def test_the_executor_takes_or_refuses(script: list[tuple[int, int, int]]) -> None:
    def perform(effect: Struct, seed: int) -> Sequence[Struct]:
        match effect:
            case LaunchReplica(placement=placement) if seed % 3 == 0:
                return [ReplicaLaunched(replica=placement.replica, attempt=placement.attempt, pid=7)]
            case LaunchReplica(placement=placement) if seed % 3 == 1:
                return [
                    LaunchFailed(
                        replica=placement.replica, attempt=placement.attempt, reason=Reason.START_FAILED, detail="no"
                    )
                ]
            case SignalReplica() if seed % 2:
                return [ReplicaExited(replica=effect.replica, attempt=effect.attempt, exit_code=None)]
        return []

    core = NodeExecutor("n1", capacity_mcpu=32_000, now_ms=1_700_000_000_000, policy=ExecutorPolicy(replicas_most=3))
    shell = Shell(core, perform)
    play(shell, facts_of(executor_hears("n1")), script)


@given(steps)
def test_the_collector_takes_or_refuses(script: list[tuple[int, int, int]]) -> None:
    shell = Shell(CollectorCore("n1", CollectorPolicy()))
    play(shell, [TopologyRead, SampleRead, SampleRead, Unreadable, *facts_of(collector_hears("n1"))], script)


@given(steps)
def test_the_gateway_takes_or_refuses(script: list[tuple[int, int, int]]) -> None:
    shell = Shell(GatewayCore(event_log_size=10, trace_size=3))
    play(shell, facts_of(gateway_hears()), script)
