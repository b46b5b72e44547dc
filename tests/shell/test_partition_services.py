"""Two processes that share the jobs: each serves the partitions that it holds, and what one leaves the other takes over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count

import pytest
from msgspec import Struct

from colo_common.adapters.leases_memory import MemoryLeases
from colo_common.adapters.store_memory import MemoryStore
from colo_common.events.job import JobSubmitted
from colo_common.events.registry import request_subject
from colo_common.events.requests import CancelJob, GetJob, JobAccepted, JobDetail, JobList, ListJobs, Refusal, SubmitJob
from colo_common.events.status import GetServiceStatus, ServiceStatus
from colo_common.events.wire import decode, decode_reply
from colo_common.model.partition import partition_of
from colo_common.ports import Unavailable
from colo_common.runtime.ask import NotNow, ask
from colo_common.runtime.lease_keeper import HeldTerm, LeaseKeeper
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.partition_services import PartitionService, PartitionServices
from colo_common.runtime.term import HeldStore
from colo_jobs.core import JobsCore
from colo_jobs.policy import JobsPolicy
from colo_jobs.shell import ANSWERS, JobsShell, jobs_service
from tests.support.bus_memory import MemoryBus
from tests.support.jobs_world import a_spec
from tests.support.vloop import VirtualClock, run_virtual

PARTITIONS = 4
TTL_MS = 3_000
#: A lease with its renewals.
MOVES_WITHIN_S = 10
JOBS = tuple(f"j{number}" for number in range(12))


class _NobodyElse:
    """The survey of processes that reach the store at all times."""

    async def ask_all(self, subject: str, data: bytes, timeout_s: float) -> Sequence[bytes]:
        return ()

    async def backlogs(self, streams: Sequence[str], timeout_s: float) -> Sequence[object]:
        return ()

    async def advisories(self, sink: object) -> None:
        return


class Hosts:
    """Processes on one bus and one store."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.bus = MemoryBus(keep_sent=True)
        self.store = MemoryStore()
        self.leases = self.store.leases["jobs"] = MemoryLeases(lambda: round(loop.time() * 1_000))
        self.clock = VirtualClock(1_700_000_000_000)
        self.cores: dict[str, dict[int, JobsCore]] = {}
        self.starts = count(1)

    @asynccontextmanager
    async def running(self, name: str) -> AsyncIterator[tuple[PartitionServices, asyncio.Task[None], asyncio.Event]]:
        """A process, stopped at the end, unless it was ended before."""
        stop = asyncio.Event()
        services = self._services(name)
        task = asyncio.get_running_loop().create_task(services.run(stop))
        try:
            yield services, task, stop
        finally:
            stop.set()
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()

    def _services(self, name: str) -> PartitionServices:
        cores = self.cores[name] = {}
        metrics = Metrics()

        def make(term: HeldTerm) -> PartitionService:
            share = term.share
            core = cores[share.partition] = JobsCore(JobsPolicy(), share)
            store = HeldStore(self.store, "jobs", term)
            service = jobs_service(
                core,
                bus=self.bus,
                store=store,
                clock=self.clock,
                metrics=metrics,
                boot_id=f"{name}-{share.partition}-{next(self.starts)}",
                term=term,
                shell=JobsShell(store, self.clock, share=share),
            )
            return PartitionService(service, (), lambda: cores.pop(share.partition, None) and None)

        keeper = LeaseKeeper(self.leases, name, PARTITIONS, TTL_MS, stays_when_away=True)
        return PartitionServices(
            "jobs",
            keeper,
            bus=self.bus,
            survey=_NobodyElse(),  # type: ignore[arg-type]
            clock=self.clock,
            metrics=metrics,
            answers=ANSWERS,
            make=make,
        )

    async def ask(self, body: Struct) -> Struct:
        return await ask(self.bus, body, 1.0)

    async def listed(self) -> list[list[str]]:
        """The jobs that each partition lists."""
        lists = [await self.ask(ListJobs(partition=partition)) for partition in range(PARTITIONS)]
        return [sorted(job.job for job in each.jobs) if isinstance(each, JobList) else [] for each in lists]

    def submitted(self) -> list[str]:
        facts = [decode(message.subject, message.data) for message in self.bus.sent]
        return sorted(fact.job for fact in facts if isinstance(fact, JobSubmitted))


def held(services: PartitionServices) -> int:
    return len(services.services)


def by_partition(jobs: Sequence[str]) -> list[list[str]]:
    return [sorted(job for job in jobs if partition_of(job, PARTITIONS) == each) for each in range(PARTITIONS)]


