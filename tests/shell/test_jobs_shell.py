"""The jobs service in virtual time: over a bus and a store, through restarts, a store that is away, and another writer."""

import asyncio
from typing import Any

import structlog

from colo_common.adapters.store_memory import MemoryStore
from colo_common.events.effects import Publish, Write
from colo_common.events.enforcement import ReplicaEnded, ReplicaStarted
from colo_common.events.fact import Fact
from colo_common.events.job import JobStateChanged, JobSubmitted, PlacementsRequested, QueueChanged, StopReplicas
from colo_common.events.placement import PlacementsDecided
from colo_common.events.requests import CancelJob, GetJob, JobAccepted, JobDetail, Refusal, SubmitJob
from colo_common.events.service import DeadLettered
from colo_common.events.trace import placement_trace, span_of, trace_of
from colo_common.events.wire import decode
from colo_common.model.reasons import EndCause
from colo_common.ports import Unavailable
from colo_common.runtime.ask import ask
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.stamp import Stamp
from colo_common.runtime.telemetry import Telemetry
from colo_jobs.core import JobsCore
from colo_jobs.policy import JobsPolicy
from colo_jobs.records import decode_page
from colo_jobs.settings import JobsSettings
from colo_jobs.shell import jobs_service
from tests.support.builders import a_placement
from tests.support.bus_memory import MemoryBus
from tests.support.jobs_world import a_spec, a_task
from tests.support.vloop import VirtualClock, run_virtual

SUBMIT_TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class House:
    """One jobs service with its bus and its store."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.bus = MemoryBus(keep_sent=True)
        self.store = MemoryStore()
        self.metrics = Metrics()
        self.telemetry = Telemetry("jobs")
        self.stop = asyncio.Event()
        self._starts = 0
        self._stamp = Stamp("test", "boot", self.clock)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "House":
        await self.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.leave()

    async def start(self) -> None:
        self.stop = asyncio.Event()
        self._starts += 1
        self.metrics = Metrics()
        service = jobs_service(
            JobsCore(JobsPolicy()),
            bus=self.bus,
            store=self.store,
            clock=self.clock,
            metrics=self.metrics,
            telemetry=self.telemetry,
            boot_id=f"boot{self._starts}",
        )
        self._task = asyncio.get_running_loop().create_task(service.run(self.stop))
        await asyncio.sleep(0.1)

    async def leave(self) -> None:
        self.stop.set()
        if self._task is not None:
            await self._task
            self._task = None

    async def kill(self) -> None:
        """End the process without a word."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def say(self, *facts: Fact) -> None:
        await self.bus.publish([self._stamp.outgoing(Publish(fact=fact)) for fact in facts])
        await asyncio.sleep(1)

    def reported(self, *types: type[Fact]) -> list[Any]:
        facts = [decode(message.subject, message.data) for message in self.bus.sent]
        return [fact for fact in facts if isinstance(fact, types)]

    async def state(self) -> str:
        detail = await ask(self.bus, GetJob(job="j"))
        assert isinstance(detail, JobDetail)
        return detail.summary.state


def placed(index: int = 0) -> PlacementsDecided:
    return PlacementsDecided(placements=(a_placement(f"j/main/{index}"),))


def started(index: int = 0) -> ReplicaStarted:
    return ReplicaStarted(node="n1", replica=f"j/main/{index}", job="j", attempt=1)


def ended(index: int = 0, cause: EndCause = EndCause.EXITED, attempt: int = 1) -> ReplicaEnded:
    return ReplicaEnded(node="n1", replica=f"j/main/{index}", job="j", attempt=attempt, cause=cause, exit_code=0)


def test_a_job_goes_from_its_submission_to_its_end_over_the_bus() -> None:
    async def story() -> None:
        async with House() as house:
            accepted = await ask(house.bus, SubmitJob(job="j", spec=a_spec(a_task(replicas=2))))
            assert accepted == JobAccepted(job="j", state="Inqueue", version=1)
            # Equal numbers are not said twice; the order of the first messages is that of the decision.
            kinds = [
                type(fact) for fact in house.reported(JobSubmitted, JobStateChanged, PlacementsRequested, QueueChanged)
            ]
            assert kinds == [JobSubmitted, JobStateChanged, PlacementsRequested, QueueChanged]
            await house.say(placed(0), placed(1), started(0), started(1), ended(0), ended(1))
            assert await house.state() == "Completed"
            assert [fact.transition for fact in house.reported(JobStateChanged)] == ["J01", "J04", "J14"]

    run_virtual(story())