def test_a_job_is_answered_by_whoever_holds_its_partition_and_moves_with_it() -> None:
    async def main() -> None:
        hosts = Hosts()
        async with hosts.running("one") as (one, _, leave):
            await asyncio.sleep(MOVES_WITHIN_S)
            assert held(one) == PARTITIONS
            for job in JOBS[:6]:
                assert isinstance(await hosts.ask(SubmitJob(job=job, spec=a_spec())), JobAccepted)
            async with hosts.running("other") as (other, _, _):
                await asyncio.sleep(MOVES_WITHIN_S)
                assert (held(one), held(other)) == (2, 2)
                for job in JOBS[6:]:
                    assert isinstance(await hosts.ask(SubmitJob(job=job, spec=a_spec())), JobAccepted)
                assert await hosts.listed() == by_partition(JOBS)
                # Each knows its own jobs alone.
                known = [
                    sorted(job for core in cores.values() for job in core.index.jobs) for cores in hosts.cores.values()
                ]
                assert sorted(known[0] + known[1]) == sorted(JOBS)
                leave.set()
                await asyncio.sleep(MOVES_WITHIN_S)
                assert (held(one), held(other)) == (0, PARTITIONS)
                assert await hosts.listed() == by_partition(JOBS)
                for job in JOBS:
                    assert isinstance(await hosts.ask(CancelJob(job=job)), JobAccepted)
        assert hosts.submitted() == sorted(JOBS)

    run_virtual(main())


def test_who_was_taken_a_partition_hands_its_work_over_and_serves_the_others() -> None:
    async def main() -> None:
        hosts = Hosts()
        async with hosts.running("one") as (one, _, _):
            await asyncio.sleep(MOVES_WITHIN_S)
            for job in JOBS:
                await hosts.ask(SubmitJob(job=job, spec=a_spec()))
            # Unnoticed: the next write of each service is refused, and it begins anew under a new fence.
            before = dict(hosts.cores["one"])
            assert hosts.leases.lose(0b0011) == 2
            async with hosts.running("other") as (other, _, _):
                for job in JOBS:
                    answer: Struct | None = None
                    while answer is None:
                        try:
                            answer = await hosts.ask(CancelJob(job=job))
                        except (Unavailable, NotNow):
                            await asyncio.sleep(0.5)
                    # A cancellation that was recorded and not answered is one of a job that has ended.
                    assert isinstance(answer, JobAccepted) or (isinstance(answer, Refusal) and answer.code == 409)
                await asyncio.sleep(MOVES_WITHIN_S)
                assert (held(one), held(other)) == (2, 2)
                after = {partition: core for cores in hosts.cores.values() for partition, core in cores.items()}
                assert sorted(after) == list(range(PARTITIONS))
                assert [after[each] is before[each] for each in (0, 1)] == [False, False]
                for job in JOBS:
                    detail = await hosts.ask(GetJob(job=job))
                    assert isinstance(detail, JobDetail)
                    assert detail.summary.state == "Terminated"

    run_virtual(main())


def test_what_no_partition_can_answer_is_refused_with_a_sentence() -> None:
    async def main() -> None:
        hosts = Hosts()
        async with hosts.running("one"), hosts.running("other"):
            await asyncio.sleep(MOVES_WITHIN_S)
            refused = await hosts.ask(ListJobs(partition=4))
            assert isinstance(refused, Refusal)
            assert (refused.code, refused.field) == (400, "partition")
            assert refused.rule == "must be below 4, the number of partitions"
            data = await hosts.bus.ask(request_subject(ListJobs()), b'{"limit": "many"}', 1.0)
            refused = decode_reply(ListJobs, data)
            assert isinstance(refused, Refusal)
            assert refused.code == 400
            assert "limit" in refused.field

    run_virtual(main())


def test_one_status_tells_what_a_process_holds() -> None:
    async def main() -> None:
        hosts = Hosts()
        async with hosts.running("one") as (one, _, _):
            assert await one.problems() == {"leases": "has not got its share of the work yet", "nats": ""}
            await asyncio.sleep(MOVES_WITHIN_S)
            status = await hosts.ask(GetServiceStatus(service="jobs"))
            assert isinstance(status, ServiceStatus)
            assert (status.held, status.partitions, status.problems) == ((0, 1, 2, 3), PARTITIONS, {})
            assert status.unrestored_items == 0
            for partition in (1, 2):
                hosts.cores["one"][partition].unknown.add(f"j{partition}")
            status = await hosts.ask(GetServiceStatus(service="jobs"))
            assert isinstance(status, ServiceStatus)
            assert status.unrestored_items == 2
            assert not any((await one.problems()).values())

    run_virtual(main())


def test_a_service_that_crashes_ends_the_process() -> None:
    def broken(*_: object) -> Mapping[str, str]:
        raise RuntimeError("broken")

    async def main() -> None:
        hosts = Hosts()
        async with hosts.running("one") as (_, task, _):
            await asyncio.sleep(MOVES_WITHIN_S)
            hosts.cores["one"][2].handle = broken  # type: ignore[assignment, method-assign]
            with pytest.raises(Unavailable):
                await hosts.ask(ListJobs(partition=2))
            await asyncio.wait([task])

    with pytest.raises(RuntimeError, match="broken"):
        run_virtual(main())