def test_a_process_that_is_killed_goes_on_where_it_was() -> None:
    async def story() -> None:
        house = House()
        await house.start()
        await ask(house.bus, SubmitJob(job="j", spec=a_spec(a_task(replicas=3, max_retry=1))))
        await house.say(placed(0), started(0), placed(1))
        await house.kill()
        await house.say(started(1), ended(0))
        await house.start()
        await asyncio.sleep(1)
        detail = await ask(house.bus, GetJob(job="j"))
        assert isinstance(detail, JobDetail)
        assert [replica.state for replica in detail.replicas] == ["Succeeded", "Running", "Pending"]
        # What still waits is said again by the new process, and nothing else is.
        assert [
            [placement_request.replica for placement_request in fact.placement_requests]
            for fact in house.reported(PlacementsRequested)
        ][1:] == [["j/main/2"]]
        await house.leave()

    run_virtual(story())


def test_a_store_that_is_away_delays_the_answer_and_loses_nothing() -> None:
    async def story() -> None:
        async with House() as house:
            house.store.fault = Unavailable("the store is away")
            asked = asyncio.create_task(ask(house.bus, SubmitJob(job="j", spec=a_spec()), 30))
            await asyncio.sleep(2)
            assert not asked.done()
            assert house.reported(JobSubmitted, PlacementsRequested) == []
            house.store.fault = None
            assert isinstance(await asked, JobAccepted)
            assert len(house.reported(PlacementsRequested)) == 1

    run_virtual(story())


def test_another_writers_row_wins_and_the_request_is_refused() -> None:
    async def story() -> None:
        async with House() as house:
            await ask(house.bus, SubmitJob(job="j", spec=a_spec()))
            row = await house.store.get("replica-page", "j/0000")
            assert row is not None
            await house.store.write([Write(kind="replica-page", id=row.id, value=row.value, expect=row.version)])
            answer = await ask(house.bus, CancelJob(job="j"))
            assert isinstance(answer, Refusal)
            assert answer.code == 409
            # The rows were read anew: the next try succeeds.
            assert await ask(house.bus, CancelJob(job="j")) == JobAccepted(job="j", state="Terminated", version=2)
            row = await house.store.get("replica-page", "j/0000")
            assert row is not None
            assert decode_page(row.value, "j/0000").replicas[0].state == "Stopped"

    run_virtual(story())


def test_a_specification_that_another_writer_left_unreadable_costs_that_job_alone() -> None:
    async def story() -> None:
        async with House() as house:
            for job in ("j", "other"):
                await ask(house.bus, SubmitJob(job=job, spec=a_spec()))
            page, spec = await house.store.get("replica-page", "j/0000"), await house.store.get("job-spec", "j")
            assert page is not None
            assert spec is not None
            await house.store.write([Write(kind="replica-page", id=page.id, value=page.value, expect=page.version)])
            await house.store.write([Write(kind="job-spec", id="j", value=b"{", expect=spec.version)])
            assert isinstance(await ask(house.bus, CancelJob(job="j")), Refusal)
            assert isinstance(await ask(house.bus, CancelJob(job="other")), JobAccepted)
            refused = await ask(house.bus, SubmitJob(job="j", spec=a_spec()))
            assert isinstance(refused, Refusal)
            assert "is stored in rows that cannot be read here: job-spec/j" in refused.rule

    run_virtual(story())


def test_an_end_whose_record_met_another_writer_is_not_lost() -> None:
    async def story() -> None:
        async with House() as house:
            await ask(house.bus, SubmitJob(job="j", spec=a_spec()))
            await house.say(PlacementsDecided(placements=(a_placement("j/main/0"),)))
            row = await house.store.get("replica-page", "j/0000")
            assert row is not None
            await house.store.write([Write(kind="replica-page", id=row.id, value=row.value, expect=row.version)])
            end = ReplicaEnded(node="n1", replica="j/main/0", job="j", attempt=1, cause=EndCause.EXITED, exit_code=0)
            await house.say(end)
            row = await house.store.get("replica-page", "j/0000")
            assert row is not None
            assert decode_page(row.value, "j/0000").replicas[0].state == "Succeeded"
            assert house.reported(JobStateChanged)[-1].state == "Completed"

    run_virtual(story())


def test_a_fact_that_cannot_be_meant_is_dead_lettered_and_the_service_goes_on() -> None:
    async def story() -> None:
        async with House() as house:
            await house.say(ReplicaStarted(node="n1", replica="no replica", job="j", attempt=1))
            assert "job/task/index" in house.reported(DeadLettered)[0].reason
            assert isinstance(await ask(house.bus, SubmitJob(job="j", spec=a_spec())), JobAccepted)

    run_virtual(story())


def test_a_refused_transition_is_counted_and_logged_with_its_story() -> None:
    async def story() -> None:
        async with House() as house:
            await ask(house.bus, SubmitJob(job="j", spec=a_spec()))
            await house.say(placed(), started())
            with structlog.testing.capture_logs() as logs:
                other = PlacementsDecided(placements=(a_placement("j/main/0", node="n2"),))
                await house.say(other)
            line = next(line for line in logs if line["event"] == "transition-refused")
            assert (line["machine"], line["state"], line["transition"]) == ("replica", "Running", "place")
            assert "Pending -> Assigned" in line["story"]
            text = house.metrics.text().decode()
            count = 'colo_jobs_illegal_transitions_total{event="place",machine="replica",state="Running"} 1.0'
            assert count in text
            assert 'colo_jobs_placed_replicas{queue="default"} 1.0' in text

    run_virtual(story())


def test_the_root_span_of_a_placement_names_the_request_that_brought_the_job() -> None:
    async def story() -> None:
        async with House() as house:
            await ask(house.bus, SubmitJob(job="j", spec=a_spec()), traceparent=SUBMIT_TRACE)
            span = house.telemetry.take()[0]
            placement_request = house.reported(PlacementsRequested)[0].placement_requests[0]
            assert placement_request.traceparent == placement_trace("j/main/0", 1)
            assert (span.name, span.parent_id) == ("submit", "")
            assert (span.trace_id, span.span_id) == (
                trace_of(placement_request.traceparent),
                span_of(placement_request.traceparent),
            )
            assert span.attributes["submit_trace"] == trace_of(SUBMIT_TRACE)
            assert span.start_us <= span.end_us

    run_virtual(story())


def test_the_root_span_of_a_later_attempt_is_called_requeue() -> None:
    async def story() -> None:
        async with House() as house:
            await ask(house.bus, SubmitJob(job="j", spec=a_spec(a_task(max_retry=1))))
            await house.say(placed(), started(), ended(cause=EndCause.OOM))
            await asyncio.sleep(2)
            roots = [(span.name, span.trace_id) for span in house.telemetry.take() if not span.parent_id]
            first, second = (trace_of(placement_trace("j/main/0", attempt)) for attempt in (1, 2))
            assert roots == [("submit", first), ("requeue", second)]

    run_virtual(story())


def test_timers_run_while_no_message_arrives() -> None:
    async def story() -> None:
        async with House() as house:
            await ask(house.bus, SubmitJob(job="j", spec=a_spec(a_task(max_retry=1))))
            await house.say(placed(), started(), ended(cause=EndCause.OOM))
            assert len(house.reported(PlacementsRequested)) == 1
            await asyncio.sleep(2)
            assert [
                placement_request.attempt
                for fact in house.reported(PlacementsRequested)
                for placement_request in fact.placement_requests
            ] == [1, 2]
            assert house.reported(StopReplicas) == []

    run_virtual(story())


def test_settings_become_the_policy_and_refuse_what_makes_no_sense() -> None:
    policy = JobsSettings(queues={"day": 5, "night": 7}, queue_jobs=3).policy()
    assert {name: (limit.max_waiting, limit.max_jobs) for name, limit in policy.queues.items()} == {
        "day": (5, 3),
        "night": (7, 3),
    }
